//! The reports of processes, which the thread of the pipeline takes if no other thread collects.

use super::Collector;
use crate::error::RunError;
use crate::process::ModuleEvent;
use crate::records::event::Event;
use crate::records::queues::Queues;
use flame_execute::Charge;
use std::time::{Duration, Instant};

/// Longest time for which reports are handled while others wait for the thread.
const REPORTS_TURN: Duration = Duration::from_millis(10);

impl Collector<'_> {
    /// Takes the reports of processes from `queues` from now on.
    pub(crate) fn take_reports_from(&mut self, queues: Queues) {
        self.reports = Some(queues);
    }

    /// Records that the fast instances of the only pipeline have ended, or are about to.
    pub(crate) fn set_ending(&mut self) {
        self.is_ending = true;
    }

    /// Handles an event of a module. What a module that forwards decides is handled by who has the packets.
    pub(crate) fn event(&mut self, event: ModuleEvent) -> Result<(), RunError> {
        let _stalled = self.outputs.begin_stall();
        match event {
            ModuleEvent::Output { from, bytes } => {
                let module = self.modules.iter().find(|module| module.id == from.module);
                let _charge = module.and_then(|module| Charge::begin(&module.meters));
                self.output(from, &bytes)
            }
            ModuleEvent::Passed { module, worker, now_ns } => self.passed(module, worker, now_ns),
            ModuleEvent::Fault(report) => {
                self.add_fault(report);
                Ok(())
            }
            ModuleEvent::Served { module, call } => self.made(module, call),
            ModuleEvent::Taken(module) => self.taken(module),
            ModuleEvent::Drained(module) => self.drained(module),
            ModuleEvent::Ended(state) => {
                self.ended(state.id, state.messages_lost());
                state.end();
                Ok(())
            }
            ModuleEvent::Sent(_) | ModuleEvent::Decided { .. } => Ok(()),
        }
    }

    /// Returns a report of a process that waits.
    pub(crate) fn next_report(&mut self) -> Result<Option<ModuleEvent>, RunError> {
        let Some(reports) = &mut self.reports else { return Ok(None) };
        loop {
            match reports.poll()?.map(|sent| sent.event) {
                Some(Event::Module(event)) => return Ok(Some(event)),
                // The pipeline adds it here.
                Some(Event::Add(_, done)) => drop(done.send(())),
                Some(_) => {}
                None => break,
            }
        }
        self.end_slow();
        if self.is_ending {
            self.end_calls()?;
        }
        Ok(None)
    }

    /// Handles the reports of processes that wait, for a while: a process that always has another one must
    /// not keep the thread. Returns whether none is left.
    pub(crate) fn poll(&mut self) -> Result<bool, RunError> {
        let begun = Instant::now();
        while let Some(event) = self.next_report()? {
            self.event(event)?;
            if begun.elapsed() > REPORTS_TURN {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until a report of a process may be there, for `limit` at most.
    pub(crate) fn wait(&mut self, limit: Duration) {
        if let Some(reports) = &mut self.reports {
            reports.wait(limit);
        }
    }
}
