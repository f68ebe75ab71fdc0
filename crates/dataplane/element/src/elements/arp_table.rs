//! ARPTable(ENTRY_CAPACITY, TIMEOUT): the Ethernet addresses that several ARPQueriers share: an answer that
//! one of them gets is known to all whose argument TABLE names this element, and what one of them asks for is
//! not asked by another at the same time. Packets wait in the queriers. ENTRY_CAPACITY addresses (65536) are
//! there; the oldest unanswered one makes room, or else the oldest. An answer is good for TIMEOUT (300 s; 0:
//! for ever).
//! Expects: no packets.
//! Gives: no packets.
//! Handlers: table (the oldest first), count, insert (w), delete (w), clear (w).
//! Example: `t :: ARPTable; ARPQuerier(1.0.0.1, 2:0:0:0:0:1, TABLE t)`

use crate::runtime::element::{Cx, Element};
use crate::runtime::router::Handle;
use flame_base::lock;
use flame_click::time::SECOND;
use flame_click::{Ip, Mac, Nanos, Value, text};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

const SOURCE: &str = include_str!("arp_table.rs");

/// An answer is good for so long.
pub const TIMEOUT: Nanos = Nanos(300 * SECOND);
/// Addresses that are remembered. A scan of a large network must not fill the memory.
pub const MOST_HOSTS: u32 = 65_536;
/// Interval of requests for one address, for the first [`MANY`] without an answer.
const REQUEST_INTERVAL: Nanos = Nanos(SECOND / 10);
const MANY: u8 = 10;
/// The interval from then on.
const LATER_REQUEST_INTERVAL: Nanos = Nanos(2 * SECOND);

/// A host that was asked for, or has answered.
#[derive(Clone, Debug)]
struct Host {
    /// The last answer, if there was one.
    mac: Option<Mac>,
    /// Whether there is no need to wait for another answer, unless this one is too old.
    is_answered: bool,
    /// The time when it was answered, or else when it was wanted first.
    since: Nanos,
    asked_at: Option<Nanos>,
    /// Requests since the last answer.
    requests: u8,
}

/// Hosts by address.
pub struct Hosts {
    all: BTreeMap<Ip, Host>,
    /// The hosts by (is answered, since): the first one makes room for a new one.
    ages: BTreeSet<(bool, Nanos, Ip)>,
    capacity: usize,
    timeout: Nanos,
}

impl Hosts {
    /// Creates an empty table with the given capacity, at least 1.
    pub fn new(capacity: u32, timeout: Nanos) -> Self {
        Self {
            all: BTreeMap::new(),
            ages: BTreeSet::new(),
            capacity: capacity.max(1) as usize,
            timeout: if timeout.0 > 0 { timeout } else { Nanos::ZERO },
        }
    }

    fn is_good(&self, host: &Host, now: Nanos) -> bool {
        host.is_answered && (self.timeout.0 == 0 || now - host.since < self.timeout)
    }

    /// Returns an answer that is not too old, and its time.
    pub fn lookup(&self, ip: Ip, now: Nanos) -> Option<(Mac, Nanos)> {
        let host = self.all.get(&ip).filter(|h| self.is_good(h, now))?;
        host.mac.map(|mac| (mac, host.since))
    }

    /// Puts a host in its place. Returns the address of the evicted host.
    fn put(&mut self, ip: Ip, host: Host) -> Option<Ip> {
        self.remove(ip);
        let full = self.all.len() >= self.capacity;
        let oldest = full.then(|| self.ages.first().map(|(_, _, oldest)| *oldest)).flatten();
        if let Some(oldest) = oldest {
            self.remove(oldest);
        }
        self.ages.insert((host.is_answered, host.since, ip));
        self.all.insert(ip, host);
        oldest
    }

    /// Learns an answer. Returns the address that made room for it.
    pub fn learn(&mut self, ip: Ip, mac: Mac, now: Nanos) -> Option<Ip> {
        let host = Host { mac: Some(mac), is_answered: true, since: now, asked_at: None, requests: 0 };
        self.put(ip, host)
    }

    /// Begins to wait for a host without a good answer. Returns the address that made room
    /// for it.
    pub fn expect(&mut self, ip: Ip, now: Nanos) -> Option<Ip> {
        let host = match self.all.get(&ip) {
            Some(host) if !host.is_answered || self.is_good(host, now) => return None,
            Some(host) => Host { is_answered: false, since: now, ..host.clone() },
            None => Host { mac: None, is_answered: false, since: now, asked_at: None, requests: 0 },
        };
        self.put(ip, host)
    }

    /// Returns whether the host may be asked now, and counts that as a request.
    pub fn ask(&mut self, ip: Ip, now: Nanos) -> bool {
        let Some(host) = self.all.get_mut(&ip) else { return false };
        let patience = if host.requests >= MANY { LATER_REQUEST_INTERVAL } else { REQUEST_INTERVAL };
        let is_due = host.asked_at.is_none_or(|t| now - t >= patience);
        if is_due {
            (host.asked_at, host.requests) = (Some(now), host.requests.saturating_add(1));
        }
        is_due
    }

    pub fn remove(&mut self, ip: Ip) {
        if let Some(host) = self.all.remove(&ip) {
            self.ages.remove(&(host.is_answered, host.since, ip));
        }
    }

    /// Removes a host that has not answered.
    pub fn give_up(&mut self, ip: Ip) {
        if self.all.get(&ip).is_some_and(|host| !host.is_answered) {
            self.remove(ip);
        }
    }

    pub fn clear(&mut self) {
        self.all.clear();
        self.ages.clear();
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Takes over other hosts, which are no longer there. What is known here stays. Returns the addresses
    /// that made room.
    pub fn take(&mut self, other: &mut Self) -> Vec<Ip> {
        let mut gone = Vec::new();
        for (is_answered, _, ip) in std::mem::take(&mut other.ages) {
            let Some(host) = other.all.remove(&ip) else { continue };
            let is_more = |own: &Host| !own.is_answered && (is_answered || own.requests < host.requests);
            if self.all.get(&ip).is_none_or(is_more) {
                gone.extend(self.put(ip, host));
            }
        }
        gone
    }

    /// Returns a line for each host, the oldest first.
    pub fn table(&self, now: Nanos) -> String {
        let mut all: Vec<_> = self.all.iter().collect();
        all.sort_by_key(|(_, host)| host.since);
        let line = |(ip, host): (&Ip, &Host)| {
            let mac = host.mac.unwrap_or(Mac::BROADCAST);
            let age = now - host.since;
            format!("{ip} {} {mac} {}\n", u8::from(self.is_good(host, now)), age.micros())
        };
        all.into_iter().map(line).collect()
    }
}

/// The addresses that a querier has not heard of yet, all of them new in the table.
#[derive(Default)]
pub struct News(Mutex<BTreeSet<Ip>>);

impl News {
    pub fn add(&self, all: impl IntoIterator<Item = Ip>) {
        lock(&self.0).extend(all);
    }

    pub fn take(&self) -> BTreeSet<Ip> {
        std::mem::take(&mut lock(&self.0))
    }
}

pub struct ArpTable {
    hosts: RefCell<Hosts>,
    /// The queriers that hear of new addresses.
    queriers: RefCell<BTreeMap<Handle, Weak<News>>>,
}

impl ArpTable {
    /// Returns the table that an element is.
    pub fn of(element: &dyn Element) -> Option<&Self> {
        (element as &dyn std::any::Any).downcast_ref()
    }

    /// Lets a querier use the hosts.
    pub fn with<T>(&self, act: impl FnOnce(&mut Hosts) -> T) -> T {
        act(&mut self.hosts.borrow_mut())
    }

    /// Tells the querier that is called here of new addresses from now on.
    pub fn notify(&self, cx: &Cx<'_>, news: &Arc<News>) {
        self.queriers.borrow_mut().insert(cx.router.handle(cx.me), Arc::downgrade(news));
    }

    /// Tells the queriers of a new address, and wakes them.
    pub fn tell(&self, cx: &Cx<'_>, ip: Ip) {
        self.queriers.borrow_mut().retain(|querier, news| {
            let Some((index, news)) = cx.router.index(*querier).zip(news.upgrade()) else { return false };
            news.add([ip]);
            cx.router.reschedule(index);
            true
        });
    }
}

impl Element for ArpTable {
    fn read(&self, cx: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "table" => self.hosts.borrow().table(cx.now()),
            "count" => self.hosts.borrow().count().to_string(),
            _ => return None,
        }))
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        let scope = cx.scope();
        match (name, &text::words(value)[..]) {
            ("insert", [ip, mac]) => match (Ip::read(ip, &scope), Mac::read(mac, &scope)) {
                (Some(ip), Some(mac)) => {
                    self.hosts.borrow_mut().learn(ip, mac, cx.now());
                    self.tell(cx, ip);
                }
                _ => return Some(Err(format!("expected 'IP ETHER', found '{value}'"))),
            },
            ("insert", _) => return Some(Err(format!("expected 'IP ETHER', found '{value}'"))),
            ("delete", _) => match Ip::read(value.trim(), &scope) {
                Some(ip) => self.hosts.borrow_mut().remove(ip),
                None => return Some(Err(format!("expected an IP address, found '{value}'"))),
            },
            ("clear", _) => self.hosts.borrow_mut().clear(),
            _ => return None,
        }
        Some(Ok(()))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("table", "r"), ("count", "r"), ("insert", "w"), ("delete", "w"), ("clear", "w")]
    }

    fn take_state(&self, _: &Cx<'_>, old: &dyn Element) {
        let Some(old) = Self::of(old) else { return };
        self.hosts.borrow_mut().take(&mut old.hosts.borrow_mut());
        // Those of a router that was replaced have named themselves to this one, and are ignored.
        let mut queriers = self.queriers.borrow_mut();
        for (querier, news) in std::mem::take(&mut *old.queriers.borrow_mut()) {
            queriers.entry(querier).or_insert(news);
        }
    }
}

class!(ARP_TABLE, "ARPTable", "0/0", "a/a", ["ENTRY_CAPACITY", "TIMEOUT"], |args, _| {
    let capacity = args.key::<u32>("ENTRY_CAPACITY").unwrap_or(MOST_HOSTS);
    if capacity == 0 {
        args.error("ENTRY_CAPACITY: expected a positive number, found 0");
    }
    let timeout = args.key("TIMEOUT").unwrap_or(TIMEOUT);
    Box::new(ArpTable { hosts: RefCell::new(Hosts::new(capacity, timeout)), queriers: RefCell::default() })
});
