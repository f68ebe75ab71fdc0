use flame_plan::{Account, FaultReport, ModuleId};
use flame_source::{Damage, Progress};

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

/// Receives progress from the reading thread after each block. Implementations limit their own rate.
pub trait Observer: Send {
    /// Called after each block with the number of packets so far and the progress of this source.
    fn progress(&mut self, packets: u64, progress: Progress);
}

/// An observer that shows nothing.
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: u64, _: Progress) {}
}
