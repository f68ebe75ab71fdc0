//! Errors in a line, with their position.

/// A fault at a byte offset of its line, before its column is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub at: usize,
    pub expected: String,
    /// The kind under which the summary counts this, if not as a syntax error.
    pub kind: Option<String>,
}

/// Returns a fault as an error, for the last expression of a parser. `expected` completes the sentence
/// "expected …".
///
/// # Errors
///
/// Always returns an error.
pub fn wrong<T>(at: usize, expected: impl AsRef<str>) -> Result<T, Wrong> {
    Err(fault(at, expected.as_ref()))
}

/// Keeps the callers small: under a budget, a function pays for all its instructions.
#[cold]
#[inline(never)]
fn fault(at: usize, expected: &str) -> Wrong {
    Wrong { at, expected: expected.to_owned(), kind: None }
}

impl Wrong {
    /// Describes the fault in `text`, in which `at` is an offset. Columns count from 1, in characters.
    pub fn describe(&self, text: &str) -> String {
        if self.kind.is_some() {
            return self.expected.clone();
        }
        let mut at = self.at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let start = text[..at].rfind('\n').map_or(0, |i| i + 1);
        let below = text[..start].bytes().filter(|b| *b == b'\n').count();
        let below = if below == 0 { String::new() } else { format!("{below} lines below, ") };
        let column = text[start..at].chars().count() + 1;
        let found: String = text[at..].chars().take_while(|c| *c != '\n' && *c != '\r').take(24).collect();
        let found = if found.is_empty() { "the end of the line".to_owned() } else { format!("{found:?}") };
        format!("{below}column {column}: expected {}, found {found}", self.expected)
    }
}
