//! `threshold` and `detection_filter`: events of a rule and an address are counted in periods of packet time.
//! A period begins with an event, and the first event more than `seconds` later begins the next one; in
//! Snort's dialect, an event `seconds` later does.

use super::facts::Facts;
use super::flow::{self, Known};
use super::table::{Table, host};
use crate::rule::Dialect;
use crate::rule::rate::{Kind, Rate, Track};
use flame_module::{Hashed, mix};

#[derive(Clone, Copy, Default)]
struct Period {
    start_ns: u64,
    events: u32,
}

pub struct Rates {
    table: Table<Period>,
    /// The time in nanoseconds after the length of a period in which it has not ended.
    after_ns: u64,
}

impl Rates {
    /// Creates a table for `most` pairs of a rule and an address.
    pub fn new(most: usize, dialect: Dialect) -> Self {
        Self { table: Table::new(most), after_ns: u64::from(dialect == Dialect::Suricata) }
    }

    /// Returns the number of counts that were evicted and therefore restarted.
    pub fn evicted(&self) -> u64 {
        self.table.evicted
    }

    /// Counts an event of rule number `rule` and returns whether it is an alert.
    pub fn pass(&mut self, rule: usize, rate: Rate, f: &Facts<'_>, known: &Known) -> bool {
        let now_ns = f.ts_ns;
        let key = Hashed(mix(tracked(rate.track, f, known) ^ mix(rule as u64)));
        let length = u64::from(rate.seconds) * 1_000_000_000 + self.after_ns;
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
fn tracked(track: Track, f: &Facts<'_>, known: &Known) -> u64 {
    match track {
        Track::Source => host(&f.src),
        Track::Destination => host(&f.dst),
        Track::Both => host(&f.src).wrapping_add(host(&f.dst)),
        Track::Rule => 0,
        // In Snort's dialect, not every packet has a connection.
        Track::Flow => known.epoch.map_or_else(|| flow::key(f).1.0, |epoch| mix(epoch.get().into())),
    }
}
