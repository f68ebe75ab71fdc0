//! Blocks of event queues: each packet that is shown goes into the block of its queue.
//!
//! A block is handed on when it is full, before packets of another link type, or at a tick, so that a queue
//! with few packets uses few blocks, whatever the others do. The order in which blocks are handed on follows
//! from the shown packets and the ticks alone: of two blocks, the one whose last packet came first.

use super::ViewStage;
use super::staged::Filling;
use crate::error::RunError;
use crate::packets::read::Packets;
use flame_abi::LinkType;
use flame_execute::{Conditions, Outlet};
use flame_view::{Marks, Queues};

/// The event queues of the module of a view.
pub(super) struct Sorted {
    queues: Queues,
    filling: Vec<OfQueue>,
    marks: Marks,
    /// The link type of the blocks that are being filled.
    link: LinkType,
}

/// The block of a queue that is being filled.
struct OfQueue {
    block: Filling,
    /// The index of the next packet of the source's block that may be in the queue.
    next: usize,
}

impl Sorted {
    pub(super) fn new(queues: Queues, count: usize, has_drafts: bool) -> Self {
        let filling = || OfQueue { block: Filling::new(has_drafts), next: 0 };
        Self {
            queues,
            filling: (0..count).map(|_| filling()).collect(),
            marks: Marks::default(),
            link: LinkType::ETHERNET,
        }
    }

    /// Returns the mask of the slots that are being filled.
    fn taken(&self) -> u64 {
        self.filling.iter().fold(0, |mask, of_queue| mask | of_queue.block.taken())
    }

    /// Returns the queue whose block was full first, if one is full.
    fn first_full(&self) -> Option<usize> {
        let full = self.filling.iter().enumerate().filter(|(_, of_queue)| of_queue.block.is_full());
        full.min_by_key(|(_, of_queue)| of_queue.next).map(|(queue, _)| queue)
    }

    /// Returns the number of packets in the blocks that are being filled.
    pub(super) fn staged_packets(&self) -> u64 {
        self.filling.iter().map(|of_queue| of_queue.block.packets() as u64).sum()
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
        conditions: Conditions<'_>,
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
            self.publish_all(&mut sorted, conditions, outlet)?;
        }
        sorted.filling.iter_mut().for_each(|of_queue| of_queue.next = 0);
        loop {
            for queue in 0..sorted.filling.len() {
                self.fill(&mut sorted, queue, all)?;
            }
            let Some(queue) = sorted.first_full() else { break };
            self.publish_queue(&mut sorted, queue, conditions, outlet)?;
        }
        self.sorted = Some(sorted);
        // Paused batches continue meanwhile.
        self.resume(conditions, outlet)
    }

    /// Fills the block of a queue with packets of the source's block.
    fn fill(&mut self, sorted: &mut Sorted, queue: usize, packets: Packets<'_>) -> Result<(), RunError> {
        let Packets { block, link, descriptors: all } = packets;
        let taken = sorted.taken();
        let Sorted { filling, marks, .. } = sorted;
        let OfQueue { block: filling, next } = &mut filling[queue];
        if filling.is_full() {
            return Ok(());
        }
        let Some(start) = marks.next_of(queue, *next) else {
            *next = all.len();
            return Ok(());
        };
        let (view, from) = (&mut self.view, (&*marks, queue, start));
        let added = filling.add((&mut self.pool, taken), link, |free, base| {
            view.copy_sorted(from, all, link, &block.data, free, base)
        })?;
        let Some(written) = added else {
            // There is a slot for each block that waits and for each that is filled.
            let reason = "no slot for the block of a queue";
            return Err(flame_view::ViewError::Internal { packet: start, reason }.into());
        };
        *next = start + written.taken;
        self.loops.iter_mut().for_each(|batches| batches.cut(written.cut.into()));
        Ok(())
    }

    /// Hands on the block of a queue, if there is one.
    fn publish_queue(
        &mut self,
        sorted: &mut Sorted,
        queue: usize,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let filling = &mut sorted.filling[queue].block;
        if filling.is_empty() {
            return Ok(());
        }
        // Before the block is in its slot, where the process sees it.
        self.wait_for_room(queue, conditions.stop, outlet)?;
        match filling.take(&mut self.pool, queue) {
            Some(block) => self.hand_on(block, conditions, outlet),
            None => Ok(()),
        }
    }

    /// Hands on the blocks of all queues, in the order of their numbers.
    fn publish_all(
        &mut self,
        sorted: &mut Sorted,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let mut queues = 0..sorted.filling.len();
        queues.try_for_each(|queue| self.publish_queue(sorted, queue, conditions, outlet))
    }

    /// Hands on the blocks that are being filled.
    pub(super) fn publish_sorted(
        &mut self,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let Some(mut sorted) = self.sorted.take() else { return Ok(()) };
        let published = self.publish_all(&mut sorted, conditions, outlet);
        self.sorted = Some(sorted);
        published
    }
}
