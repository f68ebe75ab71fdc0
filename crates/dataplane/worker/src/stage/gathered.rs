//! Blocks of a graph for a live module in a process: the room is counted in packets, not in blocks.
//!
//! Elements push packets alone as well as together. A process that is busy or that begins would hold all its
//! blocks with a packet in each. So packets gather in one block while it holds many, and are handed over once
//! it holds few, or once the block is full and there is room.

use super::ViewStage;
use super::staged::Free;
use crate::batches::{Batches, POLL_INTERVAL};
use crate::error::RunError;
use crate::read::Packets;
use flame_block::Pool;
use flame_execute::{Outlet, Stop};

impl ViewStage {
    /// Returns whether packets gather in a block while its process has much to do. A block of a confined view
    /// ends as its grant states.
    pub(crate) fn gathers(&self) -> bool {
        self.supply.is_graph
            && self.supply.is_live()
            && self.is_remote()
            && !self.confined
            && !self.is_sorted()
    }

    /// Returns whether packets wait for room.
    pub(crate) fn has_gathered(&self) -> bool {
        self.gathers() && !self.filling.is_empty()
    }

    /// Returns whether the block that gathers can be handed over now.
    pub(crate) fn can_hand_over(&mut self) -> bool {
        if !self.has_gathered() {
            return false;
        }
        let has_room = if self.filling.is_full() { Pool::has_room } else { Pool::has_much_room };
        let pool = &mut self.pool;
        // No block reaches a module that has ended, whose packets are counted at once.
        self.loops.iter().all(|m| m.is_gone() || has_room(pool, m.reader(), 0).unwrap_or(true))
    }

    /// Hands over the block that gathers, if there is room for it.
    pub(crate) fn hand_over(
        &mut self,
        how: (usize, &Stop<'_>),
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        if self.can_hand_over() { self.publish(how, outlet) } else { Ok(()) }
    }

    /// Waits for room, and hands over the block that gathers. No packet follows, so nothing else would wait.
    pub(crate) fn hand_over_last(
        &mut self,
        how: (usize, &Stop<'_>),
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        while self.has_gathered()
            && !self.loops.iter_mut().all(|m| m.has_room(&mut self.pool, (0, false), how.1))
        {
            outlet.wait()?;
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Adds packets to the block that gathers, and hands it over if there is room. Packets that do not fit
    /// into a full block are lost.
    pub(crate) fn gather(
        &mut self,
        packets: Packets<'_>,
        how: (usize, &Stop<'_>),
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let Packets { block, link, descriptors: mut rest } = packets;
        self.hand_over(how, outlet)?;
        if self.is_refused() {
            self.refuse(rest.len() as u64);
            return Ok(());
        }
        while !rest.is_empty() {
            if self.filling.excludes(link) {
                self.publish(how, outlet)?;
            }
            let view = &mut self.view;
            let write = |free: Free<'_>, base| view.copy_some(rest, |_| link, &block.data, free, base);
            let added = match self.filling.is_full() {
                true => None,
                false => self.filling.add((&mut self.pool, 0), link, write)?,
            };
            let Some(written) = added else {
                self.lose(rest.len() as u64);
                return Ok(());
            };
            rest = &rest[written.taken..];
            let offered = written.taken as u64 - u64::from(written.sampled);
            for batches in &mut self.loops {
                batches.offer(offered, offered - u64::from(written.packets));
                batches.sampled(written.sampled.into());
            }
            self.hand_over(how, outlet)?;
        }
        Ok(())
    }

    /// Counts packets for which there is no room.
    fn lose(&mut self, packets: u64) {
        let lose = |batches: &mut Batches| {
            batches.offer(packets, 0);
            batches.overrun(packets);
        };
        self.loops.iter_mut().for_each(lose);
    }
}
