//! The packets of a module that forwards: those that wait for it, those about which it decides, and what its
//! decisions make of them.

use super::module_block::fill;
use crate::modules::{Decisions, Fate};
use crate::runtime::element::Cx;
use crate::runtime::loops;
use crate::runtime::packet::{Batch, Packet};
use flame_abi::{LinkType, MAX_BATCH};
use flame_click::Nanos;
use flame_source::RawBlock;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// The fate of packets when the module is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnEvict {
    Pass,
    Drop,
}

#[derive(Default)]
pub(super) struct Forwarding {
    /// Packets, and the inputs at which they came.
    waiting: RefCell<VecDeque<(usize, Packet)>>,
    /// The packets about which the module decides.
    flight: RefCell<Vec<(usize, Packet)>>,
    capacity: usize,
    is_at_work: Cell<bool>,
}

/// The time in which packets are sent on.
pub(super) struct Turn<'a>(&'a Cell<bool>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Forwarding {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    pub(super) fn held(&self) -> usize {
        self.waiting.borrow().len() + self.flight.borrow().len()
    }

    /// Takes packets that came to an input. Those that find no room are dropped.
    pub(super) fn take(&self, cx: &Cx<'_>, port: usize, mut batch: Batch) {
        for packet in batch.drain(..) {
            let has_room = self.waiting.borrow().len() < self.capacity.max(1);
            match has_room {
                true => self.waiting.borrow_mut().push_back((port, packet)),
                false => cx.drop("overrun", packet),
            }
        }
    }

    /// Returns a turn, or none within another one.
    pub(super) fn enter(&self) -> Option<Turn<'_>> {
        (!self.is_at_work.replace(true)).then(|| Turn(&self.is_at_work))
    }

    /// Returns the number of packets that wait for the module.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    pub(super) fn is_in_flight(&self) -> bool {
        !self.flight.borrow().is_empty()
    }

    /// Fills a block with the next packets of one input, and returns that. None waits: returns none.
    pub(super) fn load(&self, block: &mut RawBlock, link: LinkType, now: Nanos) -> Option<usize> {
        let (mut waiting, mut flight) = (self.waiting.borrow_mut(), self.flight.borrow_mut());
        let port = waiting.front()?.0;
        let same = waiting.iter().take(MAX_BATCH).take_while(|(p, _)| *p == port).count();
        let count = fill(block, waiting.iter().take(same).map(|(_, packet)| packet), link, now);
        flight.extend(waiting.drain(..count));
        Some(port)
    }

    /// Records that the module took `count` packets of the block. The others wait again.
    pub(super) fn pushed(&self, count: usize) {
        let (mut waiting, mut flight) = (self.waiting.borrow_mut(), self.flight.borrow_mut());
        while flight.len() > count {
            if let Some(packet) = flight.pop() {
                waiting.push_front(packet);
            }
        }
    }

    /// Returns all packets to the queue: nothing decides about them any more.
    pub(super) fn give_back(&self) {
        self.pushed(0);
    }

    /// Takes over the packets of the element that this one replaces, the oldest first. Those that came to an
    /// input that this one lacks, or that find no room, are dropped.
    pub(super) fn take_over(&self, cx: &Cx<'_>, old: &Self) {
        // Packets about which a module decides go with the module, which has the same inputs.
        self.flight.borrow_mut().append(&mut old.flight.borrow_mut());
        let all = std::mem::take(&mut *old.waiting.borrow_mut());
        for (port, packet) in all {
            let has_room = self.waiting() < self.capacity.max(1);
            match port < cx.inputs() && has_room {
                true => self.waiting.borrow_mut().push_back((port, packet)),
                false => cx.drop("replaced", packet),
            }
        }
    }

    /// Handles the packets of a module that cannot go on, as `on_evict` states.
    pub(super) fn fail(&self, cx: &Cx<'_>, on_evict: OnEvict) {
        self.give_back();
        let all: Vec<_> = self.waiting.borrow_mut().drain(..).collect();
        let mut out = Batch::default();
        for (_, packet) in all {
            match on_evict {
                OnEvict::Pass => out.push(packet),
                OnEvict::Drop => cx.drop("module gone", packet),
            }
        }
        cx.push(0, out);
    }

    /// Sends on or drops the packets as the module decided.
    pub(super) fn apply(&self, cx: &Cx<'_>, decisions: Decisions, on_evict: OnEvict) {
        let Decisions { fates, sends, bytes } = decisions;
        let flight = std::mem::take(&mut *self.flight.borrow_mut());
        let mut packets: Vec<Option<Packet>> = flight.into_iter().map(|(_, packet)| Some(packet)).collect();
        // Those of a call that took several slices are made in another step.
        let loops = loops::greatest(packets.iter().flatten().map(|p| &p.anno.loops), loops::inherited());
        let mut out = Outputs { cx, port: 0, batch: Batch::default() };
        // Packets that the module does not decide about keep their place among those that it sends.
        let mut next = 0;
        for send in sends {
            if let Some(index) = send.packet {
                self.pass_until(index, &mut next, &fates, &mut packets, on_evict, &mut out);
            }
            let changed = send.bytes.and_then(|range| bytes.get(range));
            let packet = match send.packet {
                Some(index) => packets.get_mut(index).and_then(Option::take).map(|mut packet| {
                    if let Some(changed) = changed {
                        packet.replace(changed);
                    }
                    packet
                }),
                None => changed.map(|bytes| {
                    let mut packet = Packet::new(bytes);
                    packet.anno.time = cx.now();
                    packet.anno.loops = loops;
                    cx.made(1);
                    packet
                }),
            };
            if let Some(packet) = packet {
                out.send(send.port, packet);
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
            let fate = fates.get(index).copied().unwrap_or(Fate::Lost("module gone"));
            if fate == Fate::Sent {
                continue;
            }
            let Some(packet) = packets[index].take() else { continue };
            match fate {
                Fate::Unseen => out.send(0, packet),
                Fate::Lost(_) if on_evict == OnEvict::Pass => out.send(0, packet),
                Fate::Dropped(cause) | Fate::Lost(cause) => out.cx.drop(cause, packet),
                Fate::Sent => {}
            }
        }
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
        self.batch.push(packet);
    }

    fn flush(&mut self) {
        self.cx.push(self.port, std::mem::take(&mut self.batch));
    }
}
