//! A module that forwards packets: it sees them as its view shows them, and decides what becomes of each.
//!
//! Packets stay with their owner. What is shown of them is copied into a block of the view, and bytes that
//! the module changes are copied back: only those that it was shown, and only if nothing of them is
//! transformed.

use crate::error::RunError;
use crate::forward::decider::{Decider, Deciding, RemoteDecider};
use crate::forward::new_packet_limit::Made;
use crate::forward::packet_slots::HeldPackets;
use crate::packets::draft::Draft;
use crate::packets::stage::PipelineOptions;
use crate::process::RemoteBatches;
use crate::records::collect::Collector;
use crate::records::placed::{Placed, Site};
use flame_abi::{Descriptor, LinkType, MAX_BATCH, MAX_PACKET, layout};
use flame_block::{Block, Pool, SLOT_DESCRIPTORS};
use flame_execute::{BatchLoop, Conditions, Origin, Outlet};
use flame_output::{Frame, composed, frames, plain_send};
use flame_plan::{
    Account, Action, Decided, Decision, Expose, Fate, FaultReport, GROWTH_MAX, ModuleId, ModulePlan,
    Placement, Shed,
};
use flame_run::{Mapping, Output};
use flame_source::Frame as Packet;
use flame_view::{Hidden, Packets, View, Written};

/// The number of blocks: one that is processed, and one that is filled meanwhile.
const SLOTS: usize = 2;
/// The number of blocks that a process may hold: it decides about one before it releases it.
const DEPTH: usize = 2;

/// Packets that were offered, by their indices.
pub(crate) type Offered<'a> = &'a dyn Fn(usize) -> &'a [u8];

/// Packets in the memory of their owner. Their descriptors have no place.
struct Apart<'a>(&'a [Packet<'a>]);

impl Packets for Apart<'_> {
    #[inline]
    fn bytes(&self, index: usize, d: &Descriptor) -> Option<&[u8]> {
        self.0.get(index)?.bytes.get(..d.cap_len as usize)
    }
}

/// A module that forwards packets, with its view and its blocks.
pub(crate) struct Forward {
    module: ModuleId,
    view: View,
    /// Whether a grant hides something, so that the account counts only shown packets.
    confined: bool,
    edits: Edits,
    /// The most bytes by which it may make a packet longer.
    growth: usize,
    /// The shown form of a packet that the module changed, and what is hidden of it.
    shown: Vec<u8>,
    hidden: Hidden,
    pool: Pool,
    /// The place of a block until it is complete, if the module is in a process and the view hides anything.
    draft: Option<Draft>,
    decider: Decider,
    flight: Option<Flight>,
    held: HeldPackets,
    spare: Lists,
}

/// The lists of a flight, which the next one uses again.
#[derive(Default)]
struct Lists {
    /// The true packets.
    descriptors: Vec<Descriptor>,
    /// The index of each shown packet among them, in ascending order.
    shown: Vec<usize>,
    /// The decisions of the current batch.
    pending: Vec<Decision>,
    /// The decisions of all batches.
    decisions: Vec<Decision>,
    /// The fate of each packet, unless it is sent; empty as long as nobody needs it.
    fates: Vec<Fate>,
}

impl Lists {
    fn fates(&mut self) -> &mut Vec<Fate> {
        if self.fates.len() != self.descriptors.len() {
            self.fates.resize(self.descriptors.len(), Fate::Unseen);
            self.shown.iter().for_each(|at| self.fates[*at] = Fate::Dropped);
        }
        &mut self.fates
    }
}

/// The changes that a module may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edits {
    /// The whole packet, also its length.
    All,
    /// The bytes that it is shown as they are.
    Shown,
}

/// Packets about which the module decides.
struct Flight {
    link: LinkType,
    lists: Lists,
    /// The number of shown packets about which it has decided.
    count: usize,
    made: Made,
    /// The bytes of packets that it changed or made.
    bytes: Vec<u8>,
}

impl Flight {
    /// Returns whether the module has decided about all packets.
    fn is_over(&self) -> bool {
        self.count == self.lists.shown.len()
    }

    /// Returns the index of a packet of the current batch among all that were offered.
    fn index(&self, index: u16) -> usize {
        self.lists.shown[self.count + usize::from(index)]
    }

    /// Sends packets of the current batch that follow each other as they came. Returns false, and does
    /// nothing, if they may not follow each other among those that were offered.
    fn send_run(&mut self, first: u16, count: usize, port: u16) -> bool {
        if self.lists.shown.len() != self.lists.descriptors.len() {
            return false;
        }
        let (first, port) = (self.index(first), usize::from(port));
        self.lists.pending.push(Decision::Send { first, count, port });
        true
    }

    /// Sends a packet of the current batch as it came.
    #[inline]
    fn send(&mut self, index: u16, port: u16) {
        let (packet, port) = (self.index(index), usize::from(port));
        match self.lists.pending.last_mut() {
            Some(Decision::Send { first, count, port: last })
                if *last == port && *first + *count == packet =>
            {
                *count += 1;
            }
            _ => self.lists.pending.push(Decision::Send { first: packet, count: 1, port }),
        }
    }
}

/// Checks that a module may forward packets as its view shows them.
///
/// # Errors
///
/// Returns [`RunError::Transformed`] for a module that changes packets under a view that transforms fields.
pub fn check_forward(plan: &ModulePlan) -> Result<(), RunError> {
    let changes = plan.manifest.ports.is_some_and(|ports| ports.modify) && plan.terms.forward.modify;
    // A field that is shown in another form could not be distinguished from one that the module changed.
    let transforms = plan.view.transforms.values().any(|action| *action != Action::Keep);
    if changes && transforms { Err(RunError::Transformed(plan.name.clone())) } else { Ok(()) }
}

impl Forward {
    pub(crate) fn new(
        module: &Placed,
        options: &PipelineOptions<'_>,
        collector: &mut Collector<'_>,
    ) -> Result<Self, RunError> {
        let plan = module.plan();
        let view = View::new(&plan.view, options.key)?;
        check_forward(plan)?;
        let is_whole = plan.view.expose == Expose::All;
        let is_open = view.hides_nothing() && view.selects_all();
        let mut pool = Pool::new(match plan.placement() {
            Placement::Inline => SLOTS,
            Placement::Process => SLOTS + DEPTH,
        })?;
        let (decider, draft) = match &module.site {
            Site::Local(module) => {
                let (fd, offset, bytes) = pool.window();
                let windows = vec![Mapping { fd, offset, bytes, at: layout::VIEW }];
                let reader = pool.reader(1).ok_or(RunError::TooManyModules)?;
                let at = options.attachment();
                let mut batches = BatchLoop::new(options.shape, module, at, windows, reader);
                batches.launch(false, collector)?;
                (Decider::Local(Box::new(batches)), None)
            }
            Site::Remote(module) => {
                let batches = RemoteBatches::attach(module, options.attachment(), (&mut pool, DEPTH))?;
                let remote = RemoteDecider::new(batches, options.discipline);
                (Decider::Remote(Box::new(remote)), (!is_open).then(Draft::new))
            }
        };
        let transmits =
            plan.manifest.ports.is_some_and(|ports| ports.transmit) && plan.terms.forward.transmit;
        let slots = plan.manifest.ports.map_or(0, |ports| ports.held);
        let held = HeldPackets::new(slots as usize, view.hides_lengths());
        let mut forward = Self {
            module: plan.id,
            confined: plan.view.key.is_some() && !is_open,
            edits: if is_whole { Edits::All } else { Edits::Shown },
            growth: if transmits { MAX_PACKET } else { GROWTH_MAX },
            shown: Vec::new(),
            hidden: Hidden::default(),
            view,
            pool,
            draft,
            decider,
            flight: None,
            held,
            spare: Lists::default(),
        };
        forward.go(options, false, collector)?;
        Ok(forward)
    }

    /// Returns whether the module is at work, so that no further packets are taken.
    pub(crate) fn is_busy(&self) -> bool {
        self.flight.is_some() || self.decider.is_busy()
    }

    /// Returns whether work waits that a quantum would advance.
    pub(crate) fn can_progress(&mut self) -> bool {
        self.decider.can_progress()
    }

    /// Returns whether the module has no instance any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.decider.is_gone()
    }

    pub(crate) fn account(&self) -> (ModuleId, Account) {
        (self.module, self.decider.account())
    }

    /// Continues the module's calls for a quantum, or to their end.
    pub(crate) fn go(
        &mut self,
        options: &PipelineOptions<'_>,
        is_last: bool,
        collector: &mut Collector<'_>,
    ) -> Result<(), RunError> {
        let conditions = Conditions { is_last, ..options.conditions() };
        let mut outlet = Decisions { flight: self.flight.as_mut(), held: &mut self.held, collector };
        self.decider.go(&mut self.pool, conditions, &mut outlet)
    }

    pub(crate) fn tick(
        &mut self,
        now_ns: u64,
        options: &PipelineOptions<'_>,
        collector: &mut Collector<'_>,
    ) -> Result<(), RunError> {
        let mut outlet = Decisions { flight: self.flight.as_mut(), held: &mut self.held, collector };
        self.decider.tick((&mut self.pool, now_ns), options.stop, &mut outlet)
    }

    /// Makes the last call. No work waits any more.
    pub(crate) fn end(
        &mut self,
        now_ns: u64,
        options: &PipelineOptions<'_>,
        collector: &mut Collector<'_>,
    ) -> Result<(), RunError> {
        let mut outlet = Decisions { flight: None, held: &mut self.held, collector };
        self.decider.end(now_ns, options.stop, &mut outlet)
    }

    /// Returns the depth to which packets are decoded, or none if their headers are not read.
    pub(crate) fn decoding(&self, decapsulate: bool) -> Option<flame_decode::Options> {
        let without_hash = !self.view.reads_hash();
        self.view.reads_packets().then_some(flame_decode::Options { decapsulate, without_hash })
    }

    /// Offers packets, at most [`MAX_BATCH`] of one link type, which came to the input `port`. The module is
    /// not busy. Takes the descriptors, and leaves a list for others.
    pub(crate) fn offer(
        &mut self,
        (port, link): (u16, LinkType),
        packets: &[Packet<'_>],
        all: &mut Vec<Descriptor>,
        (options, collector): (&PipelineOptions<'_>, &mut Collector<'_>),
    ) -> Result<(), RunError> {
        let mut lists = std::mem::take(&mut self.spare);
        std::mem::swap(&mut lists.descriptors, all);
        let Lists { descriptors, shown, pending, decisions, fates } = &mut lists;
        shown.clear();
        pending.clear();
        decisions.clear();
        fates.clear();
        debug_assert!(!self.is_busy() && descriptors.len() <= MAX_BATCH);
        let slot = self.pool.claim().ok_or(RunError::Broken)?;
        let base = layout::VIEW + (Pool::offset(slot) + SLOT_DESCRIPTORS) as u32;
        let (out, data) = Draft::place(&mut self.draft, &mut self.pool, slot);
        let place = (&mut out[..descriptors.len()], data);
        let written = self.view.copy_listed(descriptors, link, &Apart(packets), place, base, shown)?;
        let Written { eligible, sampled, bytes, .. } = written;
        let count = shown.len() as u64;
        let offered = match self.confined {
            true => u64::from(eligible),
            false => descriptors.len() as u64 - u64::from(sampled),
        };
        self.decider.offer(offered, offered - count, written);
        // The instance that held packets may have ended since the last ones were offered.
        decisions.extend(std::mem::take(&mut self.held.is_forgotten).then_some(Decision::Forget));
        self.flight = Some(Flight { link, lists, count: 0, made: Made::default(), bytes: Vec::new() });
        if count > 0 {
            if let Some(draft) = &self.draft {
                draft.copy(&mut self.pool, slot, count as usize, bytes);
            }
            let block = Block { slot, packets: count as u32, link, queue: 0, port };
            let mut outlet = Decisions { flight: self.flight.as_mut(), held: &mut self.held, collector };
            self.decider.publish((&mut self.pool, block), options.stop, &mut outlet)?;
            self.go(options, false, collector)?;
        }
        Ok(())
    }

    /// Drops the decisions, once the module has decided about all packets.
    pub(crate) fn discard(&mut self) {
        self.flight.take_if(|flight| flight.is_over());
    }

    /// Returns the decisions, once the module has decided about all packets that were offered last.
    pub(crate) fn take(&mut self, offered: Offered<'_>, collector: &mut Collector<'_>) -> Option<Decided> {
        let flight = self.flight.take_if(|flight| flight.is_over())?;
        let Flight { link, mut lists, bytes, .. } = flight;
        // A module that lost its grant has no fault.
        if self.is_gone() && self.held.forget() {
            lists.decisions.push(Decision::Forget);
        }
        let mut decided = Decided { bytes, ..Decided::default() };
        match lists.decisions[..] {
            [Decision::Send { count, port, .. }] if count == lists.descriptors.len() => {
                decided.all_to = Some(port);
            }
            _ => {
                decided.fates = std::mem::take(lists.fates());
                decided.decisions = std::mem::take(&mut lists.decisions);
                self.finish(&mut decided, (offered, link, &lists.descriptors), collector);
            }
        }
        self.spare = lists;
        Some(decided)
    }

    /// Completes the bytes of packets of which the module may change a part, charges those that it composed,
    /// and enters the fates of all that are sent.
    fn finish(
        &mut self,
        decided: &mut Decided,
        (offered, link, all): (Offered<'_>, LinkType, &[Descriptor]),
        collector: &mut Collector<'_>,
    ) {
        let Decided { fates, decisions, bytes, .. } = decided;
        decisions.retain_mut(|decision| {
            let (first, range) = match decision {
                Decision::Send { first, count, .. } => {
                    fates[*first..*first + *count].fill(Fate::Sent);
                    return true;
                }
                Decision::Hold { packet, .. } => {
                    fates[*packet] = Fate::Sent;
                    return true;
                }
                Decision::Change { packet, bytes, .. } => (*packet, bytes),
                _ => return true,
            };
            fates[first] = Fate::Sent;
            let (d, before) = (&all[first], offered(first));
            let shows_all = self.view.shows_all_of(link, d, before).unwrap_or(false);
            let is_complete = shows_all && d.wire_len == d.cap_len;
            let changed = &mut bytes[range.clone()];
            if self.edits == Edits::All && is_complete {
                let refused = match changed.len() {
                    length if length > MAX_PACKET => Some(Fate::Length),
                    length if length > before.len() + self.growth => Some(Fate::Growth),
                    _ => {
                        let lets = collector.lets_changed(self.module, composed(before, changed));
                        (!lets).then_some(Fate::Withheld)
                    }
                };
                fates[first] = refused.unwrap_or(Fate::Sent);
                return refused.is_none();
            }
            // What is shown depends on the packet alone.
            let seen = self.view.show(link, d, before, (&mut self.shown, &mut self.hidden));
            let Some(seen) = seen.ok().filter(|_| changed.len() == self.shown.len()) else {
                fates[first] = Fate::Length;
                return false;
            };
            // Headers determine which bytes are payload and which are options. A module that could change
            // that would see what is hidden once the packet comes back. What it may change follows from what
            // it was shown, so it learns nothing from the answer.
            if !shows_all && !flame_decode::differs_in_values_only(link, &seen, &self.shown, changed) {
                fates[first] = Fate::Headers;
                return false;
            }
            // Also by bytes that it was shown, so that no hidden one decides.
            if !collector.lets_changed(self.module, composed(&self.shown, changed)) {
                fates[first] = Fate::Withheld;
                return false;
            }
            // Bytes that were not shown as they are stay, and checksums among them follow the others.
            self.hidden.restore(before, changed);
            if range.len() < before.len() {
                // The part that is not shown follows that which is.
                let at = bytes.len();
                bytes.extend_from_within(range.clone());
                bytes.extend_from_slice(&before[range.len()..]);
                *range = at..bytes.len();
            }
            true
        });
    }
}

/// The outlet of a module that forwards: what it sends is kept until its batch has ended well.
struct Decisions<'f, 'c> {
    flight: Option<&'f mut Flight>,
    held: &'f mut HeldPackets,
    collector: &'f mut Collector<'c>,
}

impl<'c> Deciding<'c> for Decisions<'_, 'c> {
    fn collector(&mut self) -> &mut Collector<'c> {
        self.collector
    }
}

impl Outlet<RunError> for Decisions<'_, '_> {
    fn output(&mut self, from: Origin, output: Output<'_>) -> Result<(), RunError> {
        if output.counts.sent > 0
            && let Some(flight) = &mut self.flight
        {
            let mut rest = output.bytes;
            if let Some((first, port)) = output.counts.run
                && flight.send_run(first, output.counts.sent as usize, port)
            {
                rest = &[];
            }
            loop {
                // The schema has checked that the index is one of the batch. A packet that goes on as it came
                // passes the gate in any case.
                while let Some((index, port, next)) = plain_send(rest) {
                    flight.send(index, port);
                    rest = next;
                }
                let mut others = frames(rest);
                let Some(frame) = others.next() else { break };
                rest = others.rest();
                let (packet, port, bytes) = match frame {
                    Frame::Send { packet, port, bytes } => (packet, usize::from(port), bytes),
                    Frame::Held(frame) => {
                        let Flight { lists, count, made, .. } = flight;
                        let Lists { descriptors, shown, pending, .. } = lists;
                        let offered = |index: u16| {
                            let packet = shown[*count + usize::from(index)];
                            (packet, descriptors[packet].wire_len)
                        };
                        let place = (made, &mut *self.collector);
                        pending.extend(self.held.decide(frame, from.module, offered, place));
                        continue;
                    }
                    _ => continue,
                };
                if packet.is_none() && !flight.made.add(bytes.len()) {
                    self.collector.withhold(from.module);
                    continue;
                }
                if !self.collector.lets(from.module, &frame) {
                    continue;
                }
                let start = flight.bytes.len();
                flight.bytes.extend_from_slice(bytes);
                let bytes = start..start + bytes.len();
                let decision = match packet.map(|index| flight.index(index)) {
                    Some(packet) if bytes.is_empty() => Decision::Send { first: packet, count: 1, port },
                    Some(packet) => Decision::Change { packet, port, bytes },
                    None => Decision::Make { port, bytes },
                };
                flight.lists.pending.push(decision);
            }
        }
        let counts = output.counts;
        if counts.records + counts.messages + counts.logs + counts.lost > 0 {
            self.collector.output(from, output.bytes)?;
        }
        Ok(())
    }

    fn fault(&mut self, report: FaultReport) -> Result<(), RunError> {
        // What the next instance holds comes after this.
        if self.held.forget() {
            match &mut self.flight {
                Some(flight) => {
                    // Decisions of the batch that failed have no effect.
                    flight.lists.pending.clear();
                    flight.lists.decisions.push(Decision::Forget);
                }
                None => self.held.is_forgotten = true,
            }
        }
        self.collector.fault(report)
    }

    fn decided(&mut self, count: u32, lost: Option<(Shed, u32)>) -> Result<(), RunError> {
        let Some(flight) = &mut self.flight else { return Ok(()) };
        let range = flight.count..flight.count + count as usize;
        flight.count = range.end;
        let lists = &mut flight.lists;
        match lost {
            None => lists.decisions.append(&mut lists.pending),
            Some((cause, _)) => {
                lists.pending.clear();
                lists.fates();
                let Lists { shown, fates, .. } = lists;
                shown[range].iter().for_each(|at| fates[*at] = Fate::Lost(cause));
            }
        }
        Ok(())
    }

    fn passed(&mut self, module: ModuleId, worker: usize, now_ns: u64) -> Result<(), RunError> {
        self.collector.passed(module, worker, now_ns)
    }
}
