//! Shared blocks: written once, mapped read-only by every reader, recycled when the last is done.
//!
//! A [`Pool`] is one memfd: a head with the readers' state, then slots. The writer claims a free
//! slot, fills it and publishes it to the readers; each reader takes slots in order and releases
//! them. A reader that holds as many slots as its depth allows loses the block that is published
//! then, whole and counted; the writer never waits for it.
//!
//! All state lies in the memfd as atomics and readers hold slot numbers, never pointers, so a reader
//! can live in another process that maps the same descriptor.

mod memfd;
mod pool;

pub use memfd::{BlockError, SharedMemory};
pub use pool::{MAX_READERS, Pool, Published, Reader};

use flame_abi::{Descriptor, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS, MAX_PACKET};

/// Bytes of descriptors at the start of a slot.
pub const SLOT_DESCRIPTORS: usize = MAX_BLOCK_PACKETS * Descriptor::SIZE;
/// Bytes of packets behind them: all that one block can hold.
pub const SLOT_DATA: usize = MAX_BLOCK_BYTES + MAX_PACKET;
/// Bytes of one slot.
pub const SLOT_BYTES: usize = SLOT_DESCRIPTORS + SLOT_DATA;
