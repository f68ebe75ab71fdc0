//! The node's daemon: runs modules of several principals on sources of packets, and changes them while
//! packets flow.
//!
//! ```text
//! node.toml → Engine: sources, modules, store, spools ← server: HTTP over a Unix socket and TLS 1.3
//! ```
//!
//! Files by subject: `config`; `store` (SQLite and code); `source` (workers); `spool` (records kept for
//! clients); `engine` (the node's state), `life` (of a module) and `reconcile` (which alone starts, ends and
//! writes modules); `build`, `change`, `renew`, `restore`, `review` and `processes` (which state what is
//! wished), `standing` (their threads) and `shown` (what clients see); `stamps` (of a policy's files);
//! `outbox` (records on their way into a fleet); `keep`, `kept` and `store::states` (the state that modules
//! keep); `ledgers` (of quotas); `reserve` (the ledger of reservations), `reservation` and `admission`;
//! `restarts` (of principals' processes); `identity` (who asks), `door` and `reach` (what a session may act
//! on) and `server` (requests); `service` (the life of the process). No files of a crate use each other in a
//! cycle.
#![forbid(unsafe_code)]

mod accounting;
mod admission;
mod build;
mod change;
mod config;
mod door;
mod engine;
mod error;
mod granted;
mod identity;
mod keep;
mod kept;
mod ledgers;
mod life;
mod locked;
mod log;
mod outbox;
mod privileges;
mod processes;
mod reach;
mod reconcile;
mod refusals;
mod renew;
mod reservation;
mod reserve;
mod restarts;
mod restore;
mod review;
mod revoke;
mod route;
mod security;
mod server;
mod service;
mod shown;
mod source;
mod spool;
mod stamps;
mod standing;
mod store;
mod units;

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod end_tests;
#[cfg(test)]
mod outbox_tests;
#[cfg(test)]
mod revocation_tests;
#[cfg(test)]
mod test_world;
#[cfg(test)]
mod wall_tests;

pub use build::check_runs;
pub use config::{Config, ConfigError};
pub use engine::Engine;
pub use restore::StartError;
pub use server::description;
pub use service::{check, run};
pub use store::{StoreError, StoredRow, read_all};
pub use units::{percent, size};
