//! Where packets come from.
//!
//! A [`Source`] hands out [`RawBlock`]s: packets captured together, in memory that the block shares
//! (a mapped file, a decompressed buffer, the kernel's ring). Nothing is copied per packet.

mod files;
pub mod live;
mod names;

/// Sources of packets, whose files begin with their manuals.
pub const MANUALS: &[&str] = &[
    include_str!("files/mod.rs"),
    include_str!("files/pcap.rs"),
    include_str!("files/pcapng.rs"),
    include_str!("live/mod.rs"),
];

pub use files::{FileOptions, open, parse};
pub use names::link_name;

use bytes::Bytes;
use flame_abi::LinkType;

/// Place and length of one packet in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPacket {
    /// Capture time in nanoseconds since 1970.
    pub ts_ns: u64,
    /// Offset of the first byte in [`RawBlock::data`].
    pub offset: u32,
    /// Captured bytes.
    pub cap_len: u32,
    /// Bytes on the wire.
    pub wire_len: u32,
    pub link: LinkType,
}

/// Packets captured together. Reused by the caller, so that filling it does not allocate.
#[derive(Debug, Default)]
pub struct RawBlock {
    /// The memory that the packets lie in. Dropping it gives the memory back to the source.
    pub data: Bytes,
    /// At most [`flame_abi::MAX_BLOCK_PACKETS`]; every packet lies inside `data`.
    pub packets: Vec<RawPacket>,
    /// Where `data` begins in the memory that [`Source::shared`] describes, if it lies there.
    pub shared_offset: Option<u64>,
}

/// What [`Source::next`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The block holds at least one packet.
    Packets,
    /// Nothing came for a while (live sources only); the block is empty.
    Idle,
    /// There is no more; the block is empty.
    End,
}

/// How far a source is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of input consumed (of the compressed file, if it is compressed).
    pub bytes: u64,
    /// Bytes of input in all, when known.
    pub total: Option<u64>,
    /// Packets that the kernel dropped since the start because nobody took them.
    pub kernel_drops: u64,
}

/// A place in a file from which on nothing can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: String,
    /// Byte offset in the (decompressed) capture.
    pub offset: u64,
    /// What was found and what was expected.
    pub reason: String,
}

/// Memory that a view may map instead of copying from it.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// Descriptor to map with `MAP_SHARED` and `PROT_READ`; valid while the source lives.
    pub fd: std::os::fd::RawFd,
    pub bytes: usize,
}

/// A run of packets in capture order.
pub trait Source: Send {
    /// Replaces the contents of `block`. An error ends the source; damage in one of several files
    /// does not (see [`Source::damage`]).
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError>;

    fn progress(&self) -> Progress;

    /// Whether packets are lost that are not taken in time.
    fn is_live(&self) -> bool {
        false
    }

    /// Whether [`Source::next`] would not wait.
    fn is_ready(&self) -> bool {
        true
    }

    /// Takes in nothing new from now on. Whether packets that have arrived are still to be handed out,
    /// up to [`Next::End`]; a capture file just stays unread.
    fn close(&mut self) -> bool {
        false
    }

    /// What was found damaged so far.
    fn damage(&self) -> &[Damage] {
        &[]
    }

    fn shared(&self) -> Option<Shared> {
        None
    }
}

/// Why a source cannot be opened or go on.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{place}: {error}")]
    Io { place: String, error: std::io::Error },
    #[error(
        "{file}: not a capture file: it begins with {found} (expected pcap or pcapng, plain, gzip or zstd)"
    )]
    NotACapture { file: String, found: String },
    #[error(
        "{file}: link type {number} ({name}) is not decoded; what is: Ethernet, raw IP, Linux cooked, null, loop"
    )]
    LinkType { file: String, number: u16, name: &'static str },
    #[error("{0}: no capture files in this folder")]
    EmptyFolder(String),
}
