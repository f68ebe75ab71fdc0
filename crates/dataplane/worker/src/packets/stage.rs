//! One view and the modules that share it: packets are shown once, in blocks that all its loops read.

mod confined;
mod gathered;
mod room;
mod sorted;
mod staged;

use crate::error::RunError;
use crate::packets::batches::{Batches, Place};
use crate::packets::overload::Overload;
use crate::packets::read::Packets;
use crate::packets::sorting;
use crate::process::RemoteBatches;
use crate::records::charge;
use crate::records::event::Removed;
use crate::records::onset::Awaited;
use crate::records::placed::{Placed, Site};
use flame_abi::{Descriptor, LinkType, layout};
use flame_block::{Block, Pool, SLOT_DESCRIPTORS};
use flame_execute::{Attachment, BatchLoop, Conditions, Outlet, Shape, Stop};
use flame_plan::{Discipline, ModuleId, ModulePlan, Placement, Shed, ViewSpec};
use flame_run::Mapping;
use flame_source::Shared;
use flame_view::{Key, View, Written};
use gathered::{Gathered, Next};
pub(crate) use room::has_own_blocks;
use room::{SLOTS, depth, depths, remote_slots};
use sorted::Sorted;
use staged::Filling;

/// Options of a pipeline.
#[derive(Clone, Copy)]
pub(crate) struct PipelineOptions<'a> {
    pub(crate) shape: Shape,
    pub(crate) worker: usize,
    pub(crate) batch: usize,
    pub(crate) key: Option<&'a Key>,
    pub(crate) shared: Option<Shared>,
    pub(crate) discipline: Discipline,
    pub(crate) stop: &'a Stop<'a>,
    pub(crate) overload: Overload,
}

impl<'a> PipelineOptions<'a> {
    /// Returns the worker with its discipline, to which fast instances are attached.
    pub(crate) fn attachment(&self) -> Attachment {
        Attachment { worker: self.worker, discipline: self.discipline }
    }

    /// Returns the conditions under which modules work while packets follow.
    pub(crate) fn conditions(&self) -> Conditions<'a> {
        Conditions { batch: self.batch as u32, stop: self.stop, is_last: false, others: u64::MAX }
    }

    /// Returns whether modules are measured, and left out when the pipeline is behind.
    pub(crate) fn is_regulated(&self) -> bool {
        self.discipline.loses_late_packets() && self.overload != Overload::OFF
    }
}

/// The place of the modules that share the blocks of a view.
#[derive(PartialEq, Eq)]
enum Wall {
    /// This process.
    Here,
    /// A process of this name. On a live source, one that is slow must not take the slots of another one.
    Process(String),
    /// Processes of one principal, by its tenant: of a capture, whose worker waits for each of them anyway.
    Principal(Option<String>),
}

impl Wall {
    fn of(plan: &ModulePlan, discipline: Discipline) -> Self {
        match &plan.process {
            None => Self::Here,
            Some(name) if discipline.loses_late_packets() => Self::Process(name.clone()),
            Some(_) => Self::Principal(plan.tenant.clone()),
        }
    }
}

pub(crate) struct ViewStage {
    /// The view to share, or `None` for a module with separate blocks.
    spec: Option<ViewSpec>,
    /// Packets of a pool are seen by one principal.
    wall: Wall,
    /// The sum of the buffers of its modules, in blocks.
    buffers: usize,
    view: View,
    pub(crate) pool: Pool,
    /// Whether the packets' own memory is mapped in the window, so that only descriptors are written.
    mapped: bool,
    pub(crate) loops: Vec<Batches>,
    discipline: Discipline,
    /// Whether a grant hides something. If so, the ends of blocks reveal only shown data.
    pub(crate) confined: bool,
    /// The block that is being filled, for a confined view or one that gathers.
    filling: Filling,
    /// The state of the block that gathers, if packets gather while its process has much to do. A block of a
    /// confined view ends as its grant states.
    gathered: Option<Gathered>,
    /// The bytes of a packet that begins a block of another link type.
    first: Vec<u8>,
    /// The event queues of its module, which has the view for itself.
    sorted: Option<Box<Sorted>>,
    /// Whether a block was published after the last tick. It carries that tick.
    has_published: bool,
}

/// Returns whether the source's memory fits after the pool in a window.
fn fits_window(shared: Shared, pool: &Pool) -> bool {
    pool.window().2 + shared.bytes <= layout::VIEW_BYTES as usize
}

impl ViewStage {
    pub(crate) fn new(module: &Placed, options: &PipelineOptions<'_>) -> Result<Self, RunError> {
        let spec = &module.plan().view;
        let view = View::new(spec, options.key)?;
        let (discipline, placement) = (options.discipline, module.plan().placement());
        let wall = Wall::of(module.plan(), discipline);
        let is_remote = placement == Placement::Process;
        let queues = sorting::queues(module.plan(), &view)?;
        let slots = match &queues {
            // Those that wait, and one of each queue that is being filled.
            Some(_) => depths(module.plan(), discipline)?.sum() + module.plan().manifest.queues.len(),
            None if is_remote => remote_slots(discipline),
            None => SLOTS,
        };
        let pool = Pool::new(slots)?;
        let has_own_blocks = has_own_blocks(module, options);
        let is_open = view.hides_nothing() && view.selects_all();
        // A filter hides packets that lie in the same ring, so only a view of all packets is mapped. A paused
        // batch may outlast the ring's block, which returns to the kernel.
        let is_mappable = is_open && !has_own_blocks && !is_remote;
        let has_draft = is_remote && !is_open;
        let filling = Filling::new(has_draft && queues.is_none());
        let confined = spec.key.is_some() && !is_open;
        let gathers = discipline.gathers_packets(placement) && !confined && queues.is_none();
        let count = module.plan().manifest.queues.len();
        let sorted = queues.map(|queues| Box::new(Sorted::new(queues, count, has_draft)));
        let mapped = options.shared.is_some_and(|s| fits_window(s, &pool)) && is_mappable;
        Ok(Self {
            filling,
            gathered: gathers.then(Gathered::default),
            sorted,
            wall,
            buffers: 0,
            spec: (!has_own_blocks).then(|| spec.clone()),
            confined,
            view,
            pool,
            mapped,
            discipline,
            loops: Vec::new(),
            first: Vec::new(),
            has_published: true,
        })
    }

    /// Returns whether a module can share this view; otherwise the view is computed again. The number of
    /// readers of a pool is limited. A block that is being filled must not end because a module comes: the
    /// others would see its edge.
    pub(crate) fn has_room_for(&self, module: &Placed) -> bool {
        let plan = module.plan();
        self.spec.as_ref() == Some(&plan.view)
            && self.wall == Wall::of(plan, self.discipline)
            && self.filling.is_empty()
            && self.loops.len() < flame_block::MAX_READERS
            && (self.placement() == Placement::Inline
                || self.buffers + depth(plan, self.discipline) < remote_slots(self.discipline))
    }

    /// Returns the place of its modules.
    fn placement(&self) -> Placement {
        match self.wall {
            Wall::Here => Placement::Inline,
            Wall::Process(_) | Wall::Principal(_) => Placement::Process,
        }
    }

    /// Returns whether its modules see flow hashes, or pseudonyms of them.
    pub(crate) fn reads_hash(&self) -> bool {
        self.view.reads_hash()
    }

    /// Returns the number of packets in the block that is being filled.
    pub(crate) fn staged_packets(&self) -> u64 {
        let of_queues = self.sorted.as_ref().map_or(0, |sorted| sorted.staged_packets());
        of_queues + self.filling.packets() as u64
    }

    /// Creates an instance that reads this view's blocks, and starts it.
    pub(crate) fn add(
        &mut self,
        module: &Placed,
        options: &PipelineOptions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let (depths, is_gauged) = (depths(module.plan(), options.discipline)?, options.is_regulated());
        self.buffers += depths.sum();
        let begins_late = options.discipline.releases_by_interval();
        let awaited = module.onset.as_ref().filter(|_| begins_late).map(Awaited::new);
        let module = match &module.site {
            Site::Local(module) => module,
            Site::Remote(module) => {
                let place = (&mut self.pool, depths);
                let batches = RemoteBatches::attach(module, options.attachment(), place)?;
                let place = Place::Remote(Box::new(batches));
                self.push(Batches::new(place, &module.meters, is_gauged, awaited));
                return Ok(());
            }
        };
        let (fd, offset, bytes) = self.pool.window();
        let mut windows = vec![Mapping { fd, offset, bytes, at: layout::VIEW }];
        if let (true, Some(shared)) = (self.mapped, options.shared) {
            let at = layout::VIEW + bytes as u32;
            windows.push(Mapping { fd: shared.fd, offset: 0, bytes: shared.bytes, at });
        }
        let reader = self.pool.reader(depths).ok_or(RunError::TooManyModules)?;
        let mut batches = BatchLoop::new(options.shape, module, options.attachment(), windows, reader);
        let _charged = charge::enter(module.meters.usage());
        batches.launch(false, outlet)?;
        batches.go(options.conditions(), outlet)?;
        self.push(Batches::new(Place::Local(Box::new(batches)), &module.meters, is_gauged, awaited));
        Ok(())
    }

    fn push(&mut self, batches: Batches) {
        self.pool.pass_over(batches.reader(), batches.is_passed_over());
        self.loops.push(batches);
    }

    /// Returns whether none of its modules has begun.
    pub(crate) fn is_awaited(&self) -> bool {
        self.loops.iter().all(Batches::is_awaited)
    }

    /// Passes a tick, at which modules begin. Returns whether one has not begun.
    pub(crate) fn begin(&mut self, now_ns: u64) -> bool {
        for batches in &mut self.loops {
            if batches.begin(now_ns) {
                self.pool.pass_over(batches.reader(), batches.is_passed_over());
            }
        }
        self.loops.iter().any(Batches::is_awaited)
    }

    /// Returns whether no block reaches any of the modules.
    fn is_refused(&self) -> bool {
        self.loops.iter().all(|batches| batches.refuses().is_some())
    }

    /// Counts `offered` packets as lost to the modules, none of which a block reaches.
    fn refuse(&mut self, offered: u64) {
        for batches in &mut self.loops {
            // A module may have got time in this moment. The packets are lost to it nevertheless.
            let cause = batches.refuses().unwrap_or(Shed::Share);
            batches.offer(offered, 0);
            batches.shed(cause, offered);
        }
    }

    /// Counts packets as lost to the modules, none of which a block reaches: those that they would be
    /// offered.
    fn refuse_eligible(
        &mut self,
        packets: &[Descriptor],
        link: LinkType,
        data: &[u8],
    ) -> Result<(), RunError> {
        let (eligible, sampled) = self.view.eligible(packets, |_| link, data)?;
        self.refuse(eligible.into());
        self.loops.iter_mut().for_each(|batches| batches.sampled(sampled.into()));
        Ok(())
    }

    /// Gives the next blocks to those modules only that `leaves_out` does not name.
    pub(crate) fn leave_out(&mut self, leaves_out: impl Fn(ModuleId) -> bool) {
        for batches in &mut self.loops {
            let is_left_out = leaves_out(batches.module());
            if batches.leave_out(is_left_out) {
                self.pool.pass_over(batches.reader(), batches.is_passed_over());
            }
        }
    }

    /// Publishes a tick, or keeps it with packets that wait for room. The loops make it after the blocks
    /// before it.
    pub(crate) fn tick(
        &mut self,
        now_ns: u64,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        if self.keeps_tick(now_ns) {
            return Ok(());
        }
        // A process sees the last of the ticks between two blocks. In a replay it misses none.
        let is_carried = std::mem::replace(&mut self.has_published, false);
        if self.discipline.waits_for_room(self.placement()) && !is_carried {
            self.wait_for_room(0, conditions.stop, outlet)?;
            if let Some(slot) = self.pool.claim() {
                let block = Block { slot, packets: 0, link: LinkType::ETHERNET, queue: 0, port: 0 };
                self.hand_on(block, conditions, outlet)?;
                self.has_published = false;
            }
        }
        self.publish_tick(now_ns);
        Ok(())
    }

    fn publish_tick(&mut self, now_ns: u64) {
        // Before the process can report that it has passed the tick.
        self.loops.iter().for_each(|batches| batches.tick(now_ns));
        self.pool.tick(now_ns);
    }

    /// Gives a quantum to the modules that were removed while others share the view, and removes those that
    /// have ended.
    pub(crate) fn take_retired(
        &mut self,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<Vec<Removed>, RunError> {
        let mut removed = Vec::new();
        let mut at = 0;
        while at < self.loops.len() {
            let batches = &mut self.loops[at];
            let module = batches.module();
            match batches.leaving().cloned() {
                Some((now_ns, reply)) if batches.leave(now_ns, conditions, outlet)? => {
                    let account = self.remove(at).into_account();
                    removed.push(Removed { module, account, now_ns, reply });
                }
                Some(_) | None => at += 1,
            }
        }
        Ok(removed)
    }

    /// Removes a loop that has ended, and its reader from the pool.
    pub(crate) fn remove(&mut self, at: usize) -> Batches {
        let batches = self.loops.remove(at);
        if let Some(remote) = batches.remote() {
            self.buffers -= remote.depth();
        }
        self.pool.remove(batches.reader());
        batches
    }

    pub(crate) fn chunk(
        &mut self,
        packets: Packets<'_>,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let Packets { block, link, descriptors: from } = packets;
        let offered = from.len() as u64;
        if self.is_refused() {
            self.refuse(offered);
            return Ok(());
        }
        self.wait_for_room(0, conditions.stop, outlet)?;
        let Some(slot) = self.pool.claim() else {
            for batches in &mut self.loops {
                batches.offer(offered, 0);
                batches.overrun(offered);
                batches.go(conditions, outlet)?;
            }
            return Ok(());
        };
        let base = layout::VIEW + Pool::offset(slot) as u32;
        let ring = layout::VIEW + self.pool.window().2 as u32;
        let (descriptors, data) = self.filling.place(&mut self.pool, slot);
        let written = match (self.mapped, block.shared_offset) {
            (true, Some(offset)) => {
                self.view.select(from, |_| link, &block.data, descriptors, ring + offset as u32)?
            }
            _ => {
                let at = base + SLOT_DESCRIPTORS as u32;
                self.view.copy(from, |_| link, &block.data, descriptors, data, at)?
            }
        };
        self.filling.complete(&mut self.pool, slot, (written.packets as usize, written.bytes));
        let sampled = u64::from(written.sampled);
        let filtered = offered - sampled - u64::from(written.packets);
        self.pool.publish(Block { slot, packets: written.packets, link, queue: 0, port: 0 });
        self.has_published = true;
        let packets = u64::from(written.packets);
        for batches in &mut self.loops {
            batches.offer(offered - sampled, filtered);
            batches.sampled(sampled);
            batches.cut(written.cut.into());
            batches.published(&mut self.pool, 0, packets);
            batches.go(conditions, outlet)?;
            batches.count_blocks(&mut self.pool);
        }
        Ok(())
    }

    /// Gives one quantum to each loop with waiting work.
    pub(crate) fn resume(
        &mut self,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        for batches in self.loops.iter_mut().filter(|batches| batches.is_busy()) {
            batches.go(conditions, outlet)?;
            batches.count_blocks(&mut self.pool);
        }
        self.hand_over(Next::Same, conditions, outlet).map(drop)
    }

    /// Counts the packets that passed trusted filters and sampling, and for the operator those that sampling
    /// left out. Others are hidden, and so is their number.
    fn offer(&mut self, written: Written) {
        for batches in &mut self.loops {
            batches.offer(u64::from(written.eligible), u64::from(written.eligible - written.packets));
            batches.sampled(written.sampled.into());
            batches.cut(written.cut.into());
        }
    }

    /// Publishes the blocks that are being filled. One that gathers waits until there is room for it.
    pub(crate) fn flush(
        &mut self,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        if self.gathers() {
            return self.hand_over(Next::Same, conditions, outlet).map(drop);
        }
        self.publish_sorted(conditions, outlet)?;
        self.publish(conditions, outlet)
    }

    /// Publishes the block that is being filled, if there is one.
    fn publish(
        &mut self,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        if self.filling.is_empty() {
            return Ok(());
        }
        // Before the block is in its slot, where the process sees it.
        self.wait_for_room(0, conditions.stop, outlet)?;
        match self.filling.take(&mut self.pool, 0) {
            Some(block) => self.hand_on(block, conditions, outlet),
            None => Ok(()),
        }
    }

    /// Publishes a block, and lets the modules work on it.
    fn hand_on(
        &mut self,
        block: Block,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        self.pool.publish(block);
        self.has_published = true;
        for batches in &mut self.loops {
            batches.published(&mut self.pool, block.queue, block.packets.into());
            batches.go(conditions, outlet)?;
            batches.count_blocks(&mut self.pool);
        }
        Ok(())
    }
}
