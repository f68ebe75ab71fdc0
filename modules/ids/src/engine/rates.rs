//! `threshold` and `detection_filter`: events of a rule and an address are counted in periods of packet time.
//! A period begins with an event, and the first event `seconds` or more later begins the next one.

use super::facts::Facts;
use super::flow;
use super::table::{Table, halves};
use crate::rule::rate::{Kind, Rate, Track};
use flame_module::{Hashed, Ip, mix};

#[derive(Clone, Copy, Default)]
struct Period {
    start_ns: u64,
    events: u32,
}

pub struct Rates {
    table: Table<Period>,
}

impl Rates {
    /// Creates a table for `most` pairs of a rule and an address.
    pub fn new(most: usize) -> Self {
        Self { table: Table::new(most) }
    }

    /// Returns the number of counts that were evicted and therefore restarted.
    pub fn evicted(&self) -> u64 {
        self.table.evicted
    }

    /// Counts an event of rule number `rule` and returns whether it is an alert.
    pub fn pass(&mut self, rule: usize, rate: Rate, f: &Facts<'_>) -> bool {
        let now_ns = f.ts_ns;
        let key = Hashed(mix(tracked(rate.track, f) ^ mix(rule as u64)));
        let length = u64::from(rate.seconds) * 1_000_000_000;
        let events = match self.table.get_mut(key) {
            Some(p) if now_ns < p.start_ns.saturating_add(length) => {
                p.events = p.events.saturating_add(1);
                p.events
            }
            _ => {
                self.table.insert(key, now_ns, Period { start_ns: now_ns, events: 1 });
                1
            }
        };
        match rate.kind {
            Kind::Limit => events <= rate.count,
            Kind::Threshold => events % rate.count == 0,
            Kind::Both => events == rate.count,
            Kind::Detection => events > rate.count,
        }
    }
}

/// Returns a hash of what a rate counts by.
fn tracked(track: Track, f: &Facts<'_>) -> u64 {
    let host = |ip: &Ip| {
        let [a, b] = halves(ip);
        mix(mix(a ^ u64::from(ip.family)) ^ b)
    };
    match track {
        Track::Source => host(&f.src),
        Track::Destination => host(&f.dst),
        Track::Both => host(&f.src).wrapping_add(host(&f.dst)),
        Track::Rule => 0,
        Track::Flow => flow::key(f).1.0,
    }
}
