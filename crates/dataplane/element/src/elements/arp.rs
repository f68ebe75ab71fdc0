//! ARPQuerier(IP, ETHER, CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, TIMEOUT, POLL_TIMEOUT, BROADCAST,
//! BROADCAST_POLL, TABLE): finds Ethernet addresses by ARP and encapsulates. CAPACITY packets (2048) wait for
//! at most 60 s; one too many first lets those go that wait longest, until half are left. Of one address at
//! most ENTRY_PACKET_CAPACITY packets wait (0: any number). ENTRY_CAPACITY addresses (65536) are there; the
//! oldest unanswered one makes room, or else the oldest. An answer is good for TIMEOUT (300 s; 0: for ever);
//! after POLL_TIMEOUT (60 s; 0: never) packets let the host be asked again, or all hosts with BROADCAST_POLL.
//! An address is asked for at most ten times a second, and after ten requests without an answer every 2 s.
//! TABLE names an ARPTable, which has the addresses then, with its own ENTRY_CAPACITY and TIMEOUT.
//! Expects: 0: IP packets with destination annotations; 1: ARP replies.
//! Gives: 0: Ethernet packets; 1, if connected: ARP requests, which otherwise leave by output 0.
//! Handlers: table (the oldest first), count, length, queries, responses, drops, stats, insert (w),
//! delete (w), clear (w), ipaddr, broadcast.
//! Example: `arpq :: ARPQuerier(18.26.4.24, 0:0:c0:ae:67:ef) -> q; c0 [1] -> [1] arpq`
//!
//! ARPResponder(PREFIX… ETHER, …): answers ARP requests for these addresses.
//! Expects: ARP requests in Ethernet packets.
//! Gives: 0: replies; 1, if connected: other packets, which are otherwise dropped.
//! Handlers: table, lookup, add (w), remove (w).
//! Example: `c0 [0] -> ARPResponder(18.26.4.24 0:0:c0:ae:67:ef, 18.26.7.0/24 0:0:c0:ae:67:ef) -> q`

use super::arp_table::{ArpTable, Hosts, MOST_HOSTS, News, TIMEOUT};
use super::arp_waiting::Waiting;
use super::origin::Origin;
use super::util::{be16, put16};
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{Batch, Packet};
use flame_click::time::SECOND;
use flame_click::{Ip, Mac, Nanos, Prefix, Scope, Value, text};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

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

struct Querier {
    ip: Ip,
    mac: Mac,
    broadcast: Ip,
    capacity: usize,
    /// The most packets that wait for one address.
    entry_capacity: usize,
    most_hosts: usize,
    /// Answers of this age are asked for again.
    poll: Option<Nanos>,
    polls_all: bool,
    /// The addresses, unless a table has them.
    own: RefCell<Hosts>,
    waiting: RefCell<Waiting>,
    /// Addresses that may be waited for, and that others have learned.
    news: Arc<News>,
    /// The name of an ARPTable, and the element.
    table_name: Option<String>,
    table: Cell<Option<usize>>,
    queries: Cell<u64>,
    responses: Cell<u64>,
    drops: Cell<u64>,
}

/// Packets wait so long for an answer.
const WAIT: Nanos = Nanos(60 * SECOND);

impl Querier {
    /// Lets the shared table act, if there is one.
    fn shared<T>(&self, cx: &Cx<'_>, act: impl FnOnce(&ArpTable) -> T) -> Option<T> {
        let element = cx.router.element(self.table.get()?);
        ArpTable::of(&*element).map(act)
    }

    /// Uses the addresses, of the table or its own.
    fn hosts<T>(&self, cx: &Cx<'_>, act: impl FnOnce(&mut Hosts) -> T) -> T {
        let element = self.table.get().map(|table| cx.router.element(table));
        match element.as_deref().and_then(ArpTable::of) {
            Some(table) => table.with(act),
            None => act(&mut self.own.borrow_mut()),
        }
    }

    /// Drops a packet and counts that.
    fn lose(&self, cx: &Cx<'_>, cause: &'static str, p: Packet) {
        add(&self.drops, 1);
        cx.drop(cause, p);
    }

    /// Ends the wait for an address. Returns the packets that waited.
    fn end(&self, cx: &Cx<'_>, ip: Ip) -> VecDeque<Packet> {
        let packets = self.waiting.borrow_mut().end(ip).map(|(_, packets)| packets).unwrap_or_default();
        if self.waiting.borrow().hosts() == 0 {
            cx.cancel_timer(0);
        }
        packets
    }

    /// Drops the packets that wait for an address.
    fn give_up(&self, cx: &Cx<'_>, ip: Ip, cause: &'static str) {
        self.end(cx, ip).into_iter().for_each(|p| self.lose(cx, cause, p));
    }

    /// Waits for an address from now on, or since it is waited for.
    fn expect(&self, cx: &Cx<'_>, ip: Ip, now: Nanos) {
        if let Some(gone) = self.hosts(cx, |hosts| hosts.expect(ip, now)) {
            self.give_up(cx, gone, "table full");
        }
        let mut waiting = self.waiting.borrow_mut();
        if waiting.hosts() == 0 {
            cx.timer_at(0, now + WAIT);
        }
        waiting.expect(ip, now);
        // A table forgets addresses without a word, so this has a bound of its own.
        let oldest = waiting.oldest().filter(|_| waiting.hosts() > self.most_hosts);
        drop(waiting);
        if let Some((_, oldest)) = oldest {
            self.give_up(cx, oldest, "table full");
        }
    }

    /// Drops the packets that wait longest, until this many are left.
    fn fit(&self, cx: &Cx<'_>, most: usize) {
        while self.waiting.borrow().count() > most {
            let Some(p) = self.waiting.borrow_mut().pop() else { return };
            self.lose(cx, "queue full", p);
        }
    }

    /// Keeps a packet until there is an answer.
    fn keep(&self, cx: &Cx<'_>, ip: Ip, p: Packet) {
        if self.waiting.borrow().length(ip) >= self.entry_capacity || self.capacity == 0 {
            return self.lose(cx, "queue full", p);
        }
        if self.waiting.borrow().count() >= self.capacity {
            // With this one, half of what there is room for waits.
            self.fit(cx, (self.capacity - self.capacity / 2).max(1) - 1);
        }
        let kept = self.waiting.borrow_mut().push(ip, p);
        if let Err(p) = kept {
            self.lose(cx, "table full", p);
        }
    }

    /// Asks for an address, in place of a packet of this time.
    fn request(&self, cx: &Cx<'_>, ip: Ip, link_to: Mac, time: Nanos, out: &mut Batch) {
        add(&self.queries, 1);
        cx.made(1);
        let mut request = arp(1, (self.mac, self.ip), (Mac::default(), ip), link_to);
        request.anno.time = time;
        match cx.outputs() > 1 {
            true => cx.push_one(1, request),
            false => out.push(request),
        }
    }

    fn encapsulate(&self, p: &mut Packet, dst: Mac) {
        let mut header = [0; 14];
        header[..6].copy_from_slice(&dst.0);
        header[6..12].copy_from_slice(&self.mac.0);
        put16(&mut header, 12, 0x0800);
        p.prepend(&header);
        p.set_link(0);
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
            return self.lose(cx, "no destination", p);
        }
        let (now, time) = (cx.now(), p.anno.time);
        if let Some((mac, since)) = self.hosts(cx, |hosts| hosts.lookup(ip, now)) {
            let is_old = self.poll.is_some_and(|poll| now - since >= poll);
            if is_old && self.hosts(cx, |hosts| hosts.ask(ip, now)) {
                self.request(cx, ip, if self.polls_all { Mac::BROADCAST } else { mac }, time, out);
            }
            self.encapsulate(&mut p, mac);
            return out.push(p);
        }
        self.expect(cx, ip, now);
        let is_due = self.hosts(cx, |hosts| hosts.ask(ip, now));
        self.keep(cx, ip, p);
        if is_due {
            self.request(cx, ip, Mac::BROADCAST, time, out);
        }
    }

    /// Learns an address, of which the other queriers hear.
    fn learn(&self, cx: &Cx<'_>, ip: Ip, mac: Mac, out: &mut Batch) {
        let now = cx.now();
        if let Some(gone) = self.hosts(cx, |hosts| hosts.learn(ip, mac, now)) {
            self.give_up(cx, gone, "table full");
        }
        self.release(cx, ip, mac, out);
        self.shared(cx, |table| table.tell(cx, ip));
    }

    /// Lets the packets go that wait for an address.
    fn release(&self, cx: &Cx<'_>, ip: Ip, mac: Mac, out: &mut Batch) {
        for mut p in self.end(cx, ip) {
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
                    self.learn(cx, ip, mac, &mut out);
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
        self.shared(cx, |table| table.notify(cx, &self.news));
        Ok(())
    }

    /// Sends packets whose address others have learned.
    fn run_task(&self, cx: &Cx<'_>) -> bool {
        let news = self.news.take();
        let mut out = Batch::default();
        for ip in news {
            let is_waited_for = self.waiting.borrow().has(ip);
            let known = self.hosts(cx, |hosts| hosts.lookup(ip, cx.now()));
            if let Some((mac, _)) = known.filter(|_| is_waited_for) {
                self.release(cx, ip, mac, &mut out);
            }
        }
        let had_work = !out.is_empty();
        cx.push(0, out);
        had_work
    }

    /// Ends the wait for addresses without an answer.
    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        loop {
            let oldest = self.waiting.borrow().oldest();
            let Some((since, ip)) = oldest else { return };
            if cx.now() - since < WAIT {
                return cx.timer_at(0, since + WAIT);
            }
            self.hosts(cx, |hosts| hosts.give_up(ip));
            self.give_up(cx, ip, "no answer");
        }
    }

    fn held(&self) -> usize {
        self.waiting.borrow().count()
    }

    fn read(&self, cx: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "table" => self.hosts(cx, |hosts| hosts.table(cx.now())),
            "count" => self.hosts(cx, |hosts| hosts.count()).to_string(),
            "stats" => {
                let (drops, queries) = (self.drops.get(), self.queries.get());
                format!("{drops} packets killed\n{queries} ARP queries sent\n")
            }
            "ipaddr" => self.ip.to_string(),
            "broadcast" => self.broadcast.to_string(),
            "queries" => self.queries.get().to_string(),
            "responses" => self.responses.get().to_string(),
            "drops" => self.drops.get().to_string(),
            "length" => self.held().to_string(),
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
                self.learn(cx, ip, mac, &mut out);
                cx.push(0, out);
            }
            ("insert", _) => return Some(Err(format!("expected 'IP ETHER', found '{value}'"))),
            ("delete", _) => match Ip::read(value.trim(), &cx.scope()) {
                Some(ip) => {
                    self.hosts(cx, |hosts| hosts.remove(ip));
                    self.give_up(cx, ip, "deleted");
                }
                None => return Some(Err(format!("expected an IP address, found '{value}'"))),
            },
            ("clear", _) => {
                self.hosts(cx, Hosts::clear);
                let waiting = self.waiting.borrow().addresses();
                waiting.into_iter().for_each(|ip| self.give_up(cx, ip, "deleted"));
            }
            _ => return None,
        }
        Some(Ok(()))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("table", "r"),
            ("count", "r"),
            ("stats", "r"),
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
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        // What a table has is handed over by that.
        if self.table.get().is_none() && old.table.get().is_none() {
            let gone = self.own.borrow_mut().take(&mut old.own.borrow_mut());
            gone.into_iter().for_each(|ip| self.give_up(cx, ip, "table full"));
        }
        let waiting = old.waiting.borrow().addresses();
        for ip in waiting {
            let Some((since, packets)) = old.waiting.borrow_mut().end(ip) else { continue };
            self.expect(cx, ip, since);
            for p in packets {
                if self.waiting.borrow().length(ip) >= self.entry_capacity {
                    self.lose(cx, "queue full", p);
                    continue;
                }
                let kept = self.waiting.borrow_mut().push(ip, p);
                if let Err(p) = kept {
                    self.lose(cx, "table full", p);
                }
            }
        }
        self.fit(cx, self.capacity);
        if let Some((since, _)) = self.waiting.borrow().oldest() {
            cx.timer_at(0, since + WAIT);
        }
        // Some may be answered here.
        self.news.add(self.waiting.borrow().addresses());
        cx.reschedule();
    }
}

class!(
    ARP_QUERIER,
    "ARPQuerier",
    "1-2/1-2",
    "h/h",
    [
        "IP",
        "ETHER",
        "CAPACITY",
        "ENTRY_CAPACITY",
        "ENTRY_PACKET_CAPACITY",
        "TIMEOUT",
        "POLL_TIMEOUT",
        "BROADCAST",
        "BCAST",
        "BROADCAST_POLL",
        "TABLE"
    ],
    |args, _| {
        let net: String = args.req("IP");
        let scope = args.scope();
        let prefix =
            Prefix::read(&net, &scope).or_else(|| Ip::read(&net, &scope).map(|ip| Prefix::new(ip, 32)));
        let prefix = prefix.unwrap_or_else(|| {
            args.error(format!("IP: expected an IP address or prefix, found '{net}'"));
            Prefix::default()
        });
        let whole = Ip(prefix.ip.0 | !prefix.mask.0);
        let broadcast = args.key("BROADCAST").or_else(|| args.key("BCAST"));
        let most_hosts: u32 = args.key("ENTRY_CAPACITY").filter(|n| *n > 0).unwrap_or(MOST_HOSTS);
        let entry_capacity: u32 = args.key("ENTRY_PACKET_CAPACITY").unwrap_or(0);
        let poll = args.key("POLL_TIMEOUT").unwrap_or(Nanos(60 * SECOND));
        let timeout = args.key("TIMEOUT").unwrap_or(TIMEOUT);
        // The broadcast address of a prefix of 32 bits is its own; no packet is meant by it.
        let default = if prefix.mask.0 == u32::MAX { Ip(u32::MAX) } else { whole };
        Box::new(Querier {
            ip: prefix.ip,
            mac: args.req("ETHER"),
            broadcast: broadcast.unwrap_or(default),
            capacity: args.key::<u32>("CAPACITY").unwrap_or(2048) as usize,
            entry_capacity: if entry_capacity > 0 { entry_capacity as usize } else { usize::MAX },
            most_hosts: most_hosts as usize,
            poll: (poll.0 > 0).then_some(poll),
            polls_all: args.key("BROADCAST_POLL").unwrap_or(false),
            own: RefCell::new(Hosts::new(most_hosts, timeout)),
            waiting: RefCell::default(),
            news: Arc::default(),
            table_name: args.key("TABLE"),
            table: Cell::new(None),
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
            let reply = arp(2, (mac, wanted), sender, sender.0);
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
