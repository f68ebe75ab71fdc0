//! The packets that wait for answers in an ARPQuerier.

use crate::runtime::packet::Packet;
use flame_click::{Ip, Nanos};
use std::collections::{BTreeMap, VecDeque};

/// A place in the order of ages: the time, and a number that grows.
type Age = (Nanos, u64);

/// The packets that wait for one address, and since when it is waited for. There may be none any more.
struct Wait {
    age: Age,
    packets: VecDeque<Packet>,
}

#[derive(Default)]
pub struct Waiting {
    hosts: BTreeMap<Ip, Wait>,
    ages: BTreeMap<Age, Ip>,
    /// The ages of those with packets.
    filled: BTreeMap<Age, Ip>,
    serial: u64,
    count: usize,
}

impl Waiting {
    /// Returns the number of packets.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of addresses.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the addresses, the oldest first.
    pub fn addresses(&self) -> Vec<Ip> {
        self.ages.values().copied().collect()
    }

    /// Returns whether an address is waited for.
    pub fn has(&self, ip: Ip) -> bool {
        self.hosts.contains_key(&ip)
    }

    /// Returns the address that is waited for longest, and since when.
    pub fn oldest(&self) -> Option<(Nanos, Ip)> {
        self.ages.first_key_value().map(|((since, _), ip)| (*since, *ip))
    }

    /// Begins to wait for an address, unless that has begun.
    pub fn expect(&mut self, ip: Ip, since: Nanos) {
        if !self.hosts.contains_key(&ip) {
            self.serial += 1;
            let age = (since, self.serial);
            self.ages.insert(age, ip);
            self.hosts.insert(ip, Wait { age, packets: VecDeque::new() });
        }
    }

    /// Returns the number of packets that wait for an address.
    pub fn length(&self, ip: Ip) -> usize {
        self.hosts.get(&ip).map_or(0, |wait| wait.packets.len())
    }

    /// Keeps a packet for an address that is waited for, and gives any other back.
    pub fn push(&mut self, ip: Ip, packet: Packet) -> Result<(), Packet> {
        let Some(wait) = self.hosts.get_mut(&ip) else { return Err(packet) };
        wait.packets.push_back(packet);
        self.filled.insert(wait.age, ip);
        self.count += 1;
        Ok(())
    }

    /// Takes the oldest packet of the address with packets that is waited for longest.
    pub fn pop(&mut self) -> Option<Packet> {
        let filled = self.filled.first_entry()?;
        let wait = self.hosts.get_mut(filled.get())?;
        let packet = wait.packets.pop_front();
        if wait.packets.is_empty() {
            filled.remove();
        }
        self.count -= usize::from(packet.is_some());
        packet
    }

    /// Ends the wait for an address. Returns since when it was waited for, and its packets.
    pub fn end(&mut self, ip: Ip) -> Option<(Nanos, VecDeque<Packet>)> {
        let wait = self.hosts.remove(&ip)?;
        self.ages.remove(&wait.age);
        self.filled.remove(&wait.age);
        self.count -= wait.packets.len();
        Some((wait.age.0, wait.packets))
    }
}
