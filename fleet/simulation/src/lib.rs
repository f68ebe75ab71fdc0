//! A fleet in one thread, from a seed: nodes, links, a server, writers and an archive around the protocols.
#![forbid(unsafe_code)]

pub mod broken;
pub mod control;
pub mod queue;
pub mod records;
pub mod spool;

pub use broken::Broken;
