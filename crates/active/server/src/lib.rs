//! Active nodes and hosts over UDP: the protocols of the crates beside this one, with sockets, credentials
//! and the confined compiler.
//!
//! A configuration ([`Config`]) names the credential of a node or host, its neighbours and its accounts. A
//! *place* is the digest of a root and the name that the root gave in a credential, and so is a *payer*:
//! neither needs a field of its own, and no holder chooses them. Credentials of one role are for nodes,
//! which vouch for the payers of what they pass on; all others are hosts.
//!
//! [`serve()`] is a node: one thread, one socket. [`Client`] is a host, which sends capsules to its node and
//! waits for deliveries. [`Extensions`] are the services of modules that principals have installed, and
//! [`Asking`] brings the questions of capsules to those that answer themselves.
#![forbid(unsafe_code)]

mod asking;
mod certificates;
mod client;
mod compiler;
mod config;
mod extensions;
mod probe;
mod serve;

pub use asking::{Asking, Inbox, Question as ModuleQuestion, Replies};
pub use certificates::{Judge, grant_of, own, payer_of, place_of};
pub use client::{Client, Question, Spans};
pub use compiler::Confined;
pub use config::{Config, ConfigError, Installed};
pub use extensions::{Extensions, MAX_KEYS, Service, Value, key_of};
pub use probe::{Probe, Visited};
pub use serve::{Report, ServeError, clock, serve};
