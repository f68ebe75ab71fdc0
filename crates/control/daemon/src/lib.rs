//! The node's daemon: runs modules of several principals on sources of packets, and changes them while
//! packets flow.
//!
//! ```text
//! node.toml → Engine: sources, modules, store, spools ← server: HTTP over a Unix socket and TLS 1.3
//! ```
//!
//! Files by subject: `config`; `store` (SQLite and code); `source` (workers), `paced` (captures replayed);
//! `spool` (records kept for clients); `engine`, `build`, `change`, `renew`, `restore` and `review`
//! (modules); `keep` and `store_states` (the state that modules keep); `processes` (of principals, started
//! again when they end); `identity` (who asks), `door` (what a session may act on) and `server` (requests);
//! `service` (the life of the process).
#![forbid(unsafe_code)]

mod accounting;
mod admission;
mod build;
mod change;
mod config;
mod door;
mod engine;
mod error;
mod identity;
mod keep;
mod log;
mod paced;
mod privileges;
mod processes;
mod renew;
mod reserve;
mod restore;
mod review;
mod route;
mod security;
mod server;
mod service;
mod source;
mod spool;
mod store;
mod store_states;
mod units;

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod wall_tests;

/// The text of the sources that only nodes have, each of which begins with its manual.
pub const MANUALS: &[&str] = &[include_str!("paced.rs")];

pub use config::{Config, ConfigError};
pub use engine::Engine;
pub use restore::StartError;
pub use server::description;
pub use service::{check, run};
pub use units::{percent, size};
