//! Names as parts of paths and subjects.

/// Escapes a name for a folder of a spool, or for a part of the subject of a log. Letters, digits, `_` and
/// `-` stand for themselves, each other byte is `%` and two hexadecimal digits, and the empty name is `%`.
/// Different names never become equal.
pub fn escape(name: &str) -> String {
    if name.is_empty() {
        return "%".to_owned();
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let escaped = |byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(escaped).collect()
}

/// Returns the name that was escaped.
///
/// # Errors
///
/// Returns the index of the first character that no escape has.
pub fn unescape(part: &str) -> Result<String, usize> {
    let (bytes, mut at, mut name) = (part.as_bytes(), 0, Vec::new());
    if part == "%" {
        return Ok(String::new());
    }
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%' {
            let digits = part.get(at + 1..at + 3).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
            name.push(u8::from_str_radix(digits.ok_or(at)?, 16).map_err(|_| at)?);
            at += 3;
        } else {
            name.push(byte);
            at += 1;
        }
    }
    let name = String::from_utf8(name).map_err(|e| e.utf8_error().valid_up_to())?;
    // Only one text stands for a name.
    if name.is_empty() || escape(&name) != part { Err(0) } else { Ok(name) }
}
