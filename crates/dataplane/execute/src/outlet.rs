use flame_plan::{FaultReport, ModuleId};
use flame_run::Output;

/// The origin of output.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    pub module: ModuleId,
    pub worker: usize,
    /// Whether this is the first output of its call that has messages.
    pub is_first: bool,
}

/// The destination of the output of batch loops. A method that fails with `E` ends the loop's work.
pub trait Outlet<E> {
    /// Receives checked output of one call.
    fn output(&mut self, from: Origin, output: Output<'_>) -> Result<(), E>;
    fn fault(&mut self, report: FaultReport) -> Result<(), E>;
    /// Records that the module has completed the tick at `now_ns`, and all calls before it, on this worker.
    fn passed(&mut self, module: ModuleId, worker: usize, now_ns: u64) -> Result<(), E>;
}
