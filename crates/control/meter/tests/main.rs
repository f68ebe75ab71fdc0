//! All tests of counters, in one program.

mod common;
mod differential;
mod hoist;
mod polls;
mod programs;
mod revoked;
mod rewrite;
