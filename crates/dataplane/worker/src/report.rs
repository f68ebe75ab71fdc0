use flame_plan::{Account, ModuleId, Reason};
use flame_source::{Damage, Progress};

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Packets that the source delivered.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Per module in the order of their numbers, over all workers.
    pub accounts: Vec<(String, Account)>,
    pub faults: Vec<FaultReport>,
    /// Places from which on a capture file could not be read.
    pub damage: Vec<Damage>,
    /// Why a source ended before its time; all that came before is in this report and in the records.
    pub failed: Option<String>,
    /// Packets the kernel dropped because nobody took them in time.
    pub kernel_drops: u64,
}

/// Accounts of a run that goes on.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Packets that the sources delivered so far.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Packets the kernel dropped so far.
    pub kernel_drops: u64,
    /// Per module that runs, over all workers. Packets in blocks that a module has not taken yet are offered
    /// only.
    pub accounts: Vec<(ModuleId, String, Account)>,
}

/// An instance that was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultReport {
    pub id: ModuleId,
    pub module: String,
    /// None: the slow instance.
    pub worker: Option<usize>,
    /// Number of the packet, among those offered to this module on this worker, counted from 0.
    pub packet: Option<u64>,
    /// The fault in words.
    pub text: String,
    /// The reason, if the module was evicted.
    pub evicted: Option<Reason>,
    pub restarted: bool,
}

/// Receives progress from the reading thread after each block. Implementations limit their own rate.
pub trait Observer: Send {
    /// After each block: packets so far over this source, and how far the source is.
    fn progress(&mut self, packets: u64, progress: Progress);
}

/// Shows nothing.
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: u64, _: Progress) {}
}
