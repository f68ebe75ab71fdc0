//! Changes of packets that leave the form of their headers as it is.

use crate::transport::{DCCP, SCTP, TCP, UDP, UDP_LITE};
use crate::tunnel::has_tunnel_port;
use flame_abi::{Descriptor, LinkType, flags};

/// Returns whether two forms of the first bytes of a packet differ only in values: bits of headers, or of a
/// payload without a form of its own, that determine neither the length nor the kind of anything behind them.
/// These are MAC addresses and VLAN tags; the DSCP and ECN of IP, its identification, lifetime, addresses and
/// header checksum, DF and the flow label; ports, other than to and from those of tunnels, and checksums of
/// transport headers; numbers, flags, window and urgent pointer of TCP; payload of TCP and UDP. `d` describes
/// the packet before, whose bytes `skips` says not to compare are ignored.
pub fn differs_in_values_only(
    link: LinkType,
    d: &Descriptor,
    (before, after): (&[u8], &[u8]),
    skips: impl Fn(usize) -> bool,
) -> bool {
    let is_tunnel = has_tunnel_port(before, d);
    let pairs = before.iter().zip(after).enumerate();
    let mut changed = pairs.filter(|(at, (old, new))| old != new && !skips(*at));
    let only_values =
        changed.all(|(at, (old, new))| (old ^ new) & !values(link, before, d, is_tunnel, at) == 0);
    only_values && has_tunnel_port(after, d) == is_tunnel
}

/// Returns the bits of byte `at` that are a value.
fn values(link: LinkType, bytes: &[u8], d: &Descriptor, is_tunnel: bool, at: usize) -> u8 {
    let (l3, l4) = (usize::from(d.l3), usize::from(d.l4));
    let is_value = match () {
        () if !d.is_ip() || at < l3 => link == LinkType::ETHERNET && of_ethernet(bytes, at),
        () if at < l4 && d.has(flags::IPV4) => match at - l3 {
            // DF. The others are of fragments.
            6 => return 0x40,
            offset => matches!(offset, 1 | 4 | 5 | 8 | 10..20),
        },
        () if at < l4 => match at - l3 {
            // The other half is the version.
            0 => return 0x0f,
            offset => matches!(offset, 1..4 | 7..40),
        },
        () if !d.has(flags::TRANSPORT) || d.has(flags::LATER_FRAGMENT) => false,
        () if at < l4 + usize::from(d.l4_len) => match (d.proto, at - l4) {
            // The other half is the length.
            (TCP, 12) => return 0x0f,
            (TCP, offset) => offset < 20,
            (UDP | UDP_LITE | SCTP | DCCP, 2 | 3) => !is_tunnel,
            (UDP | UDP_LITE, 6 | 7) | (SCTP, 4..12) => true,
            (UDP | UDP_LITE | SCTP | DCCP, offset) => offset < 4,
            _ => false,
        },
        () => d.proto == TCP || d.proto == UDP && !is_tunnel,
    };
    if is_value { 0xff } else { 0 }
}

/// Returns whether a byte belongs to a MAC address or to the number and priority of a VLAN.
fn of_ethernet(bytes: &[u8], at: usize) -> bool {
    let is_tag = |at: usize| matches!(bytes.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8]));
    match at {
        0..12 => true,
        14 | 15 => is_tag(12),
        18 | 19 => is_tag(12) && is_tag(16),
        _ => false,
    }
}
