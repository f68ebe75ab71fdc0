//! The key of a flow: both addresses, both ports, the protocol, the IP version.
//!
//! A key has two words for either IP version, so that one comparison decides IPv4:
//!
//! ```text
//! address   IPv4: source | destination << 32; IPv6: a 32-bit fold of each, and the 32 bytes aside
//! meta      version (4, 6) << 40 | PORTLESS | protocol << 32 | destination port << 16 | source port
//! ```
//!
//! Addresses and ports are in the packet's byte order, read as little-endian words: they are only compared
//! for equality, and byte swaps take several instructions in Wasm.
//!
//! ICMP has type and code in the place of the source port. In the place of the destination port are the type
//! of the message that answers it, and the code, so that both directions of a request and its answers have
//! one key; messages without an answer have [`ONE_WAY`] there.
//!
//! Ports of protocols without ports are 0. Packets whose ports are unknown must not look like a conversation
//! on port 0, so their keys have the bit [`PORTLESS`]: all but the first fragment of a datagram, and packets
//! that end before their ports. The protocol is the header's in each case.

use flame_module::{Descriptor, Ip, flags, has_ports};

/// The bit of a `meta` word that states that the ports are unknown, although the protocol has ports. It is 0
/// in the versions of IP.
const PORTLESS: u64 = 1 << 40;
/// The bits of a `meta` word that belong to the key.
pub const META: u64 = (1 << 43) - 1;
/// The value in place of a destination port for an ICMP message that has no answer.
const ONE_WAY: u32 = 0xffff;
/// Type and code of an ICMP message of which they were not captured.
const UNKNOWN: u32 = 0xffff;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// The number of an IPv6 header after which nothing follows (RFC 8200, section 4.7).
const NOTHING: u8 = 59;

/// The types of ICMP messages that answer each other, for ICMP and ICMPv6.
const ANSWERS: [&[(u8, u8)]; 2] = [
    &[(8, 0), (13, 14), (15, 16), (17, 18), (10, 9)],
    &[(128, 129), (133, 134), (135, 136), (130, 131), (139, 140), (144, 145)],
];

/// The type of the answer to each type of message, or the type itself. Tables, because the work of a packet
/// must not depend on a search.
static ANSWER: [[u8; 256]; 2] = [answers(ANSWERS[0]), answers(ANSWERS[1])];

const fn answers(pairs: &[(u8, u8)]) -> [u8; 256] {
    let mut table = [0; 256];
    let mut kind = 0;
    while kind < 256 {
        table[kind] = kind as u8;
        kind += 1;
    }
    let mut at = 0;
    while at < pairs.len() {
        let (a, b) = pairs[at];
        table[a as usize] = b;
        table[b as usize] = a;
        at += 1;
    }
    table
}

/// A table, because a `match` would be a jump that the processor must predict.
static HAS_PORTS: [bool; 256] = {
    let mut table = [false; 256];
    let mut proto = 0;
    while proto < 256 {
        table[proto] = has_ports(proto as u8);
        proto += 1;
    }
    table
};

/// A flow's key in the direction of one packet, from its source to its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub address: u64,
    pub meta: u64,
}

/// Both IPv6 addresses, source first.
pub type Long = [u8; 32];

impl Key {
    /// Returns the key of an IP packet, its IPv6 addresses, and the length that its IP header states, which
    /// is 0 if it states none. Returns `None` if its addresses were not captured.
    #[inline(always)]
    pub fn of<'a>(d: &Descriptor, bytes: &'a [u8]) -> Option<(Self, Option<&'a Long>, u32)> {
        let l3 = usize::from(d.l3);
        let ports = if d.has(flags::TRANSPORT) { ports(d, bytes) } else { unusual(d, bytes) };
        if d.has(flags::IPV4) {
            let header: &[u8; 20] = bytes.get(l3..l3 + 20)?.try_into().ok()?;
            let address = u64::from_le_bytes(*header.last_chunk()?);
            let length = u32::from(u16::from_be_bytes([header[2], header[3]]));
            // Less than a header is no length either.
            let length = if length < 20 { 0 } else { length };
            Some((Self { address, meta: 4 << 40 | ports }, None, length))
        } else {
            let header: &[u8; 40] = bytes.get(l3..l3 + 40)?.try_into().ok()?;
            let long: &Long = header.last_chunk()?;
            let address = fold(&long[..16]) | fold(&long[16..]) << 32;
            let payload = u32::from(u16::from_be_bytes([header[4], header[5]]));
            let length = if payload == 0 && header[6] != NOTHING { 0 } else { payload + 40 };
            Some((Self { address, meta: 6 << 40 | ports }, Some(long), length))
        }
    }

    /// Returns the key of the opposite direction.
    #[inline]
    pub fn reversed(self) -> Self {
        let ports = (self.meta as u32).rotate_left(16);
        Self { address: self.address.rotate_left(32), meta: self.meta & !0xffff_ffff | u64::from(ports) }
    }

    pub fn is_v6(self) -> bool {
        self.meta >> 41 & 1 == 1
    }

    /// Returns whether the protocol has ports that are unknown.
    pub fn is_portless(self) -> bool {
        self.meta & PORTLESS != 0
    }

    pub fn proto(self) -> u8 {
        (self.meta >> 32) as u8
    }

    fn is_icmp(self) -> bool {
        matches!(self.proto(), ICMP | ICMPV6)
    }

    pub fn sport(self) -> u16 {
        if self.is_icmp() { 0 } else { (self.meta as u16).swap_bytes() }
    }

    pub fn dport(self) -> u16 {
        if self.is_icmp() { 0 } else { ((self.meta >> 16) as u16).swap_bytes() }
    }

    /// Returns type and code of ICMP, or zeros for other protocols.
    pub fn icmp(self) -> (u8, u8) {
        let word = self.meta as u16;
        if self.is_icmp() { (word as u8, (word >> 8) as u8) } else { (0, 0) }
    }

    /// Returns source and destination; `long` is used for IPv6.
    pub fn addresses(self, long: &Long) -> (Ip, Ip) {
        if self.is_v6() {
            let (mut src, mut dst) = ([0; 16], [0; 16]);
            src.copy_from_slice(&long[..16]);
            dst.copy_from_slice(&long[16..]);
            (Ip::v6(src), Ip::v6(dst))
        } else {
            (Ip::v4((self.address as u32).to_le_bytes()), Ip::v4(((self.address >> 32) as u32).to_le_bytes()))
        }
    }
}

/// Returns whether `a` is `b` with source and destination exchanged.
#[inline]
pub fn is_reverse(a: &Long, b: &Long) -> bool {
    a[..16] == b[16..] && a[16..] == b[..16]
}

pub fn reverse(long: &Long) -> Long {
    let mut out = [0; 32];
    out[..16].copy_from_slice(&long[16..]);
    out[16..].copy_from_slice(&long[..16]);
    out
}

/// Returns a hash of an address. It need not be a good one, because keys with equal folds are compared in
/// full.
#[inline]
fn fold(b: &[u8]) -> u64 {
    let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    u64::from(word(0) ^ word(4).rotate_left(8) ^ word(8).rotate_left(16) ^ word(12).rotate_left(24))
}

/// Returns the protocol and ports of a packet with a whole transport header.
#[inline]
fn ports(d: &Descriptor, bytes: &[u8]) -> u64 {
    let proto = u64::from(d.proto) << 32;
    if !HAS_PORTS[usize::from(d.proto)] {
        return if matches!(d.proto, ICMP | ICMPV6) { icmp(d, bytes) } else { proto };
    }
    let l4 = usize::from(d.l4);
    match bytes.get(l4..l4 + 4) {
        Some(b) => proto | u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        None => proto | PORTLESS,
    }
}

/// Returns the protocol of an ICMP message, and type and code with those of its answer in place of ports.
#[cold]
#[inline(never)]
fn icmp(d: &Descriptor, bytes: &[u8]) -> u64 {
    flame_module::cold();
    let l4 = usize::from(d.l4);
    let word = match bytes.get(l4..l4 + 2) {
        Some(b) => {
            let (kind, code) = (b[0], u32::from(b[1]) << 8);
            let answer = ANSWER[usize::from(d.proto == ICMPV6)][usize::from(kind)];
            let there = if answer == kind { ONE_WAY } else { u32::from(answer) | code };
            u32::from(kind) | code | there << 16
        }
        None => UNKNOWN | ONE_WAY << 16,
    };
    u64::from(d.proto) << 32 | u64::from(word)
}

/// Returns the protocol and ports of a packet without a whole transport header; its ports may still be there.
#[cold]
fn unusual(d: &Descriptor, bytes: &[u8]) -> u64 {
    let has_ports = HAS_PORTS[usize::from(d.proto)];
    if !has_ports && !matches!(d.proto, ICMP | ICMPV6) {
        return u64::from(d.proto) << 32;
    }
    // The bytes after the datagram's end are the link's padding, not ports.
    let (l3, l4) = (usize::from(d.l3), usize::from(d.l4));
    let field =
        |at: usize| bytes.get(l3 + at..l3 + at + 2).map_or(0, |b| usize::from(b[0]) << 8 | usize::from(b[1]));
    let end = l3 + if d.has(flags::IPV4) { field(2) } else { 40 + field(4) };
    // Segmentation offload leaves a total length of 0.
    let whole = end >= l4 + 4 || end == l3 || (!d.has(flags::IPV4) && end == l3 + 40);
    match whole && !d.has(flags::LATER_FRAGMENT) {
        true => ports(d, bytes),
        false if has_ports => u64::from(d.proto) << 32 | PORTLESS,
        false => icmp(d, &[]),
    }
}
