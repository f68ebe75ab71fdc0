//! `flags` and `fragbits`: letters for bits, and the mode of comparison.

use super::Dialect;
use super::fault::{Wrong, wrong};
use super::text::Piece;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// These bits and no others.
    Exactly,
    /// A match of all of these bits, and possibly others (`+`).
    All,
    /// A match of at least one of these bits (`*`).
    Any,
    /// A match of none of these bits (`!` in Snort).
    None,
    /// A match unless all of these bits are set (`!` in Suricata).
    NotAll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    pub mode: Mode,
    pub bits: u8,
    /// The bits that are compared.
    pub of: u8,
}

impl Bits {
    #[inline]
    pub fn fit(self, found: u8) -> bool {
        let found = found & self.of;
        match self.mode {
            Mode::Exactly => found == self.bits,
            Mode::All => found & self.bits == self.bits,
            Mode::Any => found & self.bits != 0,
            Mode::None => found & self.bits == 0,
            Mode::NotAll if self.bits == 0 => found != 0,
            Mode::NotAll => found & self.bits != self.bits,
        }
    }
}

/// The TCP flags. CWR and ECE are `C` and `E`, or by their old names `1` and `2`.
pub const TCP: [(char, u8); 10] = [
    ('F', 1),
    ('S', 2),
    ('R', 4),
    ('P', 8),
    ('A', 16),
    ('U', 32),
    ('E', 64),
    ('2', 64),
    ('C', 128),
    ('1', 128),
];
/// The fragmentation bits, in the positions of the top bits of the IPv4 fragment word.
pub const FRAGMENT: [(char, u8); 3] = [('M', 1), ('D', 2), ('R', 4)];

/// Parses `[!|*|+]LETTERS[,LETTERS TO IGNORE]`; the sign may also follow the letters.
///
/// # Errors
///
/// Returns an error with its offset if a letter is unknown or missing, or if there is more than one list of
/// bits to ignore.
#[inline(never)]
pub fn read(piece: Piece<'_>, letters: &[(char, u8)], dialect: Dialect) -> Result<Bits, Wrong> {
    let mut parts = piece.parts(',');
    let first = parts.next().unwrap_or(piece);
    let sign = |c: char| match c {
        '+' => Some(Mode::All),
        '*' => Some(Mode::Any),
        '!' if dialect == Dialect::Snort => Some(Mode::None),
        '!' | '-' => Some(Mode::NotAll),
        '=' => Some(Mode::Exactly),
        _ => None,
    };
    let mut mode = Mode::Exactly;
    let mut wanted = first;
    if let Some(m) = first.text.chars().next().and_then(sign) {
        (mode, wanted) = (m, first.from(1));
    } else if let Some(m) = first.text.chars().last().and_then(sign) {
        (mode, wanted) = (m, first.to(first.text.len() - 1));
    }
    let bits = if wanted.text == "0" { 0 } else { set(wanted, letters)? };
    let ignored = match parts.next() {
        Some(p) => set(p, letters)?,
        None => 0,
    };
    if let Some(more) = parts.next() {
        return wrong(more.at, "one list of bits to ignore, not two");
    }
    Ok(Bits { mode, bits: bits & !ignored, of: !ignored })
}

#[inline(never)]
fn set(piece: Piece<'_>, letters: &[(char, u8)]) -> Result<u8, Wrong> {
    let known: String = letters.iter().map(|l| l.0).collect();
    if piece.is_empty() {
        return wrong(piece.at, format!("one of the letters {known}"));
    }
    piece.text.char_indices().try_fold(0, |bits, (i, c)| {
        match letters.iter().find(|l| l.0 == c.to_ascii_uppercase()) {
            Some((_, bit)) => Ok(bits | bit),
            None => wrong(piece.at + i, format!("one of the letters {known}")),
        }
    })
}
