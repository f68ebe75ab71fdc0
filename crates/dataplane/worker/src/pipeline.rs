use crate::read::Chunk;
use crate::report::FaultReport;
use crate::run::RunError;
use crate::runner::{Blocks, From, ModuleRunner};
use crate::stop::Stop;
use flame_abi::{Descriptor, LinkType, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS, layout};
use flame_block::{Pool, SLOT_DESCRIPTORS};
use flame_plan::{Account, ModuleClass, Plan, Shed, ViewSpec};
use flame_run::{Loaded, Mapping, Output};
use flame_source::{RawPacket, Shared};
use flame_view::{Key, View, Written};

/// Blocks of one view; a module falls behind when it holds all of them.
const SLOTS: usize = 4;

/// Where a pipeline's output goes.
pub trait Outlet {
    fn output(&mut self, from: From, output: Output<'_>) -> Result<(), RunError>;
    fn fault(&mut self, module: usize, report: FaultReport) -> Result<(), RunError>;
    /// The module has done the tick at `now_ns`, and all that came before, on this worker.
    fn passed(&mut self, module: usize, worker: usize, now_ns: u64) -> Result<(), RunError>;
}

/// One worker: every view once, and behind each view the fast instances that share it.
pub struct Pipeline<'a> {
    views: Vec<ViewStage>,
    batch: usize,
    stop: &'a Stop<'a>,
}

struct ViewStage {
    view: View,
    pool: Pool,
    /// The packets' own memory is in the window: descriptors are enough.
    mapped: bool,
    /// Link type of the packets in each slot.
    links: [LinkType; SLOTS],
    runners: Vec<ModuleRunner>,
    /// Under a grant that hides something: where blocks end tells nothing but what was shown.
    confined: bool,
    /// A block that is being filled, of a confined view.
    staged: Option<Staged>,
    /// Bytes of a packet that begins a block of another link type.
    first: Vec<u8>,
}

/// Packets wait here until the block is full, or a tick, which falls on a multiple of the grant's resolution.
#[derive(Clone, Copy)]
struct Staged {
    slot: usize,
    link: LinkType,
    packets: usize,
    bytes: usize,
}

/// What a pipeline is made from.
pub struct PipelineOptions<'a> {
    pub worker: usize,
    pub batch: usize,
    pub key: Option<&'a Key>,
    pub shared: Option<Shared>,
    /// The source loses what is not taken in time: no call of a metered module is waited for.
    pub live: bool,
    pub(crate) stop: &'a Stop<'a>,
}

impl<'a> Pipeline<'a> {
    pub fn new(
        plan: &Plan,
        loaded: &[Loaded],
        options: &PipelineOptions<'a>,
        outlet: &mut dyn Outlet,
    ) -> Result<Self, RunError> {
        let PipelineOptions { worker, batch, key, shared, live, stop } = *options;
        let mut pipeline = Self { views: Vec::new(), batch: batch.clamp(1, flame_abi::MAX_BATCH), stop };
        let mut specs: Vec<Option<&ViewSpec>> = Vec::new();
        for (module, (p, loaded)) in plan.modules.iter().zip(loaded).enumerate() {
            // One that may keep its blocks for long has blocks of its own.
            let alone = live && p.class == ModuleClass::Metered;
            let at = match specs.iter().position(|s| !alone && *s == Some(&p.view)) {
                // A pool has room for so many readers; past them the view is computed once more.
                Some(i) if pipeline.views[i].runners.len() < flame_block::MAX_READERS => i,
                _ => {
                    let view = View::new(&p.view, key)?;
                    let pool = Pool::new(SLOTS)?;
                    // What a filter leaves out lies in the same ring, so only a view of all is mapped. The ring goes
                    // back to the kernel before a batch that is interrupted ends.
                    let mapped = shared.is_some_and(|s| fits_window(s, &pool))
                        && !alone
                        && view.hides_nothing()
                        && view.selects_all();
                    specs.push((!alone).then_some(&p.view));
                    let links = [LinkType::default(); SLOTS];
                    let confined = p.view.key.is_some() && !(view.hides_nothing() && view.selects_all());
                    pipeline.views.push(ViewStage {
                        view,
                        pool,
                        mapped,
                        links,
                        runners: Vec::new(),
                        confined,
                        staged: None,
                        first: Vec::new(),
                    });
                    pipeline.views.len() - 1
                }
            };
            let view = &mut pipeline.views[at];
            let (fd, offset, bytes) = view.pool.window();
            let mut windows = vec![Mapping { fd, offset, bytes, at: layout::VIEW }];
            if let (true, Some(shared)) = (view.mapped, shared) {
                let at = layout::VIEW + bytes as u32;
                windows.push(Mapping { fd: shared.fd, offset: 0, bytes: shared.bytes, at });
            }
            let slots = match p.terms.buffer as usize {
                0 => SLOTS,
                granted => granted.min(SLOTS),
            };
            let reader = view.pool.reader(slots).ok_or(RunError::TooManyModules)?;
            let mut runner = ModuleRunner::new(plan, (module, loaded), (worker, live), windows, reader);
            runner.launch(false, outlet)?;
            runner.go(blocks(pipeline.batch, &view.links, stop), outlet)?;
            view.runners.push(runner);
        }
        Ok(pipeline)
    }

    pub fn chunk(&mut self, chunk: Chunk<'_>, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        // A batch has one link type; nearly every source has only one.
        let mut start = 0;
        for same in chunk.packets.chunk_by(|a, b| a.link == b.link) {
            let range = start..start + same.len();
            start = range.end;
            let chunk = Chunk { packets: same, descriptors: &chunk.descriptors[range], ..chunk };
            for view in &mut self.views {
                if view.confined {
                    view.stage(chunk, (self.batch, self.stop), outlet)?;
                } else {
                    view.chunk(chunk, (self.batch, self.stop), outlet)?;
                }
            }
        }
        Ok(())
    }

    fn runners(&mut self) -> impl Iterator<Item = &mut ModuleRunner> {
        self.views.iter_mut().flat_map(|v| &mut v.runners)
    }

    /// Whether a turn would bring something on that was interrupted.
    pub fn can_progress(&mut self) -> bool {
        self.runners().any(ModuleRunner::can_progress)
    }

    /// Gives each runner for which something waits one more quantum.
    pub fn resume(&mut self, is_last: bool, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        for view in &mut self.views {
            let blocks = Blocks { is_last, ..blocks(self.batch, &view.links, self.stop) };
            view.runners.iter_mut().filter(|m| m.is_busy()).try_for_each(|m| m.go(blocks, outlet))?;
        }
        Ok(())
    }

    /// Gives out what waits for a block to be full.
    fn flush(&mut self, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        let how = (self.batch, self.stop);
        self.views.iter_mut().try_for_each(|view| view.publish(how, outlet))
    }

    pub fn tick(&mut self, now_ns: u64, outlet: &mut dyn Outlet) -> Result<(), RunError> {
        self.flush(outlet)?;
        for view in &mut self.views {
            let blocks = blocks(self.batch, &view.links, self.stop);
            view.runners.iter_mut().try_for_each(|m| m.tick(now_ns, blocks, outlet))?;
        }
        Ok(())
    }

    /// The last call: instances are dropped, accounts given out by module.
    pub fn end(&mut self, now_ns: u64, outlet: &mut dyn Outlet) -> Result<Vec<(usize, Account)>, RunError> {
        self.flush(outlet)?;
        while self.runners().any(|m| m.is_busy()) {
            self.resume(true, outlet)?;
        }
        let mut accounts = Vec::new();
        for mut runner in self.views.drain(..).flat_map(|v| v.runners) {
            runner.end(now_ns, self.stop, outlet)?;
            accounts.push((runner.module, runner.account));
        }
        Ok(accounts)
    }
}

fn blocks<'a>(batch: usize, links: &'a [LinkType], stop: &'a Stop<'a>) -> Blocks<'a> {
    Blocks { batch: batch as u32, links, stop, is_last: false }
}

/// Whether the source's memory has room behind the pool in a window.
fn fits_window(shared: Shared, pool: &Pool) -> bool {
    pool.window().2 + shared.bytes <= layout::VIEW_BYTES as usize
}

impl ViewStage {
    fn chunk(
        &mut self,
        chunk: Chunk<'_>,
        (batch, stop): (usize, &Stop<'_>),
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        let offered = chunk.packets.len() as u64;
        let Some(RawPacket { link, .. }) = chunk.packets.first().copied() else { return Ok(()) };
        let Some(slot) = self.pool.claim() else {
            let blocks = blocks(batch, &self.links, stop);
            for runner in &mut self.runners {
                runner.account.offered += offered;
                runner.account.shed(Shed::Overrun, offered);
                runner.lost += offered;
                runner.go(blocks, outlet)?;
            }
            return Ok(());
        };
        let base = layout::VIEW + Pool::offset(slot) as u32;
        let ring = layout::VIEW + self.pool.window().2 as u32;
        let (descriptors, data) = self.pool.slot(slot);
        let written = match (self.mapped, chunk.block.shared_offset) {
            (true, Some(offset)) => self.view.select(
                chunk.descriptors,
                |_| link,
                &chunk.block.data,
                descriptors,
                ring + offset as u32,
            )?,
            _ => self.view.copy(
                chunk.descriptors,
                |_| link,
                &chunk.block.data,
                descriptors,
                data,
                base + SLOT_DESCRIPTORS as u32,
            )?,
        };
        let filtered = offered - u64::from(written.packets);
        if let Some(place) = self.links.get_mut(slot) {
            *place = link;
        }
        self.pool.publish(slot, written.packets);
        let blocks = blocks(batch, &self.links, stop);
        for runner in &mut self.runners {
            runner.account.offered += offered;
            runner.account.filtered += filtered;
            let behind = runner.reader.lost();
            runner.account.shed(Shed::Overrun, behind);
            runner.lost += behind;
            runner.go(blocks, outlet)?;
        }
        Ok(())
    }

    /// Fills blocks one after the other, wherever the source's blocks end.
    fn stage(
        &mut self,
        chunk: Chunk<'_>,
        (batch, stop): (usize, &Stop<'_>),
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        let Some(RawPacket { link, .. }) = chunk.packets.first().copied() else { return Ok(()) };
        let mut rest = chunk.descriptors;
        while !rest.is_empty() {
            // A packet of another link type ends the block if it is shown.
            let mut first = None;
            if self.staged.is_some_and(|s| s.link != link) {
                let mut one = [Descriptor::default()];
                self.first.resize(flame_abi::MAX_PACKET, 0);
                let place = (&mut one[..], &mut self.first[..], usize::MAX);
                let written = self.view.copy_some(rest, |_| link, &chunk.block.data, place, 0)?;
                rest = &rest[written.taken..];
                self.offer(written);
                if written.packets == 0 {
                    continue;
                }
                self.publish((batch, stop), outlet)?;
                first = Some(one[0]);
            }
            let Some(mut staged) = self
                .staged
                .or_else(|| self.pool.claim().map(|slot| Staged { slot, link, packets: 0, bytes: 0 }))
            else {
                // Of packets that are lost only those count that there were to be shown.
                let eligible = u64::from(self.view.eligible(rest, |_| link, &chunk.block.data)?);
                let (blocks, first) = (blocks(batch, &self.links, stop), u64::from(first.is_some()));
                for runner in &mut self.runners {
                    runner.account.offered += eligible;
                    runner.account.shed(Shed::Overrun, eligible + first);
                    runner.lost += eligible + first;
                    runner.go(blocks, outlet)?;
                }
                return Ok(());
            };
            let base = layout::VIEW + (Pool::offset(staged.slot) + SLOT_DESCRIPTORS + staged.bytes) as u32;
            let (descriptors, data) = self.pool.slot(staged.slot);
            if let Some(d) = first {
                let n = d.cap_len as usize;
                data[..n].copy_from_slice(&self.first[..n]);
                descriptors[0] = Descriptor { addr: base, ..d };
                (staged.packets, staged.bytes) = (1, n);
                self.staged = Some(staged);
                if staged.bytes >= MAX_BLOCK_BYTES {
                    self.publish((batch, stop), outlet)?;
                }
                continue;
            }
            let out = (
                &mut descriptors[staged.packets..MAX_BLOCK_PACKETS],
                &mut data[staged.bytes..],
                MAX_BLOCK_BYTES - staged.bytes,
            );
            let written = self.view.copy_some(rest, |_| link, &chunk.block.data, out, base)?;
            rest = &rest[written.taken..];
            staged.packets += written.packets as usize;
            staged.bytes += written.bytes;
            // An empty block is of no link type.
            self.staged = (staged.packets > 0).then_some(staged);
            self.offer(written);
            if staged.packets == MAX_BLOCK_PACKETS || staged.bytes >= MAX_BLOCK_BYTES {
                self.publish((batch, stop), outlet)?;
            }
        }
        // Batches that were interrupted go on meanwhile.
        let blocks = blocks(batch, &self.links, stop);
        self.runners.iter_mut().filter(|m| m.is_busy()).try_for_each(|m| m.go(blocks, outlet))
    }

    /// Counts packets that trusted filters and sampling leave in: those that they leave out are hidden, and so is their
    /// number.
    fn offer(&mut self, written: Written) {
        for runner in &mut self.runners {
            runner.account.offered += u64::from(written.eligible);
            runner.account.filtered += u64::from(written.eligible - written.packets);
        }
    }

    /// Gives out the block that is being filled, if there is one.
    fn publish(
        &mut self,
        (batch, stop): (usize, &Stop<'_>),
        outlet: &mut dyn Outlet,
    ) -> Result<(), RunError> {
        let Some(staged) = self.staged.take() else { return Ok(()) };
        if staged.packets == 0 {
            return Ok(());
        }
        if let Some(place) = self.links.get_mut(staged.slot) {
            *place = staged.link;
        }
        self.pool.publish(staged.slot, staged.packets as u32);
        let blocks = blocks(batch, &self.links, stop);
        for runner in &mut self.runners {
            let behind = runner.reader.lost();
            runner.account.shed(Shed::Overrun, behind);
            runner.lost += behind;
            runner.go(blocks, outlet)?;
        }
        Ok(())
    }
}
