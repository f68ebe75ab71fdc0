use flame_plan::Account;
use flame_source::{Damage, Progress};

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Packets that the source delivered.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Per module in the plan's order, over all workers.
    pub accounts: Vec<(String, Account)>,
    pub faults: Vec<FaultReport>,
    /// Places from which on a capture file could not be read.
    pub damage: Vec<Damage>,
    /// Why a source ended before its time; all that came before is in this report and in the records.
    pub failed: Option<String>,
    /// Packets the kernel dropped because nobody took them in time.
    pub kernel_drops: u64,
}

/// An instance that was ended, as text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultReport {
    pub module: String,
    /// None: the slow instance.
    pub worker: Option<usize>,
    /// Number of the packet, among those offered to this module on this worker, counted from 0.
    pub packet: Option<u64>,
    pub text: String,
    pub restarted: bool,
}

/// Is told how a run goes, by the thread that reads; it decides how often to show it.
pub trait Observer: Send {
    /// After each block: packets so far over this source, and how far the source is.
    fn progress(&mut self, packets: u64, progress: Progress);
}

/// Shows nothing.
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: u64, _: Progress) {}
}
