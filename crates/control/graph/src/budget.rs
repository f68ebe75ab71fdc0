//! The total cost of a configuration, limited. The parser, the replacement of compounds and of variables,
//! and the links all draw on one budget, before they store or scan something.

use crate::Limits;
use std::fmt;

/// The budget that is left.
pub struct Budget {
    limits: Limits,
    bytes: usize,
    steps: usize,
}

/// The budget that is used up, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    Bytes(usize),
    Steps(usize),
}

/// Bytes that a stored thing takes besides its texts.
pub const ENTRY: usize = 96;
/// Bytes that the body of a compound takes besides its contents.
pub const BODY: usize = 768;

impl Budget {
    pub fn new(limits: &Limits) -> Self {
        Self { limits: *limits, bytes: limits.expanded, steps: limits.steps }
    }

    /// Draws the bytes of texts that are stored.
    pub fn bytes(&mut self, count: usize) -> Result<(), Exceeded> {
        let left = self.bytes.checked_sub(count).ok_or(Exceeded::Bytes(self.limits.expanded));
        self.bytes = *left.as_ref().unwrap_or(&0);
        left.map(|_| ())
    }

    /// Draws the bytes of an entry of a list or table with its texts.
    pub fn entry(&mut self, texts: usize) -> Result<(), Exceeded> {
        self.bytes(texts.saturating_add(ENTRY))
    }

    #[cfg(test)]
    pub fn steps_left(&self) -> usize {
        self.steps
    }

    /// Draws work: bytes that are scanned, candidates that are tried.
    pub fn steps(&mut self, count: usize) -> Result<(), Exceeded> {
        let left = self.steps.checked_sub(count).ok_or(Exceeded::Steps(self.limits.steps));
        self.steps = *left.as_ref().unwrap_or(&0);
        left.map(|_| ())
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(limit) => write!(f, "elements, arguments and variables exceed {limit} bytes"),
            Self::Steps(limit) => write!(f, "reading needs more than the limit of {limit} steps"),
        }
    }
}
