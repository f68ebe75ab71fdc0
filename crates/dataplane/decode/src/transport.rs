//! TCP (RFC 9293), UDP (RFC 768), UDP-Lite, SCTP (RFC 9260), ICMP (RFC 792), ICMPv6 (RFC 4443).

use flame_abi::{Descriptor, flags};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP: u8 = 1;
pub const ICMPV6: u8 = 58;
pub const SCTP: u8 = 132;
pub const DCCP: u8 = 33;
pub const UDP_LITE: u8 = 136;

/// Sets `l4_len`, `tcp_flags` and `TRANSPORT`. `bytes` end where the datagram does.
#[inline]
pub fn walk(bytes: &[u8], at: usize, d: &mut Descriptor) {
    let rest = bytes.get(at..).unwrap_or(&[]);
    let length = match d.proto {
        TCP => {
            if let Some(bits) = rest.get(13) {
                d.tcp_flags = *bits;
            }
            match rest.get(12) {
                Some(b) => usize::from(b >> 4) * 4,
                None => 20,
            }
        }
        UDP | UDP_LITE | ICMP | ICMPV6 => 8,
        SCTP | DCCP => 12,
        _ => return,
    };
    if d.proto == TCP && length < 20 {
        d.flags |= flags::MALFORMED;
    } else if rest.len() >= length {
        d.l4_len = length as u8;
        d.flags |= flags::TRANSPORT;
    } else if d.flags & flags::TRUNCATED == 0 {
        // The capture did not cut it: the packet itself is too short.
        d.flags |= flags::MALFORMED;
    }
}
