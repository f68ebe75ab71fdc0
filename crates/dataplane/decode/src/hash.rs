//! The symmetric flow hash.

use flame_abi::{Descriptor, flags, has_ports};

/// Returns the flow hash, which is equal for both directions of a 5-tuple. It determines a packet's worker
/// and serves as a key of flow tables. It is 0 if the packet is not IP.
///
/// The hash has no key and is not a secret: anyone who sees the 5-tuple can compute it, and an attacker can
/// choose flows that collide, so tables must bound their chains. Later fragments have no ports; they hash by
/// addresses and protocol. A view that changes addresses or ports must compute it again from the changed
/// bytes.
#[inline]
pub fn flow_hash(bytes: &[u8], d: &Descriptor) -> u32 {
    let l3 = usize::from(d.l3);
    let (a, b) = if d.has(flags::IPV4) {
        let Some(header) = bytes.get(l3 + 12..l3 + 20) else { return 0 };
        (u64::from(word(header, 0)), u64::from(word(header, 4)))
    } else if d.has(flags::IPV6) {
        let Some(header) = bytes.get(l3 + 8..l3 + 40) else { return 0 };
        let half = |at: usize| u64::from(word(header, at)) << 32 | u64::from(word(header, at + 4));
        (fold(half(0), half(8)), fold(half(16), half(24)))
    } else {
        return 0;
    };
    let ports = has_ports(d.proto) && !d.has(flags::LATER_FRAGMENT);
    let l4 = usize::from(d.l4);
    let (p, q) = match bytes.get(l4..l4 + 4) {
        Some(b) if ports => (u16::from_be_bytes([b[0], b[1]]), u16::from_be_bytes([b[2], b[3]])),
        _ => (0, 0),
    };
    of(a, b, p, q, d.proto)
}

/// Returns the hash of two addresses (IPv6 addresses are folded), two ports and a protocol.
#[inline]
pub fn of(a: u64, b: u64, p: u16, q: u16, proto: u8) -> u32 {
    let one = mix(a ^ u64::from(p) << 48);
    let other = mix(b ^ u64::from(q) << 48);
    // Sum and product do not depend on the order, and together lose nothing that matters.
    let both = one.wrapping_add(other) ^ (one ^ other).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let h = mix(both ^ u64::from(proto));
    (h >> 32) as u32 ^ h as u32
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Folds an IPv6 address into one word.
#[inline]
pub fn fold(high: u64, low: u64) -> u64 {
    mix(high).wrapping_add(low)
}

/// Computes the finalizer of SplitMix64 (Steele, Lea, Flood 2014) without its last step.
#[inline]
fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}
