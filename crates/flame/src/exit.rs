use std::process::ExitCode;

/// An exit status, as listed in the help of `flame run`. Status 2 is clap's, for wrong usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Everything was done.
    Done = 0,
    /// Nothing, or not everything, could be done. The message states the reason.
    Failed = 1,
    /// A capture was damaged. Results cover all packets before the damage.
    Damaged = 3,
    /// A module was ended by a fault. Its results are incomplete, those of the others are complete.
    Faulted = 4,
    /// Rows were lost. A line on standard error names module, table and number.
    Lost = 5,
    /// The node does not allow it, by its policy or to this credential.
    Denied = 6,
}

impl Status {
    pub fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}
