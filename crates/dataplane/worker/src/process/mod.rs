//! Modules that run in a process of their principal: the process, and its modules on one worker.
//!
//! The worker computes their views and writes the blocks; the process maps them read-only. Commands go to the
//! process through a queue and a thread, because nothing that a process does may stop a worker. Its reports
//! are untrusted: output is checked against the manifest again, and its numbers of packets count only within
//! the number that was delivered.

mod batches;
mod charge;
mod child;
mod deadline;
mod event;
mod kernel;
mod module;
mod process_state;
mod processes;
mod program;
mod reports;
mod running;
mod schedule;
mod service_time;
mod state;
mod watch;

pub(crate) use batches::RemoteBatches;
pub use child::StartedProcess;
pub(crate) use event::ModuleEvent;
pub(crate) use module::{RemoteModule, RemoteReference};
pub use process_state::{LostModule, ProcessInfo};
pub(crate) use processes::Processes;
pub use program::Runner;
