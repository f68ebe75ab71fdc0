//! Bytes as hexadecimal digits.

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Decodes hexadecimal digits. Returns `None` for any other text.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let pairs = digits?;
    pairs.len().is_multiple_of(2).then(|| pairs.chunks_exact(2).map(|p| p[0] << 4 | p[1]).collect())
}
