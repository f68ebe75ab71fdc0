//! The queue between the writer and one reader, as it lies at the start of a control page.

use crate::memfd::ControlPage;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The number of entries of a queue, which is the maximum number of blocks that a reader can hold.
pub(crate) const ENTRIES: usize = 16;

/// The first word of a queue. Its last two digits are the version of the layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"FLAMEQ01");

/// The values of [`ReaderWords::state`]. The writer treats any other value as `AWAKE`.
pub(crate) const AWAKE: u64 = 0;
pub(crate) const SLEEPING: u64 = 1;
pub(crate) const CLOSED: u64 = 2;

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
    /// The number of packets lost so far because the reader held as many blocks as it may.
    pub(crate) lost: AtomicU64,
    /// Non-zero once the reader is removed.
    pub(crate) removed: AtomicU64,
}

/// Words that the reader writes. The writer checks every value it reads here.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct ReaderWords {
    /// The number of blocks released so far.
    pub(crate) released: AtomicU64,
    /// [`AWAKE`], [`SLEEPING`] or [`CLOSED`]. The writer turns `SLEEPING` into `AWAKE`.
    pub(crate) state: AtomicU64,
    /// The number of blocks taken so far.
    pub(crate) taken: AtomicU64,
}

/// The entries: block k as `slot << 32 | packets`, at index k modulo [`ENTRIES`]. Only the writer writes
/// them.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Entries(pub(crate) [AtomicU64; ENTRIES]);

/// The memory that holds a queue.
pub(crate) enum Control {
    /// Plain memory: both ends are in this process.
    Local(Arc<Queue>),
    Shared(ControlPage),
}

impl Control {
    #[inline]
    pub(crate) fn queue(&self) -> &Queue {
        match self {
            Self::Local(queue) => queue,
            Self::Shared(page) => page.queue(),
        }
    }
}

pub(crate) fn entry(slot: usize, packets: u32) -> u64 {
    (slot as u64) << 32 | u64::from(packets)
}

/// Splits an entry into the slot and the number of packets.
pub(crate) fn parts(entry: u64) -> (usize, u32) {
    ((entry >> 32) as usize, entry as u32)
}
