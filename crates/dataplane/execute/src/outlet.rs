use flame_plan::{FaultReport, ModuleId, Processed, Shed};
use flame_run::Output;

/// The origin of output.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pub module: ModuleId,
    pub worker: usize,
    /// The number of the call among those of its instance and the ones before it. Messages of one call share
    /// a budget.
    pub call: u64,
    /// The packets that are processed with the call: its output is about no later ones.
    pub processed: Processed,
}

impl Origin {
    /// Returns the origin of output of which the worker knows nothing more.
    pub fn of(module: ModuleId, worker: usize) -> Self {
        Self { module, worker, call: 0, processed: Processed::default() }
    }
}

/// The destination of the output of batch loops. A method that fails with `E` ends the loop's work.
pub trait Outlet<E> {
    /// Receives checked output of one call.
    ///
    /// # Errors
    ///
    /// Returns an error if the output cannot be passed on.
    fn output(&mut self, from: Origin, output: Output<'_>) -> Result<(), E>;

    /// Receives the report of a fault or of the eviction of a module, whose instance is gone.
    ///
    /// # Errors
    ///
    /// Returns an error if the report cannot be passed on.
    fn fault(&mut self, report: FaultReport) -> Result<(), E>;

    /// Records that the next `count` packets of the blocks have left the loop: processed, with all their
    /// output before this call, or lost with all of it for a cause. Of those, the number that comes with the
    /// cause was not processed either.
    ///
    /// # Errors
    ///
    /// Returns an error if this cannot be passed on.
    fn decided(&mut self, _count: u32, _lost: Option<(Shed, u32)>) -> Result<(), E> {
        Ok(())
    }

    /// Does what other threads do elsewhere, while the caller waits for a process.
    ///
    /// # Errors
    ///
    /// Returns an error if output of a process cannot be passed on.
    fn wait(&mut self) -> Result<(), E> {
        Ok(())
    }

    /// Records that the module has completed the tick at `now_ns`, and all calls before it, on this worker.
    ///
    /// # Errors
    ///
    /// Returns an error if this cannot be passed on.
    fn passed(&mut self, module: ModuleId, worker: usize, now_ns: u64) -> Result<(), E>;
}
