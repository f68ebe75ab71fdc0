//! Click's elements and the runtime that moves packets between them.
//!
//! A [`Router`] is built from a flat graph. One thread runs it: tasks, timers and handlers take turns, and
//! packets move in batches. With several threads each has a router, and packets pass between them at queues
//! ([`threads`]). Elements have inner mutability, since a packet or a handler call may come back to
//! an element that is at work, as in Click.
#![forbid(unsafe_code)]

pub mod driver;
// Brackets in the manuals of elements stand around optional arguments.
#[allow(rustdoc::broken_intra_doc_links)]
mod elements;
pub mod modules;
mod registry;
mod runtime;

pub use registry::{CLASSES, Class, find};
pub use runtime::account::Account;
pub use runtime::clock::Clock;
pub use runtime::element::{Cx, Element};
pub use runtime::packet::{Batch, Packet};
pub use runtime::router::{Environment, Outcome, Router, Stream};
pub use runtime::run::Work;
pub use runtime::threads;
