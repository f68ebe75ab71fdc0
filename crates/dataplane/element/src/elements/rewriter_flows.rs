//! The flows of a rewriter: its table, and when flows end.
//!
//! A flow is guaranteed for a short time after each of its packets, then kept as long as its timeout allows.
//! If there is no room for more, the flow that would end first and is not guaranteed any more is removed.

use super::util::{be16, ip_header};
use crate::runtime::packet::Packet;
use flame_click::{Ip, Nanos};
use std::collections::{BTreeSet, HashMap};

/// (protocol, source, port, destination, port). Ports are 0 where only addresses count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    pub protocol: u8,
    /// Whether it is one of ICMP echo replies. The requests in the same direction are another flow.
    pub is_echo_reply: bool,
    pub src: (Ip, u16),
    pub dst: (Ip, u16),
}

/// Types of ICMP.
pub const ECHO_REPLY: u8 = 0;
pub const ECHO: u8 = 8;

impl Flow {
    /// Returns a flow of other packets than echo replies.
    pub fn new(protocol: u8, src: (Ip, u16), dst: (Ip, u16)) -> Self {
        Self { protocol, is_echo_reply: false, src, dst }
    }

    pub fn reverse(self) -> Self {
        let is_echo_reply = self.protocol == 1 && !self.is_echo_reply;
        Self { is_echo_reply, src: self.dst, dst: self.src, ..self }
    }

    /// Returns the flow of an ICMP echo request or reply, whose ports are its identifier.
    pub fn of_echo(p: &Packet) -> Option<Self> {
        let h = ip_header(p)?;
        // Behind the end there is padding of the link.
        let t = &p.data()[h.payload()..h.end()];
        if h.protocol != 1 || !h.is_first_fragment() || t.len() < 8 || !matches!(t[0], ECHO_REPLY | ECHO) {
            return None;
        }
        let id = be16(t, 4);
        let flow = Self::new(1, (h.source, id), (h.destination, id));
        Some(Self { is_echo_reply: t[0] == ECHO_REPLY, ..flow })
    }

    /// Returns the flow of a TCP or UDP packet that has ports.
    pub fn of(p: &Packet) -> Option<Self> {
        let h = ip_header(p)?;
        let t = &p.data()[h.payload()..h.end()];
        if !matches!(h.protocol, 6 | 17) || !h.is_first_fragment() || t.len() < 8 {
            return None;
        }
        Some(Self::new(h.protocol, (h.source, be16(t, 0)), (h.destination, be16(t, 2))))
    }
}

/// The lifetimes of flows after their last packet.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// The lifetime until a TCP connection has data in both directions, and until another flow has three
    /// packets, not all in one direction.
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

/// The packets after which a flow other than a TCP connection may be kept for longer.
const STREAM: u8 = 3;

/// The treatment of a flow by a rewriter.
#[derive(Clone, Copy, Debug)]
pub struct Rewriting {
    /// The flow as it comes, and as it leaves.
    pub from: Flow,
    pub to: Flow,
    /// The outputs of packets and of replies.
    pub outputs: (usize, usize),
    /// The input at which it came first.
    pub input: usize,
    /// The annotation that replies get.
    pub reply_anno: u8,
}

impl Rewriting {
    /// Returns what becomes of a packet, or of a reply.
    fn apply(&self, is_reply: bool) -> Found {
        match is_reply {
            false => Found { to: self.to, output: self.outputs.0, reply_anno: None },
            true => {
                Found { to: self.from.reverse(), output: self.outputs.1, reply_anno: Some(self.reply_anno) }
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    rewriting: Rewriting,
    sides: [Side; 2],
    /// The number of its packets, at most [`STREAM`].
    packets: u8,
    used: Nanos,
    is_guaranteed: bool,
}

/// The fate of a packet of a known flow.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub to: Flow,
    pub output: usize,
    /// The annotation of a reply.
    pub reply_anno: Option<u8>,
}

/// A direction of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    pub from: Flow,
    pub to: Flow,
    pub is_reply: bool,
    pub outputs: (usize, usize),
    pub input: usize,
    /// The time at which it ends without another packet.
    pub end: Nanos,
}

/// The signs in a packet of the state of its flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signs {
    pub has_data: bool,
    /// The packet opens a connection.
    pub has_begun: bool,
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
                has_begun: fields[1] & 2 != 0,
                has_finished: fields[1] & 1 != 0,
                is_reset: fields[1] & 4 != 0,
            },
            _ => Self::PACKET,
        }
    }

    /// Those of any packet but one of TCP.
    const PACKET: Self = Self { has_data: true, has_begun: false, has_finished: false, is_reset: false };
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
    /// The lifetimes of TCP connections, if they are not flows like others.
    tcp: Option<Timeouts>,
    other: Timeouts,
}

impl Flows {
    pub fn new(capacity: usize, tcp: Option<Timeouts>, other: Timeouts) -> Self {
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

    /// Returns how many flows there are.
    pub fn size(&self) -> usize {
        self.entries.len()
    }

    /// Returns how many flows came first at an input.
    pub fn count(&self, input: usize) -> usize {
        self.entries.values().filter(|e| e.rewriting.input == input).count()
    }

    /// Returns the mappings of both directions of all flows.
    pub fn mappings(&self) -> impl Iterator<Item = Mapping> {
        let both = self.entries.iter().flat_map(|(id, e)| [(*id, e, false), (*id, e, true)]);
        let all = both.map(move |(id, e, is_reply)| {
            let Rewriting { from, to, outputs, input, .. } = e.rewriting;
            let (from, to) = if is_reply { (to.reverse(), from.reverse()) } else { (from, to) };
            (id, Mapping { from, to, is_reply, outputs, input, end: self.end(e) })
        });
        // Those of a flow that is its own reverse are one.
        all.filter(move |(id, m)| self.map.get(&m.from) == Some(&(*id, m.is_reply))).map(|(_, m)| m)
    }

    fn tcp(&self, flow: Flow) -> Option<Timeouts> {
        self.tcp.filter(|_| flow.protocol == 6)
    }

    fn timeouts(&self, flow: Flow) -> Timeouts {
        self.tcp(flow).unwrap_or(self.other)
    }

    fn end(&self, e: &Entry) -> Nanos {
        let t = self.timeouts(e.rewriting.from);
        let is_long = self.tcp(e.rewriting.from).is_some() || e.packets >= STREAM;
        let after = match e.sides {
            [a, b] if a.has_finished && b.has_finished => t.done,
            [a, b] if a.has_data && b.has_data && is_long => t.both,
            _ => t.start,
        };
        // Its guarantee may be longer than its lifetime.
        e.used + after.max(t.guarantee)
    }

    fn key(&self, e: &Entry, id: u64) -> (Nanos, u64) {
        let time =
            if e.is_guaranteed { e.used + self.timeouts(e.rewriting.from).guarantee } else { self.end(e) };
        (time, id)
    }

    /// Puts an entry that was just used in its order.
    fn place(&mut self, id: u64, mut e: Entry) {
        e.is_guaranteed = self.timeouts(e.rewriting.from).guarantee.0 > 0;
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
            for flow in [e.rewriting.from, e.rewriting.to.reverse()] {
                if self.map.get(&flow).is_some_and(|(other, _)| *other == id) {
                    self.map.remove(&flow);
                }
            }
        }
    }

    /// Returns the signs of a packet that count for its flow.
    fn signs(&self, flow: Flow, signs: Signs) -> Signs {
        self.tcp(flow).map_or(Signs::PACKET, |_| signs)
    }

    /// Finds what becomes of a packet. Its flow is used now.
    pub fn find(&mut self, flow: Flow, now: Nanos, signs: Signs) -> Option<Found> {
        let (id, is_reply) = *self.map.get(&flow)?;
        if self.entries.get(&id).is_none_or(|e| self.end(e) <= now) {
            self.remove(id);
            return None;
        }
        let mut e = self.take(id)?;
        let signs = self.signs(flow, signs);
        e.used = now;
        e.packets = STREAM.min(e.packets + 1);
        let side = &mut e.sides[usize::from(is_reply)];
        side.has_data |= signs.has_data;
        if signs.is_reset {
            e.sides.iter_mut().for_each(|s| s.has_finished = true);
        } else if signs.has_finished {
            side.has_finished = true;
        } else if signs.has_begun || signs.has_data {
            // The connection is opened again, or a reset that ended it was forged.
            side.has_finished = false;
        }
        let found = e.rewriting.apply(is_reply);
        self.place(id, e);
        Some(found)
    }

    /// Returns what becomes of a packet of a flow, unless that has ended. It is not used by that.
    pub fn peek(&self, flow: Flow, now: Nanos) -> Option<Found> {
        let (id, is_reply) = self.map.get(&flow)?;
        let e = self.entries.get(id).filter(|e| self.end(e) > now)?;
        Some(e.rewriting.apply(*is_reply))
    }

    /// Returns whether a flow whose replies are `replies` may take the place of the one that has them now, if
    /// there is one. That had become the same, and is not guaranteed any more: the sender of a packet ends
    /// no flow that is in use, nor one whose own packets look like the replies.
    pub fn may_replace(&self, replies: Flow, now: Nanos) -> bool {
        let Some((id, is_reply)) = self.map.get(&replies) else { return true };
        let Some(e) = self.entries.get(id).filter(|e| self.end(e) > now) else { return true };
        *is_reply && e.used + self.timeouts(e.rewriting.from).guarantee <= now
    }

    /// Removes the flows in whose place one would come.
    pub fn make_way(&mut self, from: Flow, to: Flow) {
        for flow in [from, to.reverse()] {
            if let Some((id, _)) = self.map.get(&flow).copied() {
                self.remove(id);
            }
        }
    }

    /// Returns when a new flow would end if it were removed like others. None if it is guaranteed.
    pub fn end_of_new(&self, flow: Flow, now: Nanos) -> Option<Nanos> {
        let t = self.timeouts(flow);
        (t.guarantee.0 <= 0).then(|| now + t.start)
    }

    /// Returns when the flow that makes room first ends, or loses its guarantee, and whether it has one.
    /// Those without a guarantee come first.
    pub fn first(&mut self, now: Nanos) -> Option<(bool, Nanos)> {
        self.end_guarantees(now);
        let ending = self.ending.first().map(|(time, _)| (false, *time));
        ending.or_else(|| self.guaranteed.first().map(|(time, _)| (true, *time)))
    }

    /// Removes the flow that makes room first.
    pub fn remove_first(&mut self) {
        if let Some((_, id)) = self.ending.first().or_else(|| self.guaranteed.first()).copied() {
            self.remove(id);
        }
    }

    /// Removes all flows that came first at an input.
    pub fn remove_of(&mut self, input: usize) {
        let those = self.entries.iter().filter(|(_, e)| e.rewriting.input == input);
        let ids: Vec<u64> = those.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    /// Adds a flow.
    pub fn insert(&mut self, rewriting: Rewriting, now: Nanos, signs: Signs) {
        let signs = self.signs(rewriting.from, signs);
        let first = Side { has_data: signs.has_data, has_finished: signs.has_finished || signs.is_reset };
        let sides = [first, Side { has_data: false, has_finished: signs.is_reset }];
        self.add(Entry { rewriting, sides, packets: 1, used: now, is_guaranteed: false });
    }

    fn add(&mut self, e: Entry) {
        let id = self.next;
        self.next += 1;
        self.map.insert(e.rewriting.from, (id, false));
        // A flow that is its own reverse continues as a reply.
        self.map.insert(e.rewriting.to.reverse(), (id, true));
        self.place(id, e);
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
        let all = old.entries.drain().map(|(id, e)| (self.end(&e), id, e));
        let mut all: Vec<(Nanos, u64, Entry)> = all.collect();
        old.clear();
        let is_here =
            |e: &Entry| [e.rewriting.from, e.rewriting.to.reverse()].iter().any(|f| self.map.contains_key(f));
        all.retain(|(.., e)| !is_here(e));
        // Of flows that end at the same time, those that began first make room first, here as well.
        all.sort_unstable_by_key(|(end, id, _)| (*end, *id));
        let room = self.capacity.saturating_sub(self.entries.len());
        let surplus = all.len().saturating_sub(room);
        all.into_iter().skip(surplus).for_each(|(.., e)| self.add(e));
    }
}
