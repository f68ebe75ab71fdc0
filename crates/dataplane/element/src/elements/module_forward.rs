//! The packets of a module that forwards: those that wait for it, those about which it decides, and what its
//! decisions make of them.

use super::module_block::{emptied, list_frames, visible};
use crate::runtime::element::Cx;
use crate::runtime::loops::{self, Loops};
use crate::runtime::packet::{Batch, Packet};
use flame_abi::{MAX_BATCH, MAX_PACKET};
use flame_base::lock;
use flame_click::Nanos;
use flame_plan::{Decided, Decision, Fate, Shed};
use flame_source::Frame;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The fate of packets when the module is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnEvict {
    Pass,
    Drop,
}

#[derive(Default)]
pub(super) struct Forwarding {
    waiting: RefCell<Waiting>,
    /// The packets about which the module decides, and the input at which they came.
    flight: RefCell<(usize, Batch)>,
    /// An empty list, whose memory is used again.
    frames: RefCell<Vec<Frame<'static>>>,
    /// The packets that the module holds, by their slots. An element that replaces another one with its
    /// module has them from then on, also those that an earlier decision puts there.
    slots: RefCell<Arc<Slots>>,
    capacity: usize,
    /// The number of bytes of the longest packet that the module gets.
    longest: usize,
    /// Whether packets are being sent on. Elements that replace each other share it, so that what comes to
    /// the new one waits until the old one has sent its packets.
    is_at_work: RefCell<Arc<AtomicBool>>,
}

/// One thread at a time uses them: the lock is there so that an element may go to another one.
#[derive(Default)]
struct Slots(Mutex<Vec<Option<Packet>>>);

impl Slots {
    /// Empties a slot.
    fn take(&self, slot: usize) -> Option<Packet> {
        lock(&self.0).get_mut(slot).and_then(Option::take)
    }

    /// Empties all slots.
    fn take_all(&self) -> Batch {
        let mut batch = Batch::default();
        batch.extend(std::mem::take(&mut *lock(&self.0)).into_iter().flatten());
        batch
    }
}

/// The most bytes that were stripped from a packet and stay with it while it is held.
const STRIPPED: usize = 256;

/// Packets that wait, and the inputs at which they came.
#[derive(Default)]
struct Waiting {
    batches: VecDeque<(usize, Batch)>,
    packets: usize,
}

impl Waiting {
    /// Adds packets at the end, in batches that a call takes at once.
    fn add(&mut self, port: usize, mut batch: Batch) {
        self.packets += batch.len();
        if batch.len() > MAX_BATCH {
            let mut rest = batch.drain(..).peekable();
            while rest.peek().is_some() {
                let mut part = Batch::default();
                part.extend(rest.by_ref().take(MAX_BATCH));
                self.batches.push_back((port, part));
            }
            return;
        }
        match self.batches.back_mut() {
            _ if batch.is_empty() => {}
            Some((last, before)) if *last == port && before.len() + batch.len() <= MAX_BATCH => {
                before.append(&mut batch);
            }
            _ => self.batches.push_back((port, batch)),
        }
    }

    /// Puts packets back, before all others.
    fn put_back(&mut self, port: usize, batch: Batch) {
        if !batch.is_empty() {
            self.packets += batch.len();
            self.batches.push_front((port, batch));
        }
    }

    /// Removes the first packets, at most [`MAX_BATCH`], and the input at which they came.
    fn next(&mut self) -> Option<(usize, Batch)> {
        let (port, batch) = self.batches.pop_front()?;
        self.packets -= batch.len();
        Some((port, batch))
    }
}

/// Removes the packets from `at` on.
fn split_off(batch: &mut Batch, at: usize) -> Batch {
    let (mut rest, at) = (Batch::default(), at.min(batch.len()));
    rest.extend(batch.drain(at..));
    rest
}

/// The time in which packets are sent on.
pub(super) struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Forwarding {
    pub(super) fn new(capacity: usize, longest: Option<u32>) -> Self {
        Self { capacity, longest: longest.map_or(usize::MAX, |bytes| bytes as usize), ..Self::default() }
    }

    /// Returns the number of packets about which the module has not decided.
    pub(super) fn undecided(&self) -> usize {
        self.waiting() + self.flight.borrow().1.len()
    }

    /// Returns the number of packets that the module holds.
    pub(super) fn kept(&self) -> usize {
        lock(&self.slots.borrow().0).iter().flatten().count()
    }

    /// Takes packets that came to an input. Those that find no room are dropped.
    pub(super) fn take(&self, cx: &Cx<'_>, port: usize, batch: Batch) {
        self.take_or_drop(cx, port, batch, "overrun");
    }

    fn take_or_drop(&self, cx: &Cx<'_>, port: usize, mut batch: Batch, cause: &'static str) {
        if self.longest < usize::MAX && batch.iter().any(|packet| packet.len() > self.longest) {
            cx.drop_all("too long", batch.extract_if(.., |packet| packet.len() > self.longest));
        }
        let room = self.capacity.max(1).saturating_sub(self.waiting());
        if batch.len() > room {
            cx.drop_all(cause, batch.drain(room..));
        }
        self.waiting.borrow_mut().add(port, batch);
    }

    /// Returns a turn, or none within another one.
    pub(super) fn enter(&self) -> Option<Turn> {
        let is_at_work = self.is_at_work.borrow().clone();
        (!is_at_work.swap(true, Ordering::Relaxed)).then(|| Turn(is_at_work))
    }

    /// Returns the number of packets that wait for the module.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.borrow().packets
    }

    pub(super) fn is_in_flight(&self) -> bool {
        !self.flight.borrow().1.is_empty()
    }

    /// Offers the next packets of one input. `push` returns how many of them the module took. Returns their
    /// number, or none if no packet waits.
    pub(super) fn offer(
        &self,
        now: impl Fn() -> Nanos,
        push: impl FnOnce(usize, &[Frame<'_>]) -> usize,
    ) -> Option<usize> {
        *self.flight.borrow_mut() = self.waiting.borrow_mut().next()?;
        let count = {
            let (port, batch) = &*self.flight.borrow();
            let mut frames = emptied(self.frames.take());
            list_frames(batch, now, &mut frames);
            let count = push(*port, &frames);
            self.frames.replace(emptied(frames));
            count
        };
        self.pushed(count);
        Some(count)
    }

    /// Calls `decide` with the packets about which the module decides.
    pub(super) fn decide<T>(
        &self,
        decide: impl for<'a> FnOnce(&'a (dyn Fn(usize) -> &'a [u8] + 'a)) -> T,
    ) -> T {
        let (_, batch) = &*self.flight.borrow();
        decide(&|index| batch.get(index).map_or(&[][..], visible))
    }

    /// Records that the module took `count` packets of the block. The others wait again.
    pub(super) fn pushed(&self, count: usize) {
        let (port, batch) = &mut *self.flight.borrow_mut();
        if batch.len() > count {
            let rest = split_off(batch, count);
            self.waiting.borrow_mut().put_back(*port, rest);
        }
    }

    /// Returns all packets to the queue: nothing decides about them any more.
    pub(super) fn give_back(&self) {
        self.pushed(0);
    }

    /// Takes over the packets about which the module decides and those that it holds, with the module, which
    /// has the same inputs.
    pub(super) fn take_flight(&self, old: &Self) {
        debug_assert!(!self.is_in_flight());
        self.flight.swap(&old.flight);
        self.slots.swap(&old.slots);
    }

    /// Takes out the packets that the module held, which has ended.
    pub(super) fn take_kept(&self) -> Batch {
        self.slots.borrow().take_all()
    }

    /// Drops the packets that the module held, which has ended.
    pub(super) fn drop_kept(&self, cx: &Cx<'_>, cause: &'static str) {
        cx.drop_all(cause, self.take_kept().drain(..));
    }

    /// Takes over the packets that wait at the element that this one replaces, the oldest first. Those that
    /// came to an input that this one lacks, or that find no room, are dropped.
    pub(super) fn take_over(&self, cx: &Cx<'_>, old: &Self) {
        self.is_at_work.replace(old.is_at_work.borrow().clone());
        for (port, mut batch) in old.waiting.take().batches {
            if port >= cx.inputs() {
                cx.drop_all("replaced", batch.drain(..));
            }
            self.take_or_drop(cx, port, batch, "replaced");
        }
    }

    /// Sends or drops the packets that the module held, which has ended.
    pub(super) fn forget(&self, cx: &Cx<'_>, on_evict: OnEvict, cause: &'static str) {
        match on_evict {
            OnEvict::Pass => {
                let kept = self.take_kept();
                cx.push(0, kept);
            }
            OnEvict::Drop => self.drop_kept(cx, cause),
        }
    }

    /// Handles the packets of a module that cannot go on, as `on_evict` states, for this cause.
    pub(super) fn fail(&self, cx: &Cx<'_>, on_evict: OnEvict, cause: &'static str) {
        self.give_back();
        self.forget(cx, on_evict, cause);
        for (_, mut batch) in self.waiting.take().batches {
            match on_evict {
                OnEvict::Pass => cx.push(0, batch),
                OnEvict::Drop => cx.drop_all(cause, batch.drain(..)),
            }
        }
    }

    /// Sends on or drops the packets as the module decided.
    pub(super) fn apply(&self, cx: &Cx<'_>, decided: Decided, on_evict: OnEvict) {
        let Decided { all_to, fates, decisions, bytes } = decided;
        let (_, mut flight) = self.flight.take();
        if let Some(port) = all_to {
            return cx.push(port, flight);
        }
        // What is sent may have this element replaced.
        let slots = self.slots.borrow().clone();
        // Those of a call that took several slices are made in another step. What was held is sent because of
        // these packets, too.
        let adds = |decision: &Decision| {
            matches!(decision, Decision::Make { .. } | Decision::Release { .. } | Decision::Copy { .. })
        };
        let loops = match decisions.iter().any(adds) {
            true => loops::greatest(flight.iter().map(|p| &p.anno.loops), loops::inherited()),
            false => Loops::default(),
        };
        let mut packets: Vec<Option<Packet>> = flight.drain(..).map(Some).collect();
        let mut out = Outputs { cx, port: 0, batch: Batch::default() };
        // Packets that the module does not decide about keep their place among those that it sends.
        let mut next = 0;
        for decision in decisions {
            if let Decision::Send { first, .. }
            | Decision::Change { packet: first, .. }
            | Decision::Hold { packet: first, .. } = decision
            {
                self.pass_until(first, &mut next, &fates, &mut packets, on_evict, &mut out);
            }
            let take = |packets: &mut [Option<Packet>], at: usize| packets.get_mut(at).and_then(Option::take);
            match decision {
                Decision::Send { first, count, port } => {
                    let sent = packets.iter_mut().skip(first).take(count).filter_map(Option::take);
                    sent.for_each(|packet| out.send(port, packet));
                }
                Decision::Change { packet, port, bytes: range } => {
                    let (Some(mut packet), Some(changed)) = (take(&mut packets, packet), bytes.get(range))
                    else {
                        continue;
                    };
                    packet.replace(MAX_PACKET, changed);
                    out.send(port, packet);
                }
                Decision::Make { port, bytes: range } => {
                    let Some(bytes) = bytes.get(range) else { continue };
                    let mut packet = Packet::new(bytes);
                    packet.anno.time = cx.now();
                    packet.anno.loops = loops;
                    cx.made(1);
                    out.send(port, packet);
                }
                Decision::Hold { packet, slot } => {
                    let Some(mut packet) = take(&mut packets, packet) else { continue };
                    discard(cx, &slots, slot);
                    if packet.len() > MAX_PACKET {
                        cx.drop("too long to hold", packet);
                        continue;
                    }
                    packet.compact(STRIPPED);
                    let mut slots = lock(&slots.0);
                    if slots.len() <= slot {
                        slots.resize_with(slot + 1, || None);
                    }
                    slots[slot] = Some(packet);
                }
                Decision::Discard { slot } => discard(cx, &slots, slot),
                Decision::Release { slot, port } => {
                    let Some(mut packet) = slots.take(slot) else { continue };
                    packet.anno.loops = loops::greatest([&packet.anno.loops], loops);
                    out.send(port, packet);
                }
                Decision::Copy { slot, port } => {
                    let copy = lock(&slots.0).get(slot).and_then(Option::clone);
                    let Some(mut packet) = copy else { continue };
                    packet.anno.loops = loops::greatest([&packet.anno.loops], loops);
                    cx.made(1);
                    out.send(port, packet);
                }
                Decision::Forget => match on_evict {
                    OnEvict::Pass => slots.take_all().drain(..).for_each(|packet| out.send(0, packet)),
                    OnEvict::Drop => cx.drop_all("module gone", slots.take_all().drain(..)),
                },
            }
        }
        self.pass_until(packets.len(), &mut next, &fates, &mut packets, on_evict, &mut out);
        out.flush();
    }

    /// Passes or drops the packets before `end` that the module does not send.
    fn pass_until(
        &self,
        end: usize,
        next: &mut usize,
        fates: &[Fate],
        packets: &mut [Option<Packet>],
        on_evict: OnEvict,
        out: &mut Outputs<'_, '_>,
    ) {
        while *next < end.min(packets.len()) {
            let index = *next;
            *next += 1;
            let fate = fates.get(index).copied().unwrap_or(Fate::Lost(Shed::Stopped));
            if fate == Fate::Sent {
                continue;
            }
            let Some(packet) = packets[index].take() else { continue };
            let is_passed = matches!(fate, Fate::Lost(_)) && on_evict == OnEvict::Pass;
            match fate.cause().filter(|_| !is_passed) {
                Some(cause) => out.cx.drop(cause, packet),
                None => out.send(0, packet),
            }
        }
    }
}

/// Drops the packet in a slot, as the module decided.
fn discard(cx: &Cx<'_>, slots: &Slots, slot: usize) {
    if let Some(packet) = slots.take(slot) {
        cx.drop("module", packet);
    }
}

/// Collects packets for one output after the other.
struct Outputs<'a, 'b> {
    cx: &'b Cx<'a>,
    port: usize,
    batch: Batch,
}

impl Outputs<'_, '_> {
    fn send(&mut self, port: usize, packet: Packet) {
        if port != self.port {
            self.flush();
            self.port = port;
        }
        if self.batch.len() == MAX_BATCH {
            self.flush();
        }
        self.batch.push(packet);
    }

    fn flush(&mut self) {
        self.cx.push(self.port, std::mem::take(&mut self.batch));
    }
}
