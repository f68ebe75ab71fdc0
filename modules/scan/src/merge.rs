//! The probes of all workers together, and the rows.
//!
//! A message is a byte for the kind (0 for a source, 1 for a pair), source and target (17 bytes each), first
//! and last time and number of probes as little-endian u64s, and the registers of hosts (of a source only)
//! and ports.

use crate::distinct::{Distinct, REGISTERS};
use crate::probes::{Probes, Source, Span};
use crate::tables::{self, Params, ScanKind};
use flame_module::{Init, Ip, Out, Progress, Slow};
use std::collections::BTreeMap;

/// The largest number of sources and pairs that the slow instance keeps in a window.
const MOST: usize = 32_768;

/// Thresholds and windows.
#[derive(Clone, Copy)]
pub struct Rule {
    pub hosts: u64,
    pub ports: u64,
    window: u64,
    current: Option<u64>,
}

impl Rule {
    pub fn new(params: &Params) -> Self {
        Self { hosts: params.hosts.into(), ports: params.ports.into(), window: params.window, current: None }
    }

    /// Returns whether a window ends at a tick.
    pub fn is_over(&mut self, now_ns: u64) -> bool {
        let window = now_ns / self.window;
        self.current.replace(window).is_some_and(|before| before != window)
    }
}

/// Sends what may be part of a scan, and begins again. With several workers that is everything, since other
/// parts of a scan are elsewhere.
pub fn send(probes: &mut Probes, rule: &Rule, workers: u32, out: &mut Out) {
    let least = |threshold: u64| if workers > 1 { 1 } else { threshold };
    let mut message = Vec::with_capacity(64 + 2 * REGISTERS);
    let mut one = |kind: u8, (src, dst): (Ip, Ip), span: &Span, registers: &[&[u8]]| {
        message.clear();
        message.push(kind);
        for ip in [src, dst] {
            message.push(ip.family);
            message.extend_from_slice(&ip.bytes);
        }
        for word in [span.first, span.last, span.probes] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        registers.iter().for_each(|r| message.extend_from_slice(r));
        out.message(&message);
    };
    for (src, source) in probes.sources.iter() {
        if source.span.probes >= least(rule.hosts) && source.hosts.count() >= least(rule.hosts) {
            one(0, (*src, source.dst), &source.span, &[&source.hosts.0, &source.ports.0]);
        }
    }
    for ((src, dst), pair) in probes.pairs.iter() {
        if pair.span.probes >= least(rule.ports) && pair.ports.count() >= least(rule.ports) {
            one(1, (*src, *dst), &pair.span, &[&pair.ports.0]);
        }
    }
    probes.sources.clear();
    probes.pairs.clear();
}

/// The slow path.
pub struct Merge {
    rule: Rule,
    sources: BTreeMap<Ip, Source>,
    pairs: BTreeMap<(Ip, Ip), Source>,
}

impl Slow for Merge {
    fn new(init: &Init) -> Self {
        Self { rule: Rule::new(&Params::from(init)), sources: BTreeMap::new(), pairs: BTreeMap::new() }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        let Some((head, registers)) = bytes.split_first_chunk::<59>() else { return };
        let ip = |at: usize| {
            let mut bytes = [0; 17];
            bytes.copy_from_slice(&head[at..at + 17]);
            Ip::from_bytes(bytes)
        };
        let word = |n: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[35 + 8 * n..43 + 8 * n]);
            u64::from_le_bytes(bytes)
        };
        let (src, dst) = (ip(1), ip(18));
        let registers = registers.as_chunks::<REGISTERS>().0;
        let is_full = self.sources.len() + self.pairs.len() >= MOST;
        let sum = match head[0] {
            0 if !is_full || self.sources.contains_key(&src) => self.sources.entry(src).or_default(),
            1 if !is_full || self.pairs.contains_key(&(src, dst)) => {
                self.pairs.entry((src, dst)).or_default()
            }
            _ => return,
        };
        if sum.span.probes == 0 || (word(1), dst) > (sum.span.last, sum.dst) {
            sum.dst = dst;
        }
        sum.span = match sum.span.probes {
            0 => Span { first: word(0), last: word(1), probes: word(2) },
            probes => Span {
                first: sum.span.first.min(word(0)),
                last: sum.span.last.max(word(1)),
                probes: probes + word(2),
            },
        };
        if let [hosts, ports] = registers {
            sum.hosts.merge(hosts);
            sum.ports.merge(ports);
        } else if let [ports] = registers {
            sum.ports.merge(ports);
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        if self.rule.is_over(now_ns) {
            self.write(now_ns, out);
        }
        Progress::Done
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.write(now_ns, out);
        Progress::Done
    }
}

impl Merge {
    fn write(&mut self, end_ns: u64, out: &mut Out) {
        let row = |kind, src, source: &Source, hosts| tables::Scan {
            end_ns,
            kind,
            src,
            dst: source.dst,
            hosts,
            ports: source.ports.count(),
            probes: source.span.probes,
            first_ns: source.span.first,
            last_ns: source.span.last,
        };
        for (src, source) in std::mem::take(&mut self.sources) {
            let hosts = source.hosts.count();
            if hosts >= self.rule.hosts {
                out.write(&row(ScanKind::Hosts, src, &source, hosts));
            }
        }
        for ((src, _), pair) in std::mem::take(&mut self.pairs) {
            if pair.ports.count() >= self.rule.ports {
                out.write(&row(ScanKind::Ports, src, &pair, 1));
            }
        }
    }
}

const _: () = assert!(size_of::<Distinct>() == REGISTERS);
