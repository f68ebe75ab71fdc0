//! The collector as the destination of a pipeline's output.

use crate::error::RunError;
use crate::records::collect::Collector;
use crate::records::event::OverloadChange;
use crate::records::event::Removed;
use crate::records::outlet::PipelineOutlet;
use flame_execute::{Origin, Outlet};
use flame_plan::{FaultReport, ModuleId};
use flame_run::Output;

/// The output of the pipeline needs no queue if there is one worker.
impl Outlet<RunError> for Collector<'_> {
    fn output(&mut self, from: Origin, output: Output<'_>) -> Result<(), RunError> {
        Collector::output(self, from, output.bytes)
    }

    fn fault(&mut self, report: FaultReport) -> Result<(), RunError> {
        self.add_fault(report);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), RunError> {
        self.poll().map(drop)
    }

    fn passed(&mut self, module: ModuleId, worker: usize, now_ns: u64) -> Result<(), RunError> {
        Collector::passed(self, module, worker, now_ns)
    }
}

impl PipelineOutlet for Collector<'_> {
    fn removed(&mut self, removed: Removed) -> Result<(), RunError> {
        Collector::removed(self, removed)
    }

    fn ending(&mut self) -> Result<(), RunError> {
        self.set_ending();
        Ok(())
    }

    fn overload(&mut self, worker: usize, change: OverloadChange) -> Result<(), RunError> {
        Collector::overload(self, worker, change);
        Ok(())
    }
}
