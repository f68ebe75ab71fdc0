//! Runs modules: windows mapped read-only into their memory, batch calls, budgets, limits.
//!
//! This crate never compiles. It takes machine code that this node's compiler made ([`engine`] is
//! the configuration both share), so that the process which runs foreign code need not hold one.

mod call;
pub mod engine;
mod eviction;
mod fault;
mod instance;
mod memory;
mod watch;

pub use call::{Allowance, Call, Called, Returned, Slice, Suspended};
pub use engine::Engines;
pub use eviction::Eviction;
pub use fault::{Fault, FaultKind, Frame};
pub use instance::{Instance, Loaded, Output, Role};
pub use memory::Mapping;
pub use wasmtime::{Engine, Error as EngineError};
pub use watch::Watchdog;
