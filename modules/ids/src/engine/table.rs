//! A table of fixed size: four places a key; where all are taken, the one begun first is given up, and counted.

use flame_module::Ip;

const WAYS: usize = 4;

#[derive(Clone, Copy, Default)]
struct Entry<T> {
    /// 0 is free.
    key: u64,
    since_ns: u64,
    value: T,
}

pub struct Table<T> {
    entries: Box<[Entry<T>]>,
    pub evicted: u64,
}

impl<T: Copy + Default> Table<T> {
    /// With at least `most` places.
    pub fn new(most: usize) -> Self {
        let places = most.max(WAYS).next_power_of_two();
        Self { entries: vec![Entry::default(); places].into(), evicted: 0 }
    }

    fn set(&mut self, key: u64) -> (&mut [Entry<T>], u64) {
        let sets = self.entries.len() / WAYS;
        let at = (key as usize & (sets - 1)) * WAYS;
        (&mut self.entries[at..at + WAYS], key.max(1))
    }

    #[inline]
    pub fn find(&mut self, key: u64) -> Option<&mut T> {
        let (set, key) = self.set(key);
        set.iter_mut().find(|e| e.key == key).map(|e| &mut e.value)
    }

    /// Sets the value of a key, which is younger than all others.
    pub fn put(&mut self, key: u64, now_ns: u64, value: T) {
        let (set, key) = self.set(key);
        let place = set.iter().position(|e| e.key == key).or_else(|| set.iter().position(|e| e.key == 0));
        let oldest = || set.iter().enumerate().min_by_key(|(_, e)| e.since_ns).map_or(0, |(i, _)| i);
        let i = place.unwrap_or_else(oldest);
        set[i] = Entry { key, since_ns: now_ns, value };
        self.evicted += u64::from(place.is_none());
    }

    pub fn remove(&mut self, key: u64) {
        let (set, key) = self.set(key);
        set.iter_mut().filter(|e| e.key == key).for_each(|e| *e = Entry::default());
    }
}

/// An address as two numbers.
#[inline]
pub fn halves(ip: &Ip) -> [u64; 2] {
    let all = u128::from_ne_bytes(ip.bytes);
    [all as u64, (all >> 64) as u64]
}

/// Spreads 64 bits (the finaliser of SplitMix64).
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
