//! Sources of packets.
//!
//! A [`Source`] returns [`RawBlock`]s: packets captured together, in memory that the block shares (a
//! decompressed buffer, a chunk of a file, the kernel's ring). Nothing is copied per packet.

mod described;
mod each;
mod files;
pub mod live;
mod names;
mod paced;

/// The text of the sources of packets, each of which begins with its manual.
pub const MANUALS: &[&str] = &[
    include_str!("files/mod.rs"),
    include_str!("files/pcap.rs"),
    include_str!("files/pcapng.rs"),
    include_str!("live/mod.rs"),
];

/// The text of the sources that only nodes have, each of which begins with its manual.
pub const NODE_MANUALS: &[&str] = &[include_str!("paced.rs")];

pub use described::{Adding, Described, Totals};
pub use each::each;
pub use files::{FileOptions, Help, first_link, first_time, open, parse};
pub use names::link_name;
pub use paced::Paced;

use bytes::Bytes;
use flame_abi::LinkType;
use flame_plan::{Audience, Discipline};

/// The place and lengths of one packet in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPacket {
    /// The capture time in nanoseconds since 1970.
    pub ts_ns: u64,
    /// The offset of the first byte in [`RawBlock::data`].
    pub offset: u32,
    /// The number of captured bytes.
    pub cap_len: u32,
    /// The number of bytes on the wire.
    pub wire_len: u32,
    pub link: LinkType,
}

/// A packet in the memory of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The capture time in nanoseconds since 1970.
    pub ts_ns: u64,
    /// The number of bytes on the wire.
    pub wire_len: u32,
    pub bytes: &'a [u8],
}

/// Packets captured together. The caller reuses it, so that filling it does not allocate.
#[derive(Debug, Default)]
pub struct RawBlock {
    /// The memory of the packets. Dropping it returns the memory to the source.
    pub data: Bytes,
    /// The packets, at most [`flame_abi::MAX_BLOCK_PACKETS`]. Every packet lies inside `data`.
    pub packets: Vec<RawPacket>,
    /// The offset of `data` in the memory that [`Source::shared`] describes, if it lies there.
    pub shared_offset: Option<u64>,
}

/// The result of [`Source::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The block holds at least one packet.
    Packets,
    /// No packet arrived for a while (live sources only). The block is empty.
    Idle,
    /// No packet came for a while from a pipe (only after [`Source::tell_when_quiet`]). The block is empty.
    Quiet,
    /// There are no more packets. The block is empty.
    End,
}

/// The progress of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of input bytes consumed (of the compressed file, if it is compressed).
    pub bytes: u64,
    /// The total number of input bytes, if it is known.
    pub total: Option<u64>,
    /// The number of packets since the start that the kernel dropped because they were not taken, or `None`
    /// if no kernel is asked, as of a file.
    pub kernel_drops: Option<u64>,
}

/// A file of which something, or everything, cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub file: String,
    pub kind: DamageKind,
    /// The byte offset in the (decompressed) capture.
    pub(crate) offset: u64,
    /// A description of the bytes found and the bytes expected.
    pub(crate) reason: String,
}

impl Damage {
    /// Returns a note about `file`, which is read in full.
    pub fn remark(file: &str, reason: String) -> Self {
        Self { file: file.to_owned(), kind: DamageKind::Remark, offset: 0, reason }
    }

    /// Returns the byte offset in the (decompressed) capture, for tests. [`Damage::text`] is what is printed.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the description for `audience`. A place in a capture is the sum of the lengths of all packets
    /// before it, shown or not, so a holder has none.
    pub fn text(&self, audience: Audience) -> String {
        let Self { file, kind, offset, reason } = self;
        match (kind, audience) {
            (DamageKind::Damaged, Audience::Holder) => {
                format!("{file}: the capture is damaged; the packets before the damage were read")
            }
            (DamageKind::Remark, _) => format!("{file}: {reason}"),
            (DamageKind::Damaged, _) if *offset > 0 => format!("{file}: damaged at byte {offset}: {reason}"),
            _ => format!("{file}: {}: {reason}", kind.name()),
        }
    }
}

/// The kinds of files that cannot be read in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageKind {
    /// A capture that cannot be read from some byte on. The packets before it are read.
    Damaged,
    /// No capture, or one of a format or link type that is not decoded.
    Unsupported,
    /// A file that cannot be opened or read.
    Unreadable,
    /// A file of no bytes.
    Empty,
    /// A sound capture without packets.
    NoPackets,
    /// A capture that is read in full, with something in it that the operator should know.
    Remark,
}

impl DamageKind {
    /// Returns the word for lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Unsupported => "unsupported",
            Self::Unreadable => "unreadable",
            Self::Empty | Self::NoPackets => "empty",
            Self::Remark => "note",
        }
    }

    /// Returns whether packets may be missing from the results. A sound capture without packets lacks none.
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::NoPackets | Self::Remark)
    }
}

/// Memory that a view may map instead of copying from it.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// The descriptor to map with `MAP_SHARED` and `PROT_READ`. It is valid while the source lives.
    pub fd: std::os::fd::RawFd,
    pub bytes: usize,
}

/// A sequence of packets in capture order.
pub trait Source: Send {
    /// Replaces the contents of `block`.
    ///
    /// # Errors
    ///
    /// Returns an error if the source cannot continue. Damage in one of several files does not end it (see
    /// [`Source::damage`]).
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError>;

    /// Replaces the contents of `block` as [`Source::next`], and describes its packets, which the block does
    /// not need to list then.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Source::next`].
    fn describe(
        &mut self,
        block: &mut RawBlock,
        described: &mut Described,
        options: flame_decode::Options,
    ) -> Result<Next, SourceError> {
        let next = self.next(block)?;
        block.describe(options, described);
        Ok(next)
    }

    /// Returns the amount of input so far, and the kernel's drops.
    fn progress(&self) -> Progress;

    /// Returns the discipline of a run that reads this source alone. By default [`Source::next`] may wait for
    /// packets that do not exist yet, and loses none.
    fn discipline(&self) -> Discipline {
        Discipline::Pipe
    }

    /// Returns whether the source is a capture whose times may be finer than a microsecond.
    fn is_nano(&self) -> bool {
        false
    }

    /// Returns the part of a live source's buffer that waits to be taken, in thousandths. A reserve in which
    /// packets may be lost already does not count. When all else waits, packets are lost, or late.
    fn fill(&self) -> u32 {
        0
    }

    /// Returns what other threads may read for this source meanwhile.
    fn help(&self) -> Help {
        Help::default()
    }

    /// Lets [`Source::next`] return [`Next::Quiet`] instead of waiting for long.
    fn tell_when_quiet(&mut self) {}

    /// Returns whether [`Source::next`] would not wait.
    fn is_ready(&self) -> bool {
        true
    }

    /// Stops taking in packets. Returns whether packets that have already arrived are still returned, up to
    /// [`Next::End`]; the rest of a capture file just stays unread.
    fn close(&mut self) -> bool {
        false
    }

    /// Returns the damage found so far.
    fn damage(&self) -> &[Damage] {
        &[]
    }

    /// Returns the memory in which all packets lie, if a view may map it.
    fn shared(&self) -> Option<Shared> {
        None
    }

    /// Returns a change of state for the operator, once.
    fn take_notice(&mut self) -> Option<Notice> {
        None
    }
}

/// A change of a source's state, of which the operator is told. Each has a text that names the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The interface went down: no packets come until it is up again.
    Down(String),
    /// The interface is up again.
    Up(String),
    /// The way in which packets are captured.
    Way(String),
}

impl Notice {
    pub fn text(&self) -> &str {
        match self {
            Self::Down(text) | Self::Up(text) | Self::Way(text) => text,
        }
    }

    fn down(interface: &str) -> Self {
        Self::Down(format!("interface {interface} went down: waiting until it is up again"))
    }

    fn up(interface: &str) -> Self {
        Self::Up(format!("interface {interface} is up again"))
    }
}

/// The reason why a source cannot be opened or continued.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{place}: {error}")]
    Io { place: String, error: std::io::Error },
    #[error(
        "{file}: not a capture file: it begins with {found} (expected pcap or pcapng, plain, gzip or zstd)"
    )]
    NotACapture { file: String, found: String },
    #[error(
        "{file}: link type {number} ({name}) is not decoded; decoded are Ethernet, raw IP, Linux cooked, null, loop, PPP, PPPoE, Cisco HDLC, frame relay, RFC 1483, 802.11, PPI, PKTAP, PFLOG, ENC, NFLOG and DSA"
    )]
    LinkType { file: String, number: u16, name: &'static str },
    #[error("{file}: compressed with {format}, which is not read (expected plain, gzip or zstd): {remedy}")]
    Compressed { file: String, format: &'static str, remedy: String },
    #[error("{file}: the file is empty (expected pcap or pcapng, plain, gzip or zstd)")]
    Empty { file: String },
    #[error("{file}: {reason}")]
    Damaged { file: String, reason: String },
    #[error("{folder}: no capture files in this folder{}", listed(skipped))]
    EmptyFolder { folder: String, skipped: Vec<Damage> },
}

/// Returns the reasons why files of a folder cannot be read, the first three of them.
fn listed(skipped: &[Damage]) -> String {
    let shown: String =
        skipped.iter().take(3).map(|d| format!("\n  {}: {}: {}", d.file, d.kind.name(), d.reason)).collect();
    let more = skipped.len().saturating_sub(3);
    if more > 0 { format!("{shown}\n  and {more} more") } else { shown }
}
