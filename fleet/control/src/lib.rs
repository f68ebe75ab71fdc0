//! The control of a fleet: who its nodes are, what runs on them, and what is revoked.
//!
//! ```text
//! operator: flame fleet install ─► folder (0700) ─► flame fleet control ─► server (NATS, TLS, users)
//!                                                                              │
//! node:     its API ◄─ flame install, renew, stop, revoke ◄─ flame fleet agent ◄┘
//! ```
//!
//! The operator's folder holds the fleet's key and its state; commands change it, and one service signs
//! and sends. A node follows what [`flame_fleet_protocol::Agent`] accepts, as a session of its own node under
//! a credential, so its policy decides.
#![forbid(unsafe_code)]

mod authority;
mod commands;
mod folder;
mod follow;
mod look;
mod member;
mod node;
mod service;
mod state;
mod token;
mod users;

pub use commands::{Command, Seconds};
pub use follow::follow;
pub use member::{Member, Settings};

/// The error that ends a command. Its message states place and remedy.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Returns the time in seconds since 1970, as the machine states it.
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Returns random bytes of the kernel.
fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| format!("the kernel gives no random bytes: {e}"))?;
    Ok(bytes)
}

/// Prints a message of a service, unless it is the one before.
fn note(last: &mut String, text: String) {
    if *last != text {
        eprintln!("{text}");
        *last = text;
    }
}
