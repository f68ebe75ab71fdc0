//! Conditions on the value of a field: `5`, `!5`, `<5`, `>5`, `<=5`, `>=5`, `3-5`, `3<>5`, `3<=>5`.

use super::fault::{Wrong, wrong};
use super::text::Piece;

/// The range `min..=max`, or its complement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub min: u32,
    pub max: u32,
    pub not: bool,
}

impl Range {
    #[inline]
    pub fn contains(self, n: u32) -> bool {
        (self.min <= n && n <= self.max) != self.not
    }
}

/// Parses a range of numbers up to `limit`; `ends` is whether `3<>5` includes 3 and 5, and `dash` whether
/// `3-5` does.
///
/// # Errors
///
/// Returns an error with its offset if a number is missing or larger than `limit`, or if the range is empty.
#[inline(never)]
pub fn read(piece: Piece<'_>, limit: u32, ends: bool, dash: bool) -> Result<Range, Wrong> {
    let piece = piece.trim();
    let (not, piece) = piece.strip("!").map_or((false, piece), |p| (true, p.trim()));
    let number = |p: Piece<'_>| p.trim().number(0, limit.into()).map(|n| n as u32);
    let between = |separator: &str| {
        let at = piece.text.find(separator)?;
        Some((piece.to(at), piece.from(at + separator.len())))
    };
    let nothing = || wrong(piece.at, "a range with a number in it");
    let (min, max) = if let Some((a, b)) = between("<=>") {
        (number(a)?, number(b)?)
    } else if let Some((a, b)) = between("<>") {
        let (a, b) = (number(a)?, number(b)?);
        match inside(a, b, ends) {
            Some(range) => range,
            None => return nothing(),
        }
    } else if let Some(p) = piece.strip("<=") {
        (0, number(p)?)
    } else if let Some(p) = piece.strip(">=") {
        (number(p)?, u32::MAX)
    } else if let Some(p) = piece.strip("<") {
        match number(p)? {
            0 => return nothing(),
            n => (0, n - 1),
        }
    } else if let Some(p) = piece.strip(">") {
        match number(p)? {
            n if n == limit => return nothing(),
            // A payload may be longer than its length field can state.
            n => (n + 1, u32::MAX),
        }
    } else if let Some((a, b)) = between("-") {
        if a.trim().is_empty() {
            (0, number(b)?)
        } else if b.trim().is_empty() {
            (number(a)?, u32::MAX)
        } else {
            match inside(number(a)?, number(b)?, dash) {
                Some(range) => range,
                None => return nothing(),
            }
        }
    } else {
        let n = number(piece)?;
        (n, n)
    };
    if min > max { nothing() } else { Ok(Range { min, max, not }) }
}

/// Returns the range from `a` to `b`, with or without its ends.
fn inside(a: u32, b: u32, ends: bool) -> Option<(u32, u32)> {
    match ends {
        true => Some((a, b)),
        false => (a.saturating_add(1) < b).then(|| (a + 1, b - 1)),
    }
}
