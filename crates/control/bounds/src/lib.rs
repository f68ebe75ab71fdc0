//! The permitted contents of untrusted modules, and the maximum costs of their calls.
//!
//! [`check()`] rejects modules that break a rule. It takes any bytes, and neither panics, recurses, nor needs
//! more than a constant times the module's size in time and memory.
//!
//! [`find()`] writes certificates, from which `flame-verify` derives bounds. [`prove`] returns the functions
//! that may run without the counters of `flame-meter`, and [`analyse()`] also reports times, classes, loops
//! and the worst-case path. Only verified results are relied upon.
#![forbid(unsafe_code)]

mod analyse;
mod capsule;
mod check;
mod class;
mod find;
mod rules;
mod work;

pub use analyse::{
    Analysis, Bound, Cause, Costs, Depends, Dominant, Entry, Kind, LoopReport, MAX_LENGTH, Poly, Proved,
    Reason, Remedy, Stack, Step, TYPICAL, TripCount, analyse, analyse_exports, prove,
};
pub use capsule::{Capsule, CapsuleError, capsule};
pub use check::check;
pub use check::{Checked, Exports};
pub use class::Class;
pub use find::{Effort, find};
pub use flame_meter::{ModuleError, Place};
pub use rules::Rules;
pub use work::Size;
