//! Names of tables in the fleet, as subjects of the log.

pub use flame_spool::{escape, unescape};
use std::fmt;

const PREFIX: &str = "flame.records.";
/// The most bytes of a part with its escapes. The name of a principal's stream has them as well, and a server
/// makes a folder of it.
const MAX_PART: usize = 200;

/// The subject of one table: `flame.records.NODE.PRINCIPAL.MODULE.TABLE`. It has one publisher.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(String);

/// The reason why names make no subject, or a text is no subject.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    #[error(
        "the name of the {what}, {found:?}, has {length} bytes with its escapes, expected at most {MAX_PART}: \
             choose a shorter one"
    )]
    Long { what: &'static str, found: String, length: usize },
    #[error("{found:?} is no subject of records: at character {at}, expected {expected}")]
    Form { found: String, at: usize, expected: &'static str },
}

/// The parts of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    pub node: String,
    pub principal: String,
    pub module: String,
    pub table: String,
}

const NAMES: [&str; 4] = ["node", "principal", "module", "table"];

impl Subject {
    /// Makes the subject of a table.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is too long.
    pub fn new(node: &str, principal: &str, module: &str, table: &str) -> Result<Self, SubjectError> {
        let mut text = PREFIX.to_owned();
        for (n, (name, what)) in [node, principal, module, table].into_iter().zip(NAMES).enumerate() {
            let part = escape(name);
            if part.len() > MAX_PART {
                let found = name.chars().take(40).collect();
                return Err(SubjectError::Long { what, found, length: part.len() });
            }
            text.push_str(if n == 0 { "" } else { "." });
            text.push_str(&part);
        }
        Ok(Self(text))
    }

    /// Reads a subject as [`Subject::new`] makes it.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has another form.
    pub fn parse(text: &str) -> Result<Self, SubjectError> {
        let fault = |at, expected| SubjectError::Form {
            found: text.chars().take(80).collect(),
            at: at + 1,
            expected,
        };
        let parts = text.strip_prefix(PREFIX).ok_or_else(|| fault(0, "flame.records."))?;
        let (mut at, mut count) = (PREFIX.len(), 0);
        for part in parts.split('.') {
            let is_good = (1..=MAX_PART).contains(&part.len());
            match unescape(part) {
                Ok(_) if is_good && count < 4 => count += 1,
                Ok(_) => return Err(fault(at, "four parts of 1 to 200 characters")),
                Err(within) => return Err(fault(at + within, "letters, digits, _, - or %XX")),
            }
            at += part.len() + 1;
        }
        if count == 4 { Ok(Self(text.to_owned())) } else { Err(fault(text.len(), "four parts")) }
    }

    /// Returns the names of the parts.
    pub fn parts(&self) -> Parts {
        let rest = self.0.strip_prefix(PREFIX).unwrap_or_default();
        // Both ways to a subject checked its parts.
        let mut parts = rest.split('.').map(|part| unescape(part).unwrap_or_default());
        let mut next = || parts.next().unwrap_or_default();
        Parts { node: next(), principal: next(), module: next(), table: next() }
    }

    /// Returns the name of the stream of a principal, in which the subjects of all its tables are.
    pub fn stream(&self) -> String {
        format!("REC_{}", self.0.split('.').nth(3).unwrap_or_default())
    }

    /// Returns the subject on which the archive states its watermark of this table.
    pub fn mark(&self) -> String {
        format!("flame.marks.{}", self.0.strip_prefix(PREFIX).unwrap_or_default())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
