//! What host and module agree on: the layout of memory, calls and records. Version 1.
//!
//! Everything is little-endian and has a fixed offset, because modules in C, Rust and hand-written
//! Wasm read it. `docs/abi.md` is the same contract in prose. The feature `manifest` adds the
//! manifest's types and parser, which need an allocator; the rest is `no_std`.
#![cfg_attr(not(feature = "manifest"), no_std)]
#![forbid(unsafe_code)]

pub mod config;
pub mod descriptor;
pub mod header;
pub mod layout;
pub mod link;
#[cfg(feature = "manifest")]
pub mod manifest;
pub mod output;

pub use descriptor::{Descriptor, flags, tcp};
pub use header::{BatchHeader, InitHeader, batch_flags, role};
pub use link::LinkType;

/// Version of this contract. A module states it in its manifest as `abi = 1`.
pub const VERSION: u32 = 1;

/// Packets in one batch, at most.
pub const MAX_BATCH: usize = 256;

/// Longest captured packet in bytes (libpcap's MAXIMUM_SNAPLEN); sources treat more as damage.
pub const MAX_PACKET: usize = 262_144;

/// Packets in one block, at most.
pub const MAX_BLOCK_PACKETS: usize = 1024;

/// Units of work that a call other than a batch costs at least: about what the host does around it. A call is
/// left uncounted only if it is proved to cost no more.
pub const CALL_UNITS: u64 = 1024;

/// Captured bytes in one block after which a source closes it. A block may exceed this by the one
/// packet that crossed it, so a block holds at most `MAX_BLOCK_BYTES + MAX_PACKET` bytes.
pub const MAX_BLOCK_BYTES: usize = 1 << 20;
