//! The events of modules on their way to the collector.

use super::state::State;
use flame_execute::Origin;
use flame_plan::{FaultReport, ModuleId, Shed};
use std::sync::Arc;

/// An event of one module, from a pipeline's thread or from the process in which the module runs. A process
/// causes no other events.
pub(crate) enum ModuleEvent {
    Output {
        from: Origin,
        bytes: Vec<u8>,
    },
    /// Output of one call of a module that forwards packets, which nobody has checked. It is the only module
    /// of its run.
    Sent(Vec<u8>),
    /// A module that forwards packets has decided about this number of packets of its blocks, or lost its
    /// output about them for a cause, and that number of them itself.
    Decided {
        count: u32,
        lost: Option<(Shed, u32)>,
    },
    Fault(FaultReport),
    Passed {
        module: ModuleId,
        worker: usize,
        now_ns: u64,
    },
    /// A module has made a call of a service, or will not make it.
    Served {
        module: ModuleId,
        call: u64,
    },
    /// A module has taken the first of the outcomes that it was given.
    Taken(ModuleId),
    /// The fast instances of a module in a process have ended, and its slow instance waits for the outcomes
    /// of its calls.
    Drained(ModuleId),
    /// A process has reported everything of a module.
    Ended(Arc<State>),
}
