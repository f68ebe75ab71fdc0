//! A fast path for nearly all packets, read at fixed offsets: Ethernet II, IPv4 without options or IPv6
//! without extensions, then a complete header of TCP, UDP or ICMP. It gives the same result as the full
//! decoder in less than half the time; all other packets are left to that.

use crate::transport::{ICMP, ICMPV6, TCP, UDP};
use crate::{Options, hash};
use flame_abi::{Descriptor, flags};

/// The number of bytes of Ethernet and IPv4 with TCP, or of Ethernet and IPv6.
const HEAD: usize = 54;

const L3: usize = 14;

/// Fills all fields of a descriptor but its time and place, or returns `None` and leaves it as it is. The
/// fields are written where they stay: a descriptor that is moved right after its fields were written waits
/// for these writes, which takes as long as the rest.
#[inline(always)]
pub fn decode(bytes: &[u8], wire_len: u32, options: Options, d: &mut Descriptor) -> Option<()> {
    let head: &[u8; HEAD] = bytes.first_chunk()?;
    let be16 = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let be32 = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let be64 = |at: usize| u64::from(be32(at)) << 32 | u64::from(be32(at + 4));
    // The version and the excluded cases are one comparison each.
    match (be16(12), head[L3] >> 4) {
        (0x0800, 4) => {
            let total = usize::from(be16(L3 + 2));
            if head[L3] != 0x45 || be16(L3 + 6) & 0x3fff != 0 || total < 28 {
                return None;
            }
            let l4: &[u8; 14] = head[34..48].try_into().ok()?;
            let proto = head[L3 + 9];
            let (l4_len, tcp_flags) = transport(proto, l4)?;
            if 34 + l4_len > bytes.len().min(L3 + total) {
                return None;
            }
            let addresses = || (u64::from(be32(L3 + 12)), u64::from(be32(L3 + 16)));
            let hash = if options.without_hash { 0 } else { hash(addresses(), proto, l4) };
            describe(bytes, wire_len, (flags::IPV4, proto, 34, l4_len, tcp_flags), hash, d);
            Some(())
        }
        (0x86dd, 6) => {
            let payload = usize::from(be16(L3 + 4));
            let l4: &[u8; 14] = bytes.get(54..68)?.try_into().ok()?;
            let proto = head[L3 + 6];
            let (l4_len, tcp_flags) = transport(proto, l4)?;
            if 54 + l4_len > bytes.len().min(54 + payload) {
                return None;
            }
            let addresses = || (hash::fold(be64(22), be64(30)), hash::fold(be64(38), be64(46)));
            let hash = if options.without_hash { 0 } else { hash(addresses(), proto, l4) };
            describe(bytes, wire_len, (flags::IPV6, proto, 54, l4_len, tcp_flags), hash, d);
            Some(())
        }
        _ => None,
    }
}

/// Returns the length of the header and the TCP flags.
#[inline]
fn transport(proto: u8, l4: &[u8; 14]) -> Option<(usize, u8)> {
    match proto {
        TCP if l4[12] >= 0x50 => Some((usize::from(l4[12] >> 4) * 4, l4[13])),
        UDP | ICMP | ICMPV6 => Some((8, 0)),
        _ => None,
    }
}

/// Returns the flow hash of two addresses and the transport header.
#[inline]
fn hash((a, b): (u64, u64), proto: u8, l4: &[u8; 14]) -> u32 {
    let (p, q) = match proto {
        TCP | UDP => (u16::from_be_bytes([l4[0], l4[1]]), u16::from_be_bytes([l4[2], l4[3]])),
        _ => (0, 0),
    };
    hash::of(a, b, p, q, proto)
}

#[inline]
fn describe(
    bytes: &[u8],
    wire_len: u32,
    (version, proto, l4, l4_len, tcp_flags): (u8, u8, u16, usize, u8),
    hash: u32,
    d: &mut Descriptor,
) {
    let cap_len = bytes.len() as u32;
    let cut = if cap_len < wire_len { flags::TRUNCATED } else { 0 };
    (d.hash, d.wire_len, d.cap_len) = (hash, wire_len, cap_len);
    (d.l3, d.l4, d.l4_len) = (L3 as u16, l4, l4_len as u8);
    (d.proto, d.flags, d.tcp_flags) = (proto, version | flags::TRANSPORT | cut, tcp_flags);
}
