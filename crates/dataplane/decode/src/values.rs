//! Changes of packets that leave the form of their headers as it is.

use crate::read::be16;
use crate::transport::{DCCP, SCTP, TCP, UDP, UDP_LITE};
use crate::tunnel::TUNNEL_PORTS;
use flame_abi::{Descriptor, LinkType, flags};

/// Returns whether two forms of the shown bytes of a packet differ only in values: bits of headers, or of a
/// payload without a form of its own, that determine neither the length nor the kind of anything behind them.
/// These are MAC addresses and VLAN tags; the DSCP and ECN of IP, its identification, lifetime, addresses and
/// header checksum, the flow label; ports, other than to and from those of tunnels, and checksums of
/// transport headers; numbers, flags, window and urgent pointer of TCP; payload of TCP and UDP. `before` and
/// its descriptor `d` are as they are shown: the answer depends on nothing that is hidden.
pub fn differs_in_values_only(link: LinkType, d: &Descriptor, before: &[u8], after: &[u8]) -> bool {
    let tunnels = tunnel_ports(before, d);
    let pairs = before.iter().zip(after).enumerate();
    let mut changed = pairs.filter(|(_, (old, new))| old != new);
    let only_values =
        changed.all(|(at, (old, new))| (old ^ new) & !values(link, before, d, tunnels, at) == 0);
    only_values && before.len() == after.len() && tunnel_ports(after, d) == tunnels
}

/// Returns whether the ports of a packet are those of tunnels: the source's and the destination's.
fn tunnel_ports(bytes: &[u8], d: &Descriptor) -> [bool; 2] {
    let is_tunnel = |at| be16(bytes, usize::from(d.l4) + at).is_some_and(|port| TUNNEL_PORTS.contains(&port));
    [0, 2].map(|at| d.proto == UDP && d.has(flags::TRANSPORT) && is_tunnel(at))
}

/// Returns the bits of byte `at` that are a value.
fn values(link: LinkType, bytes: &[u8], d: &Descriptor, tunnels: [bool; 2], at: usize) -> u8 {
    let (l3, l4) = (usize::from(d.l3), usize::from(d.l4));
    let is_value = match () {
        () if !d.is_ip() || at < l3 => link == LinkType::ETHERNET && of_ethernet(bytes, at),
        // Not DF: without it, a router may divide the packet.
        () if at < l4 && d.has(flags::IPV4) => matches!(at - l3, 1 | 4 | 5 | 8 | 10..20),
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
            (UDP, 0 | 1) => !tunnels[0],
            (UDP, 2 | 3) => !tunnels[1],
            (UDP | UDP_LITE, 6 | 7) | (SCTP, 4..12) => true,
            (UDP | UDP_LITE | SCTP | DCCP, offset) => offset < 4,
            _ => false,
        },
        () => d.proto == TCP || d.proto == UDP && tunnels == [false; 2],
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
