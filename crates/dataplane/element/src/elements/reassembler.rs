//! IPReassembler(HIMEM): joins fragments again. It holds at most 1,024 datagrams of at most 512 fragments,
//! in buffers of at most HIMEM bytes (262144), or one larger fragment. A buffer has at least 2,048 bytes.
//! The oldest datagram makes room. A datagram is given up after 30 s, by the clock or by the times of
//! packets: two fragments whose times are so far apart are not joined. Of bytes that came twice, those that
//! came first stay. A fragment fills what is missing, and is dropped as `overlapping fragment` if it brings
//! nothing. Fragments that a capture cut are dropped as `truncated`. A whole packet has the time of the
//! fragment that completed it.
//! Expects: packets with marked IP headers.
//! Gives: 0: whole packets; 1, if connected: the first fragments of datagrams that were given up.
//! Handlers: none.
//! Example: `CheckIPHeader -> IPReassembler -> next`

use super::util::{be16, ip_header, put16, set_ip_checksum};
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_EXTRA_LENGTH, Batch, Packet};
use flame_click::Nanos;
use flame_click::time::SECOND;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

const SOURCE: &str = include_str!("reassembler.rs");

/// The bytes of a datagram that are missing at its end, as long as the last fragment has not come.
const OPEN: usize = usize::MAX;

/// The fragments of a datagram that have come.
struct Datagram {
    age: Age,
    /// The earliest and the latest of the times of its fragments, if one has a time.
    times: Option<(Nanos, Nanos)>,
    /// All of them, in the order in which they came.
    parts: Vec<Packet>,
    /// (first byte, byte after the last, part that has them); no two overlap.
    pieces: Vec<(usize, usize, usize)>,
    /// (first byte, byte after the last) of what is missing, in order (RFC 815).
    holes: Vec<(usize, usize)>,
    end: Option<usize>,
}

impl Datagram {
    fn new(age: Age) -> Self {
        Self { age, times: None, parts: Vec::new(), pieces: Vec::new(), holes: vec![(0, OPEN)], end: None }
    }

    /// Returns whether a fragment of this time is of another datagram with the same identification.
    fn is_apart(&self, time: Option<Nanos>) -> bool {
        let Some(((earliest, latest), time)) = self.times.zip(time) else { return false };
        time.max(latest).0.abs_diff(time.min(earliest).0) >= LIFETIME.0.unsigned_abs()
    }

    /// Returns why a fragment with the bytes from `start` to `end` cannot be added, if that is so.
    fn refuses(&self, start: usize, end: usize, is_last: bool) -> Option<&'static str> {
        let contradicts = match (self.end, self.holes.last()) {
            (Some(e), _) => end > e || is_last && end != e,
            // The open hole begins after all bytes that have come.
            (None, Some((beyond, _))) => is_last && *beyond > end,
            (None, None) => false,
        };
        let is_missing = |(from, to): &(usize, usize)| (*from).max(start) < (*to).min(end);
        match () {
            () if contradicts => Some("bad fragment"),
            () if self.parts.len() >= MOST_PARTS => Some("too many fragments"),
            () if is_last && self.end.is_none() || self.holes.iter().any(is_missing) => None,
            () => Some("overlapping fragment"),
        }
    }

    /// Adds a fragment that is not refused, as far as its bytes are missing.
    fn fill(&mut self, start: usize, end: usize, is_last: bool, p: Packet) {
        if is_last && self.end.is_none() {
            self.end = Some(end);
            if let Some(open) = self.holes.last_mut() {
                open.1 = end;
            }
        }
        let mut holes = Vec::with_capacity(self.holes.len() + 1);
        for (from, to) in self.holes.drain(..) {
            let (first, last) = (from.max(start), to.min(end));
            if first >= last {
                holes.push((from, to));
                continue;
            }
            self.pieces.push((first, last, self.parts.len()));
            holes.extend([(from, first), (last, to)]);
        }
        holes.retain(|(from, to)| from < to);
        self.holes = holes;
        if let Some(time) = time_of(&p) {
            let (earliest, latest) = self.times.unwrap_or((time, time));
            self.times = Some((earliest.min(time), latest.max(time)));
        }
        self.parts.push(p);
    }
}

/// Returns the first byte of a fragment, the byte after its last, and whether it is the last one.
fn place(p: &Packet) -> Option<(usize, usize, bool)> {
    let h = ip_header(p)?;
    Some((h.offset, h.offset + h.total - h.length, !h.has_more))
}

/// Returns the annotation of a packet's time, if that is set.
fn time_of(p: &Packet) -> Option<Nanos> {
    Some(p.anno.time).filter(|time| *time != Nanos::ZERO)
}

type Key = (u32, u32, u16, u8);

/// The times at which the first fragment of a datagram came: by the clock, and by its annotation, if that is
/// set. The clock bounds how long fragments are held, and annotations tell what belongs together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    came: Nanos,
    time: Option<Nanos>,
}

struct Reassembler {
    datagrams: RefCell<HashMap<Key, Datagram>>,
    /// The datagrams, the oldest first.
    ages: RefCell<BTreeSet<(Age, Key)>>,
    /// The bytes of the buffers of all fragments, and how many there may be.
    memory: Cell<usize>,
    most: usize,
}

const MOST_DATAGRAMS: usize = 1024;
const MOST_PARTS: usize = 512;
const LIFETIME: Nanos = Nanos(30 * SECOND);

impl Reassembler {
    fn remove(&self, key: &Key) -> Option<Datagram> {
        let d = self.datagrams.borrow_mut().remove(key)?;
        self.ages.borrow_mut().remove(&(d.age, *key));
        self.memory.set(self.memory.get() - d.parts.iter().map(|p| p.memory()).sum::<usize>());
        Some(d)
    }

    /// Gives up a datagram. Its first fragment goes to those that leave by output 1, for an answer. They do
    /// so when the work is done, since output 1 may lead back to the input.
    fn give_up(&self, cx: &Cx<'_>, key: &Key, cause: &'static str, given_up: &mut Vec<Packet>) {
        let Some(d) = self.remove(key) else { return };
        let first = d.pieces.iter().find(|(start, ..)| *start == 0).map(|(.., part)| *part);
        for (i, p) in d.parts.into_iter().enumerate() {
            match first == Some(i) && cx.outputs() > 1 {
                true => given_up.push(p),
                false => cx.drop(cause, p),
            }
        }
    }

    /// Sends what was given up by output 1. Most packets give up none, and so take no batch.
    fn answer(cx: &Cx<'_>, given_up: Vec<Packet>) {
        if !given_up.is_empty() {
            let mut batch = Batch::default();
            batch.extend(given_up);
            cx.push(1, batch);
        }
    }

    fn oldest(&self) -> Option<(Age, Key)> {
        self.ages.borrow().first().copied()
    }

    /// Gives up what is too old at the time of a fragment, and a datagram that it would join although their
    /// times are far apart, in whichever order.
    fn give_up_old(&self, cx: &Cx<'_>, key: &Key, time: Nanos, given_up: &mut Vec<Packet>) {
        while let Some((Age { time: Some(since), .. }, oldest)) = self.oldest()
            && time - since >= LIFETIME
        {
            self.give_up(cx, &oldest, "timeout", given_up);
        }
        if self.datagrams.borrow().get(key).is_some_and(|d| d.is_apart(Some(time))) {
            self.give_up(cx, key, "timeout", given_up);
        }
    }

    /// Returns why a fragment cannot be added to its datagram, if that is so.
    fn refuses(&self, key: &Key, p: &Packet, time: Option<Nanos>) -> Option<&'static str> {
        let Some((start, end, is_last)) = place(p) else { return Some("not IP") };
        let all = self.datagrams.borrow();
        let d = all.get(key)?;
        if d.is_apart(time) { Some("timeout") } else { d.refuses(start, end, is_last) }
    }

    /// Returns whether others must make room for a fragment in buffers of `memory` bytes.
    fn lacks_room(&self, key: &Key, memory: usize) -> bool {
        let all = self.datagrams.borrow();
        let is_one_too_many = all.len() >= MOST_DATAGRAMS && !all.contains_key(key);
        !all.is_empty() && (self.memory.get() + memory > self.most || is_one_too_many)
    }

    /// Drops the oldest datagrams, here or there, until there is room here for the others. One fragment stays
    /// however large it is.
    fn make_room_for_all(&self, cx: &Cx<'_>, old: &Self) {
        let count = |r: &Self| r.datagrams.borrow().len();
        let is_full = || self.memory.get() + old.memory.get() > self.most;
        while self.held() + old.held() > 1 && (is_full() || count(self) + count(old) > MOST_DATAGRAMS) {
            let (here, there) = (self.oldest(), old.oldest());
            let is_here = here.is_some_and(|(age, _)| there.is_none_or(|(other, _)| age <= other));
            let oldest = match is_here {
                true => here.and_then(|(_, key)| self.remove(&key)),
                false => there.and_then(|(_, key)| old.remove(&key)),
            };
            let Some(d) = oldest else { break };
            cx.drop_all("too many fragments", d.parts);
        }
    }

    /// Adds a fragment that is not refused. Returns whether its datagram is complete.
    fn add(&self, key: Key, p: Packet, age: Age) -> bool {
        let Some((start, end, is_last)) = place(&p) else { return false };
        let mut all = self.datagrams.borrow_mut();
        let d = all.entry(key).or_insert_with(|| {
            self.ages.borrow_mut().insert((age, key));
            Datagram::new(age)
        });
        self.memory.set(self.memory.get() + p.memory());
        d.fill(start, end, is_last, p);
        d.holes.is_empty()
    }

    /// Joins the fragments of a complete datagram.
    fn join(&self, cx: &Cx<'_>, mut d: Datagram) -> Option<Packet> {
        d.pieces.sort_unstable();
        let mut bytes = Vec::with_capacity(d.end.unwrap_or(0));
        for (start, end, part) in &d.pieces {
            let p = &d.parts[*part];
            let Some(h) = ip_header(p) else { continue };
            let from = h.payload() + start - h.offset;
            bytes.extend_from_slice(&p.data()[from..from + end - start]);
        }
        let first = d.pieces.first().map_or(0, |(.., part)| *part);
        let header = d.parts.get(first).and_then(ip_header);
        let header = header.filter(|h| h.length + bytes.len() <= usize::from(u16::MAX));
        let Some(h) = header else {
            // The length field of the whole packet could not hold it.
            cx.drop_all("too long", d.parts);
            return None;
        };
        let time = d.parts.last().map(|p| p.anno.time);
        let mut whole = d.parts.swap_remove(first);
        cx.drop_all("joined", d.parts);
        whole.truncate(h.payload());
        whole.extend(bytes.len());
        // What a capture cut off lay after the datagram, since it has all of its bytes.
        whole.anno.set_u32(ANNO_EXTRA_LENGTH, 0);
        whole.anno.time = time.unwrap_or(whole.anno.time);
        let data = &mut whole.data_mut()[h.at..];
        data[h.length..].copy_from_slice(&bytes);
        put16(data, 2, (h.length + bytes.len()) as u16);
        // DF and the reserved bit stay.
        let field = be16(data, 6) & 0xc000;
        put16(data, 6, field);
        set_ip_checksum(data);
        Some(whole)
    }

    /// Takes a packet. Returns it, or the whole one that it completes.
    fn accept(&self, cx: &Cx<'_>, p: Packet, given_up: &mut Vec<Packet>) -> Option<Packet> {
        let Some(h) = ip_header(&p) else {
            cx.drop("not IP", p);
            return None;
        };
        if h.offset == 0 && !h.has_more {
            return Some(p);
        }
        let length = h.stated - h.length;
        if h.has_more && length % 8 != 0 || h.offset + length > 65_515 || length == 0 {
            cx.drop("bad fragment", p);
            return None;
        }
        if h.stated > h.total {
            cx.drop("truncated", p);
            return None;
        }
        let key = (h.source.0, h.destination.0, be16(p.data(), h.at + 4), h.protocol);
        let time = time_of(&p);
        if let Some(time) = time {
            self.give_up_old(cx, &key, time, given_up);
        }
        // Before others make room for it.
        if let Some(cause) = self.refuses(&key, &p, time) {
            cx.drop(cause, p);
            return None;
        }
        while self.lacks_room(&key, p.memory()) {
            let Some((_, oldest)) = self.oldest() else { break };
            self.give_up(cx, &oldest, "too many fragments", given_up);
        }
        if self.datagrams.borrow().is_empty() {
            cx.timer_after(0, LIFETIME);
        }
        match self.add(key, p, Age { came: cx.now(), time }) {
            true => self.remove(&key).and_then(|d| self.join(cx, d)),
            false => None,
        }
    }
}

impl Element for Reassembler {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        let mut given_up = Vec::new();
        let whole = self.accept(cx, p, &mut given_up);
        Self::answer(cx, given_up);
        whole
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        let mut given_up = Vec::new();
        while let Some((Age { came, .. }, key)) = self.oldest() {
            if cx.now() - came < LIFETIME {
                cx.timer_at(0, came + LIFETIME);
                break;
            }
            self.give_up(cx, &key, "timeout", &mut given_up);
        }
        Self::answer(cx, given_up);
    }

    fn held(&self) -> usize {
        self.datagrams.borrow().values().map(|d| d.parts.len()).sum()
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        self.make_room_for_all(cx, old);
        while let Some((age, key)) = old.oldest() {
            for p in old.remove(&key).into_iter().flat_map(|d| d.parts) {
                let has_room = !self.lacks_room(&key, p.memory());
                match self.refuses(&key, &p, age.time).or((!has_room).then_some("too many fragments")) {
                    Some(cause) => cx.drop(cause, p),
                    None => drop(self.add(key, p, age)),
                }
            }
        }
        if let Some((Age { came, .. }, _)) = self.oldest() {
            cx.timer_at(0, came + LIFETIME);
        }
    }
}

class!(IP_REASSEMBLER, "IPReassembler", "1/1-2", "a/ah", ["HIMEM"], |args, _| {
    let most = args.key::<u32>("HIMEM").unwrap_or(256 << 10) as usize;
    Box::new(Reassembler {
        datagrams: RefCell::default(),
        ages: RefCell::default(),
        memory: Cell::new(0),
        most,
    })
});
