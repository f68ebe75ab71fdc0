//! Executes modules over the blocks of their views: which call is next, how long it may take, and what
//! follows its end. The same code runs in the worker's thread and in a separate process.
//!
//! A [`BatchLoop`] holds the fast instance of a module on one worker, a [`SlowLoop`] its slow instance. Both
//! make their calls through a [`Caller`], under the same rules. Output goes to an [`Outlet`].
#![forbid(unsafe_code)]

mod batch_loop;
mod caller;
mod guard;
mod keep;
mod keeping;
mod limit;
mod module;
mod outlet;
mod slices;
mod slow_loop;
mod stop;
mod ticks;

pub use batch_loop::{BatchLoop, Conditions};
pub use caller::{Caller, Ended};
pub use keep::{Begun, Held, Keep, Lost, News, OnNews, Place, Requested, State};
pub use limit::Charge;
pub use module::{Attachment, Halts, LoadError, LoadedModule, Module, Shape};
pub use outlet::{Origin, Outlet};
pub use slices::{SliceThread, Slices};
pub use slow_loop::SlowLoop;
pub use stop::{Behind, Phase, Quantum, Stop};
