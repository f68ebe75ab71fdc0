//! IPGWOptions(ADDRESS, OTHERADDRS): processes the options Record Route and Timestamp, as a router does.
//! Expects: packets with marked IP headers.
//! Gives: 0: packets; 1, if connected: packets with bad options, which are otherwise dropped. They are
//! annotated with the place of the fault, which ICMPError reports.
//! Handlers: drops.
//! Example: `gio :: IPGWOptions(18.26.4.24) -> FixIPSrc(18.26.4.24); gio [1] -> ICMPError(18.26.4.24, 12)`
//!
//! IPFragmenter(MTU, HONOR_DF): divides packets longer than MTU. Of a packet that a capture cut, it divides
//! what was captured, if that is longer than MTU: the fragments state the lengths and offsets of the whole
//! packet's, and the last one is cut. With HONOR_DF false, a packet with DF loses it, and gets a random
//! identification unless it is a fragment already.
//! Expects: packets with marked IP headers.
//! Gives: 0: packets and fragments; 1, if connected: packets that may not be divided, which are otherwise
//! dropped.
//! Handlers: drops, fragments.
//! Example: `fr :: IPFragmenter(1500) -> q; fr [1] -> ICMPError(1.0.0.1, unreachable, needfrag, PMTU 1500)`

use super::util::{be16, be32, ip_header, put16, put32, set_ip_checksum};
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_EXTRA_LENGTH, ANNO_ICMP_PARAMPROB, Batch, Packet};
use flame_abi::MAX_BATCH;
use flame_click::{Ip, Value, text};
use std::cell::Cell;

const SOURCE: &str = include_str!("gateway.rs");

struct Options {
    mine: Ip,
    others: Vec<Ip>,
    drops: Cell<u64>,
}

impl Options {
    /// Writes address and time into options. Fails with the place in the IP header of a byte at fault.
    fn process(&self, cx: &Cx<'_>, p: &mut Packet) -> Result<(), usize> {
        let h = ip_header(p).ok_or(0_usize)?;
        let mut changed = false;
        let result = self.write(cx, &mut p.data_mut()[h.at + 20..h.at + h.length], &mut changed);
        // An option at fault may come after others that were written.
        if changed {
            set_ip_checksum(&mut p.data_mut()[h.at..]);
        }
        result
    }

    /// Writes address and time into options, and sets whether they changed, also if it fails.
    fn write(&self, cx: &Cx<'_>, options: &mut [u8], changed: &mut bool) -> Result<(), usize> {
        let mut at = 0;
        while at < options.len() {
            match options[at] {
                0 => break,
                1 => {
                    at += 1;
                    continue;
                }
                _ => {}
            }
            let place = 20 + at;
            let length = usize::from(*options.get(at + 1).ok_or(place)?);
            if length < 2 || at + length > options.len() {
                return Err(place + 1);
            }
            let o = &mut options[at..at + length];
            match o[0] {
                7 => {
                    let pointer = usize::from(*o.get(2).ok_or(place + 1)?);
                    if pointer < 4 || pointer % 4 != 0 {
                        return Err(place + 2);
                    }
                    if pointer <= length {
                        // Full addresses only.
                        let address = o.get_mut(pointer - 1..pointer + 3).ok_or(place + 2)?;
                        address.copy_from_slice(&self.mine.bytes());
                        o[2] += 4;
                        *changed = true;
                    }
                }
                68 => *changed |= self.timestamp(cx, o).map_err(|fault| place + fault)?,
                _ => {}
            }
            at += length;
        }
        Ok(())
    }

    /// Processes a timestamp option. Returns whether it changed. Fails with the place of a byte at fault.
    fn timestamp(&self, cx: &Cx<'_>, o: &mut [u8]) -> Result<bool, usize> {
        if o.len() < 4 {
            return Err(1);
        }
        if o[2] < 5 {
            return Err(2);
        }
        let (pointer, kind) = (usize::from(o[2]) - 1, o[3] & 15);
        let size = if kind == 0 { 4 } else { 8 };
        if pointer >= o.len() {
            // No room: the overflow counter, which must not overflow itself.
            if o[3] >> 4 == 15 {
                return Err(3);
            }
            o[3] += 16;
            return Ok(true);
        }
        if pointer + size > o.len() {
            return Err(2);
        }
        let at = match kind {
            0 => pointer,
            1 => {
                o[pointer..pointer + 4].copy_from_slice(&self.mine.bytes());
                pointer + 4
            }
            3 => {
                let wanted = Ip(be32(o, pointer));
                if wanted != self.mine && !self.others.contains(&wanted) {
                    return Ok(false);
                }
                pointer + 4
            }
            _ => return Err(3),
        };
        let millis = cx.now().0.div_euclid(1_000_000).rem_euclid(86_400_000);
        put32(o, at, millis as u32);
        o[2] += size as u8;
        Ok(true)
    }
}

impl Element for Options {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        if p.network().and_then(|n| p.data().get(n)) == Some(&0x45) {
            return Some(p);
        }
        let Err(place) = self.process(cx, &mut p) else { return Some(p) };
        // A header has at most 60 bytes.
        p.anno.bytes[ANNO_ICMP_PARAMPROB] = place as u8;
        add(&self.drops, 1);
        cx.push_or_drop(1, "bad options", p);
        None
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "drops").then(|| Ok(self.drops.get().to_string()))
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.drops]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("drops", "r")]
    }
}

class!(IP_GW_OPTIONS, "IPGWOptions", "1/1-2", "a/ah", ["MYADDR", "OTHERADDRS"], |args, _| {
    let scope = args.scope();
    let mine = args.req("MYADDR");
    let mut others = Vec::new();
    for word in text::words(&args.opt::<String>("OTHERADDRS").unwrap_or_default()) {
        match Ip::read(&word, &scope) {
            Some(ip) => others.push(ip),
            None => args.error(format!("OTHERADDRS: expected IP addresses, found '{word}'")),
        }
    }
    Box::new(Options { mine, others, drops: Cell::new(0) })
});

struct Fragmenter {
    mtu: usize,
    honor_df: bool,
    drops: Cell<u64>,
    fragments: Cell<u64>,
}

impl Fragmenter {
    /// Adds a packet to those that leave. They do so in parts: the fragments of a batch could fill the
    /// memory.
    fn give(cx: &Cx<'_>, p: Packet, out: &mut Batch) {
        out.push(p);
        if out.len() >= MAX_BATCH {
            cx.push(0, std::mem::take(out));
        }
    }

    fn divide(&self, cx: &Cx<'_>, mut p: Packet, out: &mut Batch) {
        let Some(h) = ip_header(&p) else { return cx.drop("not IP", p) };
        if h.total <= self.mtu {
            return Self::give(cx, p, out);
        }
        let field = be16(p.data(), h.at + 6);
        let first_length = (self.mtu.saturating_sub(h.length)) & !7;
        if self.honor_df && field & 0x4000 != 0 || first_length < 8 {
            add(&self.drops, 1);
            return cx.push_or_drop(1, "needs fragments", p);
        }
        // The header of later fragments has only the options to be copied.
        let mut header = p.data()[h.at..h.at + 20].to_vec();
        let options = &p.data()[h.at + 20..h.at + h.length];
        let mut at = 0;
        while at < options.len() && options[at] != 0 {
            let length = match options[at] {
                1 => 1,
                _ => usize::from(*options.get(at + 1).unwrap_or(&0)),
            };
            if length == 0 || at + length > options.len() || options[at] != 1 && length < 2 {
                break;
            }
            if options[at] & 0x80 != 0 {
                header.extend_from_slice(&options[at..at + length]);
            }
            at += length;
        }
        header.resize(header.len().div_ceil(4) * 4, 0);
        header[0] = 0x40 | (header.len() / 4) as u8;
        let room = (self.mtu.saturating_sub(header.len())) & !7;
        if room == 0 {
            add(&self.drops, 1);
            return cx.push_or_drop(1, "needs fragments", p);
        }
        let payload = p.data()[h.payload()..h.end()].to_vec();
        // A capture may have cut the packet. The rest belongs to the datagram all the same, so no fragment of
        // the captured bytes may claim to end it.
        let whole = h.stated - h.length;
        let base = usize::from(field & 0x1fff);
        if base * 8 + whole > usize::from(u16::MAX) {
            // No datagram is so long, and offsets would begin again at its start.
            return cx.drop("bad fragment", p);
        }
        // DF does not get here unless it is ignored.
        let reserved = field & 0x8000;
        if field & 0x4000 != 0 && field & 0x3fff == 0 {
            // Senders that set DF may give all packets the same identification, with which fragments of
            // different packets would be joined. Those of a datagram in fragments must keep theirs.
            let id = (cx.random(1 << 16) as u16).to_be_bytes();
            header[4..6].copy_from_slice(&id);
            p.data_mut()[h.at + 4..h.at + 6].copy_from_slice(&id);
        }
        let anno = p.anno.clone();
        p.truncate(h.payload() + first_length);
        // What the capture cut off is missing from the last fragment alone: bytes count once.
        p.anno.set_u32(ANNO_EXTRA_LENGTH, 0);
        let data = &mut p.data_mut()[h.at..];
        put16(data, 2, (h.length + first_length) as u16);
        put16(data, 6, reserved | 0x2000 | base as u16);
        set_ip_checksum(data);
        add(&self.fragments, 1);
        Self::give(cx, p, out);
        let mut start = first_length;
        while start < payload.len() {
            let end = (start + room).min(payload.len());
            let mut q = Packet::new(&payload[start..end]);
            q.prepend(&header);
            q.set_network(0, header.len());
            q.anno = anno.clone();
            if end < payload.len() {
                q.anno.set_u32(ANNO_EXTRA_LENGTH, 0);
            }
            let stated_end = (start + room).min(whole);
            let more = if stated_end < whole { 0x2000 } else { field & 0x2000 };
            let data = q.data_mut();
            put16(data, 2, (header.len() + stated_end - start) as u16);
            put16(data, 6, reserved | more | (base + start / 8) as u16);
            set_ip_checksum(data);
            cx.made(1);
            add(&self.fragments, 1);
            Self::give(cx, q, out);
            start = end;
        }
    }
}

impl Element for Fragmenter {
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        let mut out = Batch::default();
        batch.drain(..).for_each(|p| self.divide(cx, p, &mut out));
        cx.push(0, out);
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        match name {
            "drops" => Some(Ok(self.drops.get().to_string())),
            "fragments" => Some(Ok(self.fragments.get().to_string())),
            _ => None,
        }
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.drops, &self.fragments]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("drops", "r"), ("fragments", "r")]
    }
}

class!(
    IP_FRAGMENTER,
    "IPFragmenter",
    "1/1-2",
    "h/h",
    ["MTU", "HONOR_DF", "VERBOSE", "HEADROOM"],
    |args, _| {
        let mtu: u16 = args.req("MTU");
        args.ignore::<bool>("VERBOSE");
        args.ignore::<u32>("HEADROOM");
        if mtu < 28 {
            args.error(format!("MTU: expected at least 28, found {mtu}"));
        }
        Box::new(Fragmenter {
            mtu: mtu.into(),
            honor_df: args.opt("HONOR_DF").unwrap_or(true),
            drops: Cell::new(0),
            fragments: Cell::new(0),
        })
    }
);
