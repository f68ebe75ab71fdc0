//! The numbers of blocks of a view and of its modules, and the wait until there is room for another one.

use super::{PipelineOptions, ViewStage};
use crate::error::RunError;
use crate::packets::sorting;
use crate::records::placed::Placed;
use flame_base::Backoff;
use flame_block::{Depths, MAX_SLOTS};
use flame_execute::{Outlet, Stop};
use flame_plan::{Discipline, ModulePlan, Placement, Turns};
use std::time::Duration;

/// The number of blocks of one view. A module has an overrun when it holds all of them.
pub(super) const SLOTS: usize = 4;

/// The number of blocks of a live view whose modules run in a process. What one of them holds takes nothing
/// from the others: the sum of their buffers is less. The process can make the kernel allocate all of them.
const REMOTE_SLOTS: usize = 16;

/// The number of blocks of a capture that may wait for a module in a process. Each wake-up of the process
/// costs as much as many packets, and nothing is lost meanwhile.
const CAPTURE_DEPTH: usize = 2 * SLOTS;

/// The number of blocks of a graph that may wait for a module in a process with `LIVE true`. A tick ends a
/// block while less than half of them wait, also one with few packets.
const GRAPH_DEPTH: usize = REMOTE_SLOTS - 2;

/// The waits of a pipeline that reads a capture for room for a block in a process.
const ROOM_CHECK: Backoff = Backoff::doubling(Duration::from_micros(160), Duration::from_micros(640));

/// Returns whether a module has separate blocks, because one in slices may keep them for long, or because
/// they are those of its event queues.
pub(crate) fn has_own_blocks(module: &Placed, options: &PipelineOptions<'_>) -> bool {
    if !module.plan().manifest.queues.is_empty() {
        return true;
    }
    let (placement, class) = (module.plan().placement(), module.plan().class);
    placement == Placement::Inline && options.discipline.turns(placement, class) == Turns::Slices
}

/// Returns the numbers of blocks that may wait for a module, by event queue if it has any.
pub(super) fn depths(plan: &ModulePlan, discipline: Discipline) -> Result<Depths, RunError> {
    if plan.manifest.queues.is_empty() { Ok(depth(plan, discipline).into()) } else { sorting::depths(plan) }
}

/// Returns the number of blocks that may wait for a module without event queues.
pub(super) fn depth(plan: &ModulePlan, discipline: Discipline) -> usize {
    let placement = plan.placement();
    // Outcomes of calls should come before many more packets.
    let is_deep = discipline.waits_for_room(placement) && !plan.manifest.has_calls();
    match plan.terms.buffer as usize {
        0 if is_deep => CAPTURE_DEPTH,
        0 if discipline.gathers_packets(placement) => GRAPH_DEPTH,
        0 => SLOTS,
        granted => granted.min(SLOTS),
    }
}

/// Returns the number of blocks of a view whose modules run in a process.
pub(super) fn remote_slots(discipline: Discipline) -> usize {
    if discipline.loses_late_packets() { REMOTE_SLOTS } else { MAX_SLOTS }
}

impl ViewStage {
    /// Waits until no module in a process would lose a block of an event queue. A capture is read as fast as
    /// they take it.
    pub(super) fn wait_for_room(
        &mut self,
        queue: usize,
        stop: &Stop<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        if !self.discipline.waits_for_room(self.placement()) {
            return Ok(());
        }
        let mut waits = false;
        ROOM_CHECK.sleep_until(|| {
            if self.loops.iter_mut().all(|m| m.has_room(&mut self.pool, (queue, waits), stop)) {
                return Some(Ok(()));
            }
            // From now on for several blocks.
            waits = true;
            outlet.wait().err().map(Err)
        })
    }
}
