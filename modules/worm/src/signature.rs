//! Signatures as text: `NAME PROTOCOL PORT PLACE PATTERN`, one per line.

use std::collections::BTreeMap;
use std::fmt;

/// The largest number of signatures in one list.
pub const MAX: usize = 4096;
/// The largest number of bytes of all patterns together: each byte can be a state of the automaton, of up to
/// 1 KiB, and building it must stay within the budget of a call.
pub const MAX_BYTES: usize = 16_384;
/// The largest number of bytes of a pattern.
pub const MAX_PATTERN: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub name: String,
    /// The protocol number of TCP or UDP.
    pub proto: u8,
    /// The destination port, or `None` for any.
    pub port: Option<u16>,
    /// The offset in the segment at which it begins, or `None` for any.
    pub offset: Option<u32>,
    pub pattern: Vec<u8>,
}

/// An error in a list, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureError {
    /// The line, from 1.
    pub line: usize,
    /// The column in bytes, from 1.
    pub column: usize,
    pub reason: String,
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.reason)
    }
}

impl std::error::Error for SignatureError {}

/// Returns all signatures of a list, or its first error. Empty lines and lines that begin with `#` are
/// skipped.
///
/// # Errors
///
/// Returns the first error with its position: a word that is missing or not valid, more than [`MAX`]
/// signatures or [`MAX_BYTES`] bytes of patterns, or no signature at all.
pub fn parse(text: &str) -> Result<Vec<Signature>, SignatureError> {
    let (mut all, mut bytes) = (Vec::new(), 0);
    for (number, line) in text.lines().enumerate() {
        let fail = |rest: &str, reason: String| SignatureError {
            line: number + 1,
            column: line.len() - rest.len() + 1,
            reason,
        };
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        if all.len() == MAX {
            return Err(fail(line, format!("more than {MAX} signatures")));
        }
        let mut rest = line;
        let mut word = |what: &str| {
            rest = rest.trim_start();
            let (found, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
            let at = rest;
            rest = after;
            match found {
                "" => Err(fail(at, format!("expected {what}, found the end of the line"))),
                _ => Ok((found, at)),
            }
        };
        let (name, _) = word("a name")?;
        let (proto, at) = word("tcp or udp")?;
        let proto = match proto {
            "tcp" => 6,
            "udp" => 17,
            other => return Err(fail(at, format!("expected tcp or udp, found {other:?}"))),
        };
        let (port, at) = word("a port or any")?;
        let port = match (port, port.parse()) {
            ("any", _) => None,
            (_, Ok(n)) => Some(n),
            _ => return Err(fail(at, format!("expected a port from 0 to 65535 or any, found {port:?}"))),
        };
        let (offset, at) = word("an offset or any")?;
        let offset = match (offset, offset.parse()) {
            ("any", _) => None,
            (_, Ok(n)) => Some(n),
            _ => return Err(fail(at, format!("expected an offset in bytes or any, found {offset:?}"))),
        };
        let text = rest.trim();
        let at = &rest[rest.len() - rest.trim_start().len()..];
        let pattern = pattern(text).map_err(|(inside, reason)| fail(&at[inside.min(at.len())..], reason))?;
        bytes += pattern.len();
        if bytes > MAX_BYTES {
            return Err(fail(line, format!("patterns of more than {MAX_BYTES} bytes in all")));
        }
        all.push(Signature { name: name.to_owned(), proto, port, offset, pattern });
    }
    if all.is_empty() {
        return Err(SignatureError { line: 1, column: 1, reason: "no signature in it".to_owned() });
    }
    Ok(all)
}

/// Returns the different names in the order of the list, and by signature the number of its name.
pub fn names(signatures: &[Signature]) -> (Vec<String>, Vec<u16>) {
    let (mut names, mut known) = (Vec::new(), BTreeMap::new());
    let mut number = |s: &Signature| {
        *known.entry(s.name.clone()).or_insert_with(|| {
            names.push(s.name.clone());
            names.len() as u16 - 1
        })
    };
    let worms = signatures.iter().map(&mut number).collect();
    (names, worms)
}

/// Parses text with `|hex bytes|`; an error contains the offset of its byte.
fn pattern(text: &str) -> Result<Vec<u8>, (usize, String)> {
    let mut bytes = Vec::new();
    let mut at = 0;
    for (i, part) in text.split('|').enumerate() {
        if i % 2 == 0 {
            bytes.extend(part.as_bytes());
        } else {
            let digits: Vec<(usize, u8)> =
                part.bytes().enumerate().filter(|(_, b)| !b.is_ascii_whitespace()).collect();
            for pair in digits.chunks(2) {
                let digit = |(place, b): (usize, u8)| {
                    char::from(b)
                        .to_digit(16)
                        .ok_or_else(|| (at + place, "expected hexadecimal digits between bars".to_owned()))
                };
                let [high, low] = *pair else {
                    return Err((at + pair[0].0, "expected two digits a byte between bars".to_owned()));
                };
                bytes.push((digit(high)? << 4 | digit(low)?) as u8);
            }
        }
        at += part.len() + 1;
    }
    if text.split('|').count().is_multiple_of(2) {
        return Err((text.len(), "expected a closing |".to_owned()));
    }
    match bytes.len() {
        0..2 => Err((0, "expected a pattern of two bytes or more".to_owned())),
        n if n > MAX_PATTERN => {
            Err((0, format!("a pattern of {n} bytes, at most {MAX_PATTERN} are possible")))
        }
        _ => Ok(bytes),
    }
}
