use crate::lock;
use flame_plan::{Account, Audience, FaultReport, ModuleId, RunTotals, ShownTotals};
use flame_source::{Damage, DamageKind, Notice, Progress};
use std::ops::DerefMut;
use std::sync::Mutex;

/// The outcome of a run, as the operator may know it. [`Report::shown_to`] returns what is printed of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of packets that the source delivered.
    pub packets: u64,
    /// The captured bytes of these packets.
    pub bytes: u64,
    /// The account of each module over all workers, in the order of the modules' numbers, but for those that
    /// the observer took when they were removed.
    pub accounts: Vec<(String, Account)>,
    /// The faults that the observer did not take.
    pub faults: Vec<FaultReport>,
    /// The places from which on a capture file could not be read.
    pub damage: Vec<Damage>,
    /// The error that ended a source early. All packets before it are in this report and in the records.
    pub failed: Option<String>,
    /// The number of packets that the kernel dropped because nobody took them in time.
    pub kernel_drops: Option<u64>,
    /// The rows, and messages with rows to be, that no output received. Rows that a grant withholds are not
    /// lost.
    pub lost: Vec<Lost>,
    /// The modules of which something is not due, because the run ended within an interval that their views
    /// show whole, or before the first one.
    pub undue: Vec<NotDue>,
}

/// A module of which nothing leaves from some time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDue {
    pub module: String,
    /// The packet time in nanoseconds, or `None` if no whole interval has passed.
    pub since_ns: Option<u64>,
}

/// The outcome of a run without what its reader may not know: made by [`Report::shown_to`] alone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShownReport {
    pub totals: ShownTotals,
    /// The files that could not be read in full, with the kind and the description of each.
    pub damage: Vec<(DamageKind, String)>,
    pub faults: Vec<FaultReport>,
    pub lost: Vec<Lost>,
    pub undue: Vec<NotDue>,
}

impl Report {
    /// Returns what `audience` may know of the outcome.
    pub fn shown_to(&self, audience: Audience) -> ShownReport {
        let Self { packets, kernel_drops, .. } = *self;
        let totals = RunTotals { packets, kernel_drops, accounts: self.accounts.clone() };
        ShownReport {
            totals: totals.shown_to(audience),
            // A remark states numbers of packets that may be hidden.
            damage: (self.damage.iter())
                .filter(|damage| audience.is_operator() || damage.kind != DamageKind::Remark)
                .map(|damage| (damage.kind, damage.text(audience)))
                .collect(),
            faults: self.faults.clone(),
            lost: self.lost.clone(),
            undue: self.undue.clone(),
        }
    }
}

/// Rows of one module that were lost for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub module: String,
    /// The table, if it is known.
    pub table: Option<String>,
    pub rows: u64,
    pub reason: LossReason,
}

/// The reason why rows were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LossReason {
    /// The module had no room for them, or they were longer than a row may be.
    Module,
    /// They exceeded the limit of records and bytes for a second of packet time.
    Limit,
    /// They are of a module that was added after the files of the output were fixed.
    Unplanned,
    /// Packets exceeded the limit of bytes for a second of packet time.
    Packets,
    /// Messages between a module's instances exceeded their queue, or had no receiver.
    Messages,
}

impl LossReason {
    /// Returns the noun for what was lost.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Messages => "messages",
            Self::Module | Self::Limit | Self::Unplanned => "rows",
        }
    }

    /// Returns the reason in words, with the remedy if there is one.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Module => {
                "the module had no room for them: raise its memory with --memory, or let it report more often \
                 with --interval"
            }
            Self::Limit => {
                "more than a module may emit for a second of packet time and for each packet: let it report \
                 more often with --interval"
            }
            Self::Unplanned => {
                "the files of this output were fixed before the module was added: start the run with it, or \
                 write json"
            }
            Self::Packets => {
                "more than a module may write for a second of packet time, make for one batch, or hold"
            }
            Self::Messages => {
                "more than the queue to the slow instance holds, or its end or that of the run came first: \
                 what they would have added is missing"
            }
        }
    }
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

    /// Called when the state of the source changes, such as that its interface went down.
    fn source(&mut self, _notice: &Notice) {}

    /// Called when the end of a live run is requested, and it goes on until the tick at `until_ns`: an
    /// interval ends then that a view shows whole.
    fn stopping(&mut self, _until_ns: u64) {}

    /// Called when a module begins to lose packets because `worker` is behind and others have a higher
    /// priority, and when it receives all packets again.
    fn overload(&mut self, _module: &str, _worker: usize, _begins: bool) {}

    /// Called when a fault or an eviction ends an instance. Returns whether the observer takes the report:
    /// the run then keeps no copy of it. Under a grant the report has no number that the module can choose,
    /// and of each module only the first [`MAX_FAULTS`](crate::MAX_FAULTS) are passed on.
    fn fault(&mut self, _report: &FaultReport) -> bool {
        false
    }

    /// Called at each tick of a live run that all workers have passed, after the rows up to it, with the
    /// account as of that tick of each module under a grant, by its name. A tick is a multiple of each
    /// grant's resolution: what a holder is told of packets between two of them was known at the first.
    fn released(&mut self, _accounts: &[(&str, Account)]) {}

    /// Called once for each module that was removed while the run goes on, with its final account. Returns
    /// whether the observer takes it: the run then keeps nothing of the module. A run whose modules come and
    /// go without end needs an observer that takes faults and accounts.
    fn left(&mut self, _module: &str, _account: &Account) -> bool {
        false
    }
}

/// An observer that the threads of a run share.
pub(crate) struct Shared<O>(Mutex<O>);

impl<O> Shared<O> {
    pub(crate) fn new(observer: O) -> Self {
        Self(Mutex::new(observer))
    }
}

/// The events of modules, for the observer of the run.
pub(crate) trait Events: Sync {
    fn log(&self, module: &str, text: &str);
    fn overload(&self, module: &str, worker: usize, begins: bool);
    fn fault(&self, report: &FaultReport) -> bool;
    fn released(&self, accounts: &[(&str, Account)]);
    fn left(&self, module: &str, account: &Account) -> bool;
}

impl<O: DerefMut<Target: Observer> + Send> Events for Shared<O> {
    fn log(&self, module: &str, text: &str) {
        lock(&self.0).log(module, text);
    }

    fn overload(&self, module: &str, worker: usize, begins: bool) {
        lock(&self.0).overload(module, worker, begins);
    }

    fn fault(&self, report: &FaultReport) -> bool {
        lock(&self.0).fault(report)
    }

    fn released(&self, accounts: &[(&str, Account)]) {
        lock(&self.0).released(accounts);
    }

    fn left(&self, module: &str, account: &Account) -> bool {
        lock(&self.0).left(module, account)
    }
}

impl<O: DerefMut<Target: Observer> + Send> Observer for &Shared<O> {
    fn progress(&mut self, packets: u64, progress: Progress) {
        lock(&self.0).progress(packets, progress);
    }

    fn source(&mut self, notice: &Notice) {
        lock(&self.0).source(notice);
    }

    fn stopping(&mut self, until_ns: u64) {
        lock(&self.0).stopping(until_ns);
    }
}

/// An observer that shows nothing.
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: u64, _: Progress) {}
}
