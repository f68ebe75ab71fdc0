//! FromIPSummaryDump(FILE, FIELDS, STOP, ACTIVE, ZERO, CHECKSUM, TIMING, DATA): makes packets from lines of
//! text, as a `!data` line or FIELDS name them.
//! Expects: nothing.
//! Gives: a packet for each line. What a field does not state is zero; the protocol is TCP.
//! Handlers: active (rw), count, scheduled.
//! Example: `FromIPSummaryDump(trace, STOP true) -> q`
//!
//! ToIPSummaryDump(FILE, FIELDS field…, HEADER): writes a line of text for each packet; fields are, for
//! instance, timestamp, ip_src, sport, ip_proto, ip_len, tcp_flags, payload, link. BAD_PACKETS and VERBOSE
//! have no effect.
//! Expects: packets with marked IP headers; `-` stands for a field that a packet lacks.
//! Gives: the same packets, if its output is connected.
//! Handlers: flush (w).
//! Example: `ToIPSummaryDump(-, FIELDS timestamp ip_src ip_dst)`

use super::from_file::{FromFile, Options, Reader, Reading};
use super::output::{Output, WRITTEN};
use super::summary_fields::{self as fields, Field, Line};
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Packet;
use crate::runtime::signal::Signal;
use flame_click::text;
use flame_click::value::{Data, Raw};
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read};

const SOURCE: &str = include_str!("summary.rs");

/// The bytes of the longest line that is read.
const LONGEST_LINE: u64 = 1 << 20;

struct Lines {
    file: String,
    data: Option<Vec<u8>>,
    /// The columns and the protocol of the arguments, until the file states others.
    form: (Vec<Field>, u8),
    reader: RefCell<Option<Box<dyn BufRead + Send>>>,
    layout: RefCell<Vec<Field>>,
    protocol: Cell<u8>,
    zero: bool,
    checksum: bool,
}

impl Lines {
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

impl Reader for Lines {
    fn open(&self) -> Result<(), String> {
        let reader: Box<dyn BufRead + Send> = match (&self.data, self.file.as_str()) {
            (Some(data), _) => Box::new(std::io::Cursor::new(data.clone())),
            (None, "-") => Box::new(BufReader::new(std::io::stdin())),
            (None, name) => {
                Box::new(BufReader::new(std::fs::File::open(name).map_err(|e| format!("{name}: {e}"))?))
            }
        };
        *self.reader.borrow_mut() = Some(reader);
        Ok(())
    }

    fn take_over(&self, old: &Self) -> bool {
        let is_same = (&self.file, &self.data, &self.form) == (&old.file, &old.data, &old.form);
        let open = if is_same { old.reader.take() } else { None };
        let goes_on = open.is_some();
        if goes_on {
            *self.reader.borrow_mut() = open;
            self.layout.replace(old.layout.take());
            self.protocol.set(old.protocol.get());
        }
        goes_on
    }

    /// Reads the next line that has a packet.
    fn read(&self, cx: &Cx<'_>) -> Reading {
        let mut bytes = Vec::new();
        let mut reader = self.reader.borrow_mut();
        let Some(reader) = reader.as_mut() else { return Reading::End };
        loop {
            bytes.clear();
            match reader.take(LONGEST_LINE).read_until(b'\n', &mut bytes) {
                Ok(n) if n as u64 == LONGEST_LINE => {
                    cx.error(&format!("{}: a line exceeds {LONGEST_LINE} bytes", self.file));
                    return Reading::End;
                }
                Ok(0) => return Reading::End,
                Err(e) => {
                    cx.error(&format!("{}: {e}", self.file));
                    return Reading::End;
                }
                Ok(_) => {}
            }
            let line = text::decode(&bytes);
            let line = line.trim();
            if let Some(directive) = line.strip_prefix('!') {
                self.directive(cx, directive);
            } else if !line.is_empty() && !line.starts_with('#') {
                let mut values = Line::new(self.protocol.get());
                match values.parse(&self.layout.borrow(), line) {
                    Ok(()) => return Reading::Packet(values.packet(self.zero, self.checksum)),
                    Err(e) => cx.error(&format!("{}: {e}", self.file)),
                }
            }
        }
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
        let reader = Lines {
            file,
            data,
            form: (layout.clone(), protocol),
            reader: RefCell::default(),
            layout: RefCell::new(layout),
            protocol: Cell::new(protocol),
            zero: args.key("ZERO").unwrap_or(false),
            checksum: args.key("CHECKSUM").unwrap_or(false),
        };
        let options = Options {
            timing: args.key("TIMING").unwrap_or(false),
            stop: args.key("STOP").unwrap_or(false),
            active: args.key("ACTIVE").unwrap_or(true),
        };
        Box::new(FromFile::new(reader, options))
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
        let line = self.line(&p);
        let result = match &self.out {
            Some(out) => out.record(|bytes| bytes.extend(text::encode(&line))),
            None => {
                cx.router.print(&line);
                Ok(())
            }
        };
        let given = if cx.outputs() > 0 {
            Some(p)
        } else {
            cx.drop(WRITTEN, p);
            None
        };
        if let Some(out) = &self.out {
            out.settle(cx, result);
        }
        given
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
        if let Some(out) = &self.out {
            out.settle(cx, out.close());
        }
    }

    fn complete(&self, cx: &Cx<'_>) {
        if let Some(out) = &self.out {
            out.settle(cx, out.flush());
        }
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        let Some(was) = &old.out else { return };
        let done = match &self.out {
            Some(out) => out.take_over(was),
            None => was.close(),
        };
        was.settle(cx, done);
    }

    fn write(&self, cx: &Cx<'_>, name: &str, _: &str) -> Option<Result<(), String>> {
        (name == "flush").then(|| {
            self.complete(cx);
            Ok(())
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
