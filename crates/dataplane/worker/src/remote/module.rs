//! A module in a process.

use super::process::Process;
use super::state::State;
use flame_plan::ModulePlan;
use flame_quota::Meters;
use flame_remote::Command;
use std::sync::Arc;

/// A module in a process.
#[derive(Clone)]
pub(crate) struct RemoteModule {
    pub(crate) plan: Arc<ModulePlan>,
    pub(crate) meters: Meters,
    pub(crate) process: Arc<Process>,
    pub(crate) state: Arc<State>,
}

impl RemoteModule {
    /// Requests the module's end on a worker, after the blocks that wait there.
    /// With `hands_over`, others go on with the states of its instances.
    pub(crate) fn end(&self, worker: usize, now_ns: u64, hands_over: bool) {
        // Before the process can answer.
        self.state.request_end(worker);
        self.process.send(Command::End { module: self.plan.id, worker, now_ns, hands_over }, Vec::new());
    }
}
