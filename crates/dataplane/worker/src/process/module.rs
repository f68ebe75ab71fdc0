//! A module in a process.

use super::child::Process;
use super::running::Running;
use super::state::{Ending, State};
use flame_plan::ModulePlan;
use flame_quota::Meters;
use flame_remote::Command;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A way to a module in a process that does not keep the process alive.
pub(crate) struct RemoteReference {
    process: Weak<Process>,
    state: Arc<State>,
}

impl RemoteReference {
    /// Returns whether the process takes calls of services.
    pub(crate) fn takes_calls(&self) -> bool {
        !self.state.has_ended() && self.process.upgrade().is_some_and(|process| !process.is_gone())
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

    /// Returns whether the module has calls and is not about to end: not all output of its fast instances was
    /// collected.
    pub(crate) fn has_fast(&self) -> bool {
        self.takes_calls() && matches!(self.state.ending(), Ending::Running | Ending::Reported)
    }

    /// Returns the time since which the module takes the outcomes of its last calls, if it does, as it was
    /// given to [`RemoteReference::close`].
    pub(crate) fn closed(&self) -> Option<Duration> {
        match self.state.ending() {
            Ending::Closed { since } => Some(since),
            _ => None,
        }
    }

    /// Records that all output of the module's fast instances was collected.
    pub(crate) fn drained(&self) {
        self.state.advance(|now| now == Ending::Reported, Ending::Drained);
    }

    /// Returns whether the module is being removed while the run continues.
    pub(crate) fn is_removal(&self) -> bool {
        self.state.is_removal()
    }

    /// Records that the calls of a module that has drained have ended at `now`. Its process has its own time
    /// again.
    pub(crate) fn close(&self, now: Duration) {
        self.state.advance(|now| now == Ending::Drained, Ending::Closed { since: now });
    }

    /// Requests the end of the slow instance.
    pub(crate) fn end_slow(&self) {
        self.state.advance(|now| matches!(now, Ending::Closed { .. }), Ending::Last);
        if let Some(process) = self.process.upgrade() {
            process.send(Command::EndSlow { module: self.state.id }, Vec::new());
        }
    }
}

/// A module in a process.
#[derive(Clone)]
pub(crate) struct RemoteModule {
    pub(crate) plan: Arc<ModulePlan>,
    pub(crate) meters: Meters,
    pub(crate) process: Arc<Process>,
    /// All processes of the run.
    pub(super) running: Arc<Running>,
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
