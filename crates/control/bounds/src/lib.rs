//! What untrusted modules may contain, and what their calls cost at most.
//!
//! [`check`] refuses what no module may have. It takes any bytes, and neither panics, recurses, nor needs
//! more than a constant times the module's size in time and memory.
//!
//! [`find()`] writes certificates, from which `flame-verify` derives bounds. [`prove`] says which functions
//! may run without the counters of `flame-meter`, and [`analyse`] reports what people want to know besides:
//! times, classes, loops, the costliest path. Of these, only what is verified is relied upon.
#![forbid(unsafe_code)]

mod analyse;
mod check;
mod class;
mod find;
mod rules;
mod work;

pub use analyse::{
    Analysis, Bound, Costs, Depends, Entry, LoopReport, MAX_LENGTH, Poly, Proved, Stack, Step, TYPICAL,
    TripCount, analyse, analyse_exports, prove,
};
pub use check::check;
pub use check::{Checked, Exports};
pub use class::Class;
pub use find::{Effort, find};
pub use flame_meter::{ModuleError, Place};
pub use rules::Rules;
