//! The limits of the time for which others wait for a process.

use std::time::Duration;

/// The time that a process has between the request to end and its end, for the remaining work of its slow
/// instances.
pub(crate) const END: Duration = Duration::from_secs(600);

/// The limits of the time for which others wait for a process. Time in which a process could do nothing does
/// not count ([`flame_remote::Stall`]), except in `start`.
#[derive(Clone, Copy, Debug)]
pub struct ProcessLimits {
    /// The time in which a process must have confined itself.
    pub start: Duration,
    /// The interval at which a process must show that it is alive, and its use of time is measured. A
    /// process that does not answer for several of them is ended.
    pub ping: Duration,
    /// The time that a process may sleep, in all waits of a worker for one module together. A process that is
    /// waited for has work; what it reports is no evidence of it. It has to wait while its reports are
    /// handled.
    pub asleep: Duration,
    /// The time in which a process must release a block while a worker waits for it.
    pub block: Duration,
    /// The time that a process has to end a module that is removed while the run continues, and besides the
    /// time of the last calls to end all modules once the run was stopped.
    pub last: Duration,
}

impl ProcessLimits {
    /// The limits of a run, unless a test has others.
    pub(crate) const USUAL: Self = Self {
        start: Duration::from_secs(10),
        ping: Duration::from_secs(1),
        asleep: Duration::from_secs(30),
        block: Duration::from_secs(60),
        last: Duration::from_secs(10),
    };
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self::USUAL
    }
}
