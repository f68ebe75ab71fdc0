//! The node's daemon: runs modules of several principals on sources of packets, and changes them while
//! packets flow.
//!
//! ```text
//! node.toml → Engine: sources, modules, store, spools ← server: HTTP over a Unix socket and TLS 1.3
//! ```
//!
//! Files by subject: `config`; `store` (SQLite and code); `source` (workers), `paced` (captures replayed);
//! `spool` (records kept for clients); `engine`, `build`, `change`, `restore` and `review` (modules);
//! `identity` (who asks) and `server` (requests); `service` (the life of the process).
#![forbid(unsafe_code)]

mod build;
mod change;
mod config;
mod engine;
mod error;
mod identity;
mod paced;
mod privileges;
mod restore;
mod review;
mod server;
mod service;
mod source;
mod spool;
mod store;
mod units;

#[cfg(test)]
mod config_tests;

pub use config::{Config, ConfigError};
pub use engine::Engine;
pub use restore::StartError;
pub use server::description;
pub use service::{check, run};
