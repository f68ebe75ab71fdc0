//! The parameters that `flame_init` receives. Each parameter of the manifest is encoded as follows, in any
//! order:
//!
//! ```text
//! u16 length of name | u16 kind | u32 length of value | name (UTF-8) | value
//! ```
//!
//! Kind [`HERE`]: the value itself. Kind [`ELSEWHERE`], only for a text with `max` in the manifest: the
//! address of the text, which lies from [`crate::layout::TEXTS`] on, and its length, both as u32.
//!
//! The value of an integer or duration (in nanoseconds) is 8 bytes, of a boolean 8 bytes (0 or 1), of a
//! number an f64, of a text its UTF-8. All parameters are present: the host fills in defaults.

/// The value is in its place.
pub const HERE: u16 = 0;
/// The value is the address and length of a text.
pub const ELSEWHERE: u16 = 1;

/// The largest number of parameters: a manifest of 64 KiB has no room to declare more.
const MAX_PARAMETERS: usize = 4096;

/// A text parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text<'a> {
    Here(&'a [u8]),
    Elsewhere { address: u32, len: u32 },
}

/// Returns the text `name` in `params`, or `None` if it is absent or `params` is cut short.
pub fn find_text<'a>(params: &'a [u8], name: &str) -> Option<Text<'a>> {
    let (kind, value) = find_kind(params, name)?;
    if kind != ELSEWHERE {
        return Some(Text::Here(value));
    }
    let [a, b, c, d, e, f, g, h] = *value.first_chunk()?;
    Some(Text::Elsewhere { address: u32::from_le_bytes([a, b, c, d]), len: u32::from_le_bytes([e, f, g, h]) })
}

fn find_kind<'a>(mut params: &'a [u8], name: &str) -> Option<(u16, &'a [u8])> {
    // Counted, so that a module's init has a bound.
    for _ in 0..MAX_PARAMETERS {
        if params.len() < 8 {
            return None;
        }
        let name_len = usize::from(u16::from_le_bytes([params[0], params[1]]));
        let len = u32::from_le_bytes([params[4], params[5], params[6], params[7]]) as usize;
        let kind = u16::from_le_bytes([params[2], params[3]]);
        let rest = &params[8..];
        let value = rest.get(name_len..name_len.checked_add(len)?)?;
        if rest[..name_len] == *name.as_bytes() {
            return Some((kind, value));
        }
        params = &rest[name_len + len..];
    }
    None
}

/// Returns the value of `name` in `params`, or `None` if it is absent or `params` is cut short.
pub fn find<'a>(params: &'a [u8], name: &str) -> Option<&'a [u8]> {
    find_kind(params, name).map(|(_, value)| value)
}
