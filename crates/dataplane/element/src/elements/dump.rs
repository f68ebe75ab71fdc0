//! FromDump(FILE, STOP, ACTIVE, TIMING, FORCE_IP): makes packets from a capture (pcap, pcapng, compressed).
//! Expects: nothing.
//! Gives: the packets with their times. IP headers of Ethernet and raw captures are marked.
//! Handlers: active (rw), count, scheduled.
//! Example: `FromDump(in.pcap, STOP true) -> q`
//!
//! ToDump(FILE, SNAPLEN, ENCAP): writes a capture in pcap format. ENCAP is ETHER (1) or IP. Packets without a
//! time get that at which they are written.
//! Expects: anything.
//! Gives: the same packets, if its output is connected.
//! Handlers: count.
//! Example: `q -> ToDump(out.pcap)`

use super::from_file::{FromFile, Options, Reader, Reading};
use super::output::{Output, WRITTEN};
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_EXTRA_LENGTH, Batch, HEADROOM, Packet, TAILROOM};
use crate::runtime::signal::Signal;
use flame_abi::LinkType;
use flame_click::Nanos;
use flame_plan::Audience;
use flame_source::{FileOptions, Next, RawBlock, RawPacket, Source};
use std::cell::{Cell, RefCell};

const SOURCE: &str = include_str!("dump.rs");

struct Opened {
    source: Box<dyn Source>,
    block: RawBlock,
    at: usize,
}

struct Capture {
    file: String,
    force_ip: bool,
    opened: RefCell<Option<Opened>>,
}

impl Capture {
    /// Makes a packet of one of the capture. Returns `None` for a packet that FORCE_IP leaves out.
    fn packet(&self, raw: &RawPacket, bytes: &[u8]) -> Option<Packet> {
        let mut p = Packet::with_room(HEADROOM, bytes.len(), TAILROOM);
        p.data_mut().copy_from_slice(bytes);
        p.anno.time = Nanos(i64::try_from(raw.ts_ns).unwrap_or(i64::MAX));
        p.anno.set_u32(ANNO_EXTRA_LENGTH, raw.wire_len.saturating_sub(raw.cap_len));
        let is_ethernet = raw.link == LinkType::ETHERNET;
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
        }
        (is_ip || !self.force_ip).then_some(p)
    }
}

impl Reader for Capture {
    fn open(&self) -> Result<(), String> {
        let source = flame_source::open(&[self.file.clone().into()], &FileOptions::default());
        let mut source = source.map_err(|e| e.to_string())?;
        // The thread of a quiet pipe has other elements, too.
        source.tell_when_quiet();
        *self.opened.borrow_mut() = Some(Opened { source, block: RawBlock::default(), at: 0 });
        Ok(())
    }

    fn take_over(&self, old: &Self) -> bool {
        let open = if self.file == old.file { old.opened.take() } else { None };
        let goes_on = open.is_some();
        if goes_on {
            *self.opened.borrow_mut() = open;
        }
        goes_on
    }

    fn read(&self, cx: &Cx<'_>) -> Reading {
        let mut opened = self.opened.borrow_mut();
        let Some(r) = opened.as_mut() else { return Reading::End };
        loop {
            while let Some(raw) = r.block.packets.get(r.at) {
                r.at += 1;
                let (start, length) = (raw.offset as usize, raw.cap_len as usize);
                let bytes = r.block.data.get(start..start + length);
                if let Some(p) = bytes.and_then(|bytes| self.packet(raw, bytes)) {
                    return Reading::Packet(p);
                }
            }
            r.at = 0;
            match r.source.next(&mut r.block) {
                Ok(Next::Packets) => {}
                Ok(Next::Idle | Next::Quiet) => return Reading::Idle,
                Ok(Next::End) => break,
                Err(e) => {
                    cx.error(&e.to_string());
                    break;
                }
            }
        }
        for d in r.source.damage() {
            // Who writes a graph sees all of its packets.
            cx.error(&d.text(Audience::Operator));
        }
        Reading::End
    }
}

class!(
    FROM_DUMP,
    "FromDump",
    "0/1",
    "a/a",
    ["FILENAME", "STOP", "ACTIVE", "TIMING", "FORCE_IP"],
    |args, _| {
        let reader = Capture {
            file: args.req("FILENAME"),
            force_ip: args.key("FORCE_IP").unwrap_or(false),
            opened: RefCell::default(),
        };
        let options = Options {
            timing: args.opt("TIMING").unwrap_or(false),
            stop: args.key("STOP").unwrap_or(false),
            active: args.key("ACTIVE").unwrap_or(true),
        };
        Box::new(FromFile::new(reader, options))
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
    fn write_packet(&self, out: &mut Vec<u8>, p: &Packet, now: Nanos) {
        let bytes = &p.data()[..p.len().min(self.snaplen)];
        let time = if p.anno.time == Nanos::ZERO { now } else { p.anno.time }.0.max(0);
        for word in [
            (time / 1_000_000_000) as u32,
            (time % 1_000_000_000) as u32,
            bytes.len() as u32,
            if self.extra_length { super::ipprint::wire_length(p) } else { p.len() } as u32,
        ] {
            out.extend(word.to_le_bytes());
        }
        out.extend(bytes);
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
        let now = cx.now();
        let result = self.out.record(|out| self.write_packet(out, &p, now));
        add(&self.count, 1);
        let given = if cx.outputs() > 0 {
            Some(p)
        } else {
            cx.drop(WRITTEN, p);
            None
        };
        self.out.settle(cx, result);
        given
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
        self.out.settle(cx, self.out.close());
    }

    fn complete(&self, cx: &Cx<'_>) {
        self.out.settle(cx, self.out.flush());
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.count]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        old.out.settle(cx, self.out.take_over(&old.out));
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
