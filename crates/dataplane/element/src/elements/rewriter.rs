//! IPRewriter, UDPRewriter, TCPRewriter(SPEC…), IPAddrRewriter(SPEC…): rewrite addresses and ports of flows,
//! both ways. A SPEC for each input: `drop`, `pass OUT` (or `nochange OUT`), which installs no mapping, `keep
//! FOUT ROUT`, or `pattern SADDR SPORT DADDR DPORT FOUT ROUT`, with `-` for unchanged and `1024-65535#` for a
//! free port of a range (`?`: at random).
//! IPAddrRewriter's patterns are `pattern SADDR[-SADDR2] DADDR FOUT ROUT`.
//! Flows end TCP_TIMEOUT (24 h), TCP_NODATA_TIMEOUT (300 s, without data both ways), TCP_DONE_TIMEOUT (240
//! s), UDP_TIMEOUT or UDP_STREAMING_TIMEOUT (300 s) after their last packet; IPAddrRewriter has TIMEOUT (300
//! s). MAPPING_CAPACITY (131072) flows are kept. A new flow replaces the one that would end first, if that
//! had no packet for TCP_GUARANTEE, UDP_GUARANTEE or GUARANTEE (5 s). Ended flows are removed each
//! REAP_INTERVAL (15 min; 0: never); one that has ended gives its port to a new one before. At most 64 ports
//! or addresses of a range are tried for a flow. DST_ANNO (true): the annotation is set.
//! Expects: TCP and UDP packets (any IP packets) with marked IP headers. Other packets and later fragments
//! are passed by `pass` and dropped by other specs.
//! Gives: packets on the outputs of the specs; those without a mapping or free port are dropped.
//! Handlers: patterns, table, nmappings, mapping_failures, capacity, clear (w).
//! Example: `rw :: IPRewriter(pattern 1.0.0.1 1024-65535# - - 0 1, drop)`
//!
//! ICMPPingRewriter(SPEC…): rewrites addresses and identifiers of ICMP echo requests and their replies, both
//! ways. Its SPECs are those of IPRewriter, whose ports are identifiers here. It has TIMEOUT (300 s),
//! GUARANTEE, MAPPING_CAPACITY, REAP_INTERVAL and DST_ANNO, as IPRewriter.
//! Expects: ICMP echo packets with marked IP headers. Others are passed by `pass` and dropped by other specs.
//! Gives: packets on the outputs of the specs. Only a request makes a mapping.
//! Handlers: those of IPRewriter.
//! Example: `ping :: ICMPPingRewriter(pattern 1.0.0.1 1024-65535# - - 0 1, drop)`
//!
//! IPRewriterPatterns(NAME SADDR SPORT DADDR DPORT, …): names patterns for rewriters.
//! Expects: no packets.
//! Gives: no packets.
//! Handlers: none.
//! Example: `IPRewriterPatterns(nat 1.0.0.1 1024-65535# - -)`

use super::ip::set_ip;
use super::rewriter_flows::{ECHO, Flow, Flows, Signs, Timeouts};
use super::rewriter_pattern::{Pattern, Spec, pattern, spec};
use super::util::{adjust_checksum, ip_header, put16};
use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{Batch, Packet};
use flame_click::time::SECOND;
use flame_click::{Args, Ip, Nanos, text};
use std::cell::{Cell, RefCell};

const SOURCE: &str = include_str!("rewriter.rs");

/// The parts of packets that a rewriter maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    Ports,
    Addresses,
    /// The identifier of an ICMP echo, which is both ports.
    Echo,
}

struct Rewriter {
    specs: Vec<Spec>,
    parts: Parts,
    flows: RefCell<Flows>,
    reap_interval: Nanos,
    dst_anno: bool,
    failures: Cell<u64>,
}

/// The end of a flow that a mapping of addresses leaves open.
const ANY: (Ip, u16) = (Ip(0), 0);

/// The number of flows that are kept without MAPPING_CAPACITY.
const CAPACITY: usize = 131_072;

impl Rewriter {
    /// Finds what a new flow becomes. Its work does not grow with the range: `Range::tried` limits it.
    fn choose(&self, cx: &Cx<'_>, flow: Flow, pattern: &Pattern) -> Option<Flow> {
        let flows = self.flows.borrow();
        let make = |choice: Option<u32>| {
            let src = match (self.parts, choice) {
                (Parts::Addresses, Some(ip)) => (Ip(ip), flow.src.1),
                (_, Some(port)) => (pattern.src.unwrap_or(flow.src.0), port as u16),
                (_, None) => (pattern.src.unwrap_or(flow.src.0), flow.src.1),
            };
            let dport = if self.parts == Parts::Echo { src.1 } else { pattern.dport.unwrap_or(flow.dst.1) };
            Flow { src, dst: (pattern.dst.unwrap_or(flow.dst.0), dport), ..flow }
        };
        let is_free = |f: &Flow| flows.peek(f.reverse(), cx.now()).is_none();
        let Some(range) = pattern.range else { return Some(make(None)).filter(is_free) };
        let first = if pattern.random { cx.random(range.len()) } else { pattern.next.get() };
        let mut tried = range.tried(first, |most| cx.random(most));
        let found = tried.find(|i| is_free(&make(Some(range.get(*i)))))?;
        pattern.next.set((found + 1) % range.len());
        Some(make(Some(range.get(found))))
    }

    fn insert(&self, cx: &Cx<'_>, p: &Packet, from: Flow, to: Flow, outputs: (usize, usize)) -> bool {
        let was_empty = self.flows.borrow().len() == 0;
        let was_inserted = self.flows.borrow_mut().insert(from, to, outputs, cx.now(), Signs::of(p));
        if was_empty {
            self.start_reaping(cx);
        }
        if !was_inserted {
            add(&self.failures, 1);
        }
        was_inserted
    }

    fn start_reaping(&self, cx: &Cx<'_>) {
        if self.reap_interval.0 > 0 && self.flows.borrow().len() > 0 {
            cx.timer_after(0, self.reap_interval);
        }
    }

    /// Applies a mapping to a packet.
    fn rewrite(&self, p: &mut Packet, from: Flow, to: Flow) {
        if from.src.0 != to.src.0 {
            set_ip(p, true, to.src.0);
        }
        if from.dst.0 != to.dst.0 {
            set_ip(p, false, to.dst.0);
        }
        if self.dst_anno {
            p.anno.set_dst_ip(to.dst.0);
        }
        let Some(h) = ip_header(p).filter(|h| h.is_first_fragment()) else { return };
        let at = h.payload();
        if self.parts == Parts::Echo {
            let d = p.data_mut();
            put16(d, at + 4, to.src.1);
            return adjust_checksum(d, at + 2, false, &[(from.src.1, to.src.1)]);
        }
        let check = at + if h.protocol == 6 { 16 } else { 6 };
        let has_check = check + 2 <= h.end();
        let d = p.data_mut();
        for (offset, old, new) in [(0, from.src.1, to.src.1), (2, from.dst.1, to.dst.1)] {
            if old != new {
                put16(d, at + offset, new);
                if has_check {
                    adjust_checksum(d, check, h.protocol == 17, &[(old, new)]);
                }
            }
        }
    }

    fn key(&self, p: &Packet) -> Option<Flow> {
        match self.parts {
            Parts::Ports => return Flow::of(p),
            Parts::Echo => return Flow::of_echo(p),
            Parts::Addresses => {}
        }
        let h = ip_header(p)?;
        Some(Flow { protocol: 0, src: (h.source, 0), dst: (h.destination, 0) })
    }

    /// Returns the keys under which a flow may be found. Addresses are mapped one by one: a source on its way
    /// out, a destination on its way back.
    fn keys(&self, flow: Flow) -> [Flow; 2] {
        match self.parts {
            Parts::Addresses => [Flow { dst: ANY, ..flow }, Flow { src: ANY, ..flow }],
            Parts::Ports | Parts::Echo => [flow; 2],
        }
    }

    /// Fills in the parts that a mapping of addresses leaves open: they stay as they are.
    fn fill(&self, flow: Flow, to: Flow) -> Flow {
        match self.parts {
            Parts::Addresses => Flow {
                src: if to.src == ANY { flow.src } else { to.src },
                dst: if to.dst == ANY { flow.dst } else { to.dst },
                ..flow
            },
            Parts::Ports | Parts::Echo => to,
        }
    }

    fn packet(&self, cx: &Cx<'_>, port: usize, mut p: Packet) {
        let spec = self.specs.get(port).unwrap_or(&Spec::Drop);
        let Some(flow) = self.key(&p) else {
            return match spec {
                Spec::Pass(output) => cx.push_or_drop(*output, "no output", p),
                _ => cx.drop("not a flow", p),
            };
        };
        let keys = self.keys(flow);
        let (now, signs) = (cx.now(), Signs::of(&p));
        let found = keys.iter().find_map(|k| self.flows.borrow_mut().find(*k, now, signs));
        let filled = |to: Flow| self.fill(flow, to);
        if let Some((to, output)) = found {
            self.rewrite(&mut p, flow, filled(to));
            return cx.push_or_drop(output, "no output", p);
        }
        let from = keys[0];
        let (to, outputs) = match spec {
            Spec::Drop => return cx.drop("no mapping", p),
            Spec::Pass(output) => return cx.push_or_drop(*output, "no output", p),
            _ if self.parts == Parts::Echo && !is_request(&p) => return cx.drop("no mapping", p),
            Spec::Keep(fout, rout) => (Some(from), (*fout, *rout)),
            Spec::Pattern(pattern, fout, rout) => (self.choose(cx, from, pattern), (*fout, *rout)),
        };
        if to.is_none() {
            add(&self.failures, 1);
        }
        match to.filter(|to| self.insert(cx, &p, from, *to, outputs)) {
            Some(to) => {
                self.rewrite(&mut p, flow, filled(to));
                cx.push_or_drop(outputs.0, "no output", p);
            }
            None => cx.drop("no free mapping", p),
        }
    }
}

impl Element for Rewriter {
    fn push(&self, cx: &Cx<'_>, port: usize, mut batch: Batch) {
        batch.drain(..).for_each(|p| self.packet(cx, port, p));
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        self.flows.borrow_mut().reap(cx.now());
        // Without flows, simulated time would never end.
        self.start_reaping(cx);
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "patterns" => {
                let line = |s: &Spec| match s {
                    Spec::Pattern(p, ..) => format!("{}\n", p.text),
                    Spec::Drop => "<drop>\n".into(),
                    Spec::Pass(..) => "<nochange>\n".into(),
                    Spec::Keep(..) => "<keep>\n".into(),
                };
                self.specs.iter().map(line).collect()
            }
            "table" | "mappings" => {
                let show = |f: &Flow| format!("({}, {}, {}, {})", f.src.0, f.src.1, f.dst.0, f.dst.1);
                let flows = self.flows.borrow();
                let line = |(from, to, output)| format!("{} => {} [{output}]\n", show(&from), show(&to));
                let mut lines: Vec<String> = flows.mappings().map(line).collect();
                lines.sort();
                lines.concat()
            }
            "nmappings" => self.flows.borrow().len().to_string(),
            "capacity" => self.flows.borrow().capacity.to_string(),
            "mapping_failures" => self.failures.get().to_string(),
            _ => return None,
        }))
    }

    fn write(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<(), String>> {
        (name == "clear").then(|| {
            self.flows.borrow_mut().clear();
            Ok(())
        })
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("patterns", "r"),
            ("table", "r"),
            ("mappings", "r"),
            ("nmappings", "r"),
            ("mapping_failures", "r"),
            ("capacity", "r"),
            ("clear", "w"),
        ]
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.failures]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        if let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() {
            self.flows.borrow_mut().take_over(&mut old.flows.borrow_mut());
            self.start_reaping(cx);
        }
    }
}

/// Returns whether an ICMP packet asks for an echo.
fn is_request(p: &Packet) -> bool {
    ip_header(p).is_some_and(|h| p.data().get(h.payload()) == Some(&ECHO))
}

/// Returns what a flow becomes in a rewriter, without using it. `None` if the element is none, or has no such
/// flow.
pub fn peek(element: &dyn Element, flow: Flow, now: Nanos) -> Option<Flow> {
    let rewriter = (element as &dyn std::any::Any).downcast_ref::<Rewriter>()?;
    let has_its_flows = match rewriter.parts {
        Parts::Ports => flow.protocol != 1,
        Parts::Echo => flow.protocol == 1,
        Parts::Addresses => true,
    };
    let key = match rewriter.parts {
        Parts::Addresses => Flow { protocol: 0, src: (flow.src.0, 0), dst: (flow.dst.0, 0) },
        _ => flow,
    };
    let flows = rewriter.flows.borrow();
    let found = rewriter.keys(key).into_iter().find_map(|k| flows.peek(k, now)).filter(|_| has_its_flows)?;
    Some(match rewriter.parts {
        // Ports stay as they are.
        Parts::Addresses => {
            let filled = rewriter.fill(key, found);
            Flow { src: (filled.src.0, flow.src.1), dst: (filled.dst.0, flow.dst.1), ..flow }
        }
        _ => found,
    })
}

/// Returns whether an element is a rewriter.
pub fn is_rewriter(element: &dyn Element) -> bool {
    (element as &dyn std::any::Any).is::<Rewriter>()
}

fn rewriter(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let seconds = |n: i64| Nanos(n * SECOND);
    let guarantee = args.key("GUARANTEE").unwrap_or(seconds(5));
    let start = args.key("UDP_TIMEOUT").or_else(|| args.key("TIMEOUT")).unwrap_or(seconds(300));
    let other = Timeouts {
        start,
        both: args.key("UDP_STREAMING_TIMEOUT").unwrap_or(start),
        done: start,
        guarantee: args.key("UDP_GUARANTEE").unwrap_or(guarantee),
    };
    let tcp = Timeouts {
        start: args.key("TCP_NODATA_TIMEOUT").unwrap_or(seconds(300)),
        both: args.key("TCP_TIMEOUT").unwrap_or(seconds(86_400)),
        done: args.key("TCP_DONE_TIMEOUT").unwrap_or(seconds(240)),
        guarantee: args.key("TCP_GUARANTEE").unwrap_or(guarantee),
    };
    let capacity = args.key::<u32>("MAPPING_CAPACITY").map_or(CAPACITY, |c| c as usize);
    if capacity == 0 {
        args.error("MAPPING_CAPACITY: expected a positive number, found 0");
    }
    let dst_anno = args.key("DST_ANNO").unwrap_or(true);
    let reap_interval = args.key("REAP_INTERVAL").unwrap_or(seconds(900));
    let lines = args.rest();
    if lines.len() != setup.inputs {
        args.error(format!("need {} specs, one for each input, found {}", setup.inputs, lines.len()));
    }
    let mut specs = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        match spec(line, setup, args) {
            Ok(s) => specs.push(s),
            Err(e) => args.error(format!("input spec {i}: {e}")),
        }
    }
    Box::new(Rewriter {
        specs,
        parts: match setup.class {
            "IPAddrRewriter" => Parts::Addresses,
            "ICMPPingRewriter" => Parts::Echo,
            _ => Parts::Ports,
        },
        flows: RefCell::new(Flows::new(capacity, tcp, other)),
        reap_interval,
        dst_anno,
        failures: Cell::new(0),
    })
}

class!(
    IP_REWRITER,
    "IPRewriter",
    "1-/1-",
    "h/h",
    [
        "TCP_TIMEOUT",
        "TCP_NODATA_TIMEOUT",
        "TCP_DONE_TIMEOUT",
        "TCP_GUARANTEE",
        "TIMEOUT",
        "UDP_TIMEOUT",
        "UDP_STREAMING_TIMEOUT",
        "UDP_GUARANTEE",
        "GUARANTEE",
        "DST_ANNO",
        "REAP_INTERVAL",
        "MAPPING_CAPACITY"
    ],
    rewriter
);
class!(
    UDP_REWRITER,
    "UDPRewriter",
    "1-/1-",
    "h/h",
    [
        "TIMEOUT",
        "UDP_TIMEOUT",
        "UDP_STREAMING_TIMEOUT",
        "UDP_GUARANTEE",
        "GUARANTEE",
        "DST_ANNO",
        "REAP_INTERVAL",
        "MAPPING_CAPACITY"
    ],
    rewriter
);
class!(
    TCP_REWRITER,
    "TCPRewriter",
    "1-/1-",
    "h/h",
    [
        "TCP_TIMEOUT",
        "TCP_NODATA_TIMEOUT",
        "TCP_DONE_TIMEOUT",
        "TCP_GUARANTEE",
        "GUARANTEE",
        "DST_ANNO",
        "REAP_INTERVAL",
        "MAPPING_CAPACITY"
    ],
    rewriter
);
class!(
    IP_ADDR_REWRITER,
    "IPAddrRewriter",
    "1-/1-",
    "h/h",
    ["TIMEOUT", "GUARANTEE", "DST_ANNO", "REAP_INTERVAL", "MAPPING_CAPACITY"],
    rewriter
);

class!(
    ICMP_PING_REWRITER,
    "ICMPPingRewriter",
    "1-/1-",
    "h/h",
    ["TIMEOUT", "GUARANTEE", "DST_ANNO", "REAP_INTERVAL", "MAPPING_CAPACITY"],
    rewriter
);

struct Patterns;
impl Element for Patterns {}
class!(PATTERNS, "IPRewriterPatterns", "0/0", "a/a", [], |args, _| {
    for line in args.rest() {
        let words = text::words(&line);
        if let Err(e) = pattern(words.get(1..).unwrap_or(&[]), words.len() == 3, args) {
            args.error(e);
        }
    }
    Box::new(Patterns)
});
