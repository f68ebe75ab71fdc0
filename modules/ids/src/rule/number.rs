//! Numbers that a rule states, or names as the result of an earlier `byte_extract` or `byte_math`.

use super::fault::{Wrong, wrong};
use super::text::Piece;

/// The largest number of variables of one rule.
pub const MAX_VARS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Num {
    Is(i64),
    /// The variable with this index.
    Var(u8),
}

impl Num {
    /// Returns the number if the rule states it.
    pub fn stated(self) -> Option<i64> {
        match self {
            Self::Is(n) => Some(n),
            Self::Var(_) => None,
        }
    }
}

/// The names of a rule's variables so far.
#[derive(Default)]
pub struct Names(Vec<String>);

impl Names {
    /// Parses a number in `min..=max` or the name of a variable.
    ///
    /// # Errors
    ///
    /// Returns an error with its offset if the number is not in the range, or if there is no such variable.
    #[inline(never)]
    pub fn read(&self, piece: Piece<'_>, min: i64, max: i64) -> Result<Num, Wrong> {
        if piece.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return match self.0.iter().position(|name| name == piece.text) {
                Some(i) => Ok(Num::Var(i as u8)),
                None => wrong(piece.at, "a number, or a variable of an earlier byte_extract or byte_math"),
            };
        }
        piece.number(min, max).map(Num::Is)
    }

    /// Returns the index of a variable, which is new unless it has been set before.
    ///
    /// # Errors
    ///
    /// Returns an error with its offset if the text is no name, or if the rule has [`MAX_VARS`] variables
    /// already.
    #[inline(never)]
    pub fn define(&mut self, piece: Piece<'_>) -> Result<u8, Wrong> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if !piece.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            || !piece.text.chars().all(plain)
        {
            return wrong(piece.at, "the name of a variable");
        }
        if let Some(i) = self.0.iter().position(|name| name == piece.text) {
            return Ok(i as u8);
        }
        if self.0.len() == MAX_VARS {
            return wrong(piece.at, format!("at most {MAX_VARS} variables"));
        }
        self.0.push(piece.text.to_owned());
        Ok((self.0.len() - 1) as u8)
    }
}
