//! Connections and counts in tables of fixed size, by a hash that is already well distributed.

use flame_module::{Hashed, Ip, Map, mix};

pub type Table<T> = Map<Hashed, T>;

/// Returns a hash of an address with its family: an IPv4 address is not the IPv6 address of the same bytes.
#[inline]
pub fn host(ip: &Ip) -> u64 {
    let all = u128::from_ne_bytes(ip.bytes);
    mix(mix(all as u64 ^ u64::from(ip.family)) ^ (all >> 64) as u64)
}
