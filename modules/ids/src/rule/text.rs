//! A piece of the rule file with its position in the file.

use super::fault::{Wrong, wrong};

/// Part of the text; `at` is the offset of its first byte.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    pub text: &'a str,
    pub at: usize,
}

impl<'a> Piece<'a> {
    pub fn new(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }

    pub fn end(self) -> usize {
        self.at + self.text.len()
    }

    pub fn is_empty(self) -> bool {
        self.text.is_empty()
    }

    /// Returns the piece from byte `n` on, which must be the first of a character.
    pub fn from(self, n: usize) -> Self {
        Self { text: &self.text[n..], at: self.at + n }
    }

    pub fn to(self, n: usize) -> Self {
        Self { text: &self.text[..n], at: self.at }
    }

    /// Returns the piece without surrounding white space. A line that ends in `\` continues on the next, so
    /// both characters are white space.
    pub fn trim(self) -> Self {
        self.skip_space().trim_end()
    }

    #[inline(never)]
    pub fn trim_end(self) -> Self {
        let mut text = self.text.trim_ascii_end();
        while let Some(less) = text.strip_suffix("\\").filter(|_| self.text[text.len()..].contains('\n')) {
            text = less.trim_ascii_end();
        }
        Self { text, at: self.at }
    }

    #[inline(never)]
    pub fn skip_space(self) -> Self {
        let mut piece = self;
        loop {
            let less = piece.text.trim_ascii_start();
            let continued = less.starts_with("\\\n") || less.starts_with("\\\r\n");
            let less = if continued { &less[1..] } else { less };
            if less.len() == piece.text.len() {
                return piece;
            }
            piece = piece.from(piece.text.len() - less.len());
        }
    }

    /// Returns the word up to white space or one of `stops`, and the text after it.
    #[inline(never)]
    pub fn word(self, stops: &[char]) -> (Self, Self) {
        // A bit for each ASCII character that ends the word: a test of each stop would cost more.
        let space = 1u128 << b' ' | 1 << b'\t' | 1 << b'\n' | 1 << b'\r' | 1 << 0x0c;
        let ends = stops.iter().fold(space, |ends, stop| ends | 1u128.checked_shl(*stop as u32).unwrap_or(0));
        let (low, high) = (ends as u64, (ends >> 64) as u64);
        let end = self.text.bytes().position(|b| {
            let half = if b < 64 { low } else { high };
            b < 128 && half >> (b & 63) & 1 != 0
        });
        let end = end.unwrap_or(self.text.len());
        (self.to(end), self.from(end))
    }

    /// Returns the parts between separators, each trimmed; one empty part if the piece is empty.
    pub fn parts(self, separator: char) -> impl Iterator<Item = Piece<'a>> {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let piece = rest?;
            let part = match piece.text.find(separator) {
                Some(i) => {
                    rest = Some(piece.from(i + separator.len_utf8()));
                    piece.to(i)
                }
                None => {
                    rest = None;
                    piece
                }
            };
            Some(part.trim())
        })
    }

    pub fn strip(self, prefix: &str) -> Option<Self> {
        self.text.starts_with(prefix).then(|| self.from(prefix.len()))
    }

    /// Parses a number in `min..=max`: decimal, or hexadecimal with `0x`.
    #[inline(never)]
    pub fn number(self, min: i64, max: i64) -> Result<i64, Wrong> {
        let value = match self.text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => self.text.parse().ok(),
        };
        match value {
            Some(n) if (min..=max).contains(&n) => Ok(n),
            _ => wrong(self.at, format!("a number from {min} to {max}")),
        }
    }

    /// Returns the inside of a text in double quotes.
    #[inline(never)]
    pub fn quoted(self) -> Result<Self, Wrong> {
        let inside = self.text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
        match inside {
            Some(text) => Ok(Self { text, at: self.at + 1 }),
            None => wrong(self.at, "a text in double quotes"),
        }
    }
}
