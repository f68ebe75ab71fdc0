use crate::feed::Part;
use crate::report::FaultReport;
use crate::run::RunError;
use crate::share::Meter;
use flame_abi::{Descriptor, LinkType, layout};
use flame_block::{Pool, Reader, SLOT_DESCRIPTORS};
use flame_plan::{Account, Eviction, OnFault, Plan, Shed, ViewSpec, coarse};
use flame_run::{Fault, Instance, Loaded, Mapping, Output, Role};
use flame_source::{RawPacket, Shared};
use flame_view::{Key, View};

/// Blocks of one view; a module falls behind when it holds all of them.
const SLOTS: usize = 4;

/// Where a lane's output goes.
pub trait Outlet {
    fn output(&mut self, module: usize, output: Output<'_>) -> Result<(), RunError>;
    fn fault(&mut self, module: usize, report: FaultReport) -> Result<(), RunError>;
}

/// One worker: every view once, and behind each view the fast instances that share it.
pub struct Lane {
    views: Vec<ViewLane>,
    batch: usize,
}

struct ViewLane {
    view: View,
    pool: Pool,
    /// The packets' own memory is in the window: descriptors are enough.
    mapped: bool,
    members: Vec<Member>,
}

struct Member {
    module: usize,
    name: String,
    worker: usize,
    loaded: Loaded,
    windows: Vec<Mapping>,
    start: Start,
    instance: Option<Instance>,
    restarts: u32,
    reader: Reader,
    eviction: Eviction,
    evicted: bool,
    share: Option<Meter>,
    /// Of its view: ticks and the end are no finer than packets.
    resolution_ns: u64,
    /// The last tick it was told of.
    ticked: u64,
    account: Account,
    /// Packets lost since the last batch.
    lost: u64,
}

#[derive(Clone, Copy)]
struct Start {
    workers: usize,
    tick_ns: u64,
    interval_ns: u64,
}

/// What a lane is made from.
pub struct LaneOptions<'a> {
    pub worker: usize,
    pub batch: usize,
    pub key: Option<&'a Key>,
    pub shared: Option<Shared>,
}

impl Lane {
    pub fn new(
        plan: &Plan,
        loaded: &[Loaded],
        options: &LaneOptions<'_>,
        outlet: &mut dyn Outlet,
    ) -> Result<Self, RunError> {
        let mut lane = Self { views: Vec::new(), batch: options.batch.clamp(1, flame_abi::MAX_BATCH) };
        let mut specs: Vec<&ViewSpec> = Vec::new();
        for (module, (p, loaded)) in plan.modules.iter().zip(loaded).enumerate() {
            let at = match specs.iter().position(|s| **s == p.view) {
                // A pool has room for so many readers; past them the view is computed once more.
                Some(i) if lane.views[i].members.len() < flame_block::MAX_READERS => i,
                _ => {
                    let view = View::new(&p.view, options.key)?;
                    let pool = Pool::new(SLOTS)?;
                    // What a filter leaves out lies in the same ring, so only a view of all is mapped.
                    let mapped = options.shared.is_some_and(|s| fits_window(s, &pool))
                        && view.hides_nothing()
                        && view.selects_all();
                    specs.push(&p.view);
                    lane.views.push(ViewLane { view, pool, mapped, members: Vec::new() });
                    lane.views.len() - 1
                }
            };
            let view = &mut lane.views[at];
            let (fd, offset, bytes) = view.pool.window();
            let mut windows = vec![Mapping { fd, offset, bytes, at: layout::VIEW }];
            if let (true, Some(shared)) = (view.mapped, options.shared) {
                let at = layout::VIEW + bytes as u32;
                windows.push(Mapping { fd: shared.fd, offset: 0, bytes: shared.bytes, at });
            }
            let slots = match p.terms.buffer as usize {
                0 => SLOTS,
                granted => granted.min(SLOTS),
            };
            let reader = view.pool.reader(slots).ok_or(RunError::TooManyModules)?;
            let mut member = Member {
                module,
                name: p.name.clone(),
                worker: options.worker,
                loaded: loaded.clone(),
                windows,
                start: Start {
                    workers: plan.workers,
                    tick_ns: plan.tick_ns(),
                    interval_ns: plan.interval_ns,
                },
                instance: None,
                restarts: match p.on_fault {
                    OnFault::Stop => 0,
                    OnFault::Restart(times) => times,
                },
                reader,
                eviction: p.terms.eviction.clone(),
                evicted: false,
                share: p.terms.share.map(Meter::new),
                resolution_ns: p.view.resolution_ns,
                ticked: 0,
                account: Account::default(),
                lost: 0,
            };
            member.launch(false, outlet)?;
            view.members.push(member);
        }
        Ok(lane)
    }

    pub fn part(&mut self, part: Part<'_>, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        // A batch has one link type; nearly every source has only one.
        let mut start = 0;
        for same in part.packets.chunk_by(|a, b| a.link == b.link) {
            let range = start..start + same.len();
            start = range.end;
            let part = Part { packets: same, descriptors: &part.descriptors[range], ..part };
            for view in &mut self.views {
                view.part(part, self.batch, outlet)?;
            }
        }
        Ok(())
    }

    pub fn tick(&mut self, now_ns: u64, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        for member in self.views.iter_mut().flat_map(|v| &mut v.members) {
            let now_ns = coarse(now_ns, member.resolution_ns);
            if now_ns > std::mem::replace(&mut member.ticked, now_ns) {
                member.call(outlet, |instance, each| instance.tick(now_ns, each))?;
            }
        }
        Ok(())
    }

    /// The last call: instances are dropped, accounts given out by module.
    pub fn end(&mut self, now_ns: u64, outlet: &mut dyn Outlet) -> Result<Vec<(usize, Account)>, RunError> {
        let mut accounts = Vec::new();
        for mut member in self.views.drain(..).flat_map(|v| v.members) {
            member.restarts = 0;
            let now_ns = coarse(now_ns, member.resolution_ns);
            member.call(outlet, |instance, each| instance.end(now_ns, each))?;
            accounts.push((member.module, member.account));
        }
        Ok(accounts)
    }
}

/// Whether the source's memory has room behind the pool in a window.
fn fits_window(shared: Shared, pool: &Pool) -> bool {
    pool.window().2 + shared.bytes <= layout::VIEW_BYTES as usize
}

impl ViewLane {
    fn part(&mut self, part: Part<'_>, batch: usize, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        let offered = part.packets.len() as u64;
        let Some(RawPacket { link, .. }) = part.packets.first().copied() else { return Ok(()) };
        let Some(slot) = self.pool.claim() else {
            for member in &mut self.members {
                member.account.offered += offered;
                member.account.shed(Shed::Behind, offered);
                member.lost += offered;
            }
            return Ok(());
        };
        let base = layout::VIEW + Pool::offset(slot) as u32;
        let ring = layout::VIEW + self.pool.window().2 as u32;
        let (descriptors, data) = self.pool.slot(slot);
        let written = match (self.mapped, part.block.shared_offset) {
            (true, Some(offset)) => self.view.select(
                part.descriptors,
                |_| link,
                &part.block.data,
                descriptors,
                ring + offset as u32,
            )?,
            _ => self.view.copy(
                part.descriptors,
                |_| link,
                &part.block.data,
                descriptors,
                data,
                base + SLOT_DESCRIPTORS as u32,
            )?,
        };
        let filtered = offered - u64::from(written.packets);
        self.pool.publish(slot, written.packets);
        for member in &mut self.members {
            member.account.offered += offered;
            member.account.filtered += filtered;
            let behind = member.reader.lost();
            member.account.shed(Shed::Behind, behind);
            member.lost += behind;
            while let Some((slot, packets)) = member.reader.take() {
                let at = layout::VIEW + Pool::offset(slot) as u32;
                let done = member.block(at, packets, batch as u32, link, outlet);
                member.reader.release(slot);
                done?;
            }
        }
        Ok(())
    }
}

impl Member {
    /// Makes and starts an instance; a fault on the way leaves the module stopped.
    fn launch(&mut self, restarted: bool, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        let Start { workers, tick_ns, interval_ns } = self.start;
        let role = Role::Fast { worker: self.worker };
        let made = Instance::new(&self.loaded, &self.windows, restarted).and_then(|mut instance| {
            instance.start(role, workers, tick_ns, interval_ns)?;
            Ok(instance)
        });
        match made {
            Ok(instance) => self.instance = Some(instance),
            Err(fault) => {
                self.instance = None;
                self.restarts = 0;
                self.report(&fault, None, false, outlet)?;
            }
        }
        Ok(())
    }

    /// Runs the descriptors at `at` in batches.
    fn block(
        &mut self,
        at: u32,
        packets: u32,
        batch: u32,
        link: LinkType,
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        let mut next = 0;
        while next < packets {
            let count = batch.min(packets - next);
            self.evict_if_told(outlet)?;
            let Some(instance) = &mut self.instance else {
                let cause = if self.evicted { Shed::Evicted } else { Shed::Stopped };
                self.account.shed(cause, u64::from(packets - next));
                return Ok(());
            };
            if self.share.as_mut().is_some_and(|share| !share.begin()) {
                self.account.shed(Shed::Share, u64::from(packets - next));
                self.lost += u64::from(packets - next);
                return Ok(());
            }
            let lost = std::mem::take(&mut self.lost);
            match instance.batch(at + next * Descriptor::SIZE as u32, count, lost, link) {
                Ok(output) => {
                    self.account.processed += u64::from(count);
                    next += count;
                    if !output.bytes.is_empty() {
                        outlet.output(self.module, output)?;
                    }
                }
                Err(fault) => next += self.batch_fault(&fault, count, outlet)?,
            }
            if let Some(share) = &mut self.share {
                share.end();
            }
        }
        Ok(())
    }

    /// Drops the instance, with all that it knows, if the module lost its grant.
    fn evict_if_told(&mut self, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        let Some(reason) = self.eviction.reason().filter(|_| !self.evicted) else { return Ok(()) };
        let text = format!("evicted: {reason}");
        self.evicted = true;
        self.restarts = 0;
        if self.instance.take().is_none() {
            return Ok(());
        }
        let (module, worker, packet) = (self.name.clone(), Some(self.worker), Some(self.account.accounted()));
        outlet.fault(self.module, FaultReport { module, worker, packet, text, restarted: false })
    }

    /// Accounts for a batch that ended in a fault; how many of its packets are dealt with.
    fn batch_fault(&mut self, fault: &Fault, count: u32, outlet: &mut dyn Outlet) -> Result<u32, RunError> {
        let cause = fault.cause();
        // Wild output voids the batch; otherwise the packets before the marked one were processed.
        let marked = fault.packet.filter(|p| cause != Shed::Output && *p < count);
        let (done, shed) = marked.map_or((0, count), |p| (p, 1));
        let number = marked.map(|p| self.account.accounted() + u64::from(p));
        self.account.processed += u64::from(done);
        self.account.shed(cause, u64::from(shed));
        self.stop_or_restart(fault, number, outlet)?;
        Ok(done + shed)
    }

    fn stop_or_restart(
        &mut self,
        fault: &Fault,
        packet: Option<u64>,
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        self.instance = None;
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
        outlet.fault(self.module, FaultReport { module, worker, packet, text: fault.to_string(), restarted })
    }

    /// A call without packets.
    fn call(
        &mut self,
        outlet: &mut dyn Outlet,
        call: impl FnOnce(&mut Instance, &mut dyn FnMut(Output<'_>)) -> Result<(), Fault>,
    ) -> Result<(), RunError> {
        self.evict_if_told(outlet)?;
        let Some(instance) = &mut self.instance else { return Ok(()) };
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
