//! The packet loop: source, decode, view, run and record, connected for one run.
//!
//! The path of a packet, by file: `read` takes a block from the source and decodes it; in the `pipeline`,
//! each `stage` computes a view of it and publishes that to the batch loops (`flame_execute`) of the fast
//! instances; `overload` leaves modules of low priority out while the worker is behind; `collect` holds the
//! slow ones, passes records to the sink, and delivers the calls of `services`. `threads` assigns the work to
//! threads.
//!
//! A [`Run`] is prepared, then executed on the caller's thread or [spawned](Worker). Its [`Handle`] adds,
//! removes and evicts modules and reads accounts while packets flow.
#![forbid(unsafe_code)]

mod attached;
mod batches;
mod calls;
mod channels;
mod charge;
mod clock;
mod closing;
mod collect;
mod collected;
mod decider;
mod dispatch;
mod draft;
mod error;
mod event;
mod faults;
mod forward;
mod front;
mod gather;
mod granted;
mod handle;
mod held;
mod inline;
mod lead;
mod loss;
mod made;
mod naps;
mod numbers;
mod onset;
mod options;
mod order;
mod outlet;
mod outputs;
mod overload;
mod pipeline;
mod placed;
mod queues;
mod read;
mod regulator;
mod released;
mod remote;
mod report;
mod run;
mod services;
mod sorting;
mod stage;
mod threads;
mod todo;
mod turns;
mod undue;
mod wiring;

pub use attached::Attached;
pub use channels::reserved_rate;
pub use charge::Charging;
pub use error::RunError;
pub use flame_execute::{Begun, Keep, LoadError, Module, News, OnNews, Place, SliceThread, Slices, State};
pub use flame_plan::FaultReport;
pub use flame_plan::limits::ProcessLimits;
pub use flame_run::{Area, AreaError, Areas, MAX_AREAS};
pub use flame_transmit::{Bandwidth, Capture, Link, LinkError, Wire};
pub use forward::check_forward;
pub use granted::MAX_FAULTS;
pub use handle::{HaltedModule, Handle, check_joins};
pub use options::Options;
pub use overload::Overload;
pub use remote::{LostModule, ProcessInfo, Runner, StartedProcess};
pub use report::{LossReason, Lost, NotDue, Observer, Report, ShownReport, Silent, Snapshot};
pub use run::{Input, Run, Worker};

use flame_base::lock;
