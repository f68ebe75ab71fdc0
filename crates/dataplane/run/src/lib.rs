//! Runs modules: maps windows and shared areas into their memory, calls them with batches, and enforces
//! budgets and limits.
//!
//! This crate never compiles. It loads machine code that this node's compiler made with the same
//! configuration (`flame_engine`), so that a process that runs foreign code need not contain a compiler.

mod apart;
mod areas;
mod call;
pub mod engine;
mod eviction;
mod fault;
mod instance;
mod memory;
mod quota;
mod watch;

pub use areas::{Area, AreaError, Areas, MAX_AREAS};
pub use call::{Allowance, Call, CallReturn, Pace, Returned, Slice, Suspended};
pub use engine::Engines;
pub use eviction::Eviction;
pub use fault::{Fault, FaultKind, Frame};
pub use instance::{COUNTER, Instance, Loaded, Output, Pending, Role};
pub use memory::Mapping;
pub use wasmtime::{Engine, Error as EngineError};
pub use watch::{Watchdog, register_barrier};
