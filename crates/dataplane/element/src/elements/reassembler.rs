//! IPReassembler(HIMEM): joins fragments again. It holds at most 1,024 datagrams, each for at most 30 s, in
//! buffers of at most HIMEM bytes (262144). A buffer has at least 2,048 bytes. The oldest datagram makes
//! room.
//! Expects: packets with marked IP headers.
//! Gives: 0: whole packets; 1, if connected: the first fragments of datagrams that were given up.
//! Handlers: none.
//! Example: `CheckIPHeader -> IPReassembler -> next`

use super::util::{be16, ip_header, put16, set_ip_checksum};
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Packet;
use flame_click::Nanos;
use flame_click::time::SECOND;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

const SOURCE: &str = include_str!("reassembler.rs");

/// The fragments of a datagram that have come.
struct Datagram {
    since: Nanos,
    /// (first byte, packet); no two overlap.
    parts: Vec<(usize, Packet)>,
    end: Option<usize>,
}

type Key = (u32, u32, u16, u8);

struct Reassembler {
    datagrams: RefCell<HashMap<Key, Datagram>>,
    /// The datagrams, the oldest first.
    ages: RefCell<BTreeSet<(Nanos, Key)>>,
    /// The bytes of the buffers of all fragments, and how many there may be.
    memory: Cell<usize>,
    most: usize,
}

const MOST_DATAGRAMS: usize = 1024;
const LIFETIME: Nanos = Nanos(30 * SECOND);

impl Reassembler {
    fn remove(&self, key: &Key) -> Option<Datagram> {
        let d = self.datagrams.borrow_mut().remove(key)?;
        self.ages.borrow_mut().remove(&(d.since, *key));
        self.memory.set(self.memory.get() - d.parts.iter().map(|(_, p)| p.memory()).sum::<usize>());
        Some(d)
    }

    /// Gives up a datagram. Its first fragment leaves by output 1, for an answer.
    fn give_up(&self, cx: &Cx<'_>, key: &Key, cause: &'static str) {
        for (start, p) in self.remove(key).into_iter().flat_map(|d| d.parts) {
            match start {
                0 => cx.push_or_drop(1, cause, p),
                _ => cx.drop(cause, p),
            }
        }
    }

    fn oldest(&self) -> Option<(Nanos, Key)> {
        self.ages.borrow().first().copied()
    }

    /// Adds a fragment to its datagram. Returns whether that is complete, or the fragment if it does not fit.
    fn add(&self, key: Key, p: Packet, now: Nanos) -> Result<bool, Packet> {
        let Some(h) = ip_header(&p) else { return Err(p) };
        let mut all = self.datagrams.borrow_mut();
        let d = all.entry(key).or_insert_with(|| {
            self.ages.borrow_mut().insert((now, key));
            Datagram { since: now, parts: Vec::new(), end: None }
        });
        let (start, end) = (h.offset, h.offset + h.total - h.length);
        let overlaps = d.parts.iter().any(|(s, q)| {
            let e = s + ip_header(q).map_or(0, |h| h.total - h.length);
            start < e && *s < end
        });
        let is_beyond =
            d.end.is_some_and(|e| end > e) || !h.has_more && d.parts.iter().any(|(s, _)| *s >= end);
        if overlaps || is_beyond || d.parts.len() >= 512 {
            return Err(p);
        }
        if !h.has_more {
            d.end = Some(end);
        }
        self.memory.set(self.memory.get() + p.memory());
        d.parts.push((start, p));
        let have: usize = d.parts.iter().filter_map(|(_, q)| ip_header(q)).map(|h| h.total - h.length).sum();
        Ok(d.end == Some(have))
    }

    /// Joins the fragments of a complete datagram.
    fn join(&self, cx: &Cx<'_>, mut parts: Vec<(usize, Packet)>) -> Option<Packet> {
        parts.sort_by_key(|(s, _)| *s);
        let lengths = parts.iter().filter_map(|(_, q)| ip_header(q)).map(|h| h.total - h.length);
        let have: usize = lengths.sum();
        let header = parts.first().and_then(|(_, p)| ip_header(p)).map_or(0, |h| h.length);
        if header + have > usize::from(u16::MAX) {
            // The length field of the whole packet could not hold it.
            parts.into_iter().for_each(|(_, p)| cx.drop("too long", p));
            return None;
        }
        let mut parts = parts.into_iter();
        let (_, mut whole) = parts.next()?;
        let first = ip_header(&whole)?;
        whole.truncate(first.end());
        for (_, q) in parts {
            let Some(h) = ip_header(&q) else { continue };
            let old = whole.len();
            let bytes = &q.data()[h.payload()..h.end()];
            whole.extend(bytes.len());
            whole.data_mut()[old..].copy_from_slice(bytes);
            cx.drop("joined", q);
        }
        let data = &mut whole.data_mut()[first.at..];
        put16(data, 2, (first.length + have) as u16);
        let field = be16(data, 6) & 0x4000;
        put16(data, 6, field);
        set_ip_checksum(data);
        Some(whole)
    }
}

impl Element for Reassembler {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        let Some(h) = ip_header(&p) else {
            cx.drop("not IP", p);
            return None;
        };
        if h.offset == 0 && !h.has_more {
            return Some(p);
        }
        let length = h.total - h.length;
        if h.has_more && length % 8 != 0 || h.offset + length > 65_515 || length == 0 {
            cx.drop("bad fragment", p);
            return None;
        }
        let key = (h.source.0, h.destination.0, be16(p.data(), h.at + 4), h.protocol);
        let is_new = !self.datagrams.borrow().contains_key(&key);
        while self.memory.get() + p.memory() > self.most
            || is_new && self.datagrams.borrow().len() >= MOST_DATAGRAMS
        {
            let Some((_, oldest)) = self.oldest() else { break };
            self.give_up(cx, &oldest, "too many fragments");
        }
        if self.datagrams.borrow().is_empty() {
            cx.timer_after(0, LIFETIME);
        }
        match self.add(key, p, cx.now()) {
            Ok(true) => self.remove(&key).and_then(|d| self.join(cx, d.parts)),
            Ok(false) => None,
            Err(p) => {
                cx.drop("overlapping fragment", p);
                None
            }
        }
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        let now = cx.now();
        while let Some((since, key)) = self.oldest() {
            if now - since < LIFETIME {
                return cx.timer_at(0, since + LIFETIME);
            }
            self.give_up(cx, &key, "timeout");
        }
    }

    fn held(&self) -> usize {
        self.datagrams.borrow().values().map(|d| d.parts.len()).sum()
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        while let Some((since, key)) = old.oldest() {
            for (_, p) in old.remove(&key).into_iter().flat_map(|d| d.parts) {
                if self.memory.get() + p.memory() > self.most {
                    cx.drop("too many fragments", p);
                } else if let Err(p) = self.add(key, p, since) {
                    cx.drop("overlapping fragment", p);
                }
            }
        }
        if let Some((since, _)) = self.oldest() {
            cx.timer_at(0, since + LIFETIME);
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
