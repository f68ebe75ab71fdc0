//! IPRewriter, UDPRewriter, TCPRewriter(SPEC…), IPAddrRewriter(SPEC…): rewrite addresses and ports of flows,
//! both
//! ways. A SPEC for each input: `drop`, `pass OUT`, `keep FOUT ROUT`, `nochange OUT`, or `pattern SADDR SPORT
//! DADDR DPORT FOUT ROUT`, with `-` for unchanged and `1024-65535#` for a free port of a range (`?`: at
//! random).
//! IPAddrRewriter's patterns are `pattern SADDR[-SADDR2] DADDR FOUT ROUT`.
//! Expects: TCP and UDP packets (any IP packets) with marked IP headers.
//! Gives: packets on the outputs of the specs; those without a mapping or free port are dropped.
//! Handlers: patterns, table, nmappings, mapping_failures, clear (w).
//! Example: `rw :: IPRewriter(pattern 1.0.0.1 1024-65535# - - 0 1, drop)`
//!
//! IPRewriterPatterns(NAME SADDR SPORT DADDR DPORT, …): names patterns for rewriters.
//! Expects: no packets.
//! Gives: no packets.
//! Handlers: none.
//! Example: `IPRewriterPatterns(nat 1.0.0.1 1024-65535# - -)`

use super::ip::set_ip;
use super::util::{be16, ip_header, put16, update};
use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{Batch, Packet};
use flame_click::time::SECOND;
use flame_click::{Args, Ip, Nanos, Value, text};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

const SOURCE: &str = include_str!("rewriter.rs");

/// (protocol, source, port, destination, port). Ports are 0 where only addresses count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flow {
    protocol: u8,
    src: (Ip, u16),
    dst: (Ip, u16),
}

impl Flow {
    fn reverse(self) -> Self {
        Self { src: self.dst, dst: self.src, ..self }
    }

    fn of(p: &Packet) -> Option<Self> {
        let h = ip_header(p)?;
        let t = &p.data()[h.payload()..];
        if !matches!(h.protocol, 6 | 17) || !h.is_first_fragment() || t.len() < 8 {
            return None;
        }
        let (src, dst) = ((h.source, be16(t, 0)), (h.destination, be16(t, 2)));
        Some(Self { protocol: h.protocol, src, dst })
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Pattern {
    src: Option<Ip>,
    /// The first and last port (or address), and whether to choose in order or at random.
    range: Option<(u32, u32)>,
    random: bool,
    dst: Option<Ip>,
    dport: Option<u16>,
    next: Cell<u32>,
    text: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Spec {
    Drop,
    Pass(usize),
    Keep(usize, usize),
    Pattern(Pattern, usize, usize),
}

struct Mapping {
    to: Flow,
    output: usize,
    used: Cell<Nanos>,
}

struct Rewriter {
    specs: Vec<Spec>,
    addresses_only: bool,
    map: RefCell<HashMap<Flow, Mapping>>,
    timeout: Nanos,
    failures: Cell<u64>,
}

/// Mappings of both directions that are kept.
const MOST: usize = 262_144;

impl Rewriter {
    /// Finds what a new flow becomes.
    fn choose(&self, cx: &Cx<'_>, flow: Flow, pattern: &Pattern) -> Option<Flow> {
        let map = self.map.borrow();
        let dst = (pattern.dst.unwrap_or(flow.dst.0), pattern.dport.unwrap_or(flow.dst.1));
        let make = |choice: Option<u32>| {
            let src = match (self.addresses_only, choice) {
                (true, Some(ip)) => (Ip(ip), flow.src.1),
                (false, Some(port)) => (pattern.src.unwrap_or(flow.src.0), port as u16),
                (_, None) => (pattern.src.unwrap_or(flow.src.0), flow.src.1),
            };
            Flow { src, dst, ..flow }
        };
        let is_free = |f: &Flow| !map.contains_key(&f.reverse());
        let Some((low, high)) = pattern.range else { return Some(make(None)).filter(is_free) };
        let count = high - low + 1;
        let first = if pattern.random { cx.random(count.into()) as u32 } else { pattern.next.get() % count };
        let found = (0..count).map(|i| (first + i) % count).find(|c| is_free(&make(Some(low + c))))?;
        pattern.next.set(found + 1);
        Some(make(Some(low + found)))
    }

    fn insert(&self, cx: &Cx<'_>, from: Flow, to: Flow, outputs: (usize, usize)) -> bool {
        let mut map = self.map.borrow_mut();
        if map.len() + 2 > MOST {
            return false;
        }
        if map.is_empty() {
            cx.timer_after(0, self.timeout);
        }
        let used = Cell::new(cx.now());
        map.insert(to.reverse(), Mapping { to: from.reverse(), output: outputs.1, used: used.clone() });
        map.insert(from, Mapping { to, output: outputs.0, used });
        true
    }

    /// Applies a mapping to a packet.
    fn rewrite(p: &mut Packet, from: Flow, to: Flow) {
        if from.src.0 != to.src.0 {
            set_ip(p, true, to.src.0);
        }
        if from.dst.0 != to.dst.0 {
            set_ip(p, false, to.dst.0);
            p.anno.set_dst_ip(to.dst.0);
        }
        let Some(h) = ip_header(p).filter(|h| h.is_first_fragment()) else { return };
        let at = h.payload();
        let check = at + if h.protocol == 6 { 16 } else { 6 };
        let has_check = check + 2 <= h.end();
        let d = p.data_mut();
        for (offset, old, new) in [(0, from.src.1, to.src.1), (2, from.dst.1, to.dst.1)] {
            if old != new {
                put16(d, at + offset, new);
                if has_check && (h.protocol == 6 || be16(d, check) != 0) {
                    let value = update(be16(d, check), old, new);
                    put16(d, check, value);
                }
            }
        }
    }

    fn key(&self, p: &Packet) -> Option<Flow> {
        if !self.addresses_only {
            return Flow::of(p);
        }
        let h = ip_header(p)?;
        Some(Flow { protocol: 0, src: (h.source, 0), dst: (h.destination, 0) })
    }

    fn packet(&self, cx: &Cx<'_>, port: usize, mut p: Packet) {
        let Some(flow) = self.key(&p) else { return cx.drop("not a flow", p) };
        let any = (Ip(0), 0);
        // Addresses are mapped one by one: a source on its way out, a destination on its way back.
        let keys = match self.addresses_only {
            true => [Flow { dst: any, ..flow }, Flow { src: any, ..flow }],
            false => [flow, flow],
        };
        let found = {
            let map = self.map.borrow();
            keys.iter().find_map(|k| map.get(k)).map(|m| {
                m.used.set(cx.now());
                (m.to, m.output)
            })
        };
        if let Some((mut to, output)) = found {
            if self.addresses_only {
                to.src = if to.src == any { flow.src } else { to.src };
                to.dst = if to.dst == any { flow.dst } else { to.dst };
            }
            Self::rewrite(&mut p, flow, to);
            return cx.push_or_drop(output, "no output", p);
        }
        match self.specs.get(port).unwrap_or(&Spec::Drop) {
            Spec::Drop => cx.drop("no mapping", p),
            Spec::Pass(output) => cx.push_or_drop(*output, "no output", p),
            Spec::Keep(fout, rout) => {
                self.insert(cx, flow, flow, (*fout, *rout));
                cx.push_or_drop(*fout, "no output", p);
            }
            Spec::Pattern(pattern, fout, rout) => {
                let from = if self.addresses_only { Flow { dst: any, ..flow } } else { flow };
                let to = self.choose(cx, from, pattern);
                match to.filter(|to| self.insert(cx, from, *to, (*fout, *rout))) {
                    Some(mut to) => {
                        if self.addresses_only {
                            to.dst = if to.dst == any { flow.dst } else { to.dst };
                        }
                        Self::rewrite(&mut p, flow, to);
                        cx.push_or_drop(*fout, "no output", p);
                    }
                    None => {
                        add(&self.failures, 1);
                        cx.drop("no free mapping", p);
                    }
                }
            }
        }
    }
}

impl Element for Rewriter {
    fn push(&self, cx: &Cx<'_>, port: usize, mut batch: Batch) {
        batch.drain(..).for_each(|p| self.packet(cx, port, p));
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        let now = cx.now();
        let mut map = self.map.borrow_mut();
        let old: Vec<Flow> =
            map.iter().filter(|(_, m)| now - m.used.get() >= self.timeout).map(|(f, _)| *f).collect();
        for flow in old {
            // A mapping lives while either of its directions is in use.
            let reverse = map.get(&flow).map(|m| m.to.reverse());
            let in_use = reverse.and_then(|r| map.get(&r)).is_some_and(|m| now - m.used.get() < self.timeout);
            if !in_use {
                map.remove(&flow);
                reverse.map(|r| map.remove(&r));
            }
        }
        if !map.is_empty() {
            cx.timer_after(0, self.timeout);
        }
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "patterns" => {
                let line = |s: &Spec| match s {
                    Spec::Pattern(p, ..) => format!("{}\n", p.text),
                    Spec::Drop => "<drop>\n".into(),
                    Spec::Pass(..) => "<pass>\n".into(),
                    Spec::Keep(..) => "<nochange>\n".into(),
                };
                self.specs.iter().map(line).collect()
            }
            "table" | "mappings" => {
                let show = |f: &Flow| format!("({}, {}, {}, {})", f.src.0, f.src.1, f.dst.0, f.dst.1);
                let map = self.map.borrow();
                let mut lines: Vec<_> = map
                    .iter()
                    .map(|(f, m)| format!("{} => {} [{}]\n", show(f), show(&m.to), m.output))
                    .collect();
                lines.sort();
                lines.concat()
            }
            "nmappings" => self.map.borrow().len().to_string(),
            "mapping_failures" => self.failures.get().to_string(),
            _ => return None,
        }))
    }

    fn write(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<(), String>> {
        (name == "clear").then(|| {
            self.map.borrow_mut().clear();
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
            ("clear", "w"),
        ]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        if let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() {
            *self.map.borrow_mut() = std::mem::take(&mut *old.map.borrow_mut());
            cx.timer_after(0, self.timeout);
        }
    }
}

/// Reads SADDR, SPORT, DADDR and DPORT, or SADDR and DADDR.
fn pattern(words: &[String], addresses_only: bool, args: &Args<'_>) -> Result<Pattern, String> {
    let scope = args.scope();
    let address = |word: &str, what: &str| match word {
        "-" => Ok(None),
        word => Ip::read(word, &scope).map(Some).ok_or_else(|| format!("bad {what} address")),
    };
    let text = words.join(" ");
    let (range_text, random) = match words.get(usize::from(!addresses_only)) {
        Some(w) if w.ends_with('?') => (&w[..w.len() - 1], true),
        Some(w) => (w.trim_end_matches('#'), false),
        None => return Err("bad pattern".into()),
    };
    let mut new =
        Pattern { src: None, range: None, random, dst: None, dport: None, next: Cell::new(0), text };
    if addresses_only {
        let [_, dst] = words else { return Err("expected SADDR and DADDR".into()) };
        new.dst = address(dst, "destination")?;
        if let Some((low, high)) = range_text.split_once('-').filter(|(l, _)| !l.is_empty()) {
            let low = Ip::read(low, &scope).ok_or("bad source address")?;
            let high = Ip::read(high, &scope)
                .or_else(|| high.parse().ok().map(|h: u8| Ip(low.0 & !255 | u32::from(h))));
            let high = high.filter(|h| *h >= low).ok_or("bad source address")?;
            new.range = Some((low.0, high.0));
        } else {
            new.src = address(range_text, "source")?;
        }
        return Ok(new);
    }
    let [src, _, dst, dport] = words else { return Err("expected SADDR, SPORT, DADDR and DPORT".into()) };
    new.src = address(src, "source")?;
    new.dst = address(dst, "destination")?;
    let port = |t: &str| t.parse::<u16>().ok().filter(|p| *p > 0).map(u32::from);
    new.range = match (range_text, range_text.split_once('-')) {
        ("-", _) => None,
        (_, Some((low, high))) => {
            let range = port(low).zip(port(high)).filter(|(l, h)| l <= h);
            Some(range.ok_or("bad source port")?)
        }
        (one, None) => Some(port(one).map(|p| (p, p)).ok_or("bad source port")?),
    };
    if dport != "-" {
        new.dport = Some(dport.parse().map_err(|_| "bad destination port")?);
    }
    Ok(new)
}

/// Reads a pattern of four words for addresses: the second is a range of their last part.
fn four_words(words: &[String], args: &Args<'_>) -> Result<Pattern, String> {
    let (low, high) = words[2].split_once('-').unwrap_or((&words[2], &words[2]));
    let part = |t: &str| t.trim_end_matches(['#', '?']).parse::<u8>().ok();
    let (low, high) = part(low).zip(part(high)).filter(|(l, h)| l <= h).ok_or("bad source port")?;
    let base = Ip::read(&words[1], &args.scope()).ok_or("bad source address")?;
    let at = |n: u8| Ip(base.0 & !255 | u32::from(n));
    let two = [format!("{}-{}#", at(low), at(high)), words[3].clone()];
    pattern(&two, true, args)
}

fn spec(line: &str, setup: &Setup<'_>, args: &Args<'_>) -> Result<Spec, String> {
    let addresses_only = setup.class == "IPAddrRewriter";
    let words = text::words(line);
    let output = |word: Option<&String>| -> Result<usize, String> {
        let n: usize = word.map_or(Ok(0), |w| w.parse()).map_err(|_| "bad output".to_owned())?;
        if n < setup.outputs { Ok(n) } else { Err(format!("output {n} out of range")) }
    };
    match words.first().map(String::as_str) {
        Some("drop" | "discard") => Ok(Spec::Drop),
        Some("pass" | "passthrough") => Ok(Spec::Pass(output(words.get(1))?)),
        Some("nochange" | "keep") => {
            let fout = output(words.get(1))?;
            Ok(Spec::Keep(fout, words.get(2).map_or(Ok(fout), |w| output(Some(w)))?))
        }
        Some("pattern") => {
            let count = if addresses_only && words.len() < 6 { 2 } else { 4 };
            if addresses_only && count == 4 {
                return four_words(&words, args)
                    .and_then(|p| Ok(Spec::Pattern(p, output(words.get(5))?, output(words.get(6))?)));
            }
            if words.len() == 4 || addresses_only && words.len() == 4 && !words[1].contains(['.', '-']) {
                // `pattern NAME FOUT ROUT`
                let named = setup.router.graph.elements.iter().filter(|e| e.class == "IPRewriterPatterns");
                let lines = named.flat_map(|e| text::split(&e.config));
                let found = lines.map(|l| text::words(&l)).find(|w| w.first() == words.get(1));
                if let Some(found) = found {
                    let p = pattern(&found[1..], addresses_only, args)?;
                    return Ok(Spec::Pattern(p, output(words.get(2))?, output(words.get(3))?));
                }
            }
            let body = words.get(1..=count).ok_or("bad pattern")?;
            let p = pattern(body, addresses_only, args)?;
            Ok(Spec::Pattern(p, output(words.get(count + 1))?, output(words.get(count + 2))?))
        }
        _ => Err(format!("expected drop, pass, keep, nochange or pattern, found '{line}'")),
    }
}

fn rewriter(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let timeouts =
        ["TIMEOUT", "TCP_TIMEOUT", "UDP_TIMEOUT", "TCP_NODATA_TIMEOUT", "TCP_DONE_TIMEOUT", "GUARANTEE"];
    let timeouts = timeouts.map(|k| args.key::<Nanos>(k));
    args.key::<bool>("DST_ANNO");
    args.key::<Nanos>("REAP_INTERVAL");
    args.key::<u32>("MAPPING_CAPACITY");
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
        addresses_only: setup.class == "IPAddrRewriter",
        map: RefCell::default(),
        timeout: timeouts.into_iter().flatten().next().unwrap_or(Nanos(300 * SECOND)),
        failures: Cell::new(0),
    })
}

class!(
    IP_REWRITER,
    "IPRewriter",
    "1-/1-",
    "h/h",
    [
        "TIMEOUT",
        "TCP_TIMEOUT",
        "UDP_TIMEOUT",
        "TCP_NODATA_TIMEOUT",
        "TCP_DONE_TIMEOUT",
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
    ["TIMEOUT", "UDP_TIMEOUT", "GUARANTEE", "DST_ANNO", "REAP_INTERVAL", "MAPPING_CAPACITY"],
    rewriter
);
class!(
    TCP_REWRITER,
    "TCPRewriter",
    "1-/1-",
    "h/h",
    [
        "TIMEOUT",
        "TCP_TIMEOUT",
        "TCP_NODATA_TIMEOUT",
        "TCP_DONE_TIMEOUT",
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
