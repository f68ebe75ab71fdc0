//! The flows of a rewriter: its table, and when flows end.
//!
//! A flow is guaranteed for a short time after each of its packets, then kept as long as its timeout allows.
//! If the table is full, the flow that would end first and is not guaranteed any more makes room.

use super::util::{be16, ip_header};
use crate::runtime::packet::Packet;
use flame_click::{Ip, Nanos};
use std::collections::{BTreeSet, HashMap};

/// (protocol, source, port, destination, port). Ports are 0 where only addresses count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    pub protocol: u8,
    pub src: (Ip, u16),
    pub dst: (Ip, u16),
}

/// Types of ICMP.
pub const ECHO_REPLY: u8 = 0;
pub const ECHO: u8 = 8;

impl Flow {
    pub fn reverse(self) -> Self {
        Self { src: self.dst, dst: self.src, ..self }
    }

    /// Returns the flow of an ICMP echo request or reply, whose ports are its identifier.
    pub fn of_echo(p: &Packet) -> Option<Self> {
        let h = ip_header(p)?;
        let t = &p.data()[h.payload()..];
        if h.protocol != 1 || !h.is_first_fragment() || t.len() < 8 || !matches!(t[0], ECHO_REPLY | ECHO) {
            return None;
        }
        let id = be16(t, 4);
        Some(Self { protocol: 1, src: (h.source, id), dst: (h.destination, id) })
    }

    /// Returns the flow of a TCP or UDP packet that has ports.
    pub fn of(p: &Packet) -> Option<Self> {
        let h = ip_header(p)?;
        let t = &p.data()[h.payload()..];
        if !matches!(h.protocol, 6 | 17) || !h.is_first_fragment() || t.len() < 8 {
            return None;
        }
        let (src, dst) = ((h.source, be16(t, 0)), (h.destination, be16(t, 2)));
        Some(Self { protocol: h.protocol, src, dst })
    }
}

/// The lifetimes of flows after their last packet.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// The lifetime without data in both directions.
    pub start: Nanos,
    pub both: Nanos,
    /// The lifetime after both ends of a TCP connection have finished.
    pub done: Nanos,
    pub guarantee: Nanos,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Side {
    has_data: bool,
    has_finished: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    /// The flow as it comes, and as it leaves.
    from: Flow,
    to: Flow,
    /// The outputs of packets and of replies.
    outputs: (usize, usize),
    sides: [Side; 2],
    used: Nanos,
    is_guaranteed: bool,
}

/// The signs in a packet of the state of its flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signs {
    pub has_data: bool,
    pub has_finished: bool,
    pub is_reset: bool,
}

impl Signs {
    /// Returns the signs of a packet: its payload, and the flags of TCP.
    pub fn of(p: &Packet) -> Self {
        let Some(h) = ip_header(p) else { return Self::default() };
        let t = &p.data()[h.payload()..h.end()];
        match (h.protocol, t.get(12..14)) {
            (6, Some(fields)) => Self {
                has_data: t.len() > usize::from(fields[0] >> 4) * 4,
                has_finished: fields[1] & 1 != 0,
                is_reset: fields[1] & 4 != 0,
            },
            _ => Self { has_data: true, ..Self::default() },
        }
    }
}

pub struct Flows {
    /// The entry of each direction, and whether it is that of replies.
    map: HashMap<Flow, (u64, bool)>,
    entries: HashMap<u64, Entry>,
    next: u64,
    /// The times at which entries lose their guarantee, and at which the others end.
    guaranteed: BTreeSet<(Nanos, u64)>,
    ending: BTreeSet<(Nanos, u64)>,
    pub capacity: usize,
    tcp: Timeouts,
    other: Timeouts,
}

impl Flows {
    pub fn new(capacity: usize, tcp: Timeouts, other: Timeouts) -> Self {
        Self {
            map: HashMap::new(),
            entries: HashMap::new(),
            next: 0,
            guaranteed: BTreeSet::new(),
            ending: BTreeSet::new(),
            capacity,
            tcp,
            other,
        }
    }

    /// Returns how many directions of flows are mapped.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns all mappings: a flow, what it becomes, and its output.
    pub fn mappings(&self) -> impl Iterator<Item = (Flow, Flow, usize)> {
        self.entries
            .values()
            .flat_map(|e| [(e.from, e.to, e.outputs.0), (e.to.reverse(), e.from.reverse(), e.outputs.1)])
    }

    fn timeouts(&self, e: &Entry) -> Timeouts {
        if e.from.protocol == 6 { self.tcp } else { self.other }
    }

    fn end(&self, e: &Entry) -> Nanos {
        let t = self.timeouts(e);
        let after = match e.sides {
            [a, b] if a.has_finished && b.has_finished => t.done,
            [a, b] if a.has_data && b.has_data => t.both,
            _ => t.start,
        };
        e.used + after
    }

    fn key(&self, e: &Entry, id: u64) -> (Nanos, u64) {
        let time = if e.is_guaranteed { e.used + self.timeouts(e).guarantee } else { self.end(e) };
        (time, id)
    }

    /// Puts an entry that was just used in its order.
    fn place(&mut self, id: u64, mut e: Entry) {
        e.is_guaranteed = self.timeouts(&e).guarantee.0 > 0;
        let key = self.key(&e, id);
        if e.is_guaranteed {
            self.guaranteed.insert(key)
        } else {
            self.ending.insert(key)
        };
        self.entries.insert(id, e);
    }

    /// Takes an entry out of its order.
    fn take(&mut self, id: u64) -> Option<Entry> {
        let e = self.entries.remove(&id)?;
        let key = self.key(&e, id);
        if e.is_guaranteed {
            self.guaranteed.remove(&key)
        } else {
            self.ending.remove(&key)
        };
        Some(e)
    }

    fn remove(&mut self, id: u64) {
        if let Some(e) = self.take(id) {
            for flow in [e.from, e.to.reverse()] {
                if self.map.get(&flow).is_some_and(|(other, _)| *other == id) {
                    self.map.remove(&flow);
                }
            }
        }
    }

    /// Finds what a flow becomes, and its output. The flow is used now.
    pub fn find(&mut self, flow: Flow, now: Nanos, signs: Signs) -> Option<(Flow, usize)> {
        let (id, is_reply) = *self.map.get(&flow)?;
        if self.entries.get(&id).is_none_or(|e| self.end(e) <= now) {
            self.remove(id);
            return None;
        }
        let mut e = self.take(id)?;
        e.used = now;
        let side = &mut e.sides[usize::from(is_reply)];
        side.has_data |= signs.has_data;
        side.has_finished |= signs.has_finished;
        if signs.is_reset {
            e.sides.iter_mut().for_each(|s| s.has_finished = true);
        }
        let found = match is_reply {
            false => (e.to, e.outputs.0),
            true => (e.from.reverse(), e.outputs.1),
        };
        self.place(id, e);
        Some(found)
    }

    /// Returns what a flow becomes, unless it has ended. It is not used by that.
    pub fn peek(&self, flow: Flow, now: Nanos) -> Option<Flow> {
        let (id, is_reply) = self.map.get(&flow)?;
        let e = self.entries.get(id).filter(|e| self.end(e) > now)?;
        Some(if *is_reply { e.from.reverse() } else { e.to })
    }

    /// Adds a flow. Returns false if all flows of a full table are guaranteed.
    pub fn insert(
        &mut self,
        from: Flow,
        to: Flow,
        outputs: (usize, usize),
        now: Nanos,
        signs: Signs,
    ) -> bool {
        while self.entries.len() >= self.capacity.max(1) {
            self.end_guarantees(now);
            let Some(&(_, id)) = self.ending.first() else { return false };
            self.remove(id);
        }
        // An entry that has these flows ends, if there is one.
        for flow in [from, to.reverse()] {
            if let Some((id, _)) = self.map.get(&flow).copied() {
                self.remove(id);
            }
        }
        let id = self.next;
        self.next += 1;
        self.map.insert(to.reverse(), (id, true));
        self.map.insert(from, (id, false));
        let first = Side { has_data: signs.has_data, has_finished: signs.has_finished || signs.is_reset };
        let sides = [first, Side { has_data: false, has_finished: signs.is_reset }];
        self.place(id, Entry { from, to, outputs, sides, used: now, is_guaranteed: false });
        true
    }

    fn end_guarantees(&mut self, now: Nanos) {
        while let Some(&(time, id)) = self.guaranteed.first()
            && time <= now
        {
            let Some(mut e) = self.take(id) else { break };
            e.is_guaranteed = false;
            let key = self.key(&e, id);
            self.ending.insert(key);
            self.entries.insert(id, e);
        }
    }

    /// Removes the flows that have ended.
    pub fn reap(&mut self, now: Nanos) {
        self.end_guarantees(now);
        while let Some(&(time, id)) = self.ending.first()
            && time <= now
        {
            self.remove(id);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::new(self.capacity, self.tcp, self.other);
    }

    /// Takes over the flows of another table, as many as there is room for: those that end last. Flows that
    /// are here already stay as they are.
    pub fn take_over(&mut self, old: &mut Self) {
        let mut all: Vec<(Nanos, Entry)> = old.entries.drain().map(|(_, e)| (self.end(&e), e)).collect();
        old.clear();
        all.sort_by_key(|(end, _)| std::cmp::Reverse(*end));
        for (_, e) in all {
            let is_here = self.map.contains_key(&e.from) || self.map.contains_key(&e.to.reverse());
            if is_here || self.entries.len() >= self.capacity {
                continue;
            }
            let id = self.next;
            self.next += 1;
            self.map.insert(e.to.reverse(), (id, true));
            self.map.insert(e.from, (id, false));
            self.place(id, e);
        }
    }
}
