//! The queue between the writer and one reader, as it lies at the start of a control page.

use crate::{MAX_QUEUES, MAX_SLOTS};
use flame_abi::LinkType;
use std::sync::atomic::AtomicU64;

/// The number of entries of a queue, which is the maximum number of blocks that a reader can hold.
pub(crate) const ENTRIES: usize = 16;

/// The first word of a queue. Its last two digits are the version of the layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"FLAMEQ05");

/// The values of [`ReaderWords::state`]. The writer treats any other value as `AWAKE`.
pub(crate) const AWAKE: u64 = 0;
pub(crate) const SLEEPING: u64 = 1;
pub(crate) const CLOSED: u64 = 2;
/// A sleep that ends by itself soon. Few blocks are not worth a wake-up before.
pub(crate) const NAPPING: u64 = 3;

/// A queue. All words are atomic integers, so any bits that another process stores are valid. The words of
/// each side lie in separate cache lines (two, as processors fetch lines in pairs), so that neither side
/// slows the other down.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) writer: WriterWords,
    pub(crate) reader: ReaderWords,
    pub(crate) entries: Entries,
}

/// Words that only the writer writes. It never reads them back.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct WriterWords {
    pub(crate) magic: AtomicU64,
    /// The reader's [`ReaderId`](crate::ReaderId).
    pub(crate) id: AtomicU64,
    /// The number of blocks published to this reader so far.
    pub(crate) published: AtomicU64,
    /// Non-zero once the reader is removed.
    pub(crate) removed: AtomicU64,
    /// The last tick in nanoseconds, 0 before the first. It follows all blocks published before it.
    pub(crate) tick: AtomicU64,
    /// The number of packets lost so far in each queue, because the reader held as many of its blocks as it
    /// may.
    pub(crate) lost: [AtomicU64; MAX_QUEUES],
}

/// Words that the reader writes. The writer checks every value it reads here.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct ReaderWords {
    /// The number of blocks released so far.
    pub(crate) released: AtomicU64,
    /// [`AWAKE`], [`SLEEPING`], [`NAPPING`] or [`CLOSED`]. The writer turns `SLEEPING` and `NAPPING` into
    /// `AWAKE`.
    pub(crate) state: AtomicU64,
    /// The number of blocks taken so far.
    pub(crate) taken: AtomicU64,
}

/// The entries: block k at index k modulo [`ENTRIES`]. Only the writer writes them.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Entries {
    /// `port << 48 | queue << 40 | slot << 32 | link type << 16 | packets`.
    pub(crate) blocks: [AtomicU64; ENTRIES],
    /// The last tick before the block, in nanoseconds.
    pub(crate) ticks: [AtomicU64; ENTRIES],
}

// An entry has a byte for the slot and one for the queue, and the words of the writer lie in two cache lines.
const _: () = assert!(MAX_SLOTS <= 256 && MAX_QUEUES <= 256 && size_of::<WriterWords>() == 128);

/// A published block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub slot: usize,
    pub packets: u32,
    /// The link type of its packets.
    pub link: LinkType,
    /// The number of its event queue: 0 for a reader without queues.
    pub queue: usize,
    /// The input from which its packets come: 0 for a module that does not forward them.
    pub port: u16,
}

impl Block {
    pub(crate) fn entry(self) -> u64 {
        let from = u64::from(self.port) << 48 | u64::from(self.queue as u8) << 40;
        let place = from | (self.slot as u64) << 32;
        place | u64::from(self.link.0) << 16 | u64::from(self.packets as u16)
    }

    pub(crate) fn from_entry(entry: u64) -> Self {
        let link = LinkType((entry >> 16) as u16);
        let (slot, queue) = (usize::from((entry >> 32) as u8), usize::from((entry >> 40) as u8));
        Self { slot, packets: u32::from(entry as u16), link, queue, port: (entry >> 48) as u16 }
    }
}
