use flame_plan::{Account, FaultReport, ModuleId};
use flame_source::{Damage, Progress};
use std::sync::{Mutex, PoisonError};

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of packets that the source delivered.
    pub packets: u64,
    /// The captured bytes of these packets.
    pub bytes: u64,
    /// The account of each module over all workers, in the order of the modules' numbers.
    pub accounts: Vec<(String, Account)>,
    pub faults: Vec<FaultReport>,
    /// The places from which on a capture file could not be read.
    pub damage: Vec<Damage>,
    /// The error that ended a source early. All packets before it are in this report and in the records.
    pub failed: Option<String>,
    /// The number of packets that the kernel dropped because nobody took them in time.
    pub kernel_drops: u64,
}

/// The accounts of a run in progress.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The number of packets that the sources delivered so far.
    pub packets: u64,
    /// The captured bytes of these packets.
    pub bytes: u64,
    /// The number of packets that the kernel dropped so far.
    pub kernel_drops: u64,
    /// The account of each running module over all workers. Packets in blocks that a module has not taken yet
    /// only count as offered.
    pub accounts: Vec<(ModuleId, String, Account)>,
}

/// Receives the events of a run, one at a time.
pub trait Observer: Send {
    /// Called after each block with the number of packets so far and the progress of this source.
    /// Implementations limit their own rate.
    fn progress(&mut self, packets: u64, progress: Progress);

    /// Called with each text that a module has for the operator, within the rate of its terms. The text may
    /// contain any characters.
    fn log(&mut self, _module: &str, _text: &str) {}
}

/// An observer that the threads of a run share.
pub(crate) struct Shared<'a>(Mutex<&'a mut dyn Observer>);

impl<'a> Shared<'a> {
    pub(crate) fn new(observer: &'a mut dyn Observer) -> Self {
        Self(Mutex::new(observer))
    }

    pub(crate) fn log(&self, module: &str, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).log(module, text);
    }
}

impl Observer for &Shared<'_> {
    fn progress(&mut self, packets: u64, progress: Progress) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).progress(packets, progress);
    }
}

/// An observer that shows nothing.
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: u64, _: Progress) {}
}
