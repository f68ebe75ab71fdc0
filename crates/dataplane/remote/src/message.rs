use flame_plan::{Account, FaultReport, ModuleId, ModulePlan, Reason, Share};
use serde::{Deserialize, Serialize};

/// A command to a runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Loads a module.
    Install(Box<Install>),
    /// Starts the module's fast instance for a worker, and its slow instance with the first. `is_live` states
    /// that the source loses packets that are not taken in time. Three descriptors come with the frame: data,
    /// control and event of its reader.
    Attach { module: ModuleId, worker: usize, is_live: bool },
    /// Ends the module on one worker, after the blocks that wait there. Packet time is `now_ns`. The slow
    /// instance ends when the module has ended on all workers.
    End { module: ModuleId, worker: usize, now_ns: u64 },
    /// Drops the module's instances before their next calls.
    Evict { module: ModuleId, reason: Reason },
    /// States that the run ends: calls have only a little time from now on.
    Stop,
    /// Requests [`Report::Alive`] with the same number.
    Ping(u64),
}

/// A module to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Install {
    /// The plan, without the keys and filters of its view, which are none of the runner's concern.
    pub plan: ModulePlan,
    pub workers: usize,
    pub tick_ns: u64,
    pub interval_ns: u64,
    /// The maximum number of packets in a batch.
    pub batch: u32,
    /// The share of processor time of the grant, and its memory in bytes, if the module runs under one.
    pub granted: Option<(Option<Share>, u64)>,
}

/// A report of a runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// The body of this frame is output of one call: of the fast instance on `worker`, or of the slow one.
    Output {
        module: ModuleId,
        worker: Option<usize>,
    },
    Fault(FaultReport),
    /// The account of the packets of the module's fast instance on a worker so far.
    Account {
        module: ModuleId,
        worker: usize,
        account: Account,
    },
    /// The module has ended on all workers, and so has its slow instance, which lost these messages.
    Ended {
        module: ModuleId,
        messages_lost: u64,
    },
    /// States that the runner serves its modules: number 0 once it has confined itself, then that of each
    /// [`Command::Ping`].
    Alive(u64),
}
