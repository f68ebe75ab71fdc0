//! All tests of counters, in one program.

mod common;
mod differential;
mod hoist;
mod pieces;
mod polls;
mod programs;
mod revoked;
mod rewrite;
