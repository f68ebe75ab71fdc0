use std::process::ExitCode;

/// Exit statuses, as the manual of `flame run` lists them. 2 is clap's: wrong usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All went well.
    Done = 0,
    /// Nothing, or not all, could be done; the message says why.
    Failed = 1,
    /// A capture was damaged: results cover all packets before the damage.
    Damaged = 3,
    /// A module was ended by a fault: its results are incomplete, the others' are not.
    Faulted = 4,
}

impl Status {
    pub fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}
