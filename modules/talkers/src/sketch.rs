//! Counters of keys in a table of fixed size (Metwally, Agrawal and El Abbadi, *Efficient Computation of
//! Frequent and Top-k Elements in Data Streams*: Space-Saving), in sets of eight.
//!
//! While a set has room, its counts are exact. Then a new key replaces the smallest counter of its set, and
//! begins with that one's count, which it records as its error. So the true count of a key lies between the
//! counter less its error and the counter. A key without a counter has at most the smallest count of its set.

use crate::key::Key;

const WAYS: usize = 8;

/// The counter of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    pub key: Key,
    /// The measure by which keys are compared, at most.
    pub value: u64,
    /// The other measure since the key has its counter.
    pub other: u64,
    /// The part of `value` that may belong to others.
    pub error: u64,
}

pub struct Sketch {
    /// The tags of the counters; 0 marks a free place.
    tags: Box<[[u32; WAYS]]>,
    counters: Box<[[Counter; WAYS]]>,
}

impl Sketch {
    /// Creates a table for at least `capacity` counters.
    pub fn new(capacity: usize) -> Self {
        let sets = capacity.div_ceil(WAYS).next_power_of_two();
        Self { tags: vec![[0; WAYS]; sets].into(), counters: vec![[Counter::default(); WAYS]; sets].into() }
    }

    /// Adds to the counter of a key.
    #[inline]
    pub fn add(&mut self, key: Key, value: u64, other: u64) {
        let hash = key.hash();
        let set = hash as usize & (self.tags.len() - 1);
        let tag = (hash >> 32) as u32 | 1;
        let (tags, counters) = (&mut self.tags[set], &mut self.counters[set]);
        for way in 0..WAYS {
            if tags[way] == tag && counters[way].key == key {
                counters[way].value += value;
                counters[way].other += other;
                return;
            }
        }
        flame_module::cold();
        let mut least = 0;
        for way in 0..WAYS {
            if tags[way] == 0 {
                tags[way] = tag;
                counters[way] = Counter { key, value, other, error: 0 };
                return;
            }
            if counters[way].value < counters[least].value {
                least = way;
            }
        }
        let error = counters[least].value;
        tags[least] = tag;
        counters[least] = Counter { key, value: error + value, other, error };
    }

    /// Returns all counters.
    pub fn iter(&self) -> impl Iterator<Item = &Counter> {
        let used = self.tags.as_flattened().iter().zip(self.counters.as_flattened());
        used.filter(|(tag, _)| **tag != 0).map(|(_, counter)| counter)
    }

    /// Returns the largest count that a key without a counter may have.
    pub fn unlisted(&self) -> u64 {
        let of_set = |counters: &[Counter; WAYS]| {
            // A set that replaced a counter has one with an error: the last that it took in.
            let has_replaced = counters.iter().any(|c| c.error > 0);
            if has_replaced { counters.iter().map(|c| c.value).min() } else { None }
        };
        self.counters.iter().filter_map(of_set).max().unwrap_or(0)
    }

    pub fn clear(&mut self) {
        self.tags.fill([0; WAYS]);
        self.counters.fill([Counter::default(); WAYS]);
    }
}
