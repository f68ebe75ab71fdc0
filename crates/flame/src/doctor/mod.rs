//! The examination of this machine: what a capture needs, what is there, and the remedy for what is not. Each
//! subject is a file, and a line in [`examine`].

mod clock;
mod folders;
mod interfaces;
mod kernel;
mod memory;
mod rights;

use crate::error::Error;
use std::path::{Path, PathBuf};

/// The outcome of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Good,
    /// A capture works, but loses packets, or shows others than those on the wire.
    Warning,
    /// A capture does not work.
    Missing,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Missing => "missing",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub subject: String,
    pub state: State,
    pub found: String,
    /// The change that makes it good, unless it is.
    pub remedy: Option<String>,
}

impl Finding {
    pub fn good(subject: &str, found: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), state: State::Good, found: found.into(), remedy: None }
    }

    pub fn warning(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { subject: subject.to_owned(), state: State::Warning, found: found.into(), remedy }
    }

    pub fn missing(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Missing, ..Self::warning(subject, found, remedy) }
    }
}

/// The place of the kernel's files, which tests replace.
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns a file of the kernel without the line end, or `None` without one.
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim_end().to_owned())
    }

    /// Returns a number from a file of lines `NAME: NUMBER`.
    fn value(&self, path: &str, name: &str) -> Option<String> {
        let text = self.read(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }
}

/// Examines everything, for the interfaces named or, without names, all that are up.
///
/// # Errors
///
/// Returns an error if an interface does not exist.
pub fn examine(machine: &Machine, named: &[String]) -> Result<Vec<Finding>, Error> {
    let mut findings = rights::examine(machine);
    findings.extend(interfaces::examine(machine, named)?);
    findings.extend(memory::examine(machine));
    findings.extend(clock::examine(machine));
    findings.extend(kernel::examine(machine));
    findings.extend(folders::examine());
    Ok(findings)
}
