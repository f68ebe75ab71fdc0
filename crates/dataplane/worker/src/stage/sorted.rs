//! Blocks of event queues: each packet that is shown goes into the block of its queue.
//!
//! A block is handed on when it is full, before packets of another link type, or at a tick, so that a queue
//! with few packets uses few blocks, whatever the others do. The order in which blocks are handed on follows
//! from the shown packets and the ticks alone: of two blocks, the one whose last packet came first.

use super::{Staged, ViewStage, conditions};
use crate::draft::Draft;
use crate::error::RunError;
use crate::read::Packets;
use flame_abi::{LinkType, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS, layout};
use flame_block::{Block, Pool, SLOT_DESCRIPTORS};
use flame_execute::{Outlet, Stop};
use flame_view::{Marks, Queues};

/// The event queues of the module of a view.
pub(super) struct Sorted {
    queues: Queues,
    filling: Vec<Filling>,
    marks: Marks,
    /// The link type of the blocks that are being filled.
    link: LinkType,
}

/// The block of a queue that is being filled.
struct Filling {
    staged: Option<Staged>,
    /// Its place until it is complete, as that of a view without queues.
    draft: Option<Draft>,
    /// The index of the next packet of the source's block that may be in the queue.
    next: usize,
}

impl Filling {
    fn is_full(&self) -> bool {
        self.staged.is_some_and(|s| s.packets == MAX_BLOCK_PACKETS || s.bytes >= MAX_BLOCK_BYTES)
    }
}

impl Sorted {
    pub(super) fn new(queues: Queues, count: usize, has_drafts: bool) -> Self {
        let filling = || Filling { staged: None, draft: has_drafts.then(Draft::new), next: 0 };
        Self {
            queues,
            filling: (0..count).map(|_| filling()).collect(),
            marks: Marks::default(),
            link: LinkType::ETHERNET,
        }
    }

    /// Returns the mask of the slots that are being filled.
    fn taken(&self) -> u64 {
        self.filling.iter().filter_map(|f| f.staged).fold(0, |mask, staged| mask | 1 << staged.slot)
    }

    /// Returns the queue whose block was full first, if one is full.
    fn first_full(&self) -> Option<usize> {
        let full = self.filling.iter().enumerate().filter(|(_, filling)| filling.is_full());
        full.min_by_key(|(_, filling)| filling.next).map(|(queue, _)| queue)
    }

    /// Returns the number of packets in the blocks that are being filled.
    pub(super) fn staged_packets(&self) -> u64 {
        self.filling.iter().filter_map(|f| f.staged).map(|staged| staged.packets as u64).sum()
    }
}

impl ViewStage {
    /// Returns whether the packets are divided among event queues.
    pub(crate) fn is_sorted(&self) -> bool {
        self.sorted.is_some()
    }

    /// Divides packets among the event queues, and hands on the blocks that are full.
    pub(crate) fn sort(
        &mut self,
        all: Packets<'_>,
        (batch, stop): (usize, &Stop<'_>),
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let Packets { block, link, descriptors: packets } = all;
        let data = &block.data;
        if self.is_refused() {
            return self.refuse_eligible(packets, link, data);
        }
        let Some(mut sorted) = self.sorted.take() else { return Ok(()) };
        let written = self.view.sort(&mut sorted.queues, packets, link, data, &mut sorted.marks)?;
        self.offer(written);
        for queue in 0..sorted.filling.len() {
            let packets = sorted.marks.count(queue);
            self.loops.iter_mut().for_each(|batches| batches.queued(queue, packets));
        }
        // A packet of another link type ends the blocks if it is shown.
        if written.packets > 0 && std::mem::replace(&mut sorted.link, link) != link {
            self.publish_all(&mut sorted, (batch, stop), outlet)?;
        }
        sorted.filling.iter_mut().for_each(|filling| filling.next = 0);
        loop {
            for queue in 0..sorted.filling.len() {
                self.fill(&mut sorted, queue, all)?;
            }
            let Some(queue) = sorted.first_full() else { break };
            self.publish_queue(&mut sorted, queue, (batch, stop), outlet)?;
        }
        self.sorted = Some(sorted);
        // Paused batches continue meanwhile.
        self.resume(conditions((batch, stop)), outlet)
    }

    /// Fills the block of a queue with packets of the source's block.
    fn fill(&mut self, sorted: &mut Sorted, queue: usize, packets: Packets<'_>) -> Result<(), RunError> {
        let Packets { block, link, descriptors: all } = packets;
        let taken = sorted.taken();
        let Sorted { filling, marks, .. } = sorted;
        let filling = &mut filling[queue];
        if filling.is_full() {
            return Ok(());
        }
        let Some(start) = marks.next_of(queue, filling.next) else {
            filling.next = all.len();
            return Ok(());
        };
        let claim = || self.pool.claim_besides(taken).map(|slot| Staged { slot, link, packets: 0, bytes: 0 });
        let Some(mut staged) = filling.staged.or_else(claim) else {
            // There is a slot for each block that waits and for each that is filled.
            let reason = "no slot for the block of a queue";
            return Err(flame_view::ViewError::Internal { packet: start, reason }.into());
        };
        let base = layout::VIEW + (Pool::offset(staged.slot) + SLOT_DESCRIPTORS + staged.bytes) as u32;
        let (descriptors, data) = Draft::place(&mut filling.draft, &mut self.pool, staged.slot);
        let place = (
            &mut descriptors[staged.packets..MAX_BLOCK_PACKETS],
            &mut data[staged.bytes..],
            MAX_BLOCK_BYTES - staged.bytes,
        );
        let from = (&*marks, queue, start);
        let written = self.view.copy_sorted(from, all, link, &block.data, place, base)?;
        filling.next = start + written.taken;
        staged.packets += written.packets as usize;
        staged.bytes += written.bytes;
        filling.staged = Some(staged);
        Ok(())
    }

    /// Hands on the block of a queue, if there is one.
    fn publish_queue(
        &mut self,
        sorted: &mut Sorted,
        queue: usize,
        how: (usize, &Stop<'_>),
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let filling = &mut sorted.filling[queue];
        let Some(Staged { slot, link, packets, bytes }) = filling.staged.take() else { return Ok(()) };
        self.wait_for_room(queue, how.1, outlet)?;
        if let Some(draft) = &filling.draft {
            draft.copy(&mut self.pool, slot, packets, bytes);
        }
        self.hand_on(Block { slot, packets: packets as u32, link, queue, port: 0 }, how, outlet)
    }

    /// Hands on the blocks of all queues, in the order of their numbers.
    fn publish_all(
        &mut self,
        sorted: &mut Sorted,
        how: (usize, &Stop<'_>),
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let mut queues = 0..sorted.filling.len();
        queues.try_for_each(|queue| self.publish_queue(sorted, queue, how, outlet))
    }

    /// Hands on the blocks that are being filled.
    pub(super) fn publish_sorted(
        &mut self,
        how: (usize, &Stop<'_>),
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let Some(mut sorted) = self.sorted.take() else { return Ok(()) };
        let published = self.publish_all(&mut sorted, how, outlet);
        self.sorted = Some(sorted);
        published
    }
}
