//! The loop: source, decode, view, run, record; and the one builder that wires them.
//!
//! A packet goes, by file: [`read`] takes a block from the source and decodes it, [`pipeline`] views it
//! and hands it to [`runner`]s, the fast instances, [`collect`] has the slow ones and hands records to the sink.
//! [`caller`] calls both, under one set of rules.
//! [`run`] decides which thread does what: everything in one for one worker, else one thread a pipeline.
#![forbid(unsafe_code)]

mod caller;
mod clock;
mod collect;
mod granted;
mod limit;
mod pipeline;
mod read;
mod report;
mod run;
mod runner;
mod stop;

pub use report::{FaultReport, Observer, Report, Silent};
pub use run::{Input, Options, Run, RunError};
