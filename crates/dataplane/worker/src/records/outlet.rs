//! The output of pipelines, which goes to the queue of the collector's thread.

use crate::error::RunError;
use crate::process::ModuleEvent;
use crate::records::event::OverloadChange;
use crate::records::event::{Event, EventSender, Removed};
use flame_execute::{Origin, Outlet};
use flame_plan::{FaultReport, ModuleId};
use flame_run::Output;

/// The destination of a pipeline's output.
pub(crate) trait PipelineOutlet: Outlet<RunError> {
    fn removed(&mut self, removed: Removed) -> Result<(), RunError>;

    /// Passes on that all fast instances of `worker` in this process have ended, and those in others are
    /// requested to.
    fn ending(&mut self) -> Result<(), RunError>;

    /// Passes on that a module begins to lose packets to an overload of `worker`, or receives all again.
    fn overload(&mut self, worker: usize, change: OverloadChange) -> Result<(), RunError>;
}

/// The queue from a pipeline's thread to the collector. Only output is copied, never a packet.
pub(crate) struct Queue<'a> {
    pub(crate) worker: usize,
    pub(crate) events: &'a EventSender,
}

impl Queue<'_> {
    pub(crate) fn send(&self, event: Event) -> Result<(), RunError> {
        if let Event::Tick { worker, now_ns, .. } = &event {
            self.events.lead().pass(*worker, *now_ns);
        }
        self.events.send(event)
    }
}

impl Outlet<RunError> for Queue<'_> {
    fn output(&mut self, from: Origin, output: Output<'_>) -> Result<(), RunError> {
        self.events.lead().wait(self.worker);
        self.send(Event::Module(ModuleEvent::Output { from, bytes: output.bytes.to_vec() }))
    }

    fn fault(&mut self, report: FaultReport) -> Result<(), RunError> {
        self.send(Event::Module(ModuleEvent::Fault(report)))
    }

    fn passed(&mut self, module: ModuleId, worker: usize, now_ns: u64) -> Result<(), RunError> {
        self.send(Event::Module(ModuleEvent::Passed { module, worker, now_ns }))
    }
}

impl PipelineOutlet for Queue<'_> {
    fn removed(&mut self, removed: Removed) -> Result<(), RunError> {
        self.send(Event::Removed(removed))
    }

    fn ending(&mut self) -> Result<(), RunError> {
        self.send(Event::Ending)
    }

    fn overload(&mut self, worker: usize, change: OverloadChange) -> Result<(), RunError> {
        self.send(Event::Overload(worker, change))
    }
}
