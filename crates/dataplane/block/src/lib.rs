//! Shared blocks: written once, mapped read-only by every reader, recycled when the last is done.
//!
//! A [`Pool`] has slots for blocks. The writer claims a free slot, fills it and publishes it to all readers;
//! each [`Reader`] takes slots in order and releases them in the same order. A reader that already holds as
//! many slots as its depth allows loses the next block as a whole, which is counted. The writer never waits
//! for a reader. The blocks of a reader may belong to event queues, each of which has a depth and losses of
//! its own; they are taken in the order of publishing, whatever their queues. Readers are added and removed
//! at any time. Between blocks the writer publishes ticks; of several between the same two blocks a reader
//! may see only the last.
//!
//! # Layout
//!
//! *Data* is one memfd that contains only the slots. The writer maps it for writing and then seals it
//! (`F_SEAL_FUTURE_WRITE`, and its size), so that holders of the descriptor can only read.
//!
//! *Control* is one page for each reader, with the queue between it and the writer, in 64-bit words
//! of the machine's byte order:
//!
//! | byte | word | written by |
//! | --- | --- | --- |
//! | 0 | magic: `FLAMEQ` and the layout's version | writer |
//! | 8 | id of the reader | writer |
//! | 16 | blocks published so far | writer |
//! | 24 | non-zero once removed | writer |
//! | 32 | the last tick, in nanoseconds | writer |
//! | 40 | 8 words, packets lost so far in each queue | writer |
//! | 128 | blocks released so far | reader |
//! | 136 | state: 0 awake, 1 sleeping, 2 closed, 3 napping | reader; the writer turns 1 and 3 into 0 |
//! | 144 | blocks taken so far | reader |
//! | 256 | 16 entries, block k at k modulo 16: input (bits 48 to 63), queue (40 to 47), slot (32 to 39), link type (16 to 31), packets | writer |
//! | 384 | 16 words, the last tick before block k at k modulo 16 | writer |
//!
//! For a reader in the writer's own process the queue is plain memory. For a reader in another process it is
//! a separate memfd, sealed in size, and a socket wakes the reader.
//!
//! # Trust
//!
//! The writer relies on nothing in a control page. It keeps its own record of the slots that each reader
//! holds, and frees slots by the number of releases in the page, clamped to the number it published: a reader
//! that misreports frees only slots that it holds itself. At worst the writer wakes it at each block, which
//! is one system call that never blocks. This is why the wake-up is a socket pair: an eventfd is one open
//! file in both processes, so a reader could clear `O_NONBLOCK`, fill the counter, and stop the writer. A
//! reader can still delay the writer's access to its control page by punching holes in it (`fallocate`) or
//! paging it out (`madvise`): a filter for untrusted readers denies both.
//!
//! A reader that never releases keeps `depth` slots. With untrusted readers a pool therefore needs more slots
//! than the sum of all depths; with fewer, [`Pool::claim`] may return `None`.
//!
//! A reader in another process sees all slots at any time, even while the writer fills one. It must only
//! receive a pool whose packets it may see, and as early.
//!
//! The slots of a removed reader are recycled at once, which is safe for all others. In another process the
//! mapping cannot be revoked: if the reader continues, it sees mixed bytes of later blocks. Its output from
//! then on has to be discarded, and a reader that may not see later blocks has to be killed before they are
//! written.

mod area;
mod control;
mod depths;
mod error;
mod lease;
mod memfd;
mod pool;
mod queue;
mod reader;
mod region;

pub use area::AreaMemory;
pub use depths::Depths;
pub use error::BlockError;
pub use memfd::SharedMemory;
pub use pool::{Backlog, Pool, Published, ReaderFds};
pub use queue::Block;
pub use reader::{Item, Reader, ReaderId, Wake};
pub use region::Region;

use flame_abi::{Descriptor, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS, MAX_PACKET};

/// The maximum number of readers of a pool: each is one bit in the mask of holders of a slot.
pub const MAX_READERS: usize = 64;
/// The maximum number of event queues of a reader.
pub const MAX_QUEUES: usize = flame_abi::manifest::MAX_QUEUES;
/// The maximum number of slots of a pool.
pub const MAX_SLOTS: usize = 64;

/// The bytes of descriptors at the start of a slot.
pub const SLOT_DESCRIPTORS: usize = MAX_BLOCK_PACKETS * Descriptor::SIZE;
/// The bytes of packets after the descriptors, enough for any block.
pub const SLOT_DATA: usize = MAX_BLOCK_BYTES + MAX_PACKET;
/// The bytes of one slot.
pub const SLOT_BYTES: usize = SLOT_DESCRIPTORS + SLOT_DATA;
