//! IPRewriter, UDPRewriter, TCPRewriter(SPEC…), IPAddrRewriter(SPEC…): rewrite addresses and ports of flows,
//! both ways. A SPEC for each input: `drop`, `pass OUT` (or `nochange OUT`), which installs no mapping, `keep
//! FOUT ROUT`, or `pattern SADDR SPORT DADDR DPORT FOUT ROUT`, with `-` for unchanged and `1024-65535` for a
//! free port of a range: that of the packet, or else one at random; with `#` behind, the next one; with `?`
//! always one at random. UDPRewriter takes TCP packets for UDP packets, and TCPRewriter maps no UDP packets.
//! IPAddrRewriter's patterns are `pattern SADDR[-SADDR2] - FOUT ROUT`, or SADDR is a prefix, of which the
//! first and the last address are not used.
//! Flows end TCP_TIMEOUT (24 h), TCP_NODATA_TIMEOUT (300 s, without data both ways), TCP_DONE_TIMEOUT (240 s,
//! after a RST, or FIN both ways, until either side sends a SYN or data), UDP_TIMEOUT or
//! UDP_STREAMING_TIMEOUT (300 s; from the third packet on, if they go both ways) after their last packet;
//! UDPRewriter calls these TIMEOUT and STREAMING_TIMEOUT, too. IPAddrRewriter has TIMEOUT (300 s). None ends
//! before the time that it is guaranteed. MAPPING_CAPACITY (131072) flows are kept; it may name another
//! rewriter, and then the flows of both count for the capacity of that. A new flow gets no mapping if another
//! flow has the one of its replies. If a pattern leaves no choice, it ends one that became the same before
//! and had no packet for TCP_GUARANTEE, UDP_GUARANTEE or GUARANTEE (5 s). In a full table, a new flow
//! replaces the one that would end first, if that had no packet for its guarantee either; with a guarantee of
//! 0, only one that would end no later than itself. Ended flows are removed each REAP_INTERVAL (15 min; 0:
//! never); one that has ended gives its port to a new one before. At most 64 ports or addresses of a range
//! are tried for a flow, besides the packet's own. DST_ANNO (true): the annotation is set. REPLY_ANNO (PAINT,
//! or the number of a byte): replies get this annotation from the first packet of their flow.
//! Expects: TCP and UDP packets (TCPRewriter: TCP; IPAddrRewriter: any of IP) with marked IP headers. Other
//! packets and later fragments are passed by `pass` and dropped by other specs.
//! Gives: packets on the outputs of the specs; those without a mapping or free port are dropped.
//! Handlers: patterns, pattern0 to pattern7 (rw), table, nmappings, mapping_failures, size, capacity (rw),
//! clear (w); those of ports have tcp_table, udp_table and tcp_lookup (SADDR SPORT DADDR DPORT), which
//! TCPRewriter calls lookup, too. `patterns` counts the flows of each input in brackets. A line of a table
//! has the outputs in brackets, a `*` at that of this direction, the input, and the seconds until the flow
//! ends. A written pattern ends the flows that came at its input; `config` stays as it is. `size` counts the
//! flows for the capacity, `nmappings` the directions here.
//! Example: `rw :: IPRewriter(pattern 1.0.0.1 1024-65535# - - 0 1, drop)`
//!
//! ICMPPingRewriter(SPEC…): rewrites addresses and identifiers of ICMP echo requests and their replies, both
//! ways. Its SPECs are those of IPRewriter, but its patterns are `pattern SADDR DADDR ID FOUT ROUT`, with a
//! range of identifiers like one of ports; those of IPRewriter do, too, with identifiers for ports. It has
//! TIMEOUT (300 s), GUARANTEE, MAPPING_CAPACITY, REAP_INTERVAL, DST_ANNO and REPLY_ANNO, as IPRewriter.
//! Expects: ICMP echo packets with marked IP headers. Others are passed by `pass` and dropped by other specs.
//! Gives: packets on the outputs of the specs. Only a request makes a mapping, and only replies are those of
//! its way back.
//! Handlers: those of IPAddrRewriter.
//! Example: `ping :: ICMPPingRewriter(pattern 1.0.0.1 - 1024-65535# 0 1, drop)`
//!
//! IPRewriterPatterns(NAME SADDR SPORT DADDR DPORT, …): names patterns for rewriters.
//! Expects: no packets.
//! Gives: no packets.
//! Handlers: none.
//! Example: `IPRewriterPatterns(nat 1.0.0.1 1024-65535# - -)`

use super::icmp::adjust_icmp;
use super::ip::set_ip;
use super::rewriter_flows::{ECHO, Flow, Flows, Found, Mapping, Rewriting, Signs, Timeouts};
use super::rewriter_pattern::{Order, Pattern, Place, Spec, pattern, spec};
use super::util::{adjust_checksum, ip_header, put16};
use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_PAINT, Batch, Packet};
use crate::runtime::router::Handle;
use flame_click::time::SECOND;
use flame_click::value::integer;
use flame_click::{Args, Ip, Nanos, Value, text};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

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
    specs: RefCell<Vec<Spec>>,
    parts: Parts,
    /// Whether UDP packets are none of its flows.
    is_tcp: bool,
    flows: RefCell<Flows>,
    reap_interval: Nanos,
    dst_anno: bool,
    /// The annotation that replies get from the first packet of their flow.
    reply_anno: Option<usize>,
    failures: Cell<u64>,
    /// The name of the rewriter whose capacity it shares, and which that is.
    shared: Option<String>,
    owner: Cell<Option<usize>>,
    /// The rewriters that share its capacity. Those that do not any more stay in the list.
    sharers: RefCell<BTreeSet<Handle>>,
}

/// The treatment of packets that have no mapping, as a spec states it.
enum Rule {
    Drop,
    Pass(usize),
    /// The flow becomes another, if there is one left. The outputs are those of packets and of replies.
    Map(Option<Flow>, (usize, usize)),
}

/// The end of a flow that a mapping of addresses leaves open. No address is the same, since its port is 0.
const ANY: (Ip, u16) = (Ip(0), 1);

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
        let range = match pattern.range {
            Some(range) if range.len() > 1 => range,
            // There is no other choice: the flow that has become the same makes way.
            only => {
                let only = make(only.map(|range| range.low));
                return Some(only).filter(|f| flows.may_replace(f.reverse(), cx.now()));
            }
        };
        let own = if self.parts == Parts::Addresses { flow.src.0.0 } else { flow.src.1.into() };
        if pattern.order == Order::Own && range.index(own).is_some() && is_free(&make(Some(own))) {
            return Some(make(Some(own)));
        }
        let in_order = pattern.order == Order::Next;
        let first = if in_order { pattern.next.get() } else { cx.random(range.len()) };
        let mut tried = range.tried(first, |most| cx.random(most));
        let found = tried.find(|i| is_free(&make(Some(range.get(*i)))))?;
        pattern.next.set((found + 1) % range.len());
        Some(make(Some(range.get(found))))
    }

    /// Returns what is done with a packet without a mapping, if it may begin a flow.
    fn rule(&self, cx: &Cx<'_>, port: usize, flow: Option<Flow>) -> Rule {
        let specs = self.specs.borrow();
        match (specs.get(port), flow) {
            (Some(Spec::Pass(output)), _) => Rule::Pass(*output),
            (Some(Spec::Keep(fout, rout)), Some(flow)) => {
                let is_free = self.flows.borrow().peek(flow.reverse(), cx.now()).is_none();
                Rule::Map(Some(flow).filter(|_| is_free), (*fout, *rout))
            }
            (Some(Spec::Pattern(pattern, fout, rout)), Some(flow)) => {
                Rule::Map(self.choose(cx, flow, pattern), (*fout, *rout))
            }
            _ => Rule::Drop,
        }
    }

    /// Returns the other rewriters whose flows count for the same capacity.
    fn others(&self, cx: &Cx<'_>) -> Vec<Rc<dyn Element>> {
        let at = self.owner.get().unwrap_or(cx.me);
        if at == cx.me && self.sharers.borrow().is_empty() {
            return Vec::new();
        }
        let owner = cx.router.element(at);
        let sharers = Self::of(&*owner).map(|o| o.sharers.borrow().clone()).unwrap_or_default();
        let sharers = sharers.into_iter().filter_map(|s| cx.router.index(s)).filter(|i| *i != cx.me);
        let shares = |e: &Rc<dyn Element>| Self::of(&**e).is_some_and(|s| s.owner.get() == Some(at));
        let sharers = sharers.map(|i| cx.router.element(i)).filter(shares);
        std::iter::once(owner).filter(|_| at != cx.me).chain(sharers).collect()
    }

    /// Returns this rewriter and others.
    fn with<'a>(&'a self, others: &'a [Rc<dyn Element>]) -> impl Iterator<Item = &'a Self> {
        std::iter::once(self).chain(others.iter().filter_map(|e| Self::of(&**e)))
    }

    /// Returns a property of the flows of the rewriter whose capacity counts.
    fn owned<T>(&self, cx: &Cx<'_>, get: impl FnOnce(&mut Flows) -> T) -> T {
        let Some(at) = self.owner.get() else { return get(&mut self.flows.borrow_mut()) };
        let owner = cx.router.element(at);
        let flows = Self::of(&*owner).map_or(&self.flows, |o| &o.flows);
        get(&mut flows.borrow_mut())
    }

    /// Returns how many flows count for the capacity.
    fn size(&self, others: &[Rc<dyn Element>]) -> usize {
        self.with(others).map(|r| r.flows.borrow().size()).sum()
    }

    /// Removes flows until there is room for `new`, or for those that are there. Returns whether there is
    /// room now: a new flow only makes others end that have no guarantee and end no later than it would.
    fn make_room(&self, cx: &Cx<'_>, new: Option<Flow>) -> bool {
        let (others, now) = (self.others(cx), cx.now());
        let capacity = self.owned(cx, |flows| flows.capacity);
        let end = new.and_then(|flow| self.flows.borrow().end_of_new(flow, now));
        while self.size(&others) + usize::from(new.is_some()) > capacity {
            let first = |r: &Self| r.flows.borrow_mut().first(now);
            let all = self.with(&others).filter_map(|r| Some((first(r)?, r)));
            let Some(((is_guaranteed, time), one)) = all.min_by_key(|(first, _)| *first) else {
                return false;
            };
            if new.is_some() && (is_guaranteed || end.is_some_and(|end| end < time)) {
                return false;
            }
            one.flows.borrow_mut().remove_first();
        }
        true
    }

    fn insert(&self, cx: &Cx<'_>, p: &Packet, rewriting: Rewriting) -> bool {
        let Rewriting { from, to, .. } = rewriting;
        let was_empty = self.flows.borrow().size() == 0;
        self.flows.borrow_mut().make_way(from, to);
        let has_room = self.make_room(cx, Some(from));
        match has_room {
            true => self.flows.borrow_mut().insert(rewriting, cx.now(), Signs::of(p)),
            false => add(&self.failures, 1),
        }
        if was_empty {
            self.start_reaping(cx);
        }
        has_room
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
            let message = &mut p.data_mut()[at..h.end()];
            put16(message, 4, to.src.1);
            return adjust_icmp(message, &[(from.src.1, to.src.1)]);
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
            Parts::Ports => return Flow::of(p).filter(|f| !self.is_tcp || f.protocol == 6),
            Parts::Echo => return Flow::of_echo(p),
            Parts::Addresses => {}
        }
        let h = ip_header(p)?;
        Some(Flow::new(0, (h.source, 0), (h.destination, 0)))
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
        let Some(flow) = self.key(&p) else {
            return match self.rule(cx, port, None) {
                Rule::Pass(output) => cx.push_or_drop(output, "no output", p),
                _ => cx.drop("not a flow", p),
            };
        };
        let keys = self.keys(flow);
        let (now, signs) = (cx.now(), Signs::of(&p));
        let found = keys.iter().find_map(|k| self.flows.borrow_mut().find(*k, now, signs));
        if let Some(Found { to, output, reply_anno }) = found {
            self.rewrite(&mut p, flow, self.fill(flow, to));
            if let Some((at, value)) = self.reply_anno.zip(reply_anno) {
                p.anno.bytes[at] = value;
            }
            return cx.push_or_drop(output, "no output", p);
        }
        let from = keys[0];
        let may_begin = self.parts != Parts::Echo || is_request(&p);
        let (to, outputs) = match self.rule(cx, port, Some(from).filter(|_| may_begin)) {
            Rule::Drop => return cx.drop("no mapping", p),
            Rule::Pass(output) => return cx.push_or_drop(output, "no output", p),
            Rule::Map(to, outputs) => (to, outputs),
        };
        if to.is_none() {
            add(&self.failures, 1);
        }
        let reply_anno = self.reply_anno.map_or(0, |at| p.anno.bytes[at]);
        let make = |to| Rewriting { from, to, outputs, input: port, reply_anno };
        match to.filter(|to| self.insert(cx, &p, make(*to))) {
            Some(to) => {
                self.rewrite(&mut p, flow, self.fill(flow, to));
                cx.push_or_drop(outputs.0, "no output", p);
            }
            None => cx.drop("no free mapping", p),
        }
    }

    fn of(element: &dyn Element) -> Option<&Self> {
        (element as &dyn Any).downcast_ref()
    }

    /// Returns the text of an input's spec, with the number of flows that came there first.
    fn show_spec(&self, input: usize) -> Option<String> {
        let specs = self.specs.borrow();
        let text = match specs.get(input)? {
            Spec::Pattern(p, ..) => p.text.as_str(),
            Spec::Drop => "<drop>",
            Spec::Pass(..) => "<nochange>",
            Spec::Keep(..) => "<keep>",
        };
        Some(match self.flows.borrow().count(input) {
            0 => format!("{text}\n"),
            count => format!("{text} [{count}]\n"),
        })
    }

    /// Returns the mappings of flows of a protocol, or of all, one to a line.
    fn show_table(&self, now: Nanos, protocol: Option<u8>) -> String {
        let port = |port: u16| if self.parts == Parts::Addresses { 0 } else { port };
        let show = |f: Flow| format!("({}, {}, {}, {})", f.src.0, port(f.src.1), f.dst.0, port(f.dst.1));
        let line = |m: Mapping| {
            let marks = if m.is_reply { ("", "*") } else { ("*", "") };
            let outputs = format!("{}{} {}{}", marks.0, m.outputs.0, marks.1, m.outputs.1);
            let left = ((m.end - now).0.max(0) + SECOND / 2) / SECOND;
            format!("{} => {} [{outputs}] i{} exp{left}\n", show(m.from), show(m.to), m.input)
        };
        let flows = self.flows.borrow();
        let those = flows.mappings().filter(|m| protocol.is_none_or(|p| m.from.protocol == p));
        let mut lines: Vec<String> = those.map(line).collect();
        lines.sort();
        lines.concat()
    }

    /// Returns what the flow of a TCP packet `SADDR SPORT DADDR DPORT` becomes: nothing if it is unknown.
    fn look_up(&self, cx: &Cx<'_>, argument: &str) -> Result<String, String> {
        let words = text::words(argument);
        let end = |ip: &String, port: &String| Some((Ip::read(ip, &cx.scope())?, port.parse().ok()?));
        let ends = match &words[..] {
            [src, sport, dst, dport] => end(src, sport).zip(end(dst, dport)),
            _ => None,
        };
        let (src, dst) =
            ends.ok_or_else(|| format!("expected SADDR SPORT DADDR DPORT, found '{argument}'"))?;
        let found = self.flows.borrow().peek(Flow::new(6, src, dst), cx.now());
        let show = |f: Flow| format!("{} {} {} {}", f.src.0, f.src.1, f.dst.0, f.dst.1);
        Ok(found.map_or_else(String::new, |found| show(found.to)))
    }

    /// Gives an input another spec. The flows that came there first end.
    fn set_spec(&self, cx: &Cx<'_>, input: usize, line: &str) -> Result<(), String> {
        let (class, outputs) = (cx.class(), cx.outputs());
        let (graph, named) = (&cx.router.graph, &OnceCell::new());
        let place = Place { class, outputs, scope: cx.scope(), graph, named };
        let new = spec(line, place).map_err(|e| format!("input spec {input}: {e}"))?;
        if let Some(spec) = self.specs.borrow_mut().get_mut(input) {
            *spec = new;
        }
        self.flows.borrow_mut().remove_of(input);
        Ok(())
    }

    fn set_capacity(&self, cx: &Cx<'_>, value: &str) -> Result<(), String> {
        let capacity = integer(value).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let capacity = capacity.ok_or_else(|| format!("expected a positive number, found '{value}'"))?;
        self.owned(cx, |flows| flows.capacity = capacity);
        self.with(&self.others(cx)).for_each(|r| r.flows.borrow_mut().reap(cx.now()));
        self.make_room(cx, None);
        Ok(())
    }
}

/// The number of an input's handler.
fn pattern_number(handler: &str) -> Option<usize> {
    handler.strip_prefix("pattern")?.parse().ok()
}

/// The handlers: first those of TCPRewriter and of rewriters of ports, last those of single inputs.
const HANDLERS: &[(&str, &str)] = &[
    ("lookup", "r"),
    ("tcp_table", "r"),
    ("udp_table", "r"),
    ("tcp_lookup", "r"),
    ("patterns", "r"),
    ("table", "r"),
    ("mappings", "r"),
    ("nmappings", "r"),
    ("mapping_failures", "r"),
    ("size", "r"),
    ("capacity", "rw"),
    ("clear", "w"),
    ("pattern0", "rw"),
    ("pattern1", "rw"),
    ("pattern2", "rw"),
    ("pattern3", "rw"),
    ("pattern4", "rw"),
    ("pattern5", "rw"),
    ("pattern6", "rw"),
    ("pattern7", "rw"),
];

/// The numbers of the first and last of [`HANDLERS`].
const OF_TCP: usize = 1;
const OF_PORTS: usize = 3;
const OF_INPUTS: usize = 8;

impl Element for Rewriter {
    fn push(&self, cx: &Cx<'_>, port: usize, mut batch: Batch) {
        batch.drain(..).for_each(|p| self.packet(cx, port, p));
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        self.flows.borrow_mut().reap(cx.now());
        // Without flows, simulated time would never end.
        self.start_reaping(cx);
    }

    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        let Some(name) = &self.shared else { return Ok(()) };
        let found = cx.router.lookup(cx.name(), name).filter(|at| *at != cx.me);
        let owner = found.map(|at| (at, cx.router.element(at)));
        let Some((at, owner)) = owner.as_ref().and_then(|(at, e)| Some((*at, Self::of(&**e)?))) else {
            return Err(format!("MAPPING_CAPACITY: expected a number or a rewriter, found '{name}'"));
        };
        if owner.shared.is_some() {
            return Err(format!("MAPPING_CAPACITY: '{name}' shares that of another rewriter itself"));
        }
        // The element that this one replaces may be an owner, and is still in its place.
        let current = cx.router.element(cx.me);
        if Self::of(&*current).is_some_and(|r| r.owner.get().is_none() && !r.others(cx).is_empty()) {
            return Err(format!("MAPPING_CAPACITY: others share that of '{}' itself", cx.name()));
        }
        self.owner.set(Some(at));
        owner.sharers.borrow_mut().insert(cx.router.handle(cx.me));
        Ok(())
    }

    fn read(&self, cx: &Cx<'_>, name: &str, argument: &str) -> Option<Result<String, String>> {
        let has_ports = self.parts == Parts::Ports;
        Some(Ok(match name {
            "patterns" => (0..self.specs.borrow().len()).filter_map(|i| self.show_spec(i)).collect(),
            "table" | "mappings" => self.show_table(cx.now(), None),
            "tcp_table" if has_ports => self.show_table(cx.now(), Some(6)),
            "udp_table" if has_ports => self.show_table(cx.now(), Some(17)),
            "lookup" if self.is_tcp => return Some(self.look_up(cx, argument)),
            "tcp_lookup" if has_ports => return Some(self.look_up(cx, argument)),
            "nmappings" => self.flows.borrow().len().to_string(),
            "size" => self.size(&self.others(cx)).to_string(),
            "capacity" => self.owned(cx, |flows| flows.capacity).to_string(),
            "mapping_failures" => self.failures.get().to_string(),
            _ => return pattern_number(name).and_then(|i| self.show_spec(i)).map(Ok),
        }))
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        match name {
            "clear" => self.with(&self.others(cx)).for_each(|r| r.flows.borrow_mut().clear()),
            "capacity" => return Some(self.set_capacity(cx, value)),
            _ => {
                let input = pattern_number(name).filter(|i| *i < self.specs.borrow().len())?;
                return Some(self.set_spec(cx, input, value));
            }
        }
        Some(Ok(()))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        let first = match self.parts {
            Parts::Ports if self.is_tcp => 0,
            Parts::Ports => OF_TCP,
            Parts::Addresses | Parts::Echo => OF_TCP + OF_PORTS,
        };
        let inputs = self.specs.borrow().len().min(OF_INPUTS);
        &HANDLERS[first..HANDLERS.len() - OF_INPUTS + inputs]
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.failures]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        if let Some(old) = Self::of(old) {
            // Those of the router before are gone, and another one comes with each swap.
            let old_sharers = old.sharers.borrow();
            let present = old_sharers.iter().filter(|s| cx.router.index(**s).is_some());
            self.sharers.borrow_mut().extend(present);
            self.flows.borrow_mut().take_over(&mut old.flows.borrow_mut());
            // Others that share the capacity may have taken theirs over before.
            self.make_room(cx, None);
            self.start_reaping(cx);
        }
    }
}

/// Returns whether an ICMP packet asks for an echo.
fn is_request(p: &Packet) -> bool {
    ip_header(p).is_some_and(|h| p.data().get(h.payload()) == Some(&ECHO))
}

/// Returns what becomes of a packet of a flow in a rewriter, without using that. `None` if the element is
/// no rewriter, or has no such flow. Only addresses are known of a flow without ports.
pub fn peek(element: &dyn Element, flow: Flow, has_ports: bool, now: Nanos) -> Option<Found> {
    let rewriter = Rewriter::of(element)?;
    let has_its_flows = match rewriter.parts {
        Parts::Ports => has_ports && flow.protocol != 1,
        Parts::Echo => has_ports && flow.protocol == 1,
        Parts::Addresses => true,
    };
    let key = match rewriter.parts {
        Parts::Addresses => Flow::new(0, (flow.src.0, 0), (flow.dst.0, 0)),
        _ => flow,
    };
    let flows = rewriter.flows.borrow();
    let found = rewriter.keys(key).into_iter().find_map(|k| flows.peek(k, now)).filter(|_| has_its_flows)?;
    Some(match rewriter.parts {
        // Ports stay as they are.
        Parts::Addresses => {
            let filled = rewriter.fill(key, found.to);
            let to = Flow { src: (filled.src.0, flow.src.1), dst: (filled.dst.0, flow.dst.1), ..flow };
            Found { to, ..found }
        }
        _ => found,
    })
}

/// Returns whether an element is a rewriter.
pub fn is_rewriter(element: &dyn Element) -> bool {
    Rewriter::of(element).is_some()
}

/// Reads REPLY_ANNO: PAINT, or the number of a byte.
pub fn reply_anno(args: &mut Args<'_>) -> Option<usize> {
    let text: String = args.key("REPLY_ANNO")?;
    let at = match text.as_str() {
        "PAINT" => Some(ANNO_PAINT),
        number => number.parse().ok().filter(|at| *at < 48),
    };
    if at.is_none() {
        args.error(format!("REPLY_ANNO: expected PAINT or a number below 48, found '{text}'"));
    }
    at
}

fn rewriter(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let seconds = |n: i64| Nanos(n * SECOND);
    let guarantee = args.key("GUARANTEE").unwrap_or(seconds(5));
    let start = args.key("UDP_TIMEOUT").or_else(|| args.key("TIMEOUT")).unwrap_or(seconds(300));
    let other = Timeouts {
        start,
        both: args.key("UDP_STREAMING_TIMEOUT").or_else(|| args.key("STREAMING_TIMEOUT")).unwrap_or(start),
        done: start,
        guarantee: args.key("UDP_GUARANTEE").unwrap_or(guarantee),
    };
    let tcp = Timeouts {
        start: args.key("TCP_NODATA_TIMEOUT").unwrap_or(seconds(300)),
        both: args.key("TCP_TIMEOUT").unwrap_or(seconds(86_400)),
        done: args.key("TCP_DONE_TIMEOUT").unwrap_or(seconds(240)),
        guarantee: args.key("TCP_GUARANTEE").unwrap_or(guarantee),
    };
    let (capacity, shared) = match args.key::<String>("MAPPING_CAPACITY") {
        None => (CAPACITY, None),
        Some(text) => match integer(&text).map(|n| u32::try_from(n).unwrap_or(0)) {
            Some(0) => {
                args.error(format!("MAPPING_CAPACITY: expected a positive number, found {text}"));
                (CAPACITY, None)
            }
            Some(capacity) => (capacity as usize, None),
            None => (CAPACITY, Some(text)),
        },
    };
    let dst_anno = args.key("DST_ANNO").unwrap_or(true);
    let reply_anno = reply_anno(args);
    let reap_interval = args.key("REAP_INTERVAL").unwrap_or(seconds(900));
    let lines = args.rest();
    if lines.len() != setup.inputs {
        args.error(format!("need {} specs, one for each input, found {}", setup.inputs, lines.len()));
    }
    let mut specs = Vec::new();
    let (class, outputs) = (setup.class, setup.outputs);
    let (graph, named) = (setup.router.graph, &setup.router.named_lines);
    let place = Place { class, outputs, scope: args.scope(), graph, named };
    for (i, line) in lines.iter().enumerate() {
        match spec(line, place) {
            Ok(s) => specs.push(s),
            Err(e) => args.error(format!("input spec {i}: {e}")),
        }
    }
    // To UDPRewriter, TCP is as UDP.
    let tcp = (class != "UDPRewriter").then_some(tcp);
    Box::new(Rewriter {
        specs: RefCell::new(specs),
        parts: match setup.class {
            "IPAddrRewriter" => Parts::Addresses,
            "ICMPPingRewriter" => Parts::Echo,
            _ => Parts::Ports,
        },
        is_tcp: class == "TCPRewriter",
        flows: RefCell::new(Flows::new(capacity, tcp, other)),
        reap_interval,
        dst_anno,
        reply_anno,
        failures: Cell::new(0),
        shared,
        owner: Cell::new(None),
        sharers: RefCell::default(),
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
        "REPLY_ANNO",
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
        "STREAMING_TIMEOUT",
        "UDP_STREAMING_TIMEOUT",
        "UDP_GUARANTEE",
        "GUARANTEE",
        "DST_ANNO",
        "REPLY_ANNO",
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
        "REPLY_ANNO",
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
    ["TIMEOUT", "GUARANTEE", "DST_ANNO", "REPLY_ANNO", "REAP_INTERVAL", "MAPPING_CAPACITY"],
    rewriter
);

class!(
    ICMP_PING_REWRITER,
    "ICMPPingRewriter",
    "1-/1-",
    "h/h",
    ["TIMEOUT", "GUARANTEE", "DST_ANNO", "REPLY_ANNO", "REAP_INTERVAL", "MAPPING_CAPACITY"],
    rewriter
);

struct Patterns;
impl Element for Patterns {}
class!(PATTERNS, "IPRewriterPatterns", "0/0", "a/a", [], |args, _| {
    for line in args.rest() {
        let words = text::words(&line);
        if let Err(e) = pattern(words.get(1..).unwrap_or(&[]), &args.scope()) {
            args.error(e);
        }
    }
    Box::new(Patterns)
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, Router};

    #[test]
    fn sharers_of_former_routers_are_forgotten() {
        let text = "Idle -> a :: IPRewriter(keep 0 0) -> Discard;
            Idle -> b :: IPRewriter(keep 0 0, MAPPING_CAPACITY a) -> Discard";
        let made = || {
            let graph = flame_graph::read(text.as_bytes(), "f", &flame_graph::Options::default()).unwrap();
            Router::new(graph, text, Environment::silent(None)).unwrap()
        };
        let mut router = made();
        for _ in 0..3 {
            let new = made();
            new.take_state(&router);
            router = new;
            let a = router.graph.find("a").unwrap();
            let b = router.handle(router.graph.find("b").unwrap());
            router.reconfigure(a, "keep 0 0").unwrap();
            let element = router.element(a);
            assert_eq!(*Rewriter::of(&*element).unwrap().sharers.borrow(), BTreeSet::from([b]));
        }
    }
}
