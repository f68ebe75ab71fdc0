//! The delivery of calls of services and of their outcomes, and the end of modules with calls.
//!
//! The end of a module has one order, in this process and in others, at its removal, its update and the end
//! of the run: its fast instances end; calls without an outcome end, its own and those of its services; it
//! takes the outcomes; its slow instance ends. At the end of the run, the calls of all modules end together,
//! once all fast instances have ended and what waited was delivered.

use super::Collector;
use crate::error::RunError;
use crate::process::RemoteReference;
use crate::records::calls::Question;
use crate::records::module_output::Collected;
use crate::records::report::LossReason;
use crate::records::undue::Undue;
use flame_abi::Descriptor;
use flame_execute::Quantum;
use flame_plan::limits::{LAST_OUTCOMES_MAX, PROCESS_END_MAX};
use flame_plan::{FaultReport, ModuleId};

/// The maximum number of calls and outcomes that are delivered before others have a turn: two modules could
/// answer each other without an end.
const DELIVERIES: usize = 1024;

/// Returns whether the module with this number takes outcomes, and calls if it `serves`.
fn takes(modules: &[Collected], id: ModuleId, serves: bool) -> bool {
    let takes = |m: &Collected| if serves { m.takes_calls() } else { m.takes_outcomes() };
    modules.iter().any(|m| m.id == id && takes(m))
}

impl Collector<'_> {
    /// Delivers calls and outcomes that wait, in an order that follows from that of the calls. On sources
    /// that are not live, and at the end, each is a call of its module before the next one.
    pub(crate) fn deliver(&mut self) -> Result<(), RunError> {
        if !self.outputs.services.are_used() {
            return Ok(());
        }
        let by_wall_clock = self.outputs.services.go_by_wall_clock();
        if by_wall_clock {
            self.outputs.services.expire(self.outputs.now_ns);
        }
        for _ in 0..DELIVERIES {
            let Some(to) = self.deliver_next() else { break };
            if (self.discipline.processes_messages_at_once() || self.ending.is_some())
                && let Some(at) = self.place(to)
            {
                self.go(at)?;
            }
        }
        if !by_wall_clock {
            // Afterwards: what waited for this delivery is not late because of that.
            self.outputs.services.expire(self.outputs.now_ns);
        }
        Ok(())
    }

    /// Takes a question to a service of a module from outside of the run. The module pays for it, as for
    /// calls of its own.
    pub(crate) fn ask(&mut self, module: ModuleId, question: Question) -> Result<(), RunError> {
        // Without the module, the question ends here, and the asker learns that.
        let Some(at) = self.place(module) else { return Ok(()) };
        self.outputs.services.ask(module, question, &self.modules[at].meters);
        self.deliver_after_output()
    }

    /// Delivers the next call or outcome, and returns the module to which it went. Calls are not delivered
    /// any more after the run was stopped: they would take the time of the last calls.
    fn deliver_next(&mut self) -> Option<ModuleId> {
        let serves = self.stop.phase().serves();
        let (modules, services) = (&mut self.modules, &mut self.outputs.services);
        if let Some((to, outcome)) = services.next_outcome(|id| takes(modules, id, false)) {
            if let Some(caller) = modules.iter_mut().find(|m| m.id == to) {
                caller.done(outcome);
            }
            return Some(to);
        }
        let request = services.next_request(|id| serves && takes(modules, id, true))?;
        let payer = modules.iter().find(|m| m.id == request.caller).map(|m| m.meters.clone());
        match payer.filter(|payer| !self.discipline.limits_time() || payer.may_begin()) {
            Some(payer) => {
                if let Some(server) = modules.iter_mut().find(|m| m.id == request.server) {
                    server.serve(&request, &payer);
                }
            }
            None => services.refuse(request.server, request.call),
        }
        Some(request.server)
    }

    /// Delivers after output, unless that waits: for a quantum on live sources, and for an edge, if there are
    /// any.
    pub(super) fn deliver_after_output(&mut self) -> Result<(), RunError> {
        let waits = !self.discipline.processes_messages_at_once() || self.delivers_at_edges();
        if waits { Ok(()) } else { self.deliver() }
    }

    /// Returns whether calls and outcomes are delivered at edges only: after turns, or as many packets, and
    /// at ticks. So what a module sees in a replay by one thread follows from packets alone.
    pub(crate) fn delivers_at_edges(&self) -> bool {
        self.outputs.services.have_edges() && self.ending.is_none()
    }

    /// Records that packets are processed next.
    pub(crate) fn begin(&mut self, packets: &[Descriptor]) {
        if !self.delivers_at_edges() {
            return self.outputs.advance(packets.last().map_or(0, |last| last.ts_ns));
        }
        let times = packets.iter().map(|packet| packet.ts_ns);
        self.outputs.services.packet(times.clone().next().unwrap_or(0));
        self.outputs.advance(times.max().unwrap_or(0));
    }

    /// Returns whether a call or an outcome can be delivered.
    pub(super) fn can_deliver(&mut self) -> bool {
        let are_made = self.stop.phase().serves();
        let can = |id, serves: bool| (are_made || !serves) && takes(&self.modules, id, serves);
        self.outputs.services.can_progress(can)
    }

    /// Records that a module in a process has made a call, or will not make it.
    pub(crate) fn made(&mut self, server: ModuleId, call: u64) -> Result<(), RunError> {
        self.outputs.services.made(server, call);
        self.deliver_after_output()
    }

    /// Records that a module in a process has taken the first of the outcomes that it was given.
    pub(crate) fn taken(&mut self, caller: ModuleId) -> Result<(), RunError> {
        self.outputs.services.taken(caller);
        self.deliver_after_output()
    }

    /// Records that a process has reported everything of a module, whose slow instance lost so many messages.
    pub(crate) fn ended(&mut self, module: ModuleId, messages_lost: u64) {
        self.outputs.services.leave(module);
        if let Some(at) = self.place(module) {
            self.modules[at].losses.add(LossReason::Messages, None, messages_lost);
        }
    }

    /// Records that the fast instances of a module in a process have ended. Its calls end now if it is
    /// removed, and otherwise with those of the others.
    pub(crate) fn drained(&mut self, module: ModuleId) -> Result<(), RunError> {
        let process = self.place(module).and_then(|at| self.modules[at].process.as_ref());
        let Some(process) = process else { return Ok(()) };
        process.drained();
        if process.is_removal() || self.outputs.services.are_closed() {
            process.close(self.outputs.waited());
            self.outputs.services.close(module);
            self.deliver()?;
        }
        Ok(())
    }

    /// Lets the slow instances in processes end that have the outcomes of all calls, whichever event was the
    /// last. Outcomes that a module takes too slowly are lost: it has to end in time, and does not decide
    /// alone how many there are.
    pub(crate) fn end_slow(&mut self) {
        for m in &mut self.modules {
            let Some(since) = m.process.as_ref().and_then(RemoteReference::closed) else { continue };
            if self.outputs.waited() - since > LAST_OUTCOMES_MAX {
                m.lose_messages(self.outputs.services.forget(m.id) as u64);
            }
            if self.outputs.services.is_settled(m.id) {
                m.process.iter().for_each(RemoteReference::end_slow);
            }
        }
    }

    fn processes(&self) -> impl Iterator<Item = (ModuleId, &RemoteReference)> {
        self.modules.iter().filter_map(|m| Some((m.id, m.process.as_ref()?)))
    }

    /// Advances the end of all calls, once all fast instances have ended in this process. Does nothing while
    /// some in other processes have not, which a worker ends after [`PROCESS_END_MAX`].
    pub(crate) fn end_calls(&mut self) -> Result<(), RunError> {
        let now = self.outputs.waited();
        let since = *self.ending.get_or_insert(now);
        if self.outputs.services.are_closed() {
            return Ok(());
        }
        if now - since < PROCESS_END_MAX && self.processes().any(|(_, process)| process.has_fast()) {
            return Ok(());
        }
        let quantum = Quantum::whole(self.stop);
        for m in &mut self.modules {
            m.go(&quantum, &mut self.outputs, &mut self.faults)?;
        }
        if self.outputs.services.close_all(self.stop.phase()) {
            self.processes().for_each(|(_, process)| process.close(now));
        }
        self.deliver()
    }

    /// Delivers what waits at the end of a run without processes, or whose processes have ended. Calls
    /// without an outcome end, and outcomes are delivered.
    pub(super) fn deliver_last(&mut self) -> Result<(), RunError> {
        while !self.outputs.services.are_closed() {
            self.end_calls()?;
        }
        // Each module has few outcomes left, and makes no further calls.
        while self.can_deliver() {
            self.deliver()?;
        }
        Ok(())
    }

    /// Lets the slow instances in processes end as they are, because nobody collects any more.
    pub(crate) fn let_go(&self) {
        self.processes().for_each(|(_, process)| process.end_slow());
    }

    /// Records the fault of a module's instance, or the eviction of a module.
    pub(crate) fn add_fault(&mut self, report: FaultReport) {
        // Calls are served by the slow instance, which belongs to no worker.
        if report.process || report.evicted.is_some() || report.worker.is_none() {
            self.outputs.services.leave(report.id);
        }
        // Nothing leaves of the interval in which a module is evicted.
        if report.evicted.is_some()
            && let Some(at) = self.place(report.id)
        {
            self.modules[at].undue.iter_mut().for_each(Undue::clear);
        }
        self.faults.add(report);
    }
}
