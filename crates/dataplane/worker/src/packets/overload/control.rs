//! The decision which modules receive no packets while a worker is behind.
//!
//! The control is a function of the fill of the source's buffer, of time, and of what it decided before. It
//! has a stack of modules that are left out. The last of them receives the first blocks of each round of
//! [`ROUND`], the others none. If the buffer fills, the last one receives less, and then another one is left
//! out: of the lowest priority, that which takes the most time. If it empties, the last one receives more,
//! and the last to be left out returns first. Between the two marks nothing changes. The worker has work at
//! all times meanwhile, since a buffer that empties is not empty yet.

use crate::records::event::OverloadChange;
use flame_plan::ModuleId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The number of blocks in a round, and the parts in which a module receives packets.
pub(crate) const ROUND: u32 = 16;
/// The part by which a full round of a filling buffer reduces what the last module receives.
const STEP: u32 = 4;
/// The rise of the fill over a round, in thousandths, that leaves out a module at once.
const STEEP: u32 = 60;
/// The fill in thousandths from which on packets are being lost.
const FULL: u32 = 960;
/// The fill in thousandths up to which the worker counts as idle at times.
const IDLE: u32 = 20;
/// The time in which a module regains one part of [`ROUND`].
const PART_NS: u64 = 20_000_000;
/// The shortest and the longest time for which a module has all parts but one before it returns, and for
/// which nothing is given back after a module has lost blocks of its own.
pub(crate) const HOLD_NS: (u64, u64) = (1_000_000_000, 32_000_000_000);
/// The number of times a hold's length after which the next one is the shortest again.
const RESTED: u64 = 32;

/// A module as the control sees it.
#[derive(Clone, Copy, Debug)]
struct Member {
    priority: u32,
    /// The time of the module for a packet that it is offered, in picoseconds.
    cost: u64,
    /// Whether the kernel guarantees its processor time. It is never left out.
    is_guaranteed: bool,
    /// The blocks of each round that it receives.
    part: u32,
    hold: Hold,
}

impl Member {
    /// Returns whether there are packets that it may lose, because its priority is below `limit`.
    fn may_lose(&self, limit: u32) -> bool {
        self.priority < limit && !self.is_guaranteed && self.part > 0
    }
}

/// A time that doubles each time it did not suffice.
#[derive(Clone, Copy, Debug)]
struct Hold {
    length_ns: u64,
    since_ns: u64,
}

impl Default for Hold {
    fn default() -> Self {
        Self { length_ns: HOLD_NS.0 / 2, since_ns: 0 }
    }
}

impl Hold {
    /// Begins again. If [`RESTED`] times its length have passed since it ended, it is the shortest one.
    fn begin(&mut self, now_ns: u64) {
        let rested = now_ns.saturating_sub(self.since_ns) >= self.length_ns.saturating_mul(RESTED);
        let longer = (self.length_ns * 2).min(HOLD_NS.1);
        *self = Self { length_ns: if rested { HOLD_NS.0 } else { longer }, since_ns: now_ns };
    }

    fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= self.length_ns
    }
}

#[derive(Debug)]
pub(crate) struct Control {
    /// The fill in thousandths from which on less is given. Half of it is the fill up to which more is.
    high: u32,
    members: BTreeMap<ModuleId, Member>,
    /// The modules that are left out, by ascending priority.
    out: Vec<ModuleId>,
    /// The block of the round.
    turn: u32,
    /// The fill at the last block, and at the end of the last round.
    last: u32,
    of_round: u32,
    /// The time of the last change of a part.
    stepped_ns: u64,
    /// The time for which nothing is given back, after a module lost blocks of its own.
    pressed: Option<Hold>,
    changes: Vec<OverloadChange>,
}

impl Control {
    pub(crate) fn new(high: u32) -> Self {
        Self {
            high,
            members: BTreeMap::new(),
            out: Vec::new(),
            turn: 0,
            last: 0,
            of_round: 0,
            stepped_ns: 0,
            pressed: None,
            changes: Vec::new(),
        }
    }

    /// Adds a module. If one of a higher priority is left out, so is this one.
    pub(crate) fn add(&mut self, id: ModuleId, priority: u32) {
        let (cost, hold) = (0, Hold::default());
        self.members.insert(id, Member { priority, cost, is_guaranteed: false, part: ROUND, hold });
        self.follow(id, priority);
    }

    /// Leaves out a module that may lose packets from now on, if one of a higher priority is left out.
    fn follow(&mut self, id: ModuleId, priority: u32) {
        let above = self.out.iter().position(|other| self.priority(*other) > priority);
        if let Some(at) = above {
            self.leave_out(id, at, 0, self.stepped_ns);
        }
    }

    pub(crate) fn remove(&mut self, id: ModuleId) {
        self.out.retain(|other| *other != id);
        self.members.remove(&id);
        self.changes.retain(|change| change.module != id);
        // Those of the highest priority that is left leave the loss to the kernel.
        let highest = self.highest();
        while let Some(last) = self.out.last().copied().filter(|last| Some(self.priority(*last)) == highest) {
            self.give_back(last);
        }
    }

    /// Records a measurement. Returns the module's priority, if it is known.
    pub(crate) fn measure(&mut self, id: ModuleId, cost: Option<u64>, is_guaranteed: bool) -> Option<u32> {
        let member = self.members.get_mut(&id)?;
        member.cost = cost.unwrap_or(member.cost);
        let was_guaranteed = std::mem::replace(&mut member.is_guaranteed, is_guaranteed);
        let priority = member.priority;
        if is_guaranteed && member.part < ROUND {
            member.part = ROUND;
            self.out.retain(|other| *other != id);
            self.changes.push(OverloadChange { module: id, begins: false });
        } else if was_guaranteed && !is_guaranteed {
            self.follow(id, priority);
        }
        Some(priority)
    }

    /// Returns whether a module can be left out at all: there are two priorities.
    pub(crate) fn is_needed(&self) -> bool {
        let highest = self.highest();
        self.members.values().any(|member| Some(member.priority) != highest)
    }

    /// Returns whether any module is left out.
    pub(crate) fn is_shedding(&self) -> bool {
        !self.out.is_empty()
    }

    /// Returns whether a module receives nothing of the present block.
    pub(crate) fn leaves_out(&self, id: ModuleId) -> bool {
        self.members.get(&id).is_some_and(|member| self.turn >= member.part)
    }

    pub(crate) fn take_change(&mut self) -> Option<OverloadChange> {
        (!self.changes.is_empty()).then(|| self.changes.remove(0))
    }

    fn priority(&self, id: ModuleId) -> u32 {
        self.members.get(&id).map_or(0, |member| member.priority)
    }

    fn highest(&self) -> Option<u32> {
        self.members.values().map(|member| member.priority).max()
    }

    /// Begins a block. `fill` is the part of the source's buffer that waits, in thousandths.
    pub(crate) fn block(&mut self, now_ns: u64, fill: u32) {
        self.turn = (self.turn + 1) % ROUND;
        let severe = u32::midpoint(self.high, 1000);
        let highest = self.highest().unwrap_or(0);
        // One module is left out for each block: if there are as many as blocks until it is full, the first
        // one has to be now.
        let rise = fill.saturating_sub(self.last);
        let blocks = self.members.values().filter(|member| member.may_lose(highest)).count() as u32;
        let is_steep = fill >= self.high && fill + blocks.saturating_mul(rise) >= 1000;
        if (rise > 0 && (is_steep || fill >= severe)) || fill >= FULL {
            self.reduce(ROUND, highest, now_ns);
        } else if self.turn == 0 {
            let rise = fill.saturating_sub(self.of_round);
            if fill >= self.high && fill >= self.of_round {
                self.reduce(if rise >= STEEP { ROUND } else { STEP }, highest, now_ns);
            } else if fill <= self.high / 2 && (rise == 0 || fill <= IDLE) {
                self.restore(now_ns);
            }
            self.of_round = fill;
        }
        self.last = fill;
    }

    /// Records that no packet waits.
    pub(crate) fn idle(&mut self, now_ns: u64) {
        (self.last, self.of_round) = (0, 0);
        self.restore(now_ns);
    }

    /// Records that a module of this priority has lost blocks of its own. Those below it make room for it.
    pub(crate) fn press(&mut self, now_ns: u64, priority: u32) {
        self.reduce(STEP, priority, now_ns);
        let hold = self.pressed.get_or_insert_default();
        match hold.is_over(now_ns) {
            true => hold.begin(now_ns),
            false => hold.since_ns = now_ns,
        }
    }

    /// Takes `parts` of a round from the last module that is left out, or from the next one, if its priority
    /// is below `limit`.
    fn reduce(&mut self, parts: u32, limit: u32, now_ns: u64) {
        let last = self.out.last().and_then(|last| self.members.get_mut(last));
        if let Some(last) = last.filter(|last| last.part > 0) {
            if last.priority < limit {
                last.part = last.part.saturating_sub(parts);
                self.stepped_ns = now_ns;
            }
            return;
        }
        let within = |(id, member): &(&ModuleId, &Member)| member.may_lose(limit) && !self.out.contains(id);
        let first = |(id, member): &(&ModuleId, &Member)| (member.priority, Reverse((member.cost, **id)));
        if let Some(next) = self.members.iter().filter(within).min_by_key(first).map(|(id, _)| *id) {
            self.leave_out(next, self.out.len(), ROUND - parts, now_ns);
        }
    }

    fn leave_out(&mut self, id: ModuleId, at: usize, part: u32, now_ns: u64) {
        let Some(member) = self.members.get_mut(&id) else { return };
        member.part = part;
        member.hold.begin(now_ns);
        self.out.insert(at, id);
        self.stepped_ns = now_ns;
        self.changes.push(OverloadChange { module: id, begins: true });
    }

    /// Gives the last module that is left out more, as time has passed.
    fn restore(&mut self, now_ns: u64) {
        let Some(last) = self.out.last().copied() else { return };
        if self.pressed.is_some_and(|hold| !hold.is_over(now_ns)) {
            return;
        }
        let parts = (now_ns.saturating_sub(self.stepped_ns) / PART_NS).min(ROUND.into()) as u32;
        let Some(member) = self.members.get_mut(&last).filter(|_| parts > 0) else { return };
        if member.part < ROUND - 1 {
            member.part = (member.part + parts).min(ROUND - 1);
            member.hold.since_ns = now_ns;
            self.stepped_ns = now_ns;
        } else if member.hold.is_over(now_ns) {
            member.hold.since_ns = now_ns;
            self.stepped_ns = now_ns;
            self.give_back(last);
        }
    }

    fn give_back(&mut self, last: ModuleId) {
        self.out.pop();
        if let Some(member) = self.members.get_mut(&last) {
            member.part = ROUND;
            self.changes.push(OverloadChange { module: last, begins: false });
        }
    }
}
