//! The delivery of calls of services and of their outcomes.

use super::Collector;
use crate::collected::Collected;
use crate::error::RunError;
use flame_execute::Quantum;
use flame_plan::{FaultReport, ModuleId};

/// The maximum number of calls and outcomes that are delivered before others have a turn: two modules could
/// answer each other without an end.
const DELIVERIES: usize = 1024;

/// The rounds in which calls are delivered at the end of a run, before the others end, and in which outcomes
/// are delivered after that.
const LAST_CALLS: usize = 4;
const LAST_OUTCOMES: usize = 32;

/// Returns whether the module with this number takes calls and outcomes.
fn takes(modules: &[Collected], id: ModuleId) -> bool {
    modules.iter().any(|m| m.id == id && m.takes_calls())
}

impl Collector<'_> {
    /// Delivers calls and outcomes that wait, in an order that follows from that of the calls. On sources
    /// that are not live, each is a call of its module before the next one.
    pub(super) fn deliver(&mut self) -> Result<(), RunError> {
        self.outputs.services.expire(self.outputs.now_ns);
        for _ in 0..DELIVERIES {
            let Some(to) = self.deliver_next() else { return Ok(()) };
            if !self.is_live
                && let Some(at) = self.place(to)
            {
                self.go(at)?;
            }
        }
        Ok(())
    }

    /// Delivers the next call or outcome, and returns the module to which it went.
    fn deliver_next(&mut self) -> Option<ModuleId> {
        let (modules, services) = (&mut self.modules, &mut self.outputs.services);
        if let Some((to, outcome)) = services.next_outcome(|id| takes(modules, id)) {
            modules.iter_mut().filter(|m| m.id == to).for_each(|m| m.done(outcome.clone()));
            return Some(to);
        }
        let request = services.next_request(|id| takes(modules, id))?;
        let payer = modules.iter().find(|m| m.id == request.caller).map(|m| m.meters.clone());
        match payer.filter(|payer| !self.is_live || payer.may_begin()) {
            Some(payer) => {
                let server = modules.iter_mut().find(|m| m.id == request.server);
                server.into_iter().for_each(|m| m.serve(&request, &payer));
            }
            None => services.refuse(request.server, request.call),
        }
        Some(request.server)
    }

    /// Returns whether a call or an outcome can be delivered.
    pub(super) fn can_deliver(&self) -> bool {
        self.outputs.services.can_progress(self.outputs.now_ns, |id| takes(&self.modules, id))
    }

    /// Delivers what waits at the end of a run. Calls without an outcome then end.
    pub(super) fn deliver_last(&mut self) -> Result<(), RunError> {
        for round in 0..LAST_CALLS + LAST_OUTCOMES {
            if round == LAST_CALLS {
                self.outputs.services.close();
            }
            self.deliver()?;
            let quantum = Quantum::whole(self.stop);
            for m in &mut self.modules {
                m.go(&quantum, &mut self.outputs, &mut self.faults)?;
            }
        }
        Ok(())
    }

    /// Records the fault of a module's instance, or the eviction of a module.
    pub(crate) fn add_fault(&mut self, report: FaultReport) {
        // Calls are served by the slow instance, which belongs to no worker.
        if report.process || report.evicted.is_some() || report.worker.is_none() {
            self.outputs.services.leave(report.id);
        }
        self.faults.add(report);
    }
}
