//! The packet loop: source, decode, view, run and record, connected for one run.
//!
//! Five folders, each of which uses those before it:
//!
//! | folder | what is there |
//! | --- | --- |
//! | `process` | modules in a process of their principal: commands, untrusted reports, limits |
//! | `records` | from the output of modules to sinks, channels and services: order, quotas, loss, reports |
//! | `packets` | from blocks to modules: reading, dealing to workers, views, batches, overload |
//! | `forward` | modules that decide about packets in a graph: packets that wait, packets that they compose |
//! | `run` | the whole: options, threads and their loops, the handle |
//!
//! The path of a packet: `packets/read` takes a block from the source and decodes it; in the
//! `packets/pipeline`, each `stage` computes a view of it and publishes that to the batch loops
//! (`flame_execute`) of the fast instances; `packets/overload` leaves modules of low priority out while the
//! worker is behind; `records/collect` holds the slow instances, passes records to the sink, and delivers the
//! calls of `records/services`. `run/threads` assigns the work to threads.
//!
//! A [`Run`] is prepared, then executed on the caller's thread or [spawned](Worker). Its [`Handle`] adds,
//! removes and evicts modules and reads accounts while packets flow.
#![forbid(unsafe_code)]

mod error;
mod forward;
mod packets;
mod process;
mod records;
mod run;

pub use error::RunError;
pub use flame_execute::{Begun, Keep, LoadError, Module, News, OnNews, Place, SliceThread, Slices, State};
pub use flame_plan::FaultReport;
pub use flame_plan::limits::ProcessLimits;
pub use flame_run::{Area, AreaError, Areas, MAX_AREAS};
pub use flame_transmit::{Bandwidth, Capture, Link, LinkError, Wire};
pub use forward::forwarding::check_forward;
pub use packets::overload::Overload;
pub use process::{LostModule, ProcessInfo, Runner, StartedProcess};
pub use records::channels::reserved_rate;
pub use records::charge::Charging;
pub use records::granted::MAX_FAULTS;
pub use records::report::{LossReason, Lost, NotDue, Observer, Report, ShownReport, Silent, Snapshot};
pub use run::attached::Attached;
pub use run::handle::{HaltedModule, Handle, check_joins};
pub use run::options::Options;
pub use run::prepare::{Input, Run, Worker};

use flame_base::lock;
