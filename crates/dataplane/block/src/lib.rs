//! Shared blocks: written once, mapped read-only by every reader, recycled when the last is done.
//!
//! A [`Pool`] has slots for blocks. The writer claims a free slot, fills it and publishes it to all
//! readers; each [`Reader`] takes slots in order and releases them in the same order. A reader that
//! holds as many slots as its depth allows loses the block that is published then, whole and counted;
//! the writer never waits for it. Readers are added and removed at any time.
//!
//! # Layout
//!
//! *Data* is one memfd of slots and nothing else. The writer maps it for writing and then seals it
//! (`F_SEAL_FUTURE_WRITE`, and its size), so that whoever holds the descriptor can only read.
//!
//! *Control* is one page for each reader, with the queue between it and the writer, in 64-bit words
//! of the machine's byte order:
//!
//! | byte | word | written by |
//! | --- | --- | --- |
//! | 0 | magic: `FLAMEQ` and the layout's version | writer |
//! | 8 | id of the reader | writer |
//! | 16 | blocks published so far | writer |
//! | 24 | packets lost so far | writer |
//! | 32 | non-zero once removed | writer |
//! | 128 | blocks released so far | reader |
//! | 136 | state: 0 awake, 1 sleeping, 2 closed | reader; the writer turns 1 into 0 |
//! | 144 | blocks taken so far | reader |
//! | 256 | 16 entries, block k at k modulo 16: slot in the upper half, packets in the lower | writer |
//!
//! For a reader in the writer's own process the queue is plain memory. For one in another process it
//! is a memfd of its own, sealed in size, and a socket wakes it.
//!
//! # Trust
//!
//! The writer relies on nothing in a control page. It keeps its own record of the slots that each
//! reader holds, and takes from the page only the number of releases, clamped to what it published: a
//! reader that misreports frees slots under itself only. At worst the writer wakes it at each block,
//! which is one system call that never blocks. This is why the wake-up is a socket pair: an eventfd is
//! one open file in both processes, so a reader could clear `O_NONBLOCK`, fill the counter, and stop
//! the writer. The kernel can still be made to delay the writer's access to a control page by holes
//! punched in it (`fallocate`) or paging it out (`madvise`): a filter for untrusted readers denies both.
//!
//! A reader that never releases keeps `depth` slots. With untrusted readers a pool therefore needs more
//! slots than the sum of all depths; with fewer, [`Pool::claim`] may return none.
//!
//! A reader in another process sees all slots at any time, also while the writer fills one. It must
//! only get a pool whose packets it may see, and as early.
//!
//! The slots of a removed reader are recycled at once, which is safe for everybody else. In another
//! process the mapping cannot be taken away: if the reader goes on, it sees bytes of later blocks,
//! mixed. Its output from then on has to be discarded, and a reader that may not see later blocks has
//! to be killed before they are written.

mod error;
mod memfd;
mod pool;
mod queue;
mod reader;

pub use error::BlockError;
pub use memfd::SharedMemory;
pub use pool::{Backlog, Pool, Published, ReaderFds, ReaderId};
pub use reader::{Reader, Wake};

use flame_abi::{Descriptor, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS, MAX_PACKET};

/// Readers of one pool, at most: one bit each in the holders of a slot.
pub const MAX_READERS: usize = 64;
/// Slots of one pool, at most.
pub const MAX_SLOTS: usize = 64;

/// Bytes of descriptors at the start of a slot.
pub const SLOT_DESCRIPTORS: usize = MAX_BLOCK_PACKETS * Descriptor::SIZE;
/// Bytes of packets behind them: all that one block can hold.
pub const SLOT_DATA: usize = MAX_BLOCK_BYTES + MAX_PACKET;
/// Bytes of one slot.
pub const SLOT_BYTES: usize = SLOT_DESCRIPTORS + SLOT_DATA;
