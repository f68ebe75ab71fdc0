//! Connections and counts in tables of fixed size, by a hash that is already well distributed.

use flame_module::{Ip, Key, Map};

/// A key that was mixed and needs no further mixing.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Mixed(pub u64);

impl Key for Mixed {
    #[inline]
    fn hash(&self) -> u64 {
        self.0
    }
}

pub type Table<T> = Map<Mixed, T>;

/// Returns an address as two numbers.
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
