use flame_plan::{Account, Discipline, FaultReport, ModuleId, ModulePlan, Processed, Reason, Shed};
use flame_quota::Link;
use serde::{Deserialize, Serialize};

/// A command to a runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Gives the runner memory for long output, which it opens as a [`BodyWriter`](crate::BodyWriter). Two
    /// descriptors come with the frame: its file and a socket.
    Bodies,
    /// Loads a module.
    Install(Box<Install>),
    /// Starts the module's fast instance for a worker, and its slow instance with the first. Three
    /// descriptors come with the frame: data, control and event of its reader.
    Attach { module: ModuleId, worker: usize, discipline: Discipline },
    /// Ends the module on one worker, after the blocks that wait there. Packet time is `now_ns`. The slow
    /// instance ends when the module has ended on all workers, unless the module calls services or offers
    /// them: see [`Command::EndSlow`].
    /// With `hands_over`, its instances go on as others, and their last call is the export of their state.
    End { module: ModuleId, worker: usize, now_ns: u64, hands_over: bool },
    /// Ends the slow instance of a module that calls services or offers them. Its calls have outcomes by
    /// then, and it has taken them.
    EndSlow { module: ModuleId },
    /// Gives the fast instance for a worker, or the slow one, the state to begin with, or none.
    Import { module: ModuleId, worker: Option<usize>, state: Option<Vec<u8>> },
    /// Drops the module's instances before their next calls.
    Evict { module: ModuleId, reason: Reason },
    /// Calls a service of a module, by the number of the call there. The bytes have their head.
    Serve { module: ModuleId, call: u64, bytes: Vec<u8> },
    /// Gives a module the outcome of a call that it made. The bytes have their head.
    Done { module: ModuleId, bytes: Vec<u8> },
    /// Gives a module other limits of time and memory: those of each link of its renewed credential.
    Renew { module: ModuleId, links: Vec<Link> },
    /// States that the run ends: calls have only a little time from now on.
    Stop,
    /// Requests [`Report::Alive`] with the same number.
    Ping(u64),
    /// Lets no call of a module begin or continue until it is revoked: all who share a meter with it have
    /// used up the time together.
    Hold { module: ModuleId, holds: bool },
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
    /// The limits of time and memory of each link of its credential, if the module runs under one.
    pub granted: Option<Vec<Link>>,
    /// The packet time between exports in nanoseconds, or 0, if the worker keeps the module's state. Each
    /// instance then waits for [`Command::Import`].
    pub keeps: Option<u64>,
}

/// An event of the state of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kept {
    /// The instance began without a state.
    Empty,
    /// The instance took the state that it was given.
    Taken,
    /// The instance refused it, and began empty.
    Refused,
    /// The body of this frame is the state that the instance exported.
    Stored,
    /// The instance ended in a fault, and its state with it.
    Dropped,
    /// The end of the run cut the instance off, and its state stays.
    CutOff,
}

/// A report of a runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// States that the runner serves its modules: number 0 once it has confined itself, then that of each
    /// [`Command::Ping`].
    Alive(u64),
    /// The body of this frame is output of one call: of the fast instance on `worker`, which has `processed`
    /// these packets with it, or of the slow one.
    Output {
        module: ModuleId,
        worker: Option<usize>,
        processed: Processed,
    },
    /// The body of this frame is output of one call of a module that forwards packets. It may decide about
    /// packets of the current batch.
    Sent {
        module: ModuleId,
    },
    /// A module that forwards packets has decided about the next `count` packets of its blocks, or lost its
    /// output about them for a cause, and that number of them itself.
    Decided {
        module: ModuleId,
        count: u32,
        lost: Option<(Shed, u32)>,
    },
    Fault(FaultReport),
    /// The fast instance on `worker` has passed the tick at `now_ns`. Output that follows belongs to the time
    /// after it.
    Passed {
        module: ModuleId,
        worker: usize,
        now_ns: u64,
    },
    /// The slow instance has passed the tick at `now_ns`. Reported only if the view shows whole intervals.
    SlowPassed {
        module: ModuleId,
        now_ns: u64,
    },
    /// The account of the packets of the module's fast instance on a worker so far.
    Account {
        module: ModuleId,
        worker: usize,
        account: Account,
    },
    /// An event of the state of the fast instance on `worker`, or of the slow one.
    State {
        module: ModuleId,
        worker: Option<usize>,
        kept: Kept,
    },
    /// A call of a service has ended, which took so much processor time, or will not be made.
    Served {
        module: ModuleId,
        call: u64,
        ns: u64,
    },
    /// The module has taken the first of the outcomes that it was given.
    Taken {
        module: ModuleId,
    },
    /// The fast instances of a module that calls services or offers them have ended on all workers, and the
    /// slow one has processed their messages. It ends after [`Command::EndSlow`].
    Drained {
        module: ModuleId,
    },
    /// The module has ended on all workers, and so has its slow instance, which lost these messages.
    Ended {
        module: ModuleId,
        messages_lost: u64,
    },
}
