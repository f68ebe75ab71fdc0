//! Parameters as `flame_init` gets them: for each parameter of the manifest, in any order,
//!
//! ```text
//! u16 length of name | u16 0 | u32 length of value | name (UTF-8) | value
//! ```
//!
//! An integer or duration (ns) is 8 bytes, a boolean 8 bytes (0 or 1), a number an f64, a text its
//! UTF-8. All parameters are present: the host fills in defaults.

/// The value of `name` in `params`, or nothing if it is absent or `params` is cut short.
pub fn find<'a>(mut params: &'a [u8], name: &str) -> Option<&'a [u8]> {
    while params.len() >= 8 {
        let name_len = usize::from(u16::from_le_bytes([params[0], params[1]]));
        let len = u32::from_le_bytes([params[4], params[5], params[6], params[7]]) as usize;
        let rest = &params[8..];
        let value = rest.get(name_len..name_len.checked_add(len)?)?;
        if rest[..name_len] == *name.as_bytes() {
            return Some(value);
        }
        params = &rest[name_len + len..];
    }
    None
}
