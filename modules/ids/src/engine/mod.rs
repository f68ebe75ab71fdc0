//! The evaluation of rules on packets.
//!
//! ```text
//! packet → Facts → Fast (contents), Index (addresses, ports) → Gate, header, checks, flow, steps, marks →
//! suppressions, Rates → alert
//! ```
//!
//! All memory is allocated at the start, except a fixed number of caches for regular expressions.

mod app;
mod conditions;
mod dns;
mod facts;
mod fast;
mod flow;
mod fragments;
mod gate;
mod grams;
mod index;
mod marks;
mod number;
mod prepare;
mod rates;
mod regex;
mod steps;
mod table;
mod tls;
mod work;

pub use app::name;
pub use dns::Names;
pub use facts::{Facts, Group};
pub use fragments::{Datagram, Fragments, MOST as MOST_FRAGMENTS};
pub use tls::server_name;
pub use work::MOST as MOST_WORK;

use crate::rule::number::MAX_VARS;
use crate::rule::rate::Track;
use crate::rule::set::Set;
use crate::rule::{Action, App, Buffer, Rule, RuleSet, Unsupported};
use conditions::{checks, fits_group, header};
use fast::Fast;
use flow::{Flows, Known};
use gate::{Gate, Head};
use index::Index;
use marks::Marks;
use prepare::{By, Found, Prepared, Ready};
use rates::Rates;
use regex::Caches;
use std::collections::BTreeMap;
use work::{CONDITION, HIT, SORT, Work};

/// The largest number of rules that are named as costly.
const MOST_COSTLY: usize = 100;

/// Limits on the state that is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    /// The number of pairs of a rule with a rate and an address, and the number of marks.
    pub tracked: usize,
}

/// The counters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// IP packets that were examined.
    pub packets: u64,
    /// Datagrams of several fragments that were examined as a whole, besides their packets.
    pub datagrams: u64,
    pub alerts: u64,
    /// Matches that a threshold, a detection_filter or a suppression kept back.
    pub held_back: u64,
    /// Packets that a rule passed, or whose connection one had passed.
    pub passed: u64,
    /// Packets that cost too much work; the remaining rules did not match.
    pub given_up: u64,
}

pub struct Engine {
    rules: Vec<Ready>,
    /// The gates, by rule.
    gates: Box<[Gate]>,
    /// The rule set, for its list of the rules that are not in use.
    pub set: RuleSet,
    fast: [Fast; Group::COUNT],
    /// The rules about buffers, by contents, and those without contents.
    dns: (Fast, Vec<u32>),
    sni: (Fast, Vec<u32>),
    /// Rules without contents, by addresses if they restrict them.
    sources: Addresses,
    destinations: Addresses,
    /// The other rules without contents, by destination port.
    ports: [Index<u16>; Group::COUNT],
    names: Names,
    asks_dns: bool,
    /// The server name of the packet, after a dot, if it has one.
    server: Option<Vec<u8>>,
    asks_sni: bool,
    /// The connections, if a rule refers to them.
    flows: Option<Flows>,
    marks: Marks,
    rates: Rates,
    caches: Caches,
    pub counts: Counts,
    /// The work that the last packet cost.
    pub spent: u32,
    /// The work spent on the packet whose datagram comes next, if it completed one.
    continued: Option<u32>,
    /// The number of packets and datagrams so far.
    turn: u64,
    /// The rules to check, and for each rule the last turn for which it was added.
    candidates: Vec<u32>,
    last: Box<[u64]>,
    /// The rules that cost most in packets that were abandoned, with the number of those packets.
    costly: BTreeMap<u32, u64>,
}

/// Rules by addresses of both families.
struct Addresses {
    v4: Index<u32>,
    v6: Index<u128>,
}

impl Addresses {
    fn new<'a>(rules: impl Iterator<Item = (u32, &'a crate::rule::address::Addresses)> + Clone) -> Self {
        Self {
            v4: Index::new(rules.clone().map(|(rule, set)| (rule, &set.v4))),
            v6: Index::new(rules.map(|(rule, set)| (rule, &set.v6))),
        }
    }

    #[inline]
    fn find(&self, ip: &flame_module::Ip, work: &mut Work, hit: impl FnMut(u32)) {
        let all = u128::from_be_bytes(ip.bytes);
        match ip.family {
            4 if !self.v4.is_empty() => self.v4.find((all >> 96) as u32, work, hit),
            4 => {}
            _ if !self.v6.is_empty() => self.v6.find(all, work, hit),
            _ => {}
        }
    }
}

impl Engine {
    pub fn new(mut set: RuleSet, limits: Limits) -> Self {
        let (mut caches, mut start) = (Caches::default(), set.start);
        let mut all = Vec::with_capacity(set.rules.len());
        for rule in std::mem::take(&mut set.rules) {
            match Prepared::new(rule, set.dialect, &mut caches, &mut start) {
                Ok(prepared) => all.push(prepared),
                Err((rule, reason)) => {
                    let kind = reason.split(": ").next().unwrap_or(&reason).to_owned();
                    let Rule { file, line, sid, .. } = *rule;
                    set.refuse(true, Unsupported { file, line, sid, kind, reason });
                }
            }
        }
        set.start = start;
        set.unsupported.sort_by_key(|u| (u.file, u.line));
        // As in Suricata, rules that pass come first, and rules that leave marks before rules that ask for
        // them.
        all.sort_by_key(|prepared| {
            let marks = &prepared.ready.rule.marks;
            let asks = marks.iter().any(|m| m.action.asks());
            let leaves = marks.iter().any(|m| !m.action.asks());
            let passes = prepared.ready.rule.header.action == Action::Pass;
            let by_marks = match (leaves, asks) {
                (true, false) => 0,
                (true, true) => 1,
                (false, true) => 2,
                (false, false) => 3,
            };
            (!passes, by_marks)
        });
        let (mut rules, mut gates, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for prepared in all {
            rules.push(prepared.ready);
            gates.push(prepared.gate);
            found.push(prepared.found);
        }
        let numbered = || (0u32..).zip(&rules).zip(&found);
        let fast = [Group::Tcp, Group::Udp, Group::Icmp, Group::Other].map(|group| {
            Fast::new(numbered().filter_map(move |((i, r), found)| match found {
                Found::Payload(pattern) if fits_group(&r.rule, group) => Some((i, pattern.clone())),
                _ => None,
            }))
        });
        let buffer = |buffer: Buffer| {
            let with = numbered().filter_map(move |((i, _), found)| match found {
                Found::Buffer(of, Some(pattern)) if *of == buffer => Some((i, pattern.clone())),
                _ => None,
            });
            let without = numbered().filter_map(move |((i, _), found)| match found {
                Found::Buffer(of, None) if *of == buffer => Some(i),
                _ => None,
            });
            (Fast::new(with), without.collect())
        };
        let plain = |by: By| {
            numbered().filter(move |(_, found)| **found == Found::Plain(by)).map(|((i, r), _)| (i, &r.rule))
        };
        // Both sides of a rule for both directions may be either end.
        let either = |by: By| plain(by).filter(|(_, rule)| rule.header.both);
        let sources = plain(By::Source).map(|(i, r)| (i, &*r.header.src));
        let sources = sources.chain(either(By::Destination).map(|(i, r)| (i, &*r.header.dst)));
        let destinations = plain(By::Destination).map(|(i, r)| (i, &*r.header.dst));
        let destinations = destinations.chain(either(By::Source).map(|(i, r)| (i, &*r.header.src)));
        let any = Set::all();
        let ports = [Group::Tcp, Group::Udp, Group::Icmp, Group::Other].map(|group| {
            let rules = plain(By::Port).filter(move |(_, rule)| fits_group(rule, group));
            Index::new(rules.map(|(i, r)| (i, if r.header.both { &any } else { &*r.header.dport })))
        });
        let asks_dns = rules.iter().any(|r| {
            r.rule.header.app == Some(App::Dns) || r.rule.parts.iter().any(|p| p.buffer == Buffer::DnsQuery)
        });
        let asks_sni = rules.iter().any(|r| r.rule.parts.iter().any(|p| p.buffer == Buffer::TlsSni));
        let asks = rules.iter().any(|r| {
            let rule = &r.rule;
            let of_flow = |m: &crate::rule::mark::Mark| m.owner == crate::rule::mark::Owner::Flow;
            let by_flow = rule.rate.is_some_and(|rate| rate.track == Track::Flow);
            let of_flow = by_flow || rule.marks.iter().any(of_flow);
            rule.flow.asks() || r.once || r.passes_connection || rule.header.app.is_some() || of_flow
        });
        let has_marks = rules.iter().any(|r| !r.rule.marks.is_empty());
        Self {
            fast,
            dns: buffer(Buffer::DnsQuery),
            sni: buffer(Buffer::TlsSni),
            sources: Addresses::new(sources),
            destinations: Addresses::new(destinations),
            ports,
            names: Names::default(),
            asks_dns,
            server: None,
            asks_sni,
            flows: asks.then(|| Flows::new(limits.connections, set.dialect, set.midstream)),
            marks: Marks::new(if has_marks { limits.tracked } else { 1 }),
            rates: Rates::new(limits.tracked, set.dialect),
            caches,
            counts: Counts::default(),
            spent: 0,
            continued: None,
            turn: 0,
            candidates: Vec::with_capacity(rules.len()),
            last: vec![0; rules.len()].into(),
            costly: BTreeMap::new(),
            gates: gates.into(),
            set,
            rules,
        }
    }

    /// Takes the next packet for the datagram that the last one completed: it has the work that is left.
    pub fn expect_datagram(&mut self) {
        self.continued = Some(self.spent);
    }

    /// Returns the number of active rules.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Returns the rules that cost most in packets that were abandoned, and the number of those packets, the
    /// largest number first.
    pub fn costly(&self) -> Vec<(&Rule, u64)> {
        let mut all: Vec<_> = self.costly.iter().collect();
        all.sort_by_key(|(_, packets)| std::cmp::Reverse(**packets));
        all.truncate(MOST_COSTLY);
        all.into_iter().map(|(rule, packets)| (&self.rules[*rule as usize].rule, *packets)).collect()
    }

    /// Returns how many of the rules run and why the others do not.
    pub fn summary(&self) -> String {
        self.set.summary(self.rules.len())
    }

    /// Returns the number of connections, and the number of rate counts and marks that were evicted.
    pub fn evicted(&self) -> (u64, u64) {
        let connections = self.flows.as_ref().map_or(0, Flows::evicted);
        (connections, self.rates.evicted() + self.marks.evicted())
    }

    /// Calls `alert` with the rules that alert on this packet, in the order of evaluation, and the protocol
    /// above the transport, if it is known.
    #[inline]
    pub fn packet(&mut self, f: &Facts<'_>, mut alert: impl FnMut(&Rule, Option<App>)) {
        let mut work = match self.continued.take() {
            Some(spent) => {
                self.counts.datagrams += 1;
                Work::after(spent)
            }
            None => {
                self.counts.packets += 1;
                Work::default()
            }
        };
        self.turn += 1;
        let is_dns = self.asks_dns && self.names.read(f);
        let app = app::of_start(f).or(is_dns.then_some(App::Dns));
        let known = match &mut self.flows {
            Some(flows) => flows.see(f, app),
            None => Known { app, ..Known::default() },
        };
        if known.passed {
            self.counts.passed += 1;
            self.spent = 0;
            return;
        }
        self.server = match app {
            Some(App::Tls) if self.asks_sni => server_name(f.payload).map(|name| [b".", name].concat()),
            _ => None,
        };
        self.find_candidates(f, &known, &mut work);
        if !self.candidates.is_empty() {
            self.evaluate(f, &known, &mut work, &mut alert);
        }
        self.spent = MOST_WORK - work.left();
        self.counts.given_up += u64::from(work.is_used_up());
    }

    /// Collects the rules that the packet may match.
    #[inline]
    fn find_candidates(&mut self, f: &Facts<'_>, known: &Known, work: &mut Work) {
        let group = f.group as usize;
        let head = Head::new(f.payload, f.tcp_flags);
        let (candidates, last, this) = (&mut self.candidates, &mut self.last, self.turn);
        let (gates, rules) = (&self.gates, &self.rules);
        candidates.clear();
        let mut add = |rule: u32| {
            let number = rule as usize;
            if std::mem::replace(&mut last[number], this) != this && gates[number].passes(&head) {
                candidates.push(rule);
            }
        };
        self.fast[group].find(f.payload, work, &mut add);
        self.ports[group].find(f.ports.1, work, &mut add);
        // A rule that matches once for each direction of a connection needs no look at other packets.
        let mut address = |rule: u32| {
            if known.first || !rules[rule as usize].once {
                add(rule);
            }
        };
        self.sources.find(&f.src, work, &mut address);
        self.destinations.find(&f.dst, work, &mut address);
        if known.app == Some(App::Dns) {
            for name in self.names.iter() {
                if work.spend_each(self.dns.1.len(), HIT) {
                    self.dns.1.iter().for_each(|rule| add(*rule));
                }
                self.dns.0.find(name, work, &mut add);
            }
        }
        if let Some(name) = &self.server {
            if work.spend_each(self.sni.1.len(), HIT) {
                self.sni.1.iter().for_each(|rule| add(*rule));
            }
            self.sni.0.find(name, work, &mut add);
        }
        // Rules that are not looked at need not be in order.
        if work.spend_each(candidates.len(), SORT) {
            candidates.sort_unstable();
        }
    }

    fn evaluate(
        &mut self,
        f: &Facts<'_>,
        known: &Known,
        work: &mut Work,
        alert: &mut impl FnMut(&Rule, Option<App>),
    ) {
        // The most that a rule cost, and that rule.
        let (mut most, mut costly) = (0, None);
        for at in 0..self.candidates.len() {
            let number = self.candidates[at];
            let before = work.left();
            let passes = self.fits(number as usize, f, known, work);
            let spent = before - work.left();
            if spent > most {
                (most, costly) = (spent, Some(number));
            }
            if work.is_used_up() {
                break;
            }
            if !passes {
                continue;
            }
            let ready = &self.rules[number as usize];
            if ready.rule.header.action == Action::Pass {
                self.counts.passed += 1;
                if let Some(flows) = self.flows.as_mut().filter(|_| ready.passes_connection) {
                    flows.pass(f);
                }
                break;
            }
            self.counts.alerts += 1;
            alert(&ready.rule, known.app);
        }
        if let Some(rule) = costly.filter(|_| work.is_used_up()) {
            *self.costly.entry(rule).or_default() += 1;
        }
    }

    /// Returns whether a rule alerts on a packet.
    #[inline]
    fn fits(&mut self, number: usize, f: &Facts<'_>, known: &Known, work: &mut Work) -> bool {
        let ready = &self.rules[number];
        let rule = &ready.rule;
        if !work.spend(ready.look)
            || !(ready.anywhere || header(rule, f))
            || !fits_group(rule, f.group)
            || rule.header.app.is_some() && rule.header.app != known.app
            || ready.once && !known.first
            || !checks(rule, f)
            || !known.fits(rule.flow)
        {
            return false;
        }
        let dialect = self.set.dialect;
        let mut vars = [0; MAX_VARS];
        let fit = rule.parts.iter().zip(&ready.parts).all(|(part, steps)| {
            let mut fits = |bytes: &[u8]| {
                let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                work.spend_each(1 + part.sizes.len(), CONDITION)
                    && part.sizes.iter().all(|range| range.contains(size))
                    && steps.fit(bytes, dialect, &mut vars, &mut self.caches, work)
            };
            match part.buffer {
                Buffer::Payload => fits(f.payload),
                Buffer::DnsQuery => {
                    known.app == Some(App::Dns)
                        && self.names.iter().any(|name| fits(&name[usize::from(!part.dotprefix)..]))
                }
                Buffer::TlsSni => {
                    self.server.as_ref().is_some_and(|name| fits(&name[usize::from(!part.dotprefix)..]))
                }
            }
        });
        if !fit {
            return false;
        }
        if !rule.marks.is_empty() {
            if !self.marks.fit(&rule.marks, f, known) {
                return false;
            }
            self.marks.apply(&rule.marks, f, known);
        }
        if rule.silent && rule.header.action == Action::Alert {
            return false;
        }
        let suppressed = rule.suppressed.iter().flat_map(|all| all.iter()).any(|s| {
            !work.spend(CONDITION)
                || s.addresses.as_ref().is_none_or(|set| {
                    s.source && set.contains(&f.src) || s.destination && set.contains(&f.dst)
                })
        });
        if work.is_used_up() {
            return false;
        }
        if suppressed || rule.rate.is_some_and(|rate| !self.rates.pass(number, rate, f, known)) {
            self.counts.held_back += 1;
            return false;
        }
        work.spend(ready.alert)
    }
}
