//! Blocks of a graph for a live module in a process: the room is counted in packets, not in blocks.
//!
//! Elements push packets alone as well as together. A process that is busy or that begins would hold all its
//! blocks with a packet in each. So packets gather in one block while it holds many, and are handed over once
//! it holds few, or once the block can take no more and there is room.
//!
//! A tick follows the block that gathers, and is handed over with it. If packets follow while the process
//! holds many blocks, they are added to the block and the process misses that tick: a tick before them would
//! come before the packets that it follows, and one block for each tick would soon use up the room.

use super::ViewStage;
use super::staged::Free;
use crate::error::RunError;
use crate::packets::batches::{Batches, PROCESS_CHECK};
use crate::packets::read::Packets;
use flame_block::Pool;
use flame_execute::{Conditions, Outlet};

/// The packets that follow a block that gathers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Those that may be added to it, or none yet.
    Same,
    /// Those of another link type.
    Other,
}

/// The state of a view whose packets gather.
#[derive(Default)]
pub(super) struct Gathered {
    /// The last tick that fell after the packets of the block.
    tick: Option<u64>,
}

impl ViewStage {
    /// Returns whether packets gather in a block while its process has much to do.
    pub(crate) fn gathers(&self) -> bool {
        self.gathered.is_some()
    }

    /// Returns whether packets wait for room.
    pub(crate) fn has_gathered(&self) -> bool {
        self.gathers() && !self.filling.is_empty()
    }

    /// Returns whether the block that gathers can be handed over now.
    pub(crate) fn can_hand_over(&mut self) -> bool {
        self.has_gathered() && self.has_room_before(Next::Same)
    }

    /// Returns whether the process has room for the block that gathers.
    fn has_room_before(&mut self, next: Next) -> bool {
        let is_over = next == Next::Other || self.filling.is_full();
        let has_room = if is_over { Pool::has_room } else { Pool::has_much_room };
        let pool = &mut self.pool;
        // No block reaches a module that has ended, whose packets are counted at once.
        self.loops.iter().all(|m| m.is_gone() || has_room(pool, m.reader(), 0).unwrap_or(true))
    }

    /// Hands over the block that gathers, before those that follow. Returns whether no packets wait any more.
    pub(super) fn hand_over(
        &mut self,
        next: Next,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<bool, RunError> {
        self.hand_over_if(|view| view.has_room_before(next), conditions, outlet)
    }

    /// Hands over the block that gathers, which nothing follows. Returns whether no packets wait any more. A
    /// process that takes too long for room has no more time.
    pub(crate) fn hand_over_last(
        &mut self,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<bool, RunError> {
        let has_room = |view: &mut Self| {
            view.loops.iter_mut().all(|m| m.has_room(&mut view.pool, (0, false), conditions.stop))
        };
        self.hand_over_if(has_room, conditions, outlet)
    }

    /// Waits until the block that gathers is handed over.
    pub(crate) fn wait_until_handed_over(
        &mut self,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        PROCESS_CHECK.sleep_until(|| match self.hand_over_last(conditions, outlet) {
            Ok(false) => outlet.wait().err().map(Err),
            handed => Some(handed.map(drop)),
        })
    }

    /// Hands over the block that gathers and the tick after it, if there is room. Returns whether no packets
    /// wait any more.
    fn hand_over_if(
        &mut self,
        has_room: impl FnOnce(&mut Self) -> bool,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<bool, RunError> {
        if !self.has_gathered() {
            return Ok(true);
        }
        if !has_room(self) {
            return Ok(false);
        }
        self.publish(conditions, outlet)?;
        if let Some(now_ns) = self.gathered.as_mut().and_then(|gathered| gathered.tick.take()) {
            self.publish_tick(now_ns);
        }
        Ok(true)
    }

    /// Keeps a tick with the packets before it, if there are any that wait for room. Returns whether it does.
    pub(super) fn keeps_tick(&mut self, now_ns: u64) -> bool {
        let has_gathered = self.has_gathered();
        if let Some(gathered) = self.gathered.as_mut().filter(|_| has_gathered) {
            gathered.tick = Some(now_ns);
        }
        has_gathered
    }

    /// Adds packets to the block that gathers, and hands it over if there is room. Packets that do not fit
    /// into a full block are lost.
    pub(crate) fn gather(
        &mut self,
        packets: Packets<'_>,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let Packets { block, link, descriptors: mut rest } = packets;
        let next = if self.filling.excludes(link) { Next::Other } else { Next::Same };
        let is_handed_over = self.hand_over(next, conditions, outlet)?;
        if self.is_refused() {
            self.refuse(rest.len() as u64);
            return Ok(());
        }
        if !is_handed_over && next == Next::Other {
            self.lose(rest.len() as u64);
            return Ok(());
        }
        while !rest.is_empty() {
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
                batches.cut(written.cut.into());
            }
            if let Some(gathered) = self.gathered.as_mut().filter(|_| written.packets > 0) {
                gathered.tick = None;
            }
            self.hand_over(Next::Same, conditions, outlet)?;
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
