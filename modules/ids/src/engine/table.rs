//! Connections and counts in tables of fixed size, by a hash that is already well distributed.

use flame_module::{Hashed, Ip, Map};

pub type Table<T> = Map<Hashed, T>;

/// Returns an address as two numbers.
#[inline]
pub fn halves(ip: &Ip) -> [u64; 2] {
    let all = u128::from_ne_bytes(ip.bytes);
    [all as u64, (all >> 64) as u64]
}
