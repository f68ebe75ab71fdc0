//! The events of modules on their way to the collector.

use super::state::State;
use flame_execute::Origin;
use flame_plan::{FaultReport, ModuleId};
use std::sync::Arc;

/// An event of one module, from a pipeline's thread or from the process in which the module runs. A process
/// causes no other events.
pub(crate) enum ModuleEvent {
    Output {
        from: Origin,
        bytes: Vec<u8>,
    },
    Fault(FaultReport),
    Passed {
        module: ModuleId,
        worker: usize,
        now_ns: u64,
    },
    /// A process has reported everything of a module.
    Ended(Arc<State>),
}
