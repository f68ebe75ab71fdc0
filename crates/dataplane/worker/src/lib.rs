//! The loop over packets: source, decode, view, run, record; wired for one run.
//!
//! A packet passes, by file: [`read`] takes a block from the source and decodes it, [`pipeline`] has each
//! [`stage`] view it and hand it to [`runner`]s, the fast instances; [`collect`] has the slow ones and hands
//! records to the sink. [`caller`] calls both, under one set of rules. [`threads`] decides which thread does
//! what.
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
mod outlet;
mod pipeline;
mod read;
mod report;
mod run;
mod runner;
mod stage;
mod stop;
mod threads;

pub use error::RunError;
pub use handle::Handle;
pub use module::Module;
pub use report::{FaultReport, Observer, Report, Silent, Snapshot};
pub use run::{Input, Options, Run, Worker};
