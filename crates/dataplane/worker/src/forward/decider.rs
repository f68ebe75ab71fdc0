//! The place where a module that forwards packets decides about them: this thread, or a process.

use crate::error::RunError;
use crate::process::{ModuleEvent, RemoteBatches};
use crate::records::collect::Collector;
use flame_block::{Block, Pool};
use flame_execute::{BatchLoop, Conditions, Origin, Outlet, Stop};
use flame_output::Sent;
use flame_plan::limits::SLICE;
use flame_plan::{Account, Discipline, Placement, Shed};
use flame_run::Output;
use flame_view::Written;
use std::time::{Duration, Instant};

/// Longest wait for a report before the limits of the process are checked.
const LIMITS_CHECK: Duration = Duration::from_millis(1);

/// The place where a module decides.
pub(crate) enum Decider {
    Local(Box<BatchLoop>),
    Remote(Box<RemoteDecider>),
}

/// A module in a process. It has one block at a time.
pub(crate) struct RemoteDecider {
    batches: RemoteBatches,
    discipline: Discipline,
    /// The number of its packets about which the module has not decided, and those that it has sent of them.
    left: u32,
    sent: Sent,
    /// Whether the thread of a live graph has waited for the decision about the current block. From then on
    /// it looks for it now and then.
    has_waited: bool,
    /// Whether a report was wrong. None is taken any more, and the process is being killed.
    is_wrong: bool,
}

/// An outlet for decisions, and the collector of everything else.
pub(crate) trait Deciding<'c>: Outlet<RunError> {
    fn collector(&mut self) -> &mut Collector<'c>;
}

impl Decider {
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Local(batches) => batches.is_busy(),
            Self::Remote(remote) => remote.left > 0,
        }
    }

    /// Returns whether work waits that a quantum would advance.
    pub(crate) fn can_progress(&mut self) -> bool {
        match self {
            Self::Local(batches) => batches.can_progress(),
            Self::Remote(remote) => remote.left > 0 && !remote.is_looked_for(),
        }
    }

    /// Returns whether the module has no instance any more.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Local(batches) => batches.is_gone(),
            Self::Remote(remote) => remote.left == 0 && remote.batches.has_died(),
        }
    }

    pub(crate) fn account(&self) -> Account {
        match self {
            Self::Local(batches) => batches.account().clone(),
            Self::Remote(remote) => remote.batches.account(),
        }
    }

    /// Counts packets that were offered, those of them that filters did not select, and what else a view
    /// counts.
    pub(crate) fn offer(&mut self, offered: u64, filtered: u64, written: Written) {
        let account = match self {
            Self::Local(batches) => Some(batches.account_mut()),
            Self::Remote(remote) => remote.batches.account_mut(),
        };
        if let Some(account) = account {
            account.offer(offered, filtered);
            account.sample(written.sampled.into());
            account.cut += u64::from(written.cut);
        }
    }

    /// Publishes a block, about which the module decides next.
    pub(crate) fn publish<'c>(
        &mut self,
        (pool, block): (&mut Pool, Block),
        stop: &Stop<'_>,
        outlet: &mut dyn Deciding<'c>,
    ) -> Result<(), RunError> {
        match self {
            Self::Local(_) => {
                pool.publish(block);
                Ok(())
            }
            Self::Remote(remote) => remote.publish(pool, block, stop, outlet),
        }
    }

    /// Continues the module's calls for a quantum, or to their end.
    pub(crate) fn go<'c>(
        &mut self,
        pool: &mut Pool,
        conditions: Conditions<'_>,
        outlet: &mut dyn Deciding<'c>,
    ) -> Result<(), RunError> {
        match self {
            Self::Local(batches) => batches.go(conditions, outlet),
            Self::Remote(remote) => remote.go(pool, conditions, outlet),
        }
    }

    /// Makes a tick at `now_ns`, after the packets before it.
    pub(crate) fn tick<'c>(
        &mut self,
        (pool, now_ns): (&mut Pool, u64),
        stop: &Stop<'_>,
        outlet: &mut dyn Deciding<'c>,
    ) -> Result<(), RunError> {
        match self {
            Self::Local(_) => {
                pool.tick(now_ns);
                Ok(())
            }
            Self::Remote(remote) => remote.tick(pool, now_ns, stop, outlet),
        }
    }

    /// Makes the last call. No work waits any more.
    pub(crate) fn end<'c>(
        &mut self,
        now_ns: u64,
        stop: &Stop<'_>,
        outlet: &mut dyn Deciding<'c>,
    ) -> Result<(), RunError> {
        match self {
            Self::Local(batches) => batches.end(now_ns, stop, outlet),
            Self::Remote(remote) => {
                outlet.collector().set_ending();
                if remote.discipline.loses_late_packets() {
                    // The others do not wait for long.
                    remote.batches.remove();
                }
                while !remote.batches.leave(now_ns, stop) {
                    remote.take_reports(outlet)?;
                    outlet.collector().wait(LIMITS_CHECK);
                }
                remote.take_reports(outlet).map(drop)
            }
        }
    }
}

impl RemoteDecider {
    pub(crate) fn new(batches: RemoteBatches, discipline: Discipline) -> Self {
        let (left, sent, has_waited, is_wrong) = Default::default();
        Self { batches, discipline, left, sent, has_waited, is_wrong }
    }

    /// Returns whether the thread looks for the decision now and then only, because it has waited for it.
    fn is_looked_for(&self) -> bool {
        self.discipline.loses_late_packets() && self.has_waited
    }

    fn publish<'c>(
        &mut self,
        pool: &mut Pool,
        block: Block,
        stop: &Stop<'_>,
        outlet: &mut dyn Deciding<'c>,
    ) -> Result<(), RunError> {
        let has_room = self.wait_for_room(pool, stop, outlet)?;
        pool.publish(block);
        if !self.batches.published(pool, 0, block.packets.into()) {
            let cause = if has_room { self.batches.loss() } else { Shed::Overrun };
            return outlet.decided(block.packets, Some((cause, block.packets)));
        }
        (self.left, self.sent, self.has_waited) = (block.packets, Sent::of(block.packets), false);
        Ok(())
    }

    /// Waits until the process has released a block, on live sources for a slice at most. Returns whether it
    /// has.
    fn wait_for_room<'c>(
        &mut self,
        pool: &mut Pool,
        stop: &Stop<'_>,
        outlet: &mut dyn Deciding<'c>,
    ) -> Result<bool, RunError> {
        let begun = Instant::now();
        while !self.batches.has_room(pool, (0, false), stop) {
            if !self.discipline.waits_for_room(Placement::Process) && begun.elapsed() > SLICE {
                return Ok(false);
            }
            self.take_reports(outlet)?;
            outlet.collector().wait(LIMITS_CHECK);
        }
        Ok(true)
    }

    fn tick<'c>(
        &mut self,
        pool: &mut Pool,
        now_ns: u64,
        stop: &Stop<'_>,
        outlet: &mut dyn Deciding<'c>,
    ) -> Result<(), RunError> {
        // Before the process can report that it has passed the tick.
        self.batches.tick(now_ns);
        pool.tick(now_ns);
        // In a replay, what a tick causes precedes the packets after it, also those that the module is not
        // shown.
        while self.discipline.processes_messages_at_once() {
            // First: what it reported before waits in the queue then.
            let has_passed = self.batches.has_passed_ticks() || self.batches.is_over();
            if self.take_reports(outlet)? && has_passed {
                break;
            }
            self.batches.await_decision(pool, stop);
            outlet.collector().wait(LIMITS_CHECK);
        }
        self.batches.rest();
        Ok(())
    }

    /// Takes reports until the module has decided, on live sources for a slice, once for each block: others
    /// work while the process does.
    fn go<'c>(
        &mut self,
        pool: &mut Pool,
        conditions: Conditions<'_>,
        outlet: &mut dyn Deciding<'c>,
    ) -> Result<(), RunError> {
        let begun = Instant::now();
        loop {
            self.take_reports(outlet)?;
            if self.left == 0 {
                self.batches.rest();
                return Ok(());
            }
            if self.batches.is_over() {
                return self.lose(self.batches.loss(), outlet);
            }
            self.batches.await_decision(pool, conditions.stop);
            self.has_waited |= begun.elapsed() > SLICE;
            if !conditions.is_last && self.is_looked_for() {
                return Ok(());
            }
            outlet.collector().wait(LIMITS_CHECK.min(SLICE));
        }
    }

    /// Loses the packets about which the module has not decided.
    fn lose<'c>(&mut self, cause: Shed, outlet: &mut dyn Deciding<'c>) -> Result<(), RunError> {
        let left = std::mem::take(&mut self.left);
        self.batches.decided(left, Some((cause, left)));
        outlet.decided(left, Some((cause, left)))
    }

    /// Handles the reports that wait, for a slice: a process that always has another one must not keep the
    /// thread. Returns whether none is left.
    fn take_reports<'c>(&mut self, outlet: &mut dyn Deciding<'c>) -> Result<bool, RunError> {
        let begun = Instant::now();
        while begun.elapsed() <= SLICE {
            let Some(event) = outlet.collector().next_report()? else { return Ok(true) };
            match event {
                ModuleEvent::Sent(bytes) => self.sent(&bytes, outlet)?,
                ModuleEvent::Decided { count, lost } => self.decided(count, lost, outlet)?,
                ModuleEvent::Fault(report) => outlet.fault(report)?,
                event => outlet.collector().event(event)?,
            }
        }
        Ok(false)
    }

    /// Kills the process. What it has reported and what it reports from now on is not taken.
    fn kill(&mut self, reason: &str) {
        self.is_wrong = true;
        self.batches.kill(reason);
    }

    /// Passes output on that the module may have sent.
    fn sent<'c>(&mut self, bytes: &[u8], outlet: &mut dyn Deciding<'c>) -> Result<(), RunError> {
        if self.is_wrong || self.batches.is_over() {
            return Ok(());
        }
        match self.batches.check(bytes, &mut self.sent) {
            // Its decisions would be about the packets that are offered next.
            Ok(counts) if counts.sent > 0 && self.left == 0 => {
                self.kill(&format!("{} sent packets after its decision", self.batches.name()));
                Ok(())
            }
            Ok(counts) => {
                let from = Origin::of(self.batches.id(), 0);
                outlet.output(from, Output { bytes, counts })
            }
            Err(e) => {
                self.kill(&format!("output of {}: {e}", self.batches.name()));
                Ok(())
            }
        }
    }

    fn decided<'c>(
        &mut self,
        count: u32,
        lost: Option<(Shed, u32)>,
        outlet: &mut dyn Deciding<'c>,
    ) -> Result<(), RunError> {
        if self.is_wrong || self.batches.is_over() {
            return Ok(());
        }
        let is_possible = lost.map_or_else(|| self.sent.is_within(count), |(_, shed)| shed <= count);
        if count > self.left || !is_possible {
            self.kill(&format!("{} decided about packets that it was not given", self.batches.name()));
            return Ok(());
        }
        self.left -= count;
        self.sent = Sent::of(self.left);
        self.batches.decided(count, lost);
        outlet.decided(count, lost)
    }
}
