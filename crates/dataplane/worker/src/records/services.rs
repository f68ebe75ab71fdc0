//! The services of a run: calls and replies on their way between modules, with their clock and their memory.

use crate::records::calls::{Calls, Delivery, Question, Request};
use flame_abi::output::{DONE_HEAD, SERVE_HEAD};
use flame_execute::Phase;
use flame_plan::limits::{LAST_SERVICE_CALLS_MAX, LAST_SERVICE_ROUNDS};
use flame_plan::{ModuleId, ModulePlan, ServiceTime};
use flame_quota::Meters;
use flame_remote::PausableClock;
use std::time::Instant;

/// The services of a run.
pub(crate) struct Services {
    calls: Calls<Held>,
    clock: Clock,
    last: Last,
}

/// The clock by which calls are late.
enum Clock {
    /// The node's clock. The time for which the thread that collects is held up makes no call late.
    Wall(PausableClock),
    /// The packet time of calls that are made now.
    Packets { now_ns: u64 },
    /// The time of the first packet after each delivery, so that it follows from packets alone. It `is_fresh`
    /// while no packet has come since.
    Edges { now_ns: u64, is_fresh: bool },
}

/// The last calls of a run, once all fast instances have ended.
enum Last {
    /// Some have not ended.
    Not,
    /// Calls that wait are delivered, for [`LAST_SERVICE_CALLS_MAX`] or [`LAST_SERVICE_ROUNDS`].
    Open { since_ns: u64, rounds: usize },
    /// All calls have an outcome, and outcomes are delivered.
    Closed,
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
    /// Creates the services of a run. `clock` is the node's clock.
    pub(crate) fn new(time: ServiceTime, clock: PausableClock) -> Self {
        let clock = match time {
            ServiceTime::WallClock => Clock::Wall(clock),
            ServiceTime::Packets => Clock::Packets { now_ns: 0 },
            ServiceTime::PacketEdges => Clock::Edges { now_ns: 0, is_fresh: true },
        };
        Self { calls: Calls::default(), clock, last: Last::Not }
    }

    /// Returns whether a module calls services or offers them.
    pub(crate) fn are_used(&self) -> bool {
        self.calls.has_parties()
    }

    /// Returns whether there are calls, which are delivered after packets that [`Services::packet`] precedes
    /// and at ticks only.
    pub(crate) fn have_edges(&self) -> bool {
        matches!(self.clock, Clock::Edges { .. }) && self.are_used()
    }

    /// Records the time of a packet before it is processed.
    pub(crate) fn packet(&mut self, packet_ns: u64) {
        if let Clock::Edges { now_ns, is_fresh } = &mut self.clock
            && std::mem::take(is_fresh)
        {
            *now_ns = packet_ns.max(*now_ns);
        }
    }

    /// Records that packets up to this packet time were read.
    pub(crate) fn advance(&mut self, packet_ns: u64) {
        if let Clock::Packets { now_ns } = &mut self.clock {
            *now_ns = packet_ns;
        }
    }

    /// Returns whether calls are late by the node's clock.
    pub(crate) fn go_by_wall_clock(&self) -> bool {
        matches!(self.clock, Clock::Wall(_))
    }

    fn now_ns(&mut self) -> u64 {
        match &mut self.clock {
            Clock::Wall(clock) => clock.read(Instant::now()).as_nanos() as u64,
            Clock::Packets { now_ns } | Clock::Edges { now_ns, .. } => *now_ns,
        }
    }

    /// Adds a module, if it calls services or offers them. If it is `in_steps`, its replies wait for the ends
    /// of intervals.
    pub(crate) fn join(&mut self, plan: &ModulePlan, in_steps: bool) {
        if plan.manifest.has_calls() {
            let names = |all: &[flame_abi::manifest::Service]| all.iter().map(|s| s.name.clone()).collect();
            let party = (plan.id, plan.tenant.as_deref());
            self.calls.join(party, names(&plan.manifest.uses), names(&plan.manifest.services));
            if in_steps {
                self.calls.set_steps(plan.id);
            }
        }
    }

    /// Removes a module.
    pub(crate) fn leave(&mut self, id: ModuleId) {
        self.calls.leave(id);
    }

    /// Lets a call out, whose memory counts in `meters`. Returns whether it was let out.
    pub(crate) fn call(&mut self, call: (ModuleId, u16, u64), request: &[u8], meters: &Meters) -> bool {
        let hold = |bytes| meters.own(bytes).then(|| Held { meters: meters.clone(), bytes });
        let now_ns = self.now_ns();
        self.calls.call(call, request, now_ns, hold)
    }

    /// Lets a question from outside out to a module, whose memory counts in the module's `meters`.
    pub(crate) fn ask(&mut self, server: ModuleId, question: Question, meters: &Meters) {
        let hold = |bytes| meters.own(bytes).then(|| Held { meters: meters.clone(), bytes });
        let now_ns = self.now_ns();
        self.calls.ask(server, question, now_ns, hold);
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

    /// Records that `server` has made a call that was delivered to it, or will not make it.
    pub(crate) fn made(&mut self, server: ModuleId, call: u64) {
        self.calls.made(server, call);
    }

    /// Records that `caller` has taken the first of the outcomes that were delivered to it.
    pub(crate) fn taken(&mut self, caller: ModuleId) {
        self.calls.taken(caller);
    }

    /// Gives calls an outcome that are late at this packet time, or by the node's clock.
    pub(crate) fn expire(&mut self, packet_ns: u64) {
        if let Clock::Edges { is_fresh, .. } = &mut self.clock {
            *is_fresh = true;
        }
        let now_ns = if self.go_by_wall_clock() { self.now_ns() } else { packet_ns };
        self.calls.expire(now_ns);
    }

    /// Gives the calls an outcome that are late, of a module of which an interval has ended.
    pub(crate) fn end_interval(&mut self, server: ModuleId) {
        if self.are_used() {
            let now_ns = self.now_ns();
            self.calls.end_interval(server, now_ns);
        }
    }

    /// Returns whether a call is late, or can be delivered to a module that takes one, or an outcome.
    pub(crate) fn can_progress(&mut self, takes: impl Fn(ModuleId, bool) -> bool) -> bool {
        if !self.are_used() {
            return false;
        }
        let now_ns = self.now_ns();
        self.calls.is_due(now_ns) || self.calls.can_deliver(takes)
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
        self.calls.next_outcome(takes).map(|done| (done.caller, outcome_bytes(&done)))
    }

    /// Closes a module whose fast instances have ended: its calls and those of its services end.
    pub(crate) fn close(&mut self, id: ModuleId) {
        self.calls.close(id);
    }

    /// Forgets the outcomes that a closed module has not taken. Returns how many they were.
    pub(crate) fn forget(&mut self, id: ModuleId) -> usize {
        self.calls.forget(id)
    }

    /// Returns whether a module has taken the outcomes of all its calls.
    pub(crate) fn is_settled(&self, id: ModuleId) -> bool {
        self.calls.is_settled(id)
    }

    /// Returns whether all calls have an outcome and no more are let out, because the run ends.
    pub(crate) fn are_closed(&self) -> bool {
        matches!(self.last, Last::Closed)
    }

    /// Advances the end of all calls once all fast instances have ended, before what waits is delivered:
    /// calls without an outcome end when nothing is left to deliver, after a while, or because the run
    /// is stopped. Returns whether they have ended.
    pub(crate) fn close_all(&mut self, phase: Phase) -> bool {
        let (now_ns, by_wall_clock) = (self.now_ns(), self.go_by_wall_clock());
        let is_over = match &mut self.last {
            Last::Closed => return true,
            last @ Last::Not => {
                *last = Last::Open { since_ns: now_ns, rounds: 1 };
                false
            }
            Last::Open { since_ns, .. } if by_wall_clock => {
                now_ns.saturating_sub(*since_ns) > LAST_SERVICE_CALLS_MAX.as_nanos() as u64
            }
            Last::Open { rounds, .. } => {
                *rounds += 1;
                *rounds > LAST_SERVICE_ROUNDS
            }
        };
        if !is_over && phase.serves() && !self.calls.is_quiet() {
            return false;
        }
        self.last = Last::Closed;
        self.calls.close_all();
        true
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
fn outcome_bytes(done: &Delivery) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(DONE_HEAD + done.reply.len());
    bytes.extend(done.token.to_le_bytes());
    bytes.extend((done.outcome as u16).to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend(done.lost.to_le_bytes());
    bytes.extend(&done.reply);
    bytes
}
