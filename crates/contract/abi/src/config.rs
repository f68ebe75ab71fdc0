//! The parameters that `flame_init` receives. Each parameter of the manifest is encoded as follows, in any
//! order:
//!
//! ```text
//! u16 length of name | u16 0 | u32 length of value | name (UTF-8) | value
//! ```
//!
//! The value of an integer or duration (in nanoseconds) is 8 bytes, of a boolean 8 bytes (0 or 1), of a
//! number an f64, of a text its UTF-8. All parameters are present: the host fills in defaults.

/// Returns the value of `name` in `params`, or `None` if it is absent or `params` is cut short.
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
