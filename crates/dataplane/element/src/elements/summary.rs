//! FromIPSummaryDump(FILE, FIELDS, STOP, ACTIVE, ZERO, CHECKSUM, TIMING, DATA): makes packets from lines of
//! text, as a `!data` line or FIELDS name them.
//! Expects: nothing.
//! Gives: a packet for each line. What a field does not state is zero; the protocol is TCP.
//! Handlers: active (rw), count, scheduled.
//! Example: `FromIPSummaryDump(trace, STOP true) -> q`
//!
//! ToIPSummaryDump(FILE, FIELDS field…, HEADER, BAD_PACKETS, VERBOSE): writes a line of text for each packet;
//! fields are, for instance, timestamp, ip_src, sport, ip_proto, ip_len, tcp_flags, payload, link.
//! Expects: packets with marked IP headers; `-` stands for a field that a packet lacks.
//! Gives: the same packets, if its output is connected.
//! Handlers: flush (w).
//! Example: `ToIPSummaryDump(-, FIELDS timestamp ip_src ip_dst)`

use super::output::Output;
use super::summary_fields::{self as fields, Field, Line};
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element, Notice};
use crate::runtime::packet::{Batch, Packet};
use crate::runtime::signal::Signal;
use flame_click::value::{Data, Raw, boolean};
use flame_click::{Nanos, text};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read};

const SOURCE: &str = include_str!("summary.rs");

/// The bytes of the longest line that is read.
const LONGEST_LINE: u64 = 1 << 20;

struct FromDump {
    file: String,
    data: Option<Vec<u8>>,
    reader: RefCell<Option<Box<dyn BufRead>>>,
    layout: RefCell<Vec<Field>>,
    protocol: Cell<u8>,
    zero: bool,
    checksum: bool,
    timing: bool,
    /// The difference between the clock and the first timestamp.
    shift: Cell<Option<Nanos>>,
    waiting: RefCell<Option<Packet>>,
    stop: bool,
    is_active: Cell<bool>,
    is_done: Cell<bool>,
    count: Cell<u64>,
    signal: RefCell<Signal>,
}

impl FromDump {
    /// Returns the packet of the next line that has one.
    fn next(&self, cx: &Cx<'_>) -> Option<Packet> {
        if !self.is_active.get() || self.is_done.get() {
            return None;
        }
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = self.reader.borrow_mut().as_mut()?.take(LONGEST_LINE).read_until(b'\n', &mut bytes);
            match read {
                Ok(n) if n as u64 == LONGEST_LINE => {
                    cx.error(&format!("{}: a line exceeds {LONGEST_LINE} bytes", self.file));
                    break;
                }
                Ok(0) => break,
                Err(e) => {
                    cx.error(&format!("{}: {e}", self.file));
                    break;
                }
                Ok(_) => {}
            }
            let line = text::decode(&bytes);
            let line = line.trim();
            if let Some(directive) = line.strip_prefix('!') {
                self.directive(cx, directive);
            } else if !line.is_empty() && !line.starts_with('#') {
                let mut values = Line::new(self.protocol.get());
                if let Err(e) = values.parse(&self.layout.borrow(), line) {
                    cx.error(&format!("{}: {e}", self.file));
                    continue;
                }
                add(&self.count, 1);
                cx.made(1);
                return Some(values.packet(self.zero, self.checksum));
            }
        }
        self.is_done.set(true);
        cx.set_filled(false);
        if self.stop {
            cx.router.please_stop();
        }
        None
    }

    fn directive(&self, cx: &Cx<'_>, directive: &str) {
        let mut words = directive.split_ascii_whitespace();
        match words.next() {
            Some("data" | "contents") => match fields::parse_list(words) {
                Ok(layout) => *self.layout.borrow_mut() = layout,
                Err(e) => cx.error(&format!("{}: {e}", self.file)),
            },
            Some("proto") => {
                if let Some(protocol) = words.next().and_then(fields::parse_protocol) {
                    self.protocol.set(protocol);
                }
            }
            _ => {}
        }
    }
}

impl Element for FromDump {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        let reader: Box<dyn BufRead> = match (&self.data, self.file.as_str()) {
            (Some(data), _) => Box::new(std::io::Cursor::new(data.clone())),
            (None, "-") => Box::new(BufReader::new(std::io::stdin())),
            (None, name) => {
                Box::new(BufReader::new(std::fs::File::open(name).map_err(|e| format!("{name}: {e}"))?))
            }
        };
        *self.reader.borrow_mut() = Some(reader);
        if cx.router.nodes[cx.me].outputs[0].is_push {
            *self.signal.borrow_mut() = cx.downstream_signal(0);
            cx.reschedule();
        } else {
            cx.set_filled(self.is_active.get());
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
            let due = p.anno.time + shift;
            if due > now {
                *self.waiting.borrow_mut() = Some(p);
                cx.timer_at(0, due);
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
            match self.next(cx) {
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
            "active" => Some(Ok(self.is_active.get().to_string())),
            "count" => Some(Ok(self.count.get().to_string())),
            _ => None,
        }
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        if name != "active" {
            return None;
        }
        let Some(active) = boolean(value) else {
            return Some(Err(format!("expected true or false, found '{value}'")));
        };
        self.is_active.set(active);
        match cx.router.nodes[cx.me].outputs[0].is_push {
            true => cx.reschedule(),
            false => cx.set_filled(active && !self.is_done.get()),
        }
        Some(Ok(()))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("active", "rw"), ("count", "r"), ("scheduled", "r")]
    }
}

class!(
    FROM,
    "FromIPSummaryDump",
    "0/1",
    "a/a",
    [
        "FILENAME",
        "STOP",
        "ACTIVE",
        "ZERO",
        "CHECKSUM",
        "TIMING",
        "DATA",
        "FIELDS",
        "CONTENTS",
        "DEFAULT_FIELDS",
        "DEFAULT_CONTENTS",
        "PROTO",
        "MULTIPACKET",
        "SAMPLE"
    ],
    |args, _| {
        let data = args.key::<Data>("DATA").map(|d| d.0);
        let file =
            if data.is_some() { args.opt("FILENAME").unwrap_or_default() } else { args.req("FILENAME") };
        let list = ["FIELDS", "CONTENTS", "DEFAULT_FIELDS", "DEFAULT_CONTENTS"].map(|k| args.key::<Raw>(k));
        let list = list.into_iter().flatten().next().map_or(String::new(), |r| text::unquote(&r.0));
        let layout = fields::parse_list(list.split_ascii_whitespace()).unwrap_or_else(|e| {
            args.error(e);
            Vec::new()
        });
        let protocol = args.key::<String>("PROTO").and_then(|p| fields::parse_protocol(&p)).unwrap_or(6);
        args.ignore::<bool>("MULTIPACKET");
        Box::new(FromDump {
            file,
            data,
            reader: RefCell::default(),
            layout: RefCell::new(layout),
            protocol: Cell::new(protocol),
            zero: args.key("ZERO").unwrap_or(false),
            checksum: args.key("CHECKSUM").unwrap_or(false),
            timing: args.key("TIMING").unwrap_or(false),
            shift: Cell::new(None),
            waiting: RefCell::default(),
            stop: args.key("STOP").unwrap_or(false),
            is_active: Cell::new(args.key("ACTIVE").unwrap_or(true)),
            is_done: Cell::new(false),
            count: Cell::new(0),
            signal: RefCell::default(),
        })
    }
);

struct ToDump {
    /// None stands for the router's standard output.
    out: Option<Output>,
    layout: Vec<Field>,
    /// The header, until it is printed on standard output.
    header: RefCell<String>,
    signal: RefCell<Signal>,
}

impl ToDump {
    fn write(&self, cx: &Cx<'_>, text: &str) {
        match &self.out {
            Some(out) => {
                if let Err(e) = out.write(&text::encode(text)) {
                    cx.error(&format!("{}: {e}", out.name));
                }
            }
            None => cx.router.print(text),
        }
    }

    fn line(&self, p: &Packet) -> String {
        let mut line = String::new();
        for (i, field) in self.layout.iter().enumerate() {
            if i > 0 {
                line.push(' ');
            }
            line.push_str(&field.unparse(p).unwrap_or_else(|| "-".into()));
        }
        line.push('\n');
        line
    }
}

impl Element for ToDump {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        match &self.out {
            Some(out) => out.open()?,
            None => cx.router.print(&self.header.take()),
        }
        if cx.outputs() == 0 && !cx.router.nodes[cx.me].inputs[0].is_push {
            *self.signal.borrow_mut() = cx.upstream_signal(0);
            cx.reschedule();
        }
        Ok(())
    }

    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        self.write(cx, &self.line(&p));
        if cx.outputs() > 0 {
            return Some(p);
        }
        cx.drop("written", p);
        None
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        let p = cx.pull_one(0);
        let is_busy = p.is_some();
        p.and_then(|p| self.action(cx, p));
        if is_busy || self.signal.borrow().is_active(cx.router) {
            cx.reschedule();
        }
        is_busy
    }

    fn cleanup(&self, cx: &Cx<'_>) {
        if let Some(out) = &self.out
            && let Err(e) = out.close()
        {
            cx.error(&format!("{}: {e}", out.name));
        }
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        let Some(was) = &old.out else { return };
        let done = match &self.out {
            Some(out) => out.take_over(was),
            None => was.close(),
        };
        if let Err(e) = done {
            cx.error(&format!("{}: {e}", was.name));
        }
    }

    fn write(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<(), String>> {
        (name == "flush").then(|| match &self.out {
            Some(out) => out.flush().map_err(|e| format!("{}: {e}", out.name)),
            None => Ok(()),
        })
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("flush", "w")]
    }
}

class!(
    TO,
    "ToIPSummaryDump",
    "1/0-1",
    "a/a",
    [
        "FILENAME",
        "FIELDS",
        "CONTENTS",
        "DATA",
        "HEADER",
        "VERBOSE",
        "BANNER",
        "MULTIPACKET",
        "BAD_PACKETS",
        "CAREFUL_TRUNC"
    ],
    |args, _| {
        let file: String = args.req("FILENAME");
        let list = ["FIELDS", "CONTENTS", "DATA"].map(|k| args.key::<Raw>(k)).into_iter().flatten().next();
        let list = list.map_or("ip_src ip_dst".into(), |r| text::unquote(&r.0));
        let layout = fields::parse_list(list.split_ascii_whitespace()).unwrap_or_else(|e| {
            args.error(e);
            Vec::new()
        });
        args.ignore::<bool>("VERBOSE");
        args.ignore::<bool>("MULTIPACKET");
        args.ignore::<bool>("BAD_PACKETS");
        args.ignore::<bool>("CAREFUL_TRUNC");
        args.ignore::<String>("BANNER");
        let mut header = String::new();
        if args.key("HEADER").unwrap_or(true) {
            let names: Vec<_> = layout.iter().map(|f| f.name()).collect();
            header = format!("!IPSummaryDump 1.3\n!data {}\n", names.join(" "));
        }
        let out = (file != "-").then(|| Output::new(file, text::encode(&header)));
        Box::new(ToDump { out, layout, header: RefCell::new(header), signal: RefCell::default() })
    }
);
