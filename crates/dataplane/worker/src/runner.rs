//! A module on one worker: its instance, its blocks, and its account.

use crate::caller::{Caller, Ended};
use crate::error::RunError;
use crate::module::{LoadedModule, Shape};
use crate::outlet::{Origin, Outlet};
use crate::report::FaultReport;
use crate::stop::{Quantum, Stop};
use flame_abi::{Descriptor, LinkType, layout};
use flame_block::{Pool, Reader};
use flame_plan::{Account, ModuleClass, ModuleId, OnFault, Reason, Shed, quantize};
use flame_quota::Meters;
use flame_run::{Call, Fault, Mapping, Role};
use std::collections::VecDeque;

pub(crate) struct ModuleRunner {
    pub(crate) module: ModuleId,
    name: String,
    worker: usize,
    caller: Caller,
    /// Whether its calls end within one quantum: either no packet is lost meanwhile, or it shares blocks with
    /// others, which would wait for it if it kept them.
    is_whole: bool,
    restarts: u32,
    pub(crate) reader: Reader,
    /// The current block.
    work: Option<Work>,
    /// The number of blocks taken so far.
    taken: u64,
    /// Ticks that wait for earlier blocks, or for a share of time.
    ticks: VecDeque<Due>,
    /// Whether the current call has not sent messages yet.
    is_fresh: bool,
    meters: Meters,
    /// The resolution of the view: ticks and the end are no finer than packets.
    resolution_ns: u64,
    /// The last tick, at that resolution.
    ticked: u64,
    /// The last tick of the pipeline.
    told: u64,
    /// The last tick that was reported as passed.
    passed: u64,
    pub(crate) account: Account,
    /// The number of packets lost since the last batch.
    pub(crate) lost: u64,
    /// Whether the last call has begun.
    is_ending: bool,
}

struct Work {
    slot: usize,
    packets: u32,
    next: u32,
    link: LinkType,
}

/// A tick that follows when `after` blocks have been taken.
struct Due {
    after: u64,
    now_ns: u64,
}

/// The state of a view's blocks.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    /// The maximum number of packets in a batch.
    pub(crate) batch: u32,
    /// The link type of each slot.
    pub(crate) links: &'a [LinkType],
    pub(crate) stop: &'a Stop<'a>,
    /// Whether no more blocks follow.
    pub(crate) is_last: bool,
}

impl ModuleRunner {
    pub(crate) fn new(
        shape: Shape,
        module: &LoadedModule,
        (worker, is_live): (usize, bool),
        windows: Vec<Mapping>,
        reader: Reader,
    ) -> Self {
        let p = &module.plan;
        let caller = Caller::new(shape, module, Role::Fast { worker }, is_live).with_windows(windows);
        Self {
            module: p.id,
            name: p.name.clone(),
            worker,
            is_whole: !is_live || caller.loaded().class() == ModuleClass::Bounded,
            caller,
            restarts: match p.on_fault {
                OnFault::Stop => 0,
                OnFault::Restart(times) => times,
            },
            reader,
            work: None,
            taken: 0,
            ticks: VecDeque::new(),
            is_fresh: true,
            meters: module.meters.clone(),
            resolution_ns: p.view.resolution_ns,
            ticked: 0,
            told: 0,
            passed: 0,
            account: Account::default(),
            lost: 0,
            is_ending: false,
        }
    }

    /// Returns whether work waits: a call that has not ended, a tick or a block.
    pub(crate) fn is_busy(&self) -> bool {
        self.caller.is_busy() || !self.ticks.is_empty() || self.work.is_some() || self.reader.waiting() > 0
    }

    /// Returns whether work waits only for a quantum.
    pub(crate) fn can_progress(&mut self) -> bool {
        self.is_busy() && self.caller.may_begin()
    }

    /// Creates an instance. If that fails, the module stays stopped.
    pub(crate) fn launch(&mut self, restarted: bool, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        match self.caller.launch(restarted) {
            Ok(()) => Ok(()),
            Err(fault) => {
                self.restarts = 0;
                self.report(&fault, None, false, outlet)
            }
        }
    }

    /// Does waiting work until none is left or the quantum is over.
    pub(crate) fn go(&mut self, blocks: Blocks<'_>, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        let quantum = if self.is_whole { Quantum::whole(blocks.stop) } else { Quantum::slice(blocks.stop) };
        let quantum = if blocks.is_last { quantum.ending() } else { quantum };
        while self.caller.is_busy() || self.start_next(blocks) {
            if !self.call(&quantum, outlet)? {
                break;
            }
        }
        if self.ticks.is_empty() && !self.caller.is_in_tick() && self.passed < self.told {
            self.passed = self.told;
            outlet.passed(self.module, self.worker, self.told)?;
        }
        Ok(())
    }

    /// Starts the next call. Returns false if no work waits or the instance is gone.
    fn start_next(&mut self, blocks: Blocks<'_>) -> bool {
        loop {
            let overtaken = self.ticks.front().is_some_and(|due| due.after < self.taken);
            if let Some(work) = &mut self.work {
                let left = work.packets - work.next;
                let cause = match () {
                    () if left == 0 => None,
                    () if self.caller.is_gone() && self.caller.is_evicted() => Some(Shed::Evicted),
                    () if self.caller.is_gone() || self.caller.is_overdue() => Some(Shed::Stopped),
                    // No batch precedes a tick that waits for its share.
                    () if overtaken || !self.caller.may_begin() => Some(Shed::Share),
                    () => {
                        let (count, lost) = (blocks.batch.min(left), std::mem::take(&mut self.lost));
                        let descriptors = layout::VIEW
                            + Pool::offset(work.slot) as u32
                            + work.next * Descriptor::SIZE as u32;
                        let call = Call::Batch { descriptors, count, lost, link: work.link };
                        self.caller.start(call, self.caller.allowance());
                        return true;
                    }
                };
                if let Some(cause) = cause {
                    self.account.shed(cause, u64::from(left));
                    self.lost += u64::from(left);
                }
                let slot = work.slot;
                self.work = None;
                self.reader.release(slot);
                continue;
            }
            if self.caller.is_gone() {
                self.ticks.clear();
            }
            if self.ticks.front().is_some_and(|due| due.after <= self.taken)
                && (blocks.is_last || self.caller.may_begin())
                && let Some(due) = self.ticks.pop_front()
            {
                self.caller.start(Call::Tick { now_ns: due.now_ns }, self.caller.allowance());
                return true;
            }
            let Some((slot, packets)) = self.reader.take() else { return false };
            self.taken += 1;
            let link = blocks.links.get(slot).copied().unwrap_or_default();
            self.work = Some(Work { slot, packets, next: 0, link });
        }
    }

    /// Continues the call that was started and returns whether it has ended.
    fn call(&mut self, quantum: &Quantum<'_>, outlet: &mut dyn Outlet) -> Result<bool, RunError> {
        let (module, worker) = (self.module, self.worker);
        let is_fresh = &mut self.is_fresh;
        let ended = self.caller.go(quantum, &mut |output| {
            // Messages of a call, including those of its continuations, share one budget, which begins with
            // the first of them.
            let is_first = output.counts.messages > 0 && std::mem::take(is_fresh);
            let from = Origin { module, worker, is_first };
            outlet.output(from, output)
        })?;
        self.is_fresh |= !matches!(ended, Ended::Paused);
        match ended {
            Ended::Paused => return Ok(false),
            Ended::Done(Call::Batch { count, .. }, _) => {
                self.processed(count);
                self.advance(count);
            }
            Ended::Done(..) => {}
            Ended::Evicted(_, reason) => {
                self.restarts = 0;
                let text = format!("evicted: {reason}");
                let packet = Some(self.account.accounted());
                outlet.fault(self.fault_report(text, packet, Some(reason), false))?;
            }
            Ended::Faulted(Call::Batch { count, .. }, fault) => {
                self.batch_fault(&fault, count, quantum, outlet)?;
            }
            Ended::Faulted(Call::Init { .. }, fault) => {
                self.restarts = 0;
                self.report(&fault, None, false, outlet)?;
            }
            Ended::Faulted(_, fault) => self.on_fault(&fault, None, quantum, outlet)?,
        }
        Ok(true)
    }

    fn processed(&mut self, count: u32) {
        self.account.processed += u64::from(count);
        self.meters.packets(count);
    }

    fn advance(&mut self, count: u32) {
        if let Some(work) = &mut self.work {
            work.next += count;
        }
    }

    /// Updates the account for a batch that ended in a fault.
    fn batch_fault(
        &mut self,
        fault: &Fault,
        count: u32,
        quantum: &Quantum<'_>,
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        let cause = fault.cause();
        // Invalid output voids the batch; otherwise the packets before the marked one were processed.
        let marked = fault.packet.filter(|p| cause != Shed::Output && *p < count);
        let (done, shed) = marked.map_or((0, count), |p| (p, 1));
        let number = marked.map(|p| self.account.accounted() + u64::from(p));
        self.processed(done);
        self.account.shed(cause, u64::from(shed));
        self.advance(done + shed);
        self.on_fault(fault, number, quantum, outlet)
    }

    fn on_fault(
        &mut self,
        fault: &Fault,
        packet: Option<u64>,
        quantum: &Quantum<'_>,
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        // A new instance would run the same code, which only its bound limits.
        if fault.violates_bound() {
            self.restarts = 0;
        }
        // A run that is being stopped starts no new instance.
        let restart = self.restarts > 0 && !quantum.stop.is_set();
        self.report(fault, packet, restart, outlet)?;
        if restart {
            self.restarts -= 1;
            self.launch(true, outlet)?;
        }
        Ok(())
    }

    fn report(
        &mut self,
        fault: &Fault,
        packet: Option<u64>,
        restarted: bool,
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        self.account.faults += 1;
        outlet.fault(self.fault_report(fault.text(self.meters.granted()), packet, None, restarted))
    }

    fn fault_report(
        &self,
        text: String,
        packet: Option<u64>,
        evicted: Option<Reason>,
        restarted: bool,
    ) -> FaultReport {
        let (id, module) = (self.module, self.name.clone());
        FaultReport { id, module, worker: Some(self.worker), packet, text, evicted, restarted }
    }

    /// Adds a tick of the pipeline after the blocks that wait. Of several ticks at the same place the last
    /// one counts.
    pub(crate) fn tick(
        &mut self,
        now_ns: u64,
        blocks: Blocks<'_>,
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        self.told = now_ns;
        let now_ns = quantize(now_ns, self.resolution_ns);
        if now_ns > std::mem::replace(&mut self.ticked, now_ns) {
            let after = self.taken + self.reader.waiting();
            match self.ticks.back_mut() {
                Some(due) if due.after == after => due.now_ns = now_ns,
                _ => self.ticks.push_back(Due { after, now_ns }),
            }
        }
        self.go(blocks, outlet)
    }

    /// Advances a module that receives no more blocks towards its end, for a quantum. Returns whether it has
    /// ended.
    pub(crate) fn leave(
        &mut self,
        now_ns: u64,
        blocks: Blocks<'_>,
        outlet: &mut dyn Outlet,
    ) -> Result<bool, RunError> {
        self.go(blocks, outlet)?;
        if self.is_busy() {
            return Ok(false);
        }
        if !std::mem::replace(&mut self.is_ending, true) {
            self.restarts = 0;
            let now_ns = quantize(now_ns, self.resolution_ns);
            self.caller.start(Call::End { now_ns }, self.caller.allowance());
            self.go(blocks, outlet)?;
        }
        Ok(!self.caller.is_busy())
    }

    /// Makes the last call. No work waits any more.
    pub(crate) fn end(
        &mut self,
        now_ns: u64,
        stop: &Stop<'_>,
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        self.restarts = 0;
        let now_ns = quantize(now_ns, self.resolution_ns);
        self.caller.start(Call::End { now_ns }, self.caller.allowance());
        self.call(&Quantum::whole(stop), outlet).map(drop)
    }
}
