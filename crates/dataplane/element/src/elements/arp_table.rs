//! ARPTable(ENTRY_CAPACITY, TIMEOUT): the Ethernet addresses that several ARPQueriers share: an answer that
//! one of them gets is known to all whose argument TABLE names this element. Packets wait in the queriers.
//! ENTRY_CAPACITY addresses (65536) are known; the oldest makes room. An address is known for TIMEOUT (300 s;
//! 0: for ever).
//! Expects: no packets.
//! Gives: no packets.
//! Handlers: table, count, insert (w), delete (w), clear (w).
//! Example: `t :: ARPTable; ARPQuerier(1.0.0.1, 2:0:0:0:0:1, TABLE t)`

use crate::runtime::element::{Cx, Element};
use flame_click::time::SECOND;
use flame_click::{Ip, Mac, Nanos, Value, text};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

const SOURCE: &str = include_str!("arp_table.rs");

pub struct ArpTable {
    /// The addresses, and when they were learned.
    entries: RefCell<BTreeMap<Ip, (Mac, Nanos)>>,
    /// The entries by age, the oldest first.
    ages: RefCell<BTreeSet<(Nanos, Ip)>>,
    capacity: usize,
    timeout: Nanos,
    /// The queriers that are woken when there is a new address.
    queriers: RefCell<BTreeSet<usize>>,
}

impl ArpTable {
    /// Returns the table that an element is.
    pub fn of(element: &dyn Element) -> Option<&Self> {
        (element as &dyn std::any::Any).downcast_ref()
    }

    /// Wakes a querier from now on when there is a new address.
    pub fn notify(&self, querier: usize) {
        self.queriers.borrow_mut().insert(querier);
    }

    /// Returns an address that is known, and when it was learned.
    pub fn lookup(&self, ip: Ip, now: Nanos) -> Option<(Mac, Nanos)> {
        let known = self.entries.borrow().get(&ip).copied();
        known.filter(|(_, since)| self.timeout.0 == 0 || now - *since < self.timeout)
    }

    /// Learns an address, and wakes those that may wait for it.
    pub fn learn(&self, cx: &Cx<'_>, ip: Ip, mac: Mac) {
        self.put(ip, mac, cx.now());
        self.queriers.borrow().iter().for_each(|querier| cx.router.reschedule(*querier));
    }

    fn put(&self, ip: Ip, mac: Mac, since: Nanos) {
        self.remove(ip);
        let (mut entries, mut ages) = (self.entries.borrow_mut(), self.ages.borrow_mut());
        while entries.len() >= self.capacity
            && let Some((_, oldest)) = ages.pop_first()
        {
            entries.remove(&oldest);
        }
        entries.insert(ip, (mac, since));
        ages.insert((since, ip));
    }

    fn remove(&self, ip: Ip) {
        if let Some((_, since)) = self.entries.borrow_mut().remove(&ip) {
            self.ages.borrow_mut().remove(&(since, ip));
        }
    }
}

impl Element for ArpTable {
    fn read(&self, cx: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        let now = cx.now();
        let line = |(ip, (mac, since)): (&Ip, &(Mac, Nanos))| {
            let is_known = u8::from(self.lookup(*ip, now).is_some());
            format!("{ip} {is_known} {mac} {}\n", (now - *since).micros())
        };
        Some(Ok(match name {
            "table" => self.entries.borrow().iter().map(line).collect(),
            "count" => self.entries.borrow().len().to_string(),
            _ => return None,
        }))
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        let scope = cx.scope();
        match (name, &text::words(value)[..]) {
            ("insert", [ip, mac]) => match (Ip::read(ip, &scope), Mac::read(mac, &scope)) {
                (Some(ip), Some(mac)) => self.learn(cx, ip, mac),
                _ => return Some(Err(format!("expected 'IP ETHER', found '{value}'"))),
            },
            ("insert", _) => return Some(Err(format!("expected 'IP ETHER', found '{value}'"))),
            ("delete", _) => match Ip::read(value.trim(), &scope) {
                Some(ip) => self.remove(ip),
                None => return Some(Err(format!("expected an IP address, found '{value}'"))),
            },
            ("clear", _) => {
                self.entries.borrow_mut().clear();
                self.ages.borrow_mut().clear();
            }
            _ => return None,
        }
        Some(Ok(()))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("table", "r"), ("count", "r"), ("insert", "w"), ("delete", "w"), ("clear", "w")]
    }

    fn take_state(&self, _: &Cx<'_>, old: &dyn Element) {
        let Some(old) = Self::of(old) else { return };
        let by_age: Vec<(Nanos, Ip)> = old.ages.borrow().iter().copied().collect();
        for (since, ip) in by_age {
            if let Some((mac, _)) = old.entries.borrow().get(&ip) {
                self.put(ip, *mac, since);
            }
        }
        // Queriers that were replaced with it have named themselves to this one.
        self.queriers.borrow_mut().append(&mut old.queriers.borrow_mut());
    }
}

class!(ARP_TABLE, "ARPTable", "0/0", "a/a", ["ENTRY_CAPACITY", "TIMEOUT"], |args, _| {
    let capacity = args.key::<u32>("ENTRY_CAPACITY").unwrap_or(65_536);
    if capacity == 0 {
        args.error("ENTRY_CAPACITY: expected a positive number, found 0");
    }
    Box::new(ArpTable {
        entries: RefCell::default(),
        ages: RefCell::default(),
        capacity: capacity.max(1) as usize,
        timeout: args.key("TIMEOUT").unwrap_or(Nanos(300 * SECOND)),
        queriers: RefCell::default(),
    })
});
