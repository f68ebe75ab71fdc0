//! The packet loop: source, decode, view, run and record, connected for one run.
//!
//! The path of a packet, by file: `read` takes a block from the source and decodes it; in the `pipeline`,
//! each `stage` computes a view of it and publishes that to the batch loops (`flame_execute`) of the fast
//! instances; `collect` holds the slow ones and passes records to the sink. `threads` assigns the work to
//! threads.
//!
//! A [`Run`] is prepared, then executed on the caller's thread or [spawned](Worker). Its [`Handle`] adds,
//! removes and evicts modules and reads accounts while packets flow.
#![forbid(unsafe_code)]

mod batches;
mod clock;
mod collect;
mod error;
mod granted;
mod handle;
mod options;
mod outlet;
mod pipeline;
mod placed;
mod read;
mod remote;
mod report;
mod run;
mod stage;
mod threads;
mod wiring;

pub use error::RunError;
pub use flame_execute::{LoadError, Module};
pub use flame_plan::FaultReport;
pub use handle::Handle;
pub use options::Options;
pub use report::{Observer, Report, Silent, Snapshot};
pub use run::{Input, Run, Worker};
