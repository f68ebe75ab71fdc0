use flame_abi::{Descriptor, MAX_BLOCK_PACKETS};
use flame_block::{Pool, SLOT_DATA};

/// A block that is not in its slot yet.
///
/// A process sees the slots of its pool at any time. If its view hides anything, blocks are made here, so
/// that it sees no packet before all its fields are transformed, nor when the packet arrives.
pub(crate) struct Draft {
    descriptors: Box<[Descriptor]>,
    data: Box<[u8]>,
}

impl Draft {
    pub(crate) fn new() -> Self {
        Self {
            descriptors: vec![Descriptor::default(); MAX_BLOCK_PACKETS].into(),
            data: vec![0; SLOT_DATA].into(),
        }
    }

    /// Returns the place where the block for `slot` is made: the draft, if there is one, or the slot.
    pub(crate) fn place<'a>(
        draft: &'a mut Option<Self>,
        pool: &'a mut Pool,
        slot: usize,
    ) -> (&'a mut [Descriptor], &'a mut [u8]) {
        match draft {
            Some(draft) => (&mut draft.descriptors, &mut draft.data),
            None => pool.slot(slot),
        }
    }

    /// Copies the block to its slot.
    pub(crate) fn copy(&self, pool: &mut Pool, slot: usize, packets: usize, bytes: usize) {
        let (descriptors, data) = pool.slot(slot);
        descriptors[..packets].copy_from_slice(&self.descriptors[..packets]);
        data[..bytes].copy_from_slice(&self.data[..bytes]);
    }
}
