//! A block that is being filled: for a view that fills blocks one after the other, or for one of its queues.

use crate::packets::draft::Draft;
use flame_abi::{Descriptor, LinkType, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS, layout};
use flame_block::{Block, Pool, SLOT_DESCRIPTORS};
use flame_view::{ViewError, Written};

/// The place of the next packets of a block: that of their descriptors, that of their bytes, and the number
/// of bytes after which the block is full.
pub(super) type Free<'a> = (&'a mut [Descriptor], &'a mut [u8], usize);

/// The place where blocks are filled, one at a time. The packets of a block wait here until it is taken.
pub(super) struct Filling {
    staged: Option<Staged>,
    /// The place of a block for a process until it is complete, if its view hides anything.
    draft: Option<Draft>,
}

/// A block with at least one packet. An empty one has no link type.
#[derive(Clone, Copy)]
struct Staged {
    slot: usize,
    link: LinkType,
    packets: usize,
    bytes: usize,
}

impl Filling {
    pub(super) fn new(has_draft: bool) -> Self {
        Self { staged: None, draft: has_draft.then(Draft::new) }
    }

    /// Returns whether no packet waits.
    pub(super) fn is_empty(&self) -> bool {
        self.staged.is_none()
    }

    pub(super) fn packets(&self) -> usize {
        self.staged.map_or(0, |staged| staged.packets)
    }

    /// Returns the mask of the slot that is being filled.
    pub(super) fn taken(&self) -> u64 {
        self.staged.map_or(0, |staged| 1 << staged.slot)
    }

    /// Returns whether the packets that wait have another link type than `link`, and so another block.
    pub(super) fn excludes(&self, link: LinkType) -> bool {
        self.staged.is_some_and(|staged| staged.link != link)
    }

    pub(super) fn is_full(&self) -> bool {
        self.staged.is_some_and(|s| s.packets == MAX_BLOCK_PACKETS || s.bytes >= MAX_BLOCK_BYTES)
    }

    /// Adds the packets that `write` writes at an address, all of one link type, to a block that is not full.
    /// A new block uses a slot whose bit in `taken` is clear. Returns `None` if no such slot is free.
    #[inline]
    pub(super) fn add(
        &mut self,
        (pool, taken): (&mut Pool, u64),
        link: LinkType,
        write: impl FnOnce(Free<'_>, u32) -> Result<Written, ViewError>,
    ) -> Result<Option<Written>, ViewError> {
        let mut staged = match self.staged {
            Some(staged) => staged,
            None => match pool.claim_besides(taken) {
                Some(slot) => Staged { slot, link, packets: 0, bytes: 0 },
                None => return Ok(None),
            },
        };
        let base = layout::VIEW + (Pool::offset(staged.slot) + SLOT_DESCRIPTORS + staged.bytes) as u32;
        let (descriptors, data) = self.place(pool, staged.slot);
        let free = (
            &mut descriptors[staged.packets..MAX_BLOCK_PACKETS],
            &mut data[staged.bytes..],
            MAX_BLOCK_BYTES - staged.bytes,
        );
        let written = write(free, base)?;
        staged.packets += written.packets as usize;
        staged.bytes += written.bytes;
        self.staged = (staged.packets > 0).then_some(staged);
        Ok(Some(written))
    }

    /// Takes the block out, complete in its slot, for an event queue.
    pub(super) fn take(&mut self, pool: &mut Pool, queue: usize) -> Option<Block> {
        let Staged { slot, link, packets, bytes } = self.staged.take()?;
        self.complete(pool, slot, (packets, bytes));
        Some(Block { slot, packets: packets as u32, link, queue, port: 0 })
    }

    /// Returns the place where a block for `slot` is made.
    pub(super) fn place<'a>(
        &'a mut self,
        pool: &'a mut Pool,
        slot: usize,
    ) -> (&'a mut [Descriptor], &'a mut [u8]) {
        Draft::place(&mut self.draft, pool, slot)
    }

    /// Puts the packets and bytes of a block into its slot, unless they are made there.
    pub(super) fn complete(&self, pool: &mut Pool, slot: usize, (packets, bytes): (usize, usize)) {
        if let Some(draft) = &self.draft {
            draft.copy(pool, slot, packets, bytes);
        }
    }
}
