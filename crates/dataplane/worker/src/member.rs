//! A module on one worker: its instance, the blocks it is given, and what became of them.

use crate::lane::Outlet;
use crate::pace::Pace;
use crate::report::FaultReport;
use crate::run::RunError;
use flame_abi::{Descriptor, LinkType, layout};
use flame_block::{Pool, Reader};
use flame_plan::{Account, Eviction, Meters, ModuleClass, OnFault, Plan, Shed, coarse};
use flame_run::{Called, Fault, Instance, Loaded, Mapping, Output, Role, Running, Slice};
use std::time::Instant;

pub(crate) struct Member {
    pub(crate) module: usize,
    name: String,
    worker: usize,
    loaded: Loaded,
    windows: Vec<Mapping>,
    start: Start,
    seat: Seat,
    restarts: u32,
    pub(crate) reader: Reader,
    /// The block that it is at.
    work: Option<Work>,
    meters: Meters,
    eviction: Eviction,
    evicted: bool,
    pace: Pace,
    /// Of its view: ticks and the end are no finer than packets.
    resolution_ns: u64,
    /// The last tick it was told of.
    ticked: u64,
    pub(crate) account: Account,
    /// Packets lost since the last batch.
    pub(crate) lost: u64,
}

#[derive(Clone, Copy)]
struct Start {
    workers: usize,
    tick_ns: u64,
    interval_ns: u64,
}

/// Where its instance is.
enum Seat {
    /// It has none any more.
    Empty,
    Idle(Box<Instance>),
    /// In a batch of so many packets whose slice ended before it did.
    Busy(Running, u32),
}

struct Work {
    slot: usize,
    packets: u32,
    next: u32,
    link: LinkType,
}

/// How the blocks of a view come.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    /// Packets in a batch, at most.
    pub(crate) batch: u32,
    /// Link type of each slot.
    pub(crate) links: &'a [LinkType],
    /// Nothing is lost meanwhile: a batch is waited for, however many slices it takes.
    pub(crate) patient: bool,
}

impl Member {
    pub(crate) fn new(
        plan: &Plan,
        (module, loaded): (usize, &Loaded),
        (worker, live): (usize, bool),
        windows: Vec<Mapping>,
        reader: Reader,
    ) -> Self {
        let p = &plan.modules[module];
        Self {
            module,
            name: p.name.clone(),
            worker,
            loaded: loaded.clone(),
            windows,
            start: Start { workers: plan.workers, tick_ns: plan.tick_ns(), interval_ns: plan.interval_ns },
            seat: Seat::Empty,
            restarts: match p.on_fault {
                OnFault::Stop => 0,
                OnFault::Restart(times) => times,
            },
            reader,
            work: None,
            meters: p.terms.meters.clone(),
            eviction: p.terms.eviction.clone(),
            evicted: false,
            pace: Pace::new(&p.terms.meters, p.terms.pace.filter(|_| live)),
            resolution_ns: p.view.resolution_ns,
            ticked: 0,
            account: Account::default(),
            lost: 0,
        }
    }

    /// Whether a batch waits for its next slice.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.seat, Seat::Busy(..))
    }

    /// Makes and starts an instance; a fault on the way leaves the module stopped.
    pub(crate) fn launch(&mut self, restarted: bool, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        let Start { workers, tick_ns, interval_ns } = self.start;
        let role = Role::Fast { worker: self.worker };
        let made = Instance::new(&self.loaded, &self.windows, restarted).and_then(|mut instance| {
            instance.start(role, workers, tick_ns, interval_ns)?;
            Ok(instance)
        });
        match made {
            Ok(instance) => self.seat = Seat::Idle(Box::new(instance)),
            Err(fault) => {
                self.seat = Seat::Empty;
                self.restarts = 0;
                self.report(&fault, None, false, outlet)?;
            }
        }
        Ok(())
    }

    /// Works off the blocks that wait, until there are none, or, without patience, a slice ends.
    pub(crate) fn go(&mut self, blocks: Blocks<'_>, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        loop {
            let work = match self.work.take() {
                Some(work) => work,
                None => {
                    let Some((slot, packets)) = self.reader.take() else { return Ok(()) };
                    let link = blocks.links.get(slot).copied().unwrap_or_default();
                    Work { slot, packets, next: 0, link }
                }
            };
            let slot = work.slot;
            self.work = Some(work);
            let done = self.block(blocks, outlet);
            match done {
                Ok(false) => return Ok(()),
                done => {
                    self.work = None;
                    self.reader.release(slot);
                    done?;
                }
            }
        }
    }

    /// Whether the block is done with.
    fn block(&mut self, blocks: Blocks<'_>, outlet: &mut dyn Outlet) -> Result<bool, RunError> {
        loop {
            let Some(Work { slot, packets, next, link }) =
                self.work.as_ref().map(|w| Work { ..*w }).filter(|w| w.next < w.packets)
            else {
                return Ok(true);
            };
            let left = packets - next;
            let started = match std::mem::replace(&mut self.seat, Seat::Empty) {
                Seat::Busy(running, count) => {
                    let started = self.pace.start();
                    if !self.slice(running, count, (started, blocks.patient), outlet)? {
                        return Ok(false);
                    }
                    continue;
                }
                seat => {
                    self.seat = seat;
                    self.evict_if_told(outlet)?;
                    if matches!(self.seat, Seat::Empty) {
                        let cause = if self.evicted { Shed::Evicted } else { Shed::Stopped };
                        self.account.shed(cause, u64::from(left));
                        return Ok(true);
                    }
                    if !self.pace.may_begin() {
                        self.account.shed(Shed::Share, u64::from(left));
                        self.lost += u64::from(left);
                        return Ok(true);
                    }
                    self.pace.start()
                }
            };
            let Seat::Idle(mut instance) = std::mem::replace(&mut self.seat, Seat::Empty) else { continue };
            let lost = std::mem::take(&mut self.lost);
            let count = blocks.batch.min(left);
            let at = layout::VIEW + Pool::offset(slot) as u32 + next * Descriptor::SIZE as u32;
            if self.loaded.class() == ModuleClass::Metered {
                let running = instance.begin(at, count, lost, link);
                if !self.slice(running, count, (started, blocks.patient), outlet)? {
                    return Ok(false);
                }
                continue;
            }
            let returned = instance.batch(at, count, lost, link);
            let late = self.pace.batch(started, count);
            match returned {
                Ok(output) => {
                    let sent =
                        if output.bytes.is_empty() { Ok(()) } else { outlet.output(self.module, output) };
                    self.seat = Seat::Idle(instance);
                    sent?;
                    self.processed(count, late);
                }
                Err(fault) => self.batch_fault(&fault, count, outlet)?,
            }
        }
    }

    /// Lets a batch go on; whether it is done.
    fn slice(
        &mut self,
        mut running: Running,
        count: u32,
        (mut started, patient): (Option<Instant>, bool),
        outlet: &mut dyn Outlet,
    ) -> Result<bool, RunError> {
        loop {
            match running.resume() {
                Slice::Done(instance, called) => {
                    let late = self.pace.batch(started, count);
                    self.returned(instance, called, (count, late), outlet)?;
                    return Ok(true);
                }
                Slice::Over(rest) => {
                    self.pace.slice(started);
                    if !patient {
                        self.seat = Seat::Busy(rest, count);
                        return Ok(false);
                    }
                    running = rest;
                    started = self.pace.start();
                }
            }
        }
    }

    fn returned(
        &mut self,
        mut instance: Box<Instance>,
        called: Called,
        (count, late): (u32, Option<String>),
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        match instance.finish(called) {
            Ok(output) => {
                let sent = if output.bytes.is_empty() { Ok(()) } else { outlet.output(self.module, output) };
                self.seat = Seat::Idle(instance);
                sent?;
                self.processed(count, late);
                Ok(())
            }
            Err(fault) => self.batch_fault(&fault, count, outlet),
        }
    }

    fn processed(&mut self, count: u32, late: Option<String>) {
        self.account.processed += u64::from(count);
        self.meters.packets(count);
        self.advance(count);
        if let Some(reason) = late {
            // On all workers; here between two batches.
            self.eviction.evict(reason);
        }
    }

    fn advance(&mut self, count: u32) {
        if let Some(work) = &mut self.work {
            work.next += count;
        }
    }

    /// Drops the instance, with all that it knows, if the module has to go.
    fn evict_if_told(&mut self, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        let Some(reason) = self.eviction.reason().filter(|_| !self.evicted) else { return Ok(()) };
        let text = format!("evicted: {reason}");
        self.evicted = true;
        self.restarts = 0;
        if matches!(std::mem::replace(&mut self.seat, Seat::Empty), Seat::Empty) {
            return Ok(());
        }
        let (module, worker, packet) = (self.name.clone(), Some(self.worker), Some(self.account.accounted()));
        outlet.fault(self.module, FaultReport { module, worker, packet, text, restarted: false })
    }

    /// Accounts for a batch that ended in a fault.
    fn batch_fault(&mut self, fault: &Fault, count: u32, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        let cause = fault.cause();
        // Wild output voids the batch; otherwise the packets before the marked one were processed.
        let marked = fault.packet.filter(|p| cause != Shed::Output && *p < count);
        let (done, shed) = marked.map_or((0, count), |p| (p, 1));
        let number = marked.map(|p| self.account.accounted() + u64::from(p));
        self.account.processed += u64::from(done);
        self.account.shed(cause, u64::from(shed));
        self.advance(done + shed);
        self.stop_or_restart(fault, number, outlet)
    }

    fn stop_or_restart(
        &mut self,
        fault: &Fault,
        packet: Option<u64>,
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        self.seat = Seat::Empty;
        let restart = self.restarts > 0;
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
        let module = self.name.clone();
        let worker = Some(self.worker);
        outlet.fault(
            self.module,
            FaultReport { module, worker, packet, text: fault.text(self.meters.granted()), restarted },
        )
    }

    pub(crate) fn tick(&mut self, now_ns: u64, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        let now_ns = coarse(now_ns, self.resolution_ns);
        if now_ns <= std::mem::replace(&mut self.ticked, now_ns) {
            return Ok(());
        }
        self.call(outlet, |instance, each| instance.tick(now_ns, each))
    }

    /// The last call.
    pub(crate) fn end(&mut self, now_ns: u64, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        self.restarts = 0;
        let now_ns = coarse(now_ns, self.resolution_ns);
        self.call(outlet, |instance, each| instance.end(now_ns, each))
    }

    /// A call without packets.
    fn call(
        &mut self,
        outlet: &mut dyn Outlet,
        call: impl FnOnce(&mut Instance, &mut dyn FnMut(Output<'_>)) -> Result<(), Fault>,
    ) -> Result<(), RunError> {
        self.evict_if_told(outlet)?;
        let Seat::Idle(instance) = &mut self.seat else { return Ok(()) };
        let mut sent = Ok(());
        let module = self.module;
        let called = call(instance, &mut |output| {
            if sent.is_ok() && !output.bytes.is_empty() {
                sent = outlet.output(module, output);
            }
        });
        sent?;
        match called {
            Ok(()) => Ok(()),
            Err(fault) => self.stop_or_restart(&fault, None, outlet),
        }
    }
}
