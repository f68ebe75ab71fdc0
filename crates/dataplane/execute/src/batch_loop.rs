use crate::caller::{Caller, Ended};
use crate::keep::Place;
use crate::keeping::{Keeping, Next};
use crate::module::{Attachment, Halts, LoadedModule, Shape};
use crate::outlet::{Origin, Outlet};
use crate::stop::{Quantum, Stop};
use crate::ticks::Ticks;
use flame_abi::{Descriptor, layout};
use flame_block::{Block, Item, MAX_QUEUES, Pool, Reader, ReaderId};
use flame_plan::limits::{QUANTUM_BLOCKS_MAX, QUANTUM_CALLS_MAX};
use flame_plan::{Account, FaultReport, ModuleId, OnFault, Placement, Reason, Shed, Turns, quantize};
use flame_quota::Meters;
use flame_run::{Call, Fault, Mapping, Role};
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// A module on one worker: its fast instance, its blocks, and its account.
pub struct BatchLoop {
    module: ModuleId,
    name: String,
    worker: usize,
    caller: Caller,
    turns: Turns,
    placement: Placement,
    restarts: u32,
    halts: Halts,
    reader: Reader,
    /// The current block.
    work: Option<Work>,
    /// Whether the module forwards packets.
    forwards: bool,
    /// The number of further blocks that may be taken in this quantum.
    blocks: u32,
    /// The tick to make before the next block is taken.
    due: Option<u64>,
    /// The number of calls that have ended.
    calls: u64,
    meters: Meters,
    /// The resolution of the view: ticks and the end are no finer than packets.
    resolution_ns: u64,
    ticks: Ticks,
    /// The last tick that was delivered.
    delivered_tick: u64,
    /// The last tick that was reported as passed.
    passed_tick: u64,
    account: Account,
    /// The number of packets lost since the last batch of each event queue. Those that were lost before they
    /// had a queue are in the next batch of any.
    lost: [u64; MAX_QUEUES],
    unsorted: u64,
    /// Whether the last call has begun.
    is_ending: bool,
    keeping: Keeping,
}

/// A block that is being processed.
#[derive(Clone, Copy)]
struct Work {
    block: Block,
    next: u32,
}

/// The conditions under which a loop works.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    /// The maximum number of packets in a batch.
    pub batch: u32,
    pub stop: &'a Stop<'a>,
    /// Whether no more blocks follow.
    pub is_last: bool,
    /// The last tick of the other workers, after which this one takes nothing before they have passed its
    /// own; `u64::MAX` if it waits for no other.
    pub others: u64,
}

impl BatchLoop {
    /// Creates a loop without an instance. It takes the blocks of `reader`, which `windows` map.
    pub fn new(
        shape: Shape,
        module: &LoadedModule,
        Attachment { worker, discipline }: Attachment,
        windows: Vec<Mapping>,
        reader: Reader,
    ) -> Self {
        let p = &module.plan;
        let caller = Caller::new(shape, module, Role::Fast { worker }, discipline).with_windows(windows);
        Self {
            module: p.id,
            name: p.name.clone(),
            worker,
            turns: match discipline.turns(module.placement, caller.loaded().class()) {
                // Its event queues have blocks of their own.
                Turns::Lent if !p.manifest.queues.is_empty() => Turns::Slices,
                turns => turns,
            },
            placement: module.placement,
            caller,
            restarts: match p.on_fault {
                OnFault::Stop => 0,
                OnFault::Restart(times) => times,
            },
            halts: module.halts.clone(),
            reader,
            work: None,
            forwards: module.loaded.forwards(),
            blocks: 0,
            due: None,
            calls: 0,
            meters: module.meters.clone(),
            resolution_ns: p.view.resolution_ns,
            ticks: Ticks::new(p, shape.tick_ns, discipline),
            delivered_tick: 0,
            passed_tick: 0,
            account: p.empty_account(),
            lost: [0; MAX_QUEUES],
            unsorted: 0,
            is_ending: false,
            keeping: Keeping::new(
                module.take_place(Place::Worker(worker)),
                p.shows_whole_intervals(discipline),
            ),
        }
    }

    pub fn module(&self) -> ModuleId {
        self.module
    }

    /// Returns the account of the packets so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the account of the packets, at the end.
    pub fn into_account(self) -> Account {
        self.account
    }

    /// Returns the identity of the module's reader in its pool.
    pub fn reader(&self) -> ReaderId {
        self.reader.id()
    }

    /// Returns the account in which packets are counted before they come in a block.
    pub fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }

    /// Counts packets that the module does not process. It learns their number with its next batch.
    pub fn shed(&mut self, cause: Shed, packets: u64) {
        self.account.shed(cause, packets);
        self.unsorted += packets;
    }

    /// Counts packets of an event queue that the module does not process.
    fn shed_queued(&mut self, queue: usize, cause: Shed, packets: u64) {
        self.account.shed(cause, packets);
        self.lost[queue % MAX_QUEUES] += packets;
    }

    /// Counts the packets of blocks that the reader lost.
    pub fn count_lost(&mut self) {
        for (queue, lost) in self.lost.iter_mut().enumerate() {
            let packets = self.reader.lost(queue);
            if packets > 0 {
                self.account.overrun(queue, packets);
                *lost += packets;
            }
        }
    }

    /// Returns the number of packets of a queue that were lost since its last batch.
    fn take_lost(&mut self, queue: usize) -> u64 {
        let lost = std::mem::take(&mut self.lost[queue % MAX_QUEUES]);
        lost + std::mem::take(&mut self.unsorted)
    }

    /// Prepares to sleep until [`BatchLoop::event`] is readable, as [`Reader::arm`].
    pub fn arm(&mut self) -> bool {
        self.reader.arm()
    }

    /// Prepares to sleep for a short time at most, as [`Reader::arm_for_much`].
    pub fn arm_for_much(&mut self) -> bool {
        self.reader.arm_for_much()
    }

    /// Ends the sleep, as [`Reader::disarm`].
    pub fn disarm(&mut self) {
        self.reader.disarm();
    }

    /// Returns the descriptor that wakes the loop, or `None` in the writer's process.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.reader.event()
    }

    /// Returns whether work waits: a call that has not ended, a tick or a block.
    pub fn is_busy(&self) -> bool {
        self.caller.is_busy()
            || self.due.is_some()
            || self.work.is_some()
            || self.reader.is_ready()
            || self.keeping.is_pending()
    }

    /// Returns whether the module has no instance any more.
    pub fn is_gone(&self) -> bool {
        self.caller.is_gone() && !self.caller.is_busy()
    }

    /// Returns whether the module has passed a later tick than others, and takes nothing before they have.
    pub fn is_ahead(&self, others: u64) -> bool {
        let is_between = self.work.is_none() && self.due.is_none() && !self.caller.is_busy();
        self.passed_tick > others && is_between && !self.caller.is_gone() && !self.caller.is_evicted()
    }

    /// Returns whether work waits only for a quantum.
    pub fn can_progress(&mut self) -> bool {
        self.is_busy() && self.caller.may_begin() && (self.caller.is_busy() || !self.keeping.must_wait())
    }

    /// Creates an instance. If that fails, the module stays stopped.
    ///
    /// # Errors
    ///
    /// Returns the error of `outlet`, which receives the fault if no instance can be created.
    pub fn launch<E>(&mut self, restarted: bool, outlet: &mut dyn Outlet<E>) -> Result<(), E> {
        match self.caller.launch(restarted) {
            Ok(()) => Ok(()),
            Err(fault) => {
                self.restarts = 0;
                self.keeping.let_go();
                self.report(&fault, None, false, outlet)
            }
        }
    }

    /// Does waiting work until none is left or the quantum is over.
    ///
    /// # Errors
    ///
    /// Returns the error of `outlet`, which receives the module's faults.
    pub fn go<E>(&mut self, conditions: Conditions<'_>, outlet: &mut dyn Outlet<E>) -> Result<(), E> {
        let slice = match self.turns {
            Turns::ToEnd => Quantum::whole(conditions.stop),
            Turns::Slices | Turns::Lent => Quantum::slice(conditions.stop),
        };
        self.blocks = QUANTUM_BLOCKS_MAX;
        let begun = match self.placement {
            Placement::Inline => None,
            Placement::Process => Some(Instant::now()),
        };
        let mut is_resumed = self.caller.is_busy();
        while self.caller.is_busy() || self.starts(conditions, outlet)? {
            let quantum = match self.turns {
                Turns::Lent if !is_resumed => Quantum::long(conditions.stop),
                _ => slice,
            };
            let quantum = if conditions.is_last { quantum.ending() } else { quantum };
            is_resumed = false;
            if !self.call(&quantum, outlet)?
                || begun.is_some_and(|begun| begun.elapsed() >= QUANTUM_CALLS_MAX)
            {
                break;
            }
        }
        if self.turns == Turns::Lent && self.caller.is_busy() {
            self.give_back();
        }
        self.pass(outlet)
    }

    /// Gives up the blocks that wait, and what is left of the current one after the batch in progress: the
    /// source takes them back.
    fn give_back(&mut self) {
        let cause = if self.caller.may_begin() { Shed::Overrun } else { Shed::Share };
        let in_batch = self.caller.packets();
        if let Some(Work { block, next }) = self.work.take() {
            self.shed_queued(block.queue, cause, (block.packets - next - in_batch).into());
            self.reader.release(block.slot);
        }
        while let Some(item) = self.reader.take_item() {
            match item {
                Item::Block(block) => {
                    self.shed_queued(block.queue, cause, block.packets.into());
                    self.reader.release(block.slot);
                }
                Item::Tick(now_ns) => self.reach(now_ns),
            }
        }
    }

    /// Records a tick, whose call is made between two blocks, if it has one.
    fn reach(&mut self, now_ns: u64) {
        self.delivered_tick = now_ns;
        self.due = self.ticks.pass(now_ns).or(self.due);
    }

    /// Starts the next call, after the tick before it was reported.
    fn starts<E>(&mut self, conditions: Conditions<'_>, outlet: &mut dyn Outlet<E>) -> Result<bool, E> {
        self.pass(outlet)?;
        self.start_next(conditions, outlet)
    }

    /// Reports the last tick, if its call has ended: later messages belong to the next interval.
    fn pass<E>(&mut self, outlet: &mut dyn Outlet<E>) -> Result<(), E> {
        if self.due.is_none() && !self.caller.is_busy() && self.passed_tick < self.delivered_tick {
            self.passed_tick = self.delivered_tick;
            outlet.passed(self.module, self.worker, self.delivered_tick)?;
        }
        Ok(())
    }

    /// Starts a tick that is due, if the module may begin a call. Returns whether it does.
    fn start_tick(&mut self, conditions: Conditions<'_>) -> bool {
        let may_begin = self.due.is_some() && (conditions.is_last || self.caller.may_begin());
        if may_begin && let Some(now_ns) = self.due.take() {
            self.caller.start(Call::Tick { now_ns }, self.caller.allowance());
        }
        may_begin
    }

    /// Starts the next call. Returns false if no work waits or the instance is gone.
    fn start_next<E>(&mut self, conditions: Conditions<'_>, outlet: &mut dyn Outlet<E>) -> Result<bool, E> {
        if self.caller.is_gone() {
            self.keeping.let_go();
        }
        let next = if self.keeping.is_pending() { self.keeping.next() } else { Next::Free };
        match next {
            // A call lets an eviction take effect.
            Next::Wait if !self.caller.is_evicted() => return Ok(false),
            Next::Call(call) => {
                self.caller.start(call, self.caller.allowance());
                return Ok(true);
            }
            Next::Wait | Next::Free => {}
        }
        if self.caller.start_pressure(conditions.stop) {
            return Ok(true);
        }
        loop {
            if let Some(Work { block, next }) = self.work {
                let left = block.packets - next;
                let cause = match () {
                    () if left == 0 => None,
                    () if self.caller.is_gone() && self.caller.is_evicted() => Some(Shed::Evicted),
                    () if self.caller.is_gone() || self.caller.is_overdue() => Some(Shed::Stopped),
                    // Packets that are to be forwarded wait for the module's share of time, after its tick.
                    () if self.forwards && !conditions.is_last && !self.caller.may_begin() => {
                        return Ok(false);
                    }
                    () if self.forwards && self.start_tick(conditions) => return Ok(true),
                    // No batch precedes a tick that waits for its share.
                    () if self.due.is_some() || !self.caller.may_begin() => Some(Shed::Share),
                    () => {
                        let most = conditions.batch.min(self.caller.loaded().limits().batch);
                        let (count, lost) = (most.min(left), self.take_lost(block.queue));
                        let descriptors =
                            layout::VIEW + Pool::offset(block.slot) as u32 + next * Descriptor::SIZE as u32;
                        let link = block.link;
                        let (port, queue) = (block.port.into(), block.queue as u32);
                        let call = match self.forwards {
                            false => Call::Batch { descriptors, count, lost, link, queue },
                            true => Call::Push { port, descriptors, count, lost, link },
                        };
                        self.caller.start(call, self.caller.allowance_after(count));
                        return Ok(true);
                    }
                };
                if let Some(cause) = cause {
                    self.shed_queued(block.queue, cause, u64::from(left));
                    outlet.decided(left, Some((cause, left)))?;
                }
                self.work = None;
                self.reader.release(block.slot);
                continue;
            }
            if self.caller.is_gone() {
                self.due = None;
            }
            if self.start_tick(conditions) {
                return Ok(true);
            }
            if self.blocks == 0 {
                return Ok(false);
            }
            // A tick without a call has passed.
            self.pass(outlet)?;
            if self.is_ahead(conditions.others) {
                return Ok(false);
            }
            match self.reader.take_item() {
                None if self.caller.is_evicted() && !self.caller.is_gone() => {
                    // A call lets the eviction take effect, although no packets come.
                    self.caller.start(Call::Tick { now_ns: self.ticks.passed() }, self.caller.allowance());
                    return Ok(true);
                }
                None => return Ok(false),
                Some(Item::Block(block)) => {
                    self.blocks -= 1;
                    self.work = Some(Work { block, next: 0 });
                }
                Some(Item::Tick(now_ns)) => {
                    self.reach(now_ns);
                    let leaves_out = self.caller.leaves_out(true, conditions.stop.phase());
                    self.due = self.due.filter(|_| !leaves_out);
                }
            }
        }
    }

    /// Continues the call that was started and returns whether it has ended.
    fn call<E>(&mut self, quantum: &Quantum<'_>, outlet: &mut dyn Outlet<E>) -> Result<bool, E> {
        let (module, worker, call) = (self.module, self.worker, self.calls);
        let is_export = self.caller.is_in_export();
        let queue = self.work.map_or(0, |work| work.block.queue);
        let processed = self.account.processed_with(queue, self.caller.packets());
        let (keeping, mut state) = (&mut self.keeping, false);
        let ended = self.caller.go(quantum, &mut |output| {
            if is_export {
                state = true;
                keeping.store(output.bytes);
                return Ok(());
            }
            // Messages of a call and of its continuations share one budget.
            let from = Origin { module, worker, call, processed };
            outlet.output(from, output)
        })?;
        self.calls += u64::from(!matches!(ended, Ended::Paused));
        match ended {
            Ended::Paused => return Ok(false),
            // Without output, the state is empty.
            Ended::Done(Call::Export, _) if !state => self.keeping.store(&[]),
            Ended::Done(Call::Import(_), _) => self.keeping.imported(self.caller.has_refused()),
            Ended::Done(Call::Tick { now_ns }, _) => self.keeping.tick(now_ns),
            Ended::Done(call, _) => {
                if let Some(count) = call.packets() {
                    self.processed(count);
                    self.advance(count);
                    outlet.decided(count, None)?;
                }
            }
            Ended::Evicted(_, reason) => {
                self.restarts = 0;
                self.keeping.let_go();
                let text = format!("evicted: {reason}");
                let packet = Some(self.account.accounted());
                outlet.fault(self.fault_report(text, packet, Some(reason), false))?;
            }
            Ended::Faulted(Call::Batch { count, .. } | Call::Push { count, .. }, fault) => {
                self.batch_fault(&fault, count, quantum, outlet)?;
            }
            Ended::Faulted(Call::Init { .. }, fault) => {
                self.restarts = 0;
                self.keeping.let_go();
                self.report(&fault, None, false, outlet)?;
            }
            Ended::Faulted(_, fault) => self.on_fault(&fault, None, quantum, outlet)?,
        }
        Ok(true)
    }

    fn processed(&mut self, count: u32) {
        let queue = self.work.map_or(0, |work| work.block.queue);
        self.account.process(queue, u64::from(count));
        self.meters.packets(count);
    }

    fn advance(&mut self, count: u32) {
        if let Some(work) = &mut self.work {
            work.next += count;
        }
    }

    /// Updates the account for a batch that ended in a fault.
    fn batch_fault<E>(
        &mut self,
        fault: &Fault,
        count: u32,
        quantum: &Quantum<'_>,
        outlet: &mut dyn Outlet<E>,
    ) -> Result<(), E> {
        let cause = fault.class().shed();
        // Invalid output voids the batch; otherwise the packets before the marked one were processed.
        let marked = fault.packet.filter(|p| cause != Shed::Output && *p < count);
        let (done, shed) = marked.map_or((0, count), |p| (p, 1));
        // Among those that are shown: the number of others may be hidden, and a process does not know it.
        let shown = self.account.accounted() - self.account.filtered;
        let number = marked.map(|p| shown + u64::from(p));
        self.processed(done);
        self.account.shed(cause, u64::from(shed));
        self.advance(done + shed);
        self.on_fault(fault, number, quantum, outlet)?;
        // Their output is lost, also that of the packets before the marked one. What the fault causes is
        // known by then.
        outlet.decided(done + shed, Some((cause, shed)))
    }

    fn on_fault<E>(
        &mut self,
        fault: &Fault,
        packet: Option<u64>,
        quantum: &Quantum<'_>,
        outlet: &mut dyn Outlet<E>,
    ) -> Result<(), E> {
        let is_last = quantum.stop.phase().is_last();
        self.keeping.fault(is_last);
        // A new instance would run the same code, which only its bound limits.
        if fault.is_cut_off() {
            self.restarts = 0;
        }
        // A run that is being stopped starts no new instance.
        let restart = self.restarts > 0 && !is_last;
        self.report(fault, packet, restart, outlet)?;
        if restart {
            self.restarts -= 1;
            self.launch(true, outlet)?;
        }
        Ok(())
    }

    fn report<E>(
        &mut self,
        fault: &Fault,
        packet: Option<u64>,
        restarted: bool,
        outlet: &mut dyn Outlet<E>,
    ) -> Result<(), E> {
        self.account.faults += 1;
        if !restarted {
            self.halts.add(self.account.faults);
        }
        let report = self.fault_report(fault.text(self.meters.granted()), packet, None, restarted);
        outlet.fault(FaultReport { class: Some((fault.call, fault.class())), ..report })
    }

    fn fault_report(
        &self,
        text: String,
        packet: Option<u64>,
        evicted: Option<Reason>,
        restarted: bool,
    ) -> FaultReport {
        let report = FaultReport::new(self.module, self.name.clone(), text);
        FaultReport { worker: Some(self.worker), packet, evicted, restarted, ..report }
    }

    /// Advances a module that receives no more blocks towards its end, for a quantum. Returns whether it has
    /// ended. An instance with state exports it first. If another one waits for it, that is the last call.
    ///
    /// # Errors
    ///
    /// Returns the error of `outlet`, which receives the module's faults.
    pub fn leave<E>(
        &mut self,
        now_ns: u64,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<E>,
    ) -> Result<bool, E> {
        self.go(conditions, outlet)?;
        if self.is_busy() {
            return Ok(false);
        }
        if self.keeping.export_last() {
            self.restarts = 0;
            self.go(conditions, outlet)?;
            if self.is_busy() {
                return Ok(false);
            }
        }
        if !std::mem::replace(&mut self.is_ending, true) && !self.keeping.is_awaited() {
            self.restarts = 0;
            let now_ns = quantize(now_ns, self.resolution_ns);
            self.caller.start(Call::End { now_ns }, self.caller.allowance());
            self.go(conditions, outlet)?;
        }
        Ok(!self.caller.is_busy())
    }

    /// Makes the last call. No work waits any more.
    ///
    /// # Errors
    ///
    /// Returns the error of `outlet`, which receives the module's faults.
    pub fn end<E>(&mut self, now_ns: u64, stop: &Stop<'_>, outlet: &mut dyn Outlet<E>) -> Result<(), E> {
        self.restarts = 0;
        let quantum = Quantum::whole(stop);
        if self.keeping.export_last()
            && let Next::Call(call) = self.keeping.next()
        {
            self.caller.start(call, self.caller.allowance());
            self.call(&quantum, outlet)?;
        }
        if self.keeping.is_awaited() {
            return Ok(());
        }
        let now_ns = quantize(now_ns, self.resolution_ns);
        self.caller.start(Call::End { now_ns }, self.caller.allowance());
        self.call(&quantum, outlet).map(drop)
    }
}
