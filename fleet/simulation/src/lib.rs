//! A fleet in one thread, from a seed: nodes, links, a server, writers and an archive around the protocols.
pub mod broken;
pub mod queue;
pub mod records;
pub mod spool;

pub use broken::Broken;
