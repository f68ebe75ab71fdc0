//! The binary interface between host and modules: layout of memory, calls and records. Version 1.
//!
//! All integers are little-endian and at fixed offsets, so that modules in C, Rust and hand-written Wasm can
//! read them. `docs/abi.md` describes the same interface in prose. The feature `manifest` adds the types and
//! the parser of the manifest, which need an allocator; the rest is `no_std`.
#![cfg_attr(not(feature = "manifest"), no_std)]
#![forbid(unsafe_code)]

pub mod capsule;
pub mod config;
pub mod descriptor;
pub mod header;
pub mod layout;
pub mod link;
#[cfg(feature = "manifest")]
pub mod manifest;
pub mod output;

pub use descriptor::{Descriptor, flags, has_ports, tcp};
pub use header::{BatchHeader, InitHeader, batch_flags, role};
pub use link::LinkType;

/// The version of this interface. A module states it in its manifest as `abi = 1`.
pub const VERSION: u32 = 1;

/// The maximum number of packets in a batch.
pub const MAX_BATCH: usize = 256;

/// The length of the longest captured packet in bytes (libpcap's MAXIMUM_SNAPLEN). Sources treat longer
/// packets as damage.
pub const MAX_PACKET: usize = 262_144;

/// The maximum number of packets in a block.
pub const MAX_BLOCK_PACKETS: usize = 1024;

/// The minimum cost of a call other than a batch in units of work, about the cost of the host's work around
/// it. A call runs without counters only if its proven bound does not exceed this.
pub const CALL_UNITS: u64 = 1024;

/// The number of captured bytes after which a source closes a block. The packet that crosses this limit still
/// belongs to the block, so a block holds at most `MAX_BLOCK_BYTES + MAX_PACKET` bytes.
pub const MAX_BLOCK_BYTES: usize = 1 << 20;
