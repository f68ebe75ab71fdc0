//! The services of a run: calls and replies on their way between modules, with their clock and their memory.

use crate::calls::{Calls, Done, Request};
use flame_abi::output::{DONE_HEAD, SERVE_HEAD};
use flame_plan::{ModuleId, ModulePlan};
use flame_quota::Meters;
use std::time::Instant;

/// The services of a run.
pub(crate) struct Services {
    calls: Calls<Held>,
    /// The beginning of the run, if calls are late by the node's clock, otherwise by packet time.
    begun: Option<Instant>,
    is_closed: bool,
}

/// The memory of a call, which counts as that of its caller.
pub(crate) struct Held {
    meters: Meters,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.meters.disown(self.bytes);
    }
}

impl Services {
    /// Creates the services of a run. `is_clocked` states that calls are late by the node's clock: modules do
    /// not wait for each other. Packet time is exact where they do.
    pub(crate) fn new(is_clocked: bool) -> Self {
        let begun = is_clocked.then(Instant::now);
        Self { calls: Calls::default(), begun, is_closed: false }
    }

    fn now_ns(&self, packet_ns: u64) -> u64 {
        self.begun.map_or(packet_ns, |begun| begun.elapsed().as_nanos() as u64)
    }

    /// Adds a module, if it calls services or offers them.
    pub(crate) fn join(&mut self, plan: &ModulePlan) {
        let names = |all: &[flame_abi::manifest::Service]| all.iter().map(|s| s.name.clone()).collect();
        let (uses, services): (Vec<_>, Vec<_>) = (names(&plan.manifest.uses), names(&plan.manifest.services));
        if !uses.is_empty() || !services.is_empty() {
            self.calls.join(plan.id, uses, services);
        }
    }

    /// Removes a module.
    pub(crate) fn leave(&mut self, id: ModuleId) {
        self.calls.leave(id);
    }

    /// Lets a call out, whose memory counts in `meters`. Returns whether it was let out.
    pub(crate) fn call(
        &mut self,
        call: (ModuleId, u16, u64),
        request: &[u8],
        packet_ns: u64,
        meters: &Meters,
    ) -> bool {
        let hold = |bytes| meters.own(bytes).then(|| Held { meters: meters.clone(), bytes });
        !self.is_closed && self.calls.call(call, request, self.now_ns(packet_ns), hold)
    }

    /// Records the reply to a call that was delivered to `server`. Returns false if it comes too late, or to
    /// a call that is not there.
    pub(crate) fn reply(&mut self, server: ModuleId, call: u64, reply: &[u8]) -> bool {
        self.calls.reply(server, call, reply)
    }

    /// Refuses a call that was delivered to `server`: its caller has no processor time left.
    pub(crate) fn refuse(&mut self, server: ModuleId, call: u64) {
        self.calls.refuse(server, call);
    }

    /// Gives calls an outcome that are late.
    pub(crate) fn expire(&mut self, packet_ns: u64) {
        self.calls.expire(self.now_ns(packet_ns));
    }

    /// Returns whether a call is late, or can be delivered to a module that takes one, or an outcome.
    pub(crate) fn can_progress(&self, packet_ns: u64, takes: impl FnMut(ModuleId) -> bool) -> bool {
        self.calls.is_due(self.now_ns(packet_ns)) || self.calls.can_deliver(takes)
    }

    /// Returns the next call to deliver to a module that takes one.
    pub(crate) fn next_request(&mut self, takes: impl FnMut(ModuleId) -> bool) -> Option<Request> {
        self.calls.next_request(takes)
    }

    /// Returns the next outcome to deliver to a module that takes one, with its head.
    pub(crate) fn next_outcome(
        &mut self,
        takes: impl FnMut(ModuleId) -> bool,
    ) -> Option<(ModuleId, Vec<u8>)> {
        self.calls.next_outcome(takes).map(|(to, done)| (to, outcome_bytes(&done)))
    }

    /// Ends the calls that have no outcome, and lets no more out.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.calls.end_all();
    }
}

/// Returns the data of `flame_serve`.
pub(crate) fn request_bytes(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SERVE_HEAD + request.bytes.len());
    bytes.extend(request.call.to_le_bytes());
    bytes.extend(request.service.to_le_bytes());
    bytes.extend([0; 6]);
    bytes.extend(&request.bytes);
    bytes
}

/// Returns the data of `flame_done`.
fn outcome_bytes<C>(done: &Done<C>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(DONE_HEAD + done.reply.len());
    bytes.extend(done.token.to_le_bytes());
    bytes.extend((done.outcome as u16).to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(done.lost.to_le_bytes());
    bytes.extend(&done.reply);
    bytes
}
