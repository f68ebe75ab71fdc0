//! Errors in a rule file, with their position.

use std::fmt;

/// A syntax error, with which the module does not start. Lines and columns count from 1, columns in
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub line: u32,
    pub column: u32,
    pub expected: String,
    /// The text at this position.
    pub found: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, expected, found } = self;
        write!(f, "line {line}, column {column}: expected {expected}, found {found}")
    }
}

impl std::error::Error for Fault {}

/// A fault at a byte offset of the text, before its line is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub at: usize,
    pub expected: String,
}

pub fn wrong<T>(at: usize, expected: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { at, expected: expected.into() })
}

impl Wrong {
    pub fn in_text(self, text: &str) -> Fault {
        let mut at = self.at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &text[..at];
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let found: String = text[at..].chars().take_while(|c| *c != '\n' && *c != '\r').take(24).collect();
        Fault {
            line: before.bytes().filter(|b| *b == b'\n').count() as u32 + 1,
            column: before[start..].chars().count() as u32 + 1,
            expected: self.expected,
            found: if found.is_empty() { "the end of the line".to_owned() } else { format!("{found:?}") },
        }
    }
}
