//! FromDump(FILE, STOP, ACTIVE, TIMING, FORCE_IP): makes packets from a capture (pcap, pcapng, compressed).
//! Expects: nothing.
//! Gives: the packets with their times. IP headers of Ethernet and raw captures are marked.
//! Handlers: active (rw), count, scheduled.
//! Example: `FromDump(in.pcap, STOP true) -> q`
//!
//! ToDump(FILE, SNAPLEN, ENCAP): writes a capture in pcap format. ENCAP is ETHER (1) or IP.
//! Expects: anything.
//! Gives: the same packets, if its output is connected.
//! Handlers: count.
//! Example: `q -> ToDump(out.pcap)`

use super::output::Output;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element, Notice};
use crate::runtime::packet::{ANNO_EXTRA_LENGTH, Batch, HEADROOM, Packet, TAILROOM};
use crate::runtime::signal::Signal;
use flame_click::Nanos;
use flame_click::value::boolean;
use flame_source::{FileOptions, Next, RawBlock, Source};
use std::cell::{Cell, RefCell};

const SOURCE: &str = include_str!("dump.rs");

struct Reader {
    source: Box<dyn Source>,
    block: RawBlock,
    at: usize,
}

struct FromDump {
    file: String,
    stop: bool,
    is_active: Cell<bool>,
    is_done: Cell<bool>,
    timing: bool,
    force_ip: bool,
    shift: Cell<Option<Nanos>>,
    reader: RefCell<Option<Reader>>,
    waiting: RefCell<Option<Packet>>,
    count: Cell<u64>,
    signal: RefCell<Signal>,
}

impl FromDump {
    fn next(&self, cx: &Cx<'_>) -> Option<Packet> {
        if !self.is_active.get() || self.is_done.get() {
            return None;
        }
        let mut reader = self.reader.borrow_mut();
        let r = reader.as_mut()?;
        loop {
            if let Some(raw) = r.block.packets.get(r.at) {
                r.at += 1;
                let (start, length) = (raw.offset as usize, raw.cap_len as usize);
                let Some(bytes) = r.block.data.get(start..start + length) else { continue };
                let mut p = Packet::with_room(HEADROOM, length, TAILROOM);
                p.data_mut().copy_from_slice(bytes);
                p.anno.time = Nanos(i64::try_from(raw.ts_ns).unwrap_or(i64::MAX));
                p.anno.set_u32(ANNO_EXTRA_LENGTH, raw.wire_len.saturating_sub(raw.cap_len));
                let is_ethernet = raw.link == flame_source_ethernet();
                let at = if is_ethernet { 14 } else { 0 };
                if is_ethernet {
                    p.set_link(0);
                }
                let is_ip = p.data().get(at).is_some_and(|b| b >> 4 == 4)
                    && (!is_ethernet || super::util::be16(p.data(), 12) == 0x0800);
                if is_ip {
                    super::util::mark_ip(&mut p, at);
                    let dst = flame_click::Ip(super::util::be32(p.data(), at + 16));
                    p.anno.set_dst_ip(dst);
                    if self.force_ip {
                        p.strip(at);
                    }
                } else if self.force_ip {
                    continue;
                }
                add(&self.count, 1);
                cx.made(1);
                return Some(p);
            }
            r.at = 0;
            match r.source.next(&mut r.block) {
                Ok(Next::Packets) => {}
                Ok(Next::Idle) => return None,
                Ok(Next::End) => break,
                Err(e) => {
                    cx.error(&e.to_string());
                    break;
                }
            }
        }
        for d in r.source.damage() {
            cx.error(&format!("{}: damaged at byte {}: {}", d.file, d.offset, d.reason));
        }
        drop(reader);
        self.is_done.set(true);
        cx.set_filled(false);
        if self.stop {
            cx.router.please_stop();
        }
        None
    }
}

impl Element for FromDump {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        let source = flame_source::open(&[self.file.clone().into()], &FileOptions::default());
        let source = source.map_err(|e| e.to_string())?;
        *self.reader.borrow_mut() = Some(Reader { source, block: RawBlock::default(), at: 0 });
        match cx.router.nodes[cx.me].outputs[0].is_push {
            true => {
                *self.signal.borrow_mut() = cx.downstream_signal(0);
                cx.reschedule();
            }
            false => cx.set_filled(self.is_active.get()),
        }
        Ok(())
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        if !self.signal.borrow().is_active(cx.router) {
            return false;
        }
        let waiting = self.waiting.take();
        let Some(p) = waiting.or_else(|| self.next(cx)) else { return false };
        if self.timing {
            let now = cx.now();
            let shift = self.shift.get().unwrap_or(now - p.anno.time);
            self.shift.set(Some(shift));
            if p.anno.time + shift > now {
                cx.timer_at(0, p.anno.time + shift);
                *self.waiting.borrow_mut() = Some(p);
                return false;
            }
        }
        cx.push_one(0, p);
        cx.reschedule();
        true
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        cx.reschedule();
    }

    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        for _ in 0..max {
            let waiting = self.waiting.take();
            match waiting.or_else(|| self.next(cx)) {
                Some(p) => out.push(p),
                None => return cx.set_filled(false),
            }
        }
    }

    fn notice(&self, _: usize) -> Notice {
        Notice::Own
    }
    fn held(&self) -> usize {
        usize::from(self.waiting.borrow().is_some())
    }
    /// The packet that waits for its time comes next.
    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        if let Some(p) = old.waiting.take() {
            self.shift.set(old.shift.get());
            if let Some(p) = self.waiting.replace(Some(p)) {
                cx.drop("replaced", p);
            }
        }
        if cx.router.nodes[cx.me].outputs[0].is_push {
            cx.reschedule();
        }
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        match name {
            "count" => Some(Ok(self.count.get().to_string())),
            "active" => Some(Ok(self.is_active.get().to_string())),
            _ => None,
        }
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        (name == "active").then(|| {
            let active = boolean(value).ok_or_else(|| format!("expected true or false, found '{value}'"))?;
            self.is_active.set(active);
            match cx.router.nodes[cx.me].outputs[0].is_push {
                true => cx.reschedule(),
                false => cx.set_filled(active && !self.is_done.get()),
            }
            Ok(())
        })
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("active", "rw"), ("count", "r"), ("scheduled", "r")]
    }
}

/// The link type of Ethernet.
fn flame_source_ethernet() -> flame_abi::LinkType {
    flame_abi::LinkType::ETHERNET
}

class!(
    FROM_DUMP,
    "FromDump",
    "0/1",
    "a/a",
    ["FILENAME", "STOP", "ACTIVE", "TIMING", "FORCE_IP"],
    |args, _| {
        let file = args.req("FILENAME");
        let timing = args.opt("TIMING").unwrap_or(false);
        Box::new(FromDump {
            file,
            timing,
            stop: args.key("STOP").unwrap_or(false),
            is_active: Cell::new(args.key("ACTIVE").unwrap_or(true)),
            is_done: Cell::new(false),
            force_ip: args.key("FORCE_IP").unwrap_or(false),
            shift: Cell::new(None),
            reader: RefCell::default(),
            waiting: RefCell::default(),
            count: Cell::new(0),
            signal: RefCell::default(),
        })
    }
);

struct ToDump {
    out: Output,
    snaplen: usize,
    /// Whether bytes that a capture has cut off count as bytes on the wire.
    extra_length: bool,
    count: Cell<u64>,
    signal: RefCell<Signal>,
}

impl ToDump {
    fn write_packet(&self, p: &Packet) -> std::io::Result<()> {
        let bytes = &p.data()[..p.len().min(self.snaplen)];
        let time = p.anno.time.0.max(0);
        for word in [
            (time / 1_000_000_000) as u32,
            (time % 1_000_000_000) as u32,
            bytes.len() as u32,
            if self.extra_length { super::ipprint::wire_length(p) } else { p.len() } as u32,
        ] {
            self.out.write(&word.to_le_bytes())?;
        }
        self.out.write(bytes)
    }
}

impl Element for ToDump {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        self.out.open()?;
        if cx.outputs() == 0 && !cx.router.nodes[cx.me].inputs[0].is_push {
            *self.signal.borrow_mut() = cx.upstream_signal(0);
            cx.reschedule();
        }
        Ok(())
    }

    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        if let Err(e) = self.write_packet(&p) {
            cx.error(&format!("{}: {e}", self.out.name));
        }
        add(&self.count, 1);
        if cx.outputs() > 0 {
            return Some(p);
        }
        cx.drop("written", p);
        None
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        let mut batch = Batch::default();
        cx.pull(0, 32, &mut batch);
        let is_busy = !batch.is_empty();
        for p in batch.drain(..) {
            self.action(cx, p);
        }
        if is_busy || self.signal.borrow().is_active(cx.router) {
            cx.reschedule();
        }
        is_busy
    }

    fn cleanup(&self, cx: &Cx<'_>) {
        if let Err(e) = self.out.close() {
            cx.error(&format!("{}: {e}", self.out.name));
        }
    }
    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        if let Err(e) = self.out.take_over(&old.out) {
            cx.error(&format!("{}: {e}", old.out.name));
        }
        self.count.set(old.count.get());
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "count").then(|| Ok(self.count.get().to_string()))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("count", "r")]
    }
}

class!(
    TO_DUMP,
    "ToDump",
    "1/0-1",
    "a/a",
    ["FILENAME", "SNAPLEN", "ENCAP", "EXTRA_LENGTH", "NANO", "USE_ENCAP_FROM"],
    |args, _| {
        let file = args.req("FILENAME");
        let snaplen: u32 = args.opt("SNAPLEN").unwrap_or(0);
        let link = match args.opt::<String>("ENCAP").as_deref() {
            None | Some("ETHER" | "1") => 1,
            Some("IP" | "12" | "101") => 101,
            Some(other) => {
                args.error(format!("ENCAP: expected ETHER or IP, found '{other}'"));
                1
            }
        };
        args.ignore::<bool>("NANO");
        let extra_length = args.key("EXTRA_LENGTH").unwrap_or(true);
        let snaplen = if snaplen == 0 { 262_144 } else { snaplen };
        // pcap with nanoseconds.
        let header = [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, snaplen, link];
        Box::new(ToDump {
            out: Output::new(file, header.iter().flat_map(|word| word.to_le_bytes()).collect()),
            snaplen: snaplen as usize,
            extra_length,
            count: Cell::new(0),
            signal: RefCell::default(),
        })
    }
);
