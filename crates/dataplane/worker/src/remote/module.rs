//! A module in a process.

use super::process::Process;
use super::state::State;
use flame_plan::ModulePlan;
use flame_quota::Meters;
use flame_remote::Command;
use std::sync::{Arc, Weak};

/// The maximum number of commands that wait for a process that takes further calls of services.
const MAX_WAITING: usize = 64;

/// A way to a module in a process that does not keep the process alive.
pub(crate) struct RemoteReference {
    process: Weak<Process>,
    state: Arc<State>,
}

impl RemoteReference {
    /// Returns whether the process takes calls of services: it is there, and reads its commands.
    pub(crate) fn takes_calls(&self) -> bool {
        let takes = |process: Arc<Process>| !process.is_gone() && process.waiting() < MAX_WAITING;
        self.process.upgrade().is_some_and(takes)
    }

    /// Passes a call of a service on. `payer` are the meters of its caller.
    pub(crate) fn serve(&self, call: u64, bytes: Vec<u8>, payer: &Meters) {
        if let Some(process) = self.process.upgrade() {
            self.state.begin_call(call, payer);
            process.send(Command::Serve { module: self.state.id, call, bytes }, Vec::new());
        }
    }

    /// Passes the outcome of a call on.
    pub(crate) fn done(&self, bytes: Vec<u8>) {
        if let Some(process) = self.process.upgrade() {
            process.send(Command::Done { module: self.state.id, bytes }, Vec::new());
        }
    }
}

/// A module in a process.
#[derive(Clone)]
pub(crate) struct RemoteModule {
    pub(crate) plan: Arc<ModulePlan>,
    pub(crate) meters: Meters,
    pub(crate) process: Arc<Process>,
    pub(crate) state: Arc<State>,
}

impl RemoteModule {
    pub(crate) fn reference(&self) -> RemoteReference {
        RemoteReference { process: Arc::downgrade(&self.process), state: self.state.clone() }
    }

    /// Requests the module's end on a worker, after the blocks that wait there.
    /// With `hands_over`, others go on with the states of its instances.
    pub(crate) fn end(&self, worker: usize, now_ns: u64, hands_over: bool) {
        // Before the process can answer.
        self.state.request_end(worker);
        self.process.send(Command::End { module: self.plan.id, worker, now_ns, hands_over }, Vec::new());
    }
}
