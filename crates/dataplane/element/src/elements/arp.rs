//! ARPQuerier(IP, ETHER, CAPACITY, ENTRY_CAPACITY, TIMEOUT, BROADCAST, TABLE): finds Ethernet addresses by
//! ARP and encapsulates. CAPACITY packets (2048) wait for at most 60 s. ENTRY_CAPACITY addresses (65536) are
//! known; the oldest unanswered one makes room, or else the oldest. TABLE names an ARPTable, whose addresses
//! are known here, too, and which learns those that are answered here.
//! Expects: 0: IP packets with destination annotations; 1: ARP replies.
//! Gives: 0: Ethernet packets; 1, if connected: ARP requests, which otherwise leave by output 0.
//! Handlers: table, queries, responses, drops, insert (w), delete (w), clear (w), ipaddr, broadcast.
//! Example: `arpq :: ARPQuerier(18.26.4.24, 0:0:c0:ae:67:ef) -> q; c0 [1] -> [1] arpq`
//!
//! ARPResponder(PREFIX… ETHER, …): answers ARP requests for these addresses.
//! Expects: ARP requests in Ethernet packets.
//! Gives: 0: replies; 1, if connected: other packets, which are otherwise dropped.
//! Handlers: table, lookup, add (w), remove (w).
//! Example: `c0 [0] -> ARPResponder(18.26.4.24 0:0:c0:ae:67:ef, 18.26.7.0/24 0:0:c0:ae:67:ef) -> q`

use super::arp_table::ArpTable;
use super::origin::Origin;
use super::util::{be16, put16};
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{Batch, Packet};
use flame_click::time::SECOND;
use flame_click::{Ip, Mac, Nanos, Prefix, Scope, Value, text};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const SOURCE: &str = include_str!("arp.rs");

type Host = (Mac, Ip);

/// Returns an ARP packet in an Ethernet frame.
fn arp(operation: u16, from: Host, to: Host, link_to: Mac) -> Packet {
    let mut f = [0; 42];
    f[..6].copy_from_slice(&link_to.0);
    f[6..12].copy_from_slice(&from.0.0);
    f[12..20].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4]);
    put16(&mut f, 20, operation);
    f[22..28].copy_from_slice(&from.0.0);
    f[28..32].copy_from_slice(&from.1.bytes());
    f[32..38].copy_from_slice(&to.0.0);
    f[38..42].copy_from_slice(&to.1.bytes());
    let mut p = Packet::new(&f);
    p.set_link(0);
    p.set_network(14, 0);
    p
}

/// Returns operation, sender and target of an ARP packet.
fn parse(p: &Packet) -> Option<(u16, Host, Host)> {
    let f = p.data();
    if f.len() < 42 || f[12..20] != [8, 6, 0, 1, 8, 0, 6, 4] {
        return None;
    }
    let side = |at: usize| {
        let mut mac = Mac::default();
        mac.0.copy_from_slice(&f[at..at + 6]);
        (mac, Ip::from_bytes(&f[at + 6..]))
    };
    Some((be16(f, 20), side(22), side(32)))
}

#[derive(Default)]
struct Entry {
    mac: Option<Mac>,
    known_at: Nanos,
    /// The time when it was made, or answered last: its place in the order of ages.
    since: Nanos,
    asked_at: Option<Nanos>,
    waiting: VecDeque<Packet>,
}

struct Querier {
    ip: Ip,
    mac: Mac,
    broadcast: Ip,
    capacity: usize,
    timeout: Nanos,
    entries: RefCell<BTreeMap<Ip, Entry>>,
    /// The entries by (is answered, since): the first one makes room for a new one.
    ages: RefCell<BTreeSet<(bool, Nanos, Ip)>>,
    /// The entries with packets that wait, the oldest first.
    waiting: RefCell<BTreeSet<(Nanos, Ip)>>,
    most_entries: usize,
    /// The name of an ARPTable, and the element.
    table_name: Option<String>,
    table: Cell<Option<usize>>,
    held: Cell<usize>,
    queries: Cell<u64>,
    responses: Cell<u64>,
    drops: Cell<u64>,
}

/// Requests for one address are this far apart.
const PATIENCE: Nanos = Nanos(SECOND / 4);
/// Packets wait so long for an answer.
const WAIT: Nanos = Nanos(60 * SECOND);
/// Addresses that are remembered. A scan of a large network must not fill the memory.
const MOST_ENTRIES: u32 = 65_536;

impl Querier {
    /// Makes an entry. If the table is full, the oldest unanswered one goes, or else the oldest.
    fn make(&self, cx: &Cx<'_>, ip: Ip, now: Nanos) {
        while self.entries.borrow().len() >= self.most_entries {
            let Some((_, _, old)) = self.oldest() else { break };
            self.remove(cx, old, "table full");
        }
        self.entries.borrow_mut().insert(ip, Entry { since: now, ..Entry::default() });
        self.expect(cx, ip, now);
    }

    /// Gives an unanswered entry its place in the order of ages.
    fn expect(&self, cx: &Cx<'_>, ip: Ip, since: Nanos) {
        let was_waiting = self.ages.borrow().first().is_some_and(|(is_answered, ..)| !is_answered);
        self.ages.borrow_mut().insert((false, since, ip));
        if !was_waiting {
            cx.timer_at(0, since + WAIT);
        }
    }

    /// Drops waiting packets beyond the capacity, those of the oldest entries first.
    fn fit(&self, cx: &Cx<'_>) {
        while self.held.get() > self.capacity {
            let Some((since, ip)) = self.waiting.borrow().first().copied() else { return };
            let (old, is_empty) = match self.entries.borrow_mut().get_mut(&ip) {
                Some(e) => (e.waiting.pop_front(), e.waiting.is_empty()),
                None => (None, true),
            };
            if is_empty {
                self.waiting.borrow_mut().remove(&(since, ip));
            }
            let Some(p) = old else { continue };
            self.held.set(self.held.get() - 1);
            add(&self.drops, 1);
            cx.drop("queue full", p);
        }
    }

    fn oldest(&self) -> Option<(bool, Nanos, Ip)> {
        self.ages.borrow().first().copied()
    }

    /// Removes an entry, with the packets that wait for its answer.
    fn remove(&self, cx: &Cx<'_>, ip: Ip, cause: &'static str) {
        let Some(e) = self.entries.borrow_mut().remove(&ip) else { return };
        self.ages.borrow_mut().remove(&(e.mac.is_some(), e.since, ip));
        self.waiting.borrow_mut().remove(&(e.since, ip));
        self.held.set(self.held.get() - e.waiting.len());
        add(&self.drops, e.waiting.len());
        cx.drop_all(cause, e.waiting);
    }

    fn encapsulate(&self, p: &mut Packet, dst: Mac) {
        let mut header = [0; 14];
        header[..6].copy_from_slice(&dst.0);
        header[6..12].copy_from_slice(&self.mac.0);
        put16(&mut header, 12, 0x0800);
        p.prepend(&header);
        p.set_link(0);
    }

    /// Lets the shared table act, if there is one.
    fn shared<T>(&self, cx: &Cx<'_>, act: impl FnOnce(&ArpTable) -> T) -> Option<T> {
        let element = cx.router.element(self.table.get()?);
        ArpTable::of(&*element).map(act)
    }

    /// Encapsulates a packet, or keeps it and perhaps asks.
    fn send(&self, cx: &Cx<'_>, mut p: Packet, out: &mut Batch) {
        let ip = p.anno.dst_ip();
        if ip == self.broadcast || ip.0 == u32::MAX {
            self.encapsulate(&mut p, Mac::BROADCAST);
            return out.push(p);
        }
        if ip.is_multicast() {
            let [_, b, c, d] = ip.bytes();
            self.encapsulate(&mut p, Mac([1, 0, 0x5e, b & 127, c, d]));
            return out.push(p);
        }
        if ip.0 == 0 {
            add(&self.drops, 1);
            return cx.drop("no destination", p);
        }
        let now = cx.now();
        let mut entries = self.entries.borrow_mut();
        if !entries.contains_key(&ip) {
            drop(entries);
            self.make(cx, ip, now);
            entries = self.entries.borrow_mut();
        }
        let entry = entries.entry(ip).or_default();
        let is_fresh = self.timeout.0 == 0 || now - entry.known_at < self.timeout;
        if let Some(mac) = entry.mac.filter(|_| is_fresh) {
            drop(entries);
            self.encapsulate(&mut p, mac);
            return out.push(p);
        }
        if let Some((mac, since)) = self.shared(cx, |table| table.lookup(ip, now)).flatten() {
            drop(entries);
            self.learn(cx, ip, mac, since, out);
            self.encapsulate(&mut p, mac);
            return out.push(p);
        }
        if entry.mac.take().is_some() {
            // The answer is too old; from now on it waits for another.
            self.ages.borrow_mut().remove(&(true, entry.since, ip));
            entry.since = now;
            self.expect(cx, ip, now);
        }
        entry.waiting.push_back(p);
        self.waiting.borrow_mut().insert((entry.since, ip));
        self.held.set(self.held.get() + 1);
        let is_due = entry.asked_at.is_none_or(|t| now - t >= PATIENCE);
        if is_due {
            entry.asked_at = Some(now);
        }
        // The oldest waiting packet of this address goes if there is no room, or else the oldest of any.
        let own = match self.held.get() > self.capacity && entry.waiting.len() > 1 {
            true => entry.waiting.pop_front(),
            false => None,
        };
        drop(entries);
        if let Some(p) = own {
            self.held.set(self.held.get() - 1);
            add(&self.drops, 1);
            cx.drop("queue full", p);
        }
        self.fit(cx);
        if is_due {
            add(&self.queries, 1);
            cx.made(1);
            let request = arp(1, (self.mac, self.ip), (Mac::default(), ip), Mac::BROADCAST);
            if cx.outputs() > 1 {
                cx.push_one(1, request);
            } else {
                out.push(request);
            }
        }
    }

    /// Learns an address that is known since some time.
    fn learn(&self, cx: &Cx<'_>, ip: Ip, mac: Mac, known_at: Nanos, out: &mut Batch) {
        let now = cx.now();
        if !self.entries.borrow().contains_key(&ip) {
            self.make(cx, ip, now);
        }
        let mut entries = self.entries.borrow_mut();
        let entry = entries.entry(ip).or_default();
        let mut ages = self.ages.borrow_mut();
        ages.remove(&(entry.mac.is_some(), entry.since, ip));
        ages.insert((true, now, ip));
        if ages.first().is_none_or(|(is_answered, ..)| *is_answered) {
            cx.cancel_timer(0);
        }
        drop(ages);
        self.waiting.borrow_mut().remove(&(entry.since, ip));
        entry.since = now;
        (entry.mac, entry.known_at, entry.asked_at) = (Some(mac), known_at, None);
        let waiting = std::mem::take(&mut entry.waiting);
        drop(entries);
        self.held.set(self.held.get() - waiting.len());
        for mut p in waiting {
            self.encapsulate(&mut p, mac);
            out.push(p);
        }
    }
}

impl Element for Querier {
    fn push(&self, cx: &Cx<'_>, port: usize, mut batch: Batch) {
        let mut out = Batch::default();
        for p in batch.drain(..) {
            if port == 0 {
                self.send(cx, p, &mut out);
                continue;
            }
            add(&self.responses, 1);
            match parse(&p) {
                Some((2, (mac, ip), _)) if !mac.is_group() => {
                    cx.drop("ARP reply", p);
                    self.learn(cx, ip, mac, cx.now(), &mut out);
                    self.shared(cx, |table| table.learn(cx, ip, mac));
                }
                _ => cx.drop("not an ARP reply", p),
            }
        }
        cx.push(0, out);
    }

    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        let Some(name) = &self.table_name else { return Ok(()) };
        let found = cx.router.lookup(cx.name(), name);
        let found = found.filter(|at| ArpTable::of(&*cx.router.element(*at)).is_some());
        self.table.set(Some(found.ok_or_else(|| format!("TABLE: expected an ARPTable, found '{name}'"))?));
        self.shared(cx, |table| table.notify(cx.me));
        Ok(())
    }

    /// Sends packets whose address the shared table has learned.
    fn run_task(&self, cx: &Cx<'_>) -> bool {
        let waiting: Vec<Ip> = self.waiting.borrow().iter().map(|(_, ip)| *ip).collect();
        let mut out = Batch::default();
        for ip in waiting {
            if let Some((mac, since)) = self.shared(cx, |table| table.lookup(ip, cx.now())).flatten() {
                self.learn(cx, ip, mac, since, &mut out);
            }
        }
        let had_work = !out.is_empty();
        cx.push(0, out);
        had_work
    }

    /// Ends entries without an answer.
    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        while let Some((false, since, ip)) = self.oldest() {
            if cx.now() - since < WAIT {
                return cx.timer_at(0, since + WAIT);
            }
            self.remove(cx, ip, "no answer");
        }
    }

    fn held(&self) -> usize {
        self.held.get()
    }

    fn read(&self, cx: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "table" => {
                let now = cx.now();
                let line = |(ip, e): (&Ip, &Entry)| {
                    let mac = e.mac.unwrap_or(Mac::BROADCAST);
                    let age = if e.mac.is_some() { now - e.known_at } else { Nanos::ZERO };
                    format!("{ip} {} {mac} {}\n", u8::from(e.mac.is_some()), age.micros())
                };
                self.entries.borrow().iter().map(line).collect()
            }
            "ipaddr" => self.ip.to_string(),
            "broadcast" => self.broadcast.to_string(),
            "queries" => self.queries.get().to_string(),
            "responses" => self.responses.get().to_string(),
            "drops" => self.drops.get().to_string(),
            "length" => self.held.get().to_string(),
            _ => return None,
        }))
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        let words = text::words(value);
        match (name, &words[..]) {
            ("insert", [ip, mac]) => {
                let scope = cx.scope();
                let (Some(ip), Some(mac)) = (Ip::read(ip, &scope), Mac::read(mac, &scope)) else {
                    return Some(Err(format!("expected 'IP ETHER', found '{value}'")));
                };
                let mut out = Batch::default();
                self.learn(cx, ip, mac, cx.now(), &mut out);
                self.shared(cx, |table| table.learn(cx, ip, mac));
                cx.push(0, out);
            }
            ("insert", _) => return Some(Err(format!("expected 'IP ETHER', found '{value}'"))),
            ("delete" | "clear", _) => {
                let wanted = match name {
                    "clear" => self.entries.borrow().keys().copied().collect(),
                    _ => match Ip::read(value.trim(), &cx.scope()) {
                        Some(ip) => vec![ip],
                        None => return Some(Err(format!("expected an IP address, found '{value}'"))),
                    },
                };
                wanted.into_iter().for_each(|ip| self.remove(cx, ip, "deleted"));
            }
            _ => return None,
        }
        Some(Ok(()))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("table", "r"),
            ("ipaddr", "r"),
            ("broadcast", "r"),
            ("queries", "r"),
            ("responses", "r"),
            ("drops", "r"),
            ("length", "r"),
            ("insert", "w"),
            ("delete", "w"),
            ("clear", "w"),
        ]
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.queries, &self.responses, &self.drops]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        if let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() {
            let all = std::mem::take(&mut *old.entries.borrow_mut());
            old.ages.borrow_mut().clear();
            old.waiting.borrow_mut().clear();
            old.held.set(0);
            for (ip, mut was) in all {
                if !self.entries.borrow().contains_key(&ip) {
                    self.make(cx, ip, was.since);
                }
                let mut entries = self.entries.borrow_mut();
                let entry = entries.entry(ip).or_default();
                self.held.set(self.held.get() + was.waiting.len());
                entry.waiting.append(&mut was.waiting);
                if !entry.waiting.is_empty() {
                    self.waiting.borrow_mut().insert((entry.since, ip));
                }
                if entry.mac.is_none() && was.mac.is_some() {
                    let mut ages = self.ages.borrow_mut();
                    ages.remove(&(false, entry.since, ip));
                    ages.insert((true, entry.since, ip));
                    (entry.mac, entry.known_at) = (was.mac, was.known_at);
                }
            }
            self.fit(cx);
        }
    }
}

class!(
    ARP_QUERIER,
    "ARPQuerier",
    "1-2/1-2",
    "h/h",
    ["IP", "ETHER", "CAPACITY", "ENTRY_CAPACITY", "TIMEOUT", "BROADCAST", "BCAST", "POLL_TIMEOUT", "TABLE"],
    |args, _| {
        let net: String = args.req("IP");
        let scope = args.scope();
        let prefix = Prefix::parse(&net).or_else(|| Ip::read(&net, &scope).map(|ip| Prefix::new(ip, 32)));
        let prefix = prefix.unwrap_or_else(|| {
            args.error(format!("IP: expected an IP address or prefix, found '{net}'"));
            Prefix::default()
        });
        let whole = Ip(prefix.ip.0 | !prefix.mask.0);
        let broadcast = args.key("BROADCAST").or_else(|| args.key("BCAST"));
        let most_entries = args.key("ENTRY_CAPACITY").filter(|n| *n > 0).unwrap_or(MOST_ENTRIES);
        args.ignore::<Nanos>("POLL_TIMEOUT");
        // The broadcast address of a prefix of 32 bits is its own; no packet is meant by it.
        let default = if prefix.mask.0 == u32::MAX { Ip(u32::MAX) } else { whole };
        Box::new(Querier {
            ip: prefix.ip,
            mac: args.req("ETHER"),
            broadcast: broadcast.unwrap_or(default),
            capacity: args.key::<u32>("CAPACITY").unwrap_or(2048) as usize,
            timeout: args.key("TIMEOUT").unwrap_or(Nanos(300 * SECOND)),
            entries: RefCell::default(),
            ages: RefCell::default(),
            waiting: RefCell::default(),
            most_entries: most_entries as usize,
            table_name: args.key("TABLE"),
            table: Cell::new(None),
            held: Cell::new(0),
            queries: Cell::new(0),
            responses: Cell::new(0),
            drops: Cell::new(0),
        })
    }
);

/// Addresses and who answers for them, the longest prefix first.
struct Responder {
    origin: Origin,
    entries: RefCell<Vec<(Prefix, Mac)>>,
}

impl Responder {
    fn parse_line(line: &str, scope: &Scope<'_>) -> Result<Vec<(Prefix, Mac)>, String> {
        let (mut nets, mut mac) = (Vec::new(), None);
        let words = text::words(line);
        for word in &words {
            let net =
                Prefix::read(word, scope).or_else(|| Ip::read(word, scope).map(|ip| Prefix::new(ip, 32)));
            let net = net.or_else(|| Ip::parse(word).map(|ip| Prefix::new(ip, 32)));
            let own = Mac::read(word, scope);
            if net.is_none() && own.is_none() {
                return Err(format!("expected a prefix or an Ethernet address, found '{word}'"));
            }
            nets.extend(net.map(|n| n.network()));
            // A name may stand for both; an address of its own wins.
            if own.is_some() && (mac.is_none() || net.is_none()) {
                mac = own;
            }
        }
        let mac = mac.ok_or_else(|| format!("expected an Ethernet address in '{line}'"))?;
        Ok(nets.into_iter().map(|n| (n, mac)).collect())
    }

    /// Adds an entry. Returns false if there was one for this prefix.
    fn add(&self, entry: (Prefix, Mac)) -> bool {
        let mut all = self.entries.borrow_mut();
        if let Some(old) = all.iter_mut().find(|(n, _)| *n == entry.0) {
            old.1 = entry.1;
            return false;
        }
        let at = all.partition_point(|(n, _)| {
            n.mask.0 > entry.0.mask.0 || n.mask == entry.0.mask && n.ip < entry.0.ip
        });
        all.insert(at, entry);
        true
    }

    fn lookup(&self, ip: Ip) -> Option<Mac> {
        self.entries.borrow().iter().find(|(n, _)| n.contains(ip)).map(|(_, m)| *m)
    }
}

impl Element for Responder {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        if let Some((1, sender, (_, wanted))) = parse(&p)
            && let Some(mac) = self.lookup(wanted)
        {
            let mut reply = arp(2, (mac, wanted), sender, sender.0);
            reply.anno.time = p.anno.time;
            cx.made(1);
            cx.drop("answered", p);
            return Some(reply);
        }
        cx.push_or_drop(1, "no such address", p);
        None
    }

    fn read(&self, cx: &Cx<'_>, name: &str, argument: &str) -> Option<Result<String, String>> {
        match name {
            "table" => Some(Ok(self.entries.borrow().iter().map(|(n, m)| format!("{n} {m}\n")).collect())),
            "lookup" => Some(match Ip::read(argument, &cx.scope()) {
                Some(ip) => Ok(self.lookup(ip).map_or(String::new(), |m| m.to_string())),
                None => Err(format!("expected an IP address, found '{argument}'")),
            }),
            _ => None,
        }
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        match name {
            "add" => Some(Self::parse_line(value, &cx.scope()).map(|all| {
                all.into_iter().for_each(|e| {
                    self.add(e);
                });
            })),
            "remove" => {
                let scope = cx.scope();
                let net = Prefix::read(value, &scope)
                    .or_else(|| Ip::read(value, &scope).map(|ip| Prefix::new(ip, 32)));
                Some(match net.map(Prefix::network) {
                    Some(net) if self.entries.borrow().iter().any(|(n, _)| *n == net) => {
                        self.entries.borrow_mut().retain(|(n, _)| *n != net);
                        Ok(())
                    }
                    _ => Err(format!("no entry for '{value}'")),
                })
            }
            _ => None,
        }
    }

    fn take_state(&self, _: &Cx<'_>, old: &dyn Element) {
        if let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>()
            && self.origin.continues(&old.origin)
        {
            self.entries.replace(old.entries.borrow().clone());
        }
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("table", "r"), ("lookup", "r"), ("add", "w"), ("remove", "w")]
    }
}

class!(ARP_RESPONDER, "ARPResponder", "1/1-2", "a/ah", [], |args, setup| {
    let new = Responder { origin: Origin::new(setup.config), entries: RefCell::default() };
    let scope = args.scope();
    let mut doubled = Vec::new();
    for line in args.rest() {
        match Responder::parse_line(&line, &scope) {
            Ok(entries) => doubled.extend(entries.into_iter().filter(|e| !new.add(*e)).map(|e| e.0)),
            Err(e) => args.error(e),
        }
    }
    doubled.iter().for_each(|n| setup.router.warn(format!("multiple entries for {n}")));
    Box::new(new)
});

/// Returns the address at an offset that is inside.
pub fn mac_at(bytes: &[u8], at: usize) -> Mac {
    let mut mac = Mac::default();
    mac.0.copy_from_slice(&bytes[at..at + 6]);
    mac
}
