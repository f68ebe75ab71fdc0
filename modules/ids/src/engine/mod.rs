//! The evaluation of rules on packets.
//!
//! ```text
//! packet → Facts → Fast (contents) and Plain (the others) → Gate, header, checks, flow, steps → Rates →
//! alert
//! ```
//!
//! All memory is allocated at the start; a packet needs no allocation.

mod facts;
mod fast;
mod flow;
mod gate;
mod plain;
mod rates;
mod steps;
mod table;

pub use facts::Facts;

use crate::rule::rate::{Rate, Track};
use crate::rule::{Check, Field, Proto, Rule, RuleSet, Unsupported};
use facts::Group;
use fast::Fast;
use flame_module::Ip;
use flow::{Flows, Known};
use gate::{Gate, Head};
use plain::Plain;
use rates::Rates;
use steps::Steps;

/// Limits on the state that is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    /// The number of pairs of a rule with a rate and an address.
    pub tracked: usize,
}

struct Ready {
    rule: Rule,
    steps: Steps,
    /// Whether the header matches any address and port.
    anywhere: bool,
}

/// The counters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// IP packets that were examined.
    pub packets: u64,
    pub alerts: u64,
    /// Matches that a threshold or detection_filter suppressed.
    pub held_back: u64,
    /// Packets that cost too much work; the remaining rules did not match.
    pub given_up: u64,
}

pub struct Engine {
    rules: Vec<Ready>,
    /// The gates, by rule.
    gates: Box<[Gate]>,
    pub unsupported: Vec<Unsupported>,
    fast: [Fast; Group::COUNT],
    plain: [Plain; Group::COUNT],
    /// The connections, if a rule refers to them.
    flows: Option<Flows>,
    rates: Rates,
    pub counts: Counts,
    /// The rules to check, and for each rule the last packet for which it was added.
    candidates: Vec<u16>,
    last: Box<[u64]>,
}

impl Engine {
    pub fn new(set: RuleSet, limits: Limits) -> Self {
        let (mut rules, mut unsupported) = (Vec::new(), set.unsupported);
        for rule in set.rules {
            match Steps::new(&rule) {
                Ok(steps) => {
                    let h = &rule.header;
                    let anywhere = h.src.is_all() && h.dst.is_all() && h.sport.is_all() && h.dport.is_all();
                    rules.push(Ready { anywhere, rule, steps });
                }
                Err(reason) => unsupported.push(Unsupported { sid: rule.sid, line: rule.line, reason }),
            }
        }
        unsupported.sort_by_key(|u| u.line);
        let gates: Box<[_]> = rules.iter().map(|r| Gate::new(&r.rule)).collect();
        let patterns: Vec<_> =
            rules.iter().zip(&gates).map(|(r, gate)| fast::pattern(&r.rule, gate)).collect();
        let of = |group: Group| {
            let fits = move |rule: &Rule| match rule.header.proto {
                Proto::Ip => true,
                Proto::Tcp => group == Group::Tcp,
                Proto::Udp => group == Group::Udp,
                Proto::Icmp => group == Group::Icmp,
            };
            rules.iter().zip(&patterns).enumerate().filter(move |(_, (r, _))| fits(&r.rule))
        };
        let groups = [Group::Tcp, Group::Udp, Group::Icmp, Group::Other];
        let fast = groups.map(|g| Fast::new(of(g).filter_map(|(i, (_, p))| Some((i as u16, p.clone()?)))));
        let plain = groups.map(|g| {
            let without = of(g).filter(|(_, (_, pattern))| pattern.is_none());
            Plain::new(without.map(|(i, (ready, _))| (i as u16, &ready.rule, gates[i])))
        });
        let asks = rules.iter().any(|r| r.rule.flow.asks());
        Self {
            gates,
            unsupported,
            fast,
            plain,
            flows: asks.then(|| Flows::new(limits.connections)),
            rates: Rates::new(limits.tracked),
            counts: Counts::default(),
            candidates: Vec::with_capacity(rules.len()),
            last: vec![0; rules.len()].into(),
            rules,
        }
    }

    /// Returns the number of active rules.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Returns the number of connections and the number of rate counts that were evicted.
    pub fn evicted(&self) -> (u64, u64) {
        (self.flows.as_ref().map_or(0, Flows::evicted), self.rates.evicted())
    }

    /// Calls `alert` with the rules that alert on this packet, in the order of the file.
    #[inline]
    pub fn packet(&mut self, f: &Facts<'_>, mut alert: impl FnMut(&Rule)) {
        self.counts.packets += 1;
        let known = self.flows.as_mut().map_or_else(Known::default, |flows| flows.see(f));
        let group = f.group as usize;
        let head = Head::new(f.payload, f.tcp_flags);
        let (candidates, last, this) = (&mut self.candidates, &mut self.last, self.counts.packets);
        let gates = &self.gates;
        candidates.clear();
        self.fast[group].find(f.payload, |rule| {
            let number = usize::from(rule);
            if std::mem::replace(&mut last[number], this) != this && gates[number].passes(&head) {
                candidates.push(rule);
            }
        });
        candidates.extend(self.plain[group].of(f.ports.1, &head));
        if candidates.is_empty() {
            return;
        }
        candidates.sort_unstable();
        let mut work = steps::WORK;
        for number in candidates.iter().map(|n| usize::from(*n)) {
            let Ready { rule, steps, anywhere } = &self.rules[number];
            if !((*anywhere || header(rule, f))
                && checks(rule, f)
                && known.fits(rule.flow)
                && steps.fit(f.payload, &mut work))
            {
                continue;
            }
            let passes =
                rule.rate.is_none_or(|rate| self.rates.pass(number, rate, tracked(rate, f), f.ts_ns));
            if passes {
                self.counts.alerts += 1;
                alert(rule);
            } else {
                self.counts.held_back += 1;
            }
        }
        self.counts.given_up += u64::from(work == 0);
    }
}

fn tracked<'a>(rate: Rate, f: &'a Facts<'_>) -> &'a Ip {
    match rate.track {
        Track::Source => &f.src,
        Track::Destination => &f.dst,
    }
}

#[inline]
fn header(rule: &Rule, f: &Facts<'_>) -> bool {
    let h = &rule.header;
    let one_way = |src: &Ip, sport: u16, dst: &Ip, dport: u16| {
        h.dport.contains(dport) && h.sport.contains(sport) && h.src.contains(src) && h.dst.contains(dst)
    };
    let (sport, dport) = f.ports;
    one_way(&f.src, sport, &f.dst, dport) || h.both && one_way(&f.dst, dport, &f.src, sport)
}

#[inline]
fn checks(rule: &Rule, f: &Facts<'_>) -> bool {
    rule.checks.iter().all(|check| match check {
        Check::Flags(bits) => bits.fit(f.tcp_flags),
        Check::FragmentBits(bits) => f.v4 && bits.fit(f.l3.get(6).map_or(0, |b| b >> 5)),
        Check::SameAddress => f.src == f.dst,
        Check::Number(field, range) => number(*field, f).is_some_and(|n| range.contains(n)),
    })
}

/// Returns the value of a field, or `None` if the packet has no such field.
fn number(field: Field, f: &Facts<'_>) -> Option<u32> {
    let of_v4 = |n: Option<u32>| n.filter(|_| f.v4);
    // Only echo requests and replies have an identifier and a sequence number.
    let is_echo = || matches!((f.proto, f.l4.first()), (1, Some(0 | 8)) | (58, Some(128 | 129)));
    match field {
        Field::PayloadLength => Some(f.payload_len),
        Field::Ttl => Facts::number::<1>(f.l3, if f.v4 { 8 } else { 7 }),
        Field::Tos if f.v4 => Facts::number::<1>(f.l3, 1),
        Field::Tos => Facts::number::<2>(f.l3, 0).map(|n| n >> 4 & 0xff),
        Field::Id => of_v4(Facts::number::<2>(f.l3, 4)),
        Field::FragmentOffset => of_v4(Facts::number::<2>(f.l3, 6)).map(|n| n & 0x1fff),
        Field::Protocol => Some(f.proto.into()),
        Field::Sequence => Facts::number::<4>(f.l4, 4),
        Field::Acknowledgement => Facts::number::<4>(f.l4, 8),
        Field::WindowSize => Facts::number::<2>(f.l4, 14),
        Field::IcmpType => Facts::number::<1>(f.l4, 0),
        Field::IcmpCode => Facts::number::<1>(f.l4, 1),
        Field::IcmpId if is_echo() => Facts::number::<2>(f.l4, 4),
        Field::IcmpSequence if is_echo() => Facts::number::<2>(f.l4, 6),
        Field::IcmpId | Field::IcmpSequence => None,
    }
}
