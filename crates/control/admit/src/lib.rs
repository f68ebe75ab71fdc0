//! The verdict on a module: bounded or metered, and why. `flame check` prints it, and a run obeys it.
//!
//! A module is bounded if its batches have a verified bound within its packet budget and, under a time limit,
//! an estimate within that limit. Everything else is metered.
#![forbid(unsafe_code)]

mod limit;
mod verdict;

pub use limit::PacketTimeLimit;
pub use verdict::{Admission, BatchBounds, Protection, Verdict, Why, decide, visible};
