//! The marks of `flowbits` and `xbits`, in one table of fixed size.

use super::facts::Facts;
use super::flow::Known;
use super::table::{Table, host};
use crate::rule::mark::{Action, Mark, Owner};
use flame_module::{Hashed, mix};

pub struct Marks {
    /// The time at which each mark is gone.
    table: Table<u64>,
}

impl Marks {
    /// Creates a table for `most` marks.
    pub fn new(most: usize) -> Self {
        Self { table: Table::new(most) }
    }

    /// Returns the number of marks that were evicted.
    pub fn evicted(&self) -> u64 {
        self.table.evicted
    }

    fn is_set(&self, key: Hashed, now_ns: u64) -> bool {
        self.table.get(key).is_some_and(|expires| now_ns < *expires)
    }

    /// Returns whether the conditions among `marks` hold.
    pub fn fit(&self, marks: &[Mark], f: &Facts<'_>, known: &Known) -> bool {
        marks.iter().filter(|m| m.action.asks()).all(|mark| {
            let wanted = mark.action == Action::IsSet;
            mark.names.iter().any(|name| {
                key(mark.owner, *name, f, known).is_some_and(|key| self.is_set(key, f.ts_ns) == wanted)
            })
        })
    }

    /// Carries out the other actions.
    pub fn apply(&mut self, marks: &[Mark], f: &Facts<'_>, known: &Known) {
        for mark in marks.iter().filter(|m| !m.action.asks()) {
            for key in mark.names.iter().filter_map(|name| key(mark.owner, *name, f, known)) {
                let set = match mark.action {
                    Action::Set => true,
                    Action::Toggle => !self.is_set(key, f.ts_ns),
                    _ => false,
                };
                if set {
                    let expires = match mark.expire {
                        0 => u64::MAX,
                        seconds => f.ts_ns.saturating_add(u64::from(seconds) * 1_000_000_000),
                    };
                    self.table.insert(key, f.ts_ns, expires);
                } else {
                    self.table.remove(key);
                }
            }
        }
    }
}

/// Returns the key of a mark, or `None` if the packet has no connection.
fn key(owner: Owner, name: u32, f: &Facts<'_>, known: &Known) -> Option<Hashed> {
    let of = match owner {
        Owner::Flow => u64::from(known.epoch?.get()),
        Owner::Source => host(&f.src),
        Owner::Destination => host(&f.dst),
        Owner::Pair => host(&f.src).wrapping_add(host(&f.dst)),
    };
    // A mark of a source is the same as one of a destination: it belongs to the address.
    let kind = match owner {
        Owner::Flow => 1,
        Owner::Source | Owner::Destination => 2,
        Owner::Pair => 3,
    };
    Some(Hashed(mix(mix(of) ^ u64::from(name) << 2 ^ kind)))
}
