//! The arguments from which a table began that handlers change.

use std::cell::Cell;

/// The arguments of an element with a table, and whether the table is that of the element before it.
pub struct Origin {
    config: String,
    has_taken: Cell<bool>,
}

impl Origin {
    pub fn new(config: &str) -> Self {
        Self { config: config.to_owned(), has_taken: Cell::new(false) }
    }

    /// Returns whether the table of `old` continues here: both began with the same arguments, and this one
    /// has not taken it over before.
    pub fn continues(&self, old: &Self) -> bool {
        old.config == self.config && !self.has_taken.replace(true)
    }
}
