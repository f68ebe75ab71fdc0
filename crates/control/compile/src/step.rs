//! The kinds of work on a module.

use std::fmt;

/// A kind of work on a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Validate the module and read its manifest.
    Examine,
    /// Compute its bounds.
    Analyse,
    /// Rewrite the module and compile it to machine code.
    Compile,
    /// Find source lines.
    Lines,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Examine => "examining",
            Self::Analyse => "analysing",
            Self::Compile => "compiling",
            Self::Lines => "finding lines of the source",
        })
    }
}
