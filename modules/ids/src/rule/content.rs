//! `content` and its modifiers.

use super::fault::{Wrong, wrong};
use super::number::{Names, Num};
use super::text::Piece;

/// The largest number of bytes of one content.
pub const MAX: usize = 2048;

/// The range in which a content may lie. It never extends beyond the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Whether the range is relative to the end of the content before it, not to the payload's start.
    pub relative: bool,
    /// The first byte (`offset`, `distance`).
    pub from: Num,
    /// The number of bytes from there within which the whole content lies (`depth`, `within`).
    pub len: Option<Num>,
    /// Whether the content must end where the buffer does (`endswith`).
    pub to_end: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub not: bool,
    pub nocase: bool,
    pub window: Window,
    /// The part to search for with the automaton (`fast_pattern`).
    pub fast: Option<(usize, usize)>,
    /// The offset in the text, for faults.
    pub at: usize,
    absolute: bool,
}

/// Parses `[!]"TEXT"[,MODIFIER …]`.
///
/// # Errors
///
/// Returns an error with its offset if the text is not quoted, has an invalid escape or not 1 to [`MAX`]
/// bytes, or if a modifier is unknown or not valid.
#[inline(never)]
pub fn read(piece: Piece<'_>, names: &Names) -> Result<Content, Wrong> {
    let piece = piece.trim();
    let (not, piece) = piece.strip("!").map_or((false, piece), |p| (true, p.trim()));
    let Some(inside) = piece.strip("\"") else { return wrong(piece.at, "a text in double quotes") };
    let Some(end) = closing(inside.text) else { return wrong(piece.end(), "a closing double quote") };
    let bytes = bytes(inside.to(end))?;
    if bytes.is_empty() || bytes.len() > MAX {
        return wrong(piece.at, format!("a content of 1 to {MAX} bytes"));
    }
    let mut content = Content {
        bytes,
        not,
        nocase: false,
        window: Window { relative: false, from: Num::Is(0), len: None, to_end: false },
        fast: None,
        at: piece.at,
        absolute: false,
    };
    let rest = inside.from(end + 1).trim();
    if rest.is_empty() {
        return Ok(content);
    }
    let Some(modifiers) = rest.strip(",") else { return wrong(rest.at, "`,` or `;`") };
    for modifier in modifiers.parts(',') {
        let (name, value) = modifier.word(&[':']);
        let value = value.strip(":").unwrap_or(value).trim();
        if !content.modify(name, value, names)? {
            return wrong(
                name.at,
                "nocase, offset, depth, distance, within, startswith, endswith, fast_pattern or rawbytes",
            );
        }
    }
    Ok(content)
}

/// Returns the offset of the first quote that no backslash escapes.
#[inline(never)]
fn closing(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|b| {
        let end = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        end
    })
}

/// Returns the bytes of `text|68 65 78|\;`.
#[inline(never)]
fn bytes(piece: Piece<'_>) -> Result<Vec<u8>, Wrong> {
    let mut out = Vec::with_capacity(piece.text.len());
    let (mut hex, mut high, mut opened) = (false, None, piece.at);
    let mut chars = piece.text.char_indices();
    while let Some((i, c)) = chars.next() {
        let at = piece.at + i;
        match (hex, c) {
            (_, '|') => {
                if high.is_some() {
                    return wrong(at, "a second hexadecimal digit");
                }
                (hex, opened) = (!hex, at);
            }
            (true, c) if c.is_whitespace() => {}
            (true, c) => {
                let Some(digit) = c.to_digit(16) else { return wrong(at, "a hexadecimal digit or `|`") };
                match high.take() {
                    None => high = Some(digit),
                    Some(h) => out.push((h << 4 | digit) as u8),
                }
            }
            (false, '\\') => match chars.next() {
                Some((_, c @ ('"' | ';' | ':' | '\\' | '|'))) => out.push(c as u8),
                _ => {
                    return wrong(
                        at,
                        "a backslash before one of \" ; : \\ | only (write it twice to mean it)",
                    );
                }
            },
            (false, c) => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    if hex { wrong(opened, "a second `|` that ends the hexadecimal part") } else { Ok(out) }
}

impl Content {
    /// Applies the modifier `name` and returns whether there is one of that name.
    ///
    /// # Errors
    ///
    /// Returns an error with its offset if the value is not valid, or if the modifier contradicts an earlier
    /// one.
    #[inline(never)]
    pub fn modify(&mut self, name: Piece<'_>, value: Piece<'_>, names: &Names) -> Result<bool, Wrong> {
        match name.text {
            "nocase" | "rawbytes" => {
                if !value.is_empty() {
                    return wrong(value.at, format!("nothing after {}", name.text));
                }
                self.nocase |= name.text == "nocase";
            }
            "offset" | "distance" => {
                self.place(name, name.text == "distance")?;
                self.window.from = names.read(value, -65_535, 65_535)?;
            }
            "depth" | "within" => {
                self.place(name, name.text == "within")?;
                self.window.len = Some(names.read(value, self.bytes.len() as i64, 65_535)?);
            }
            "startswith" if value.is_empty() => {
                if self.absolute || self.window.relative {
                    return wrong(name.at, "startswith without offset, depth, distance and within");
                }
                self.absolute = true;
                self.window.len = Some(Num::Is(self.bytes.len() as i64));
            }
            "endswith" if value.is_empty() => self.window.to_end = true,
            "startswith" | "endswith" => return wrong(value.at, format!("nothing after {}", name.text)),
            "fast_pattern" | "fast_pattern_offset" | "fast_pattern_length" => {
                self.fast_pattern(name, value)?
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    #[inline(never)]
    fn place(&mut self, name: Piece<'_>, relative: bool) -> Result<(), Wrong> {
        if relative && self.absolute || !relative && self.window.relative {
            return wrong(name.at, "either offset and depth or distance and within, not both");
        }
        self.window.relative |= relative;
        self.absolute |= !relative;
        Ok(())
    }

    #[inline(never)]
    fn fast_pattern(&mut self, name: Piece<'_>, value: Piece<'_>) -> Result<(), Wrong> {
        if self.not {
            return wrong(name.at, "fast_pattern only at a content that is not negated");
        }
        let all = self.bytes.len();
        let (from, len) = self.fast.unwrap_or((0, all));
        let (from, len) = match name.text {
            "fast_pattern_offset" => {
                let from = value.number(0, all as i64 - 1)? as usize;
                (from, len.min(all - from))
            }
            "fast_pattern_length" => (from, value.number(1, (all - from) as i64)? as usize),
            _ if value.is_empty() || value.text == "only" => (0, all),
            _ => {
                let mut parts = value.parts(',');
                let (Some(from), Some(len), None) = (parts.next(), parts.next(), parts.next()) else {
                    return wrong(value.at, "`only`, or an offset and a length");
                };
                let from = from.number(0, all as i64 - 1)? as usize;
                (from, len.number(1, (all - from) as i64)? as usize)
            }
        };
        self.fast = Some((from, len));
        Ok(())
    }
}
