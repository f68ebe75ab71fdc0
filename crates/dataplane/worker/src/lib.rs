//! The packet loop: source, decode, view, run and record, connected for one run.
//!
//! The path of a packet, by file: `read` takes a block from the source and decodes it; in the `pipeline`,
//! each `stage` computes a view of it and passes that to `runner`s, which hold the fast instances;
//! `collect` holds the slow ones and passes records to the sink. `caller` calls both kinds of instances,
//! under the same rules. `threads` assigns the work to threads.
//!
//! A [`Run`] is prepared, then executed on the caller's thread or [spawned](Worker). Its [`Handle`] adds,
//! removes and evicts modules and reads accounts while packets flow.
#![forbid(unsafe_code)]

mod caller;
mod clock;
mod collect;
mod error;
mod granted;
mod handle;
mod limit;
mod module;
mod options;
mod outlet;
mod pipeline;
mod read;
mod report;
mod run;
mod runner;
mod stage;
mod stop;
mod threads;
mod wiring;

pub use error::RunError;
pub use handle::Handle;
pub use module::Module;
pub use options::Options;
pub use report::{FaultReport, Observer, Report, Silent, Snapshot};
pub use run::{Input, Run, Worker};
