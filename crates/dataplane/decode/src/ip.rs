//! IPv4 (RFC 791) and IPv6 with extension headers (RFC 8200).

use crate::read::{be16, u8};
use flame_abi::flags;

/// The contents of an IP header.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ip {
    /// The flags IPV4 or IPV6, FRAGMENT, LATER_FRAGMENT and MALFORMED.
    pub flags: u8,
    pub proto: u8,
    /// The offset of the first byte after the header and its extensions.
    pub end_of_headers: usize,
    /// The offset of the first byte after the datagram. The bytes from there on are padding of the link.
    pub end: usize,
    /// Whether all headers were captured and are consistent, so that a transport header may follow.
    pub whole: bool,
}

const AH: u8 = 51;
/// The number of the header after which nothing follows (RFC 8200, section 4.7).
const NOTHING: u8 = 59;

/// The maximum number of extension headers that are followed.
const MAX_EXTENSIONS: usize = 16;

/// Decodes the IP header at `at`. `version` is the version that the link header states, or 0. An inconsistent
/// header after a link header that states IPv4 counts as malformed IPv4, one after a link header that states
/// IPv6 as no IP (as in tshark).
#[inline]
pub fn walk(bytes: &[u8], at: usize, version: u8) -> Ip {
    let found = u8(bytes, at).map(|b| b >> 4);
    match (found, version) {
        (Some(4), 4 | 0) => ipv4(bytes, at),
        (Some(6), 6 | 0) => ipv6(bytes, at),
        (_, 4) => {
            let flags = flags::IPV4 | flags::MALFORMED;
            Ip { flags, end_of_headers: at, end: bytes.len(), ..Ip::default() }
        }
        _ => Ip { flags: flags::MALFORMED, end_of_headers: at, end: bytes.len(), ..Ip::default() },
    }
}

#[inline]
fn ipv4(bytes: &[u8], at: usize) -> Ip {
    let mut ip = Ip { flags: flags::IPV4, end_of_headers: at, end: bytes.len(), ..Ip::default() };
    let header = bytes.get(at..at + 20);
    let Some(header) = header else {
        ip.flags |= flags::MALFORMED;
        return ip;
    };
    let length = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if length < 20 {
        ip.flags |= flags::MALFORMED;
        return ip;
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if fragment & 0x3fff != 0 {
        ip.flags |= flags::FRAGMENT;
        if fragment & 0x1fff != 0 {
            ip.flags |= flags::LATER_FRAGMENT;
        }
    }
    ip.proto = header[9];
    ip.end_of_headers = at + length;
    // Segmentation offload leaves 0 for the network card to fill in: the datagram fills the frame.
    if total >= length {
        ip.end = (at + total).min(bytes.len());
    } else if total != 0 {
        ip.flags |= flags::MALFORMED;
    }
    ip.whole = at + length <= bytes.len();
    // Authentication headers (RFC 4302) lie between IP and the transport header here, too.
    if ip.proto == AH && ip.whole && ip.flags & flags::LATER_FRAGMENT == 0 {
        match (u8(bytes, ip.end_of_headers), u8(bytes, ip.end_of_headers + 1)) {
            (Some(next), Some(words)) if ip.end_of_headers + 8 + usize::from(words) * 4 <= ip.end => {
                ip.proto = next;
                ip.end_of_headers += 8 + usize::from(words) * 4;
            }
            _ => ip.whole = false,
        }
    }
    if !ip.whole {
        ip.flags |= flags::MALFORMED;
    }
    ip
}

fn ipv6(bytes: &[u8], at: usize) -> Ip {
    let mut ip = Ip { flags: flags::IPV6, end_of_headers: at, end: bytes.len(), ..Ip::default() };
    let (Some(payload), Some(next), true) = (be16(bytes, at + 4), u8(bytes, at + 6), bytes.len() >= at + 40)
    else {
        ip.flags |= flags::MALFORMED;
        return ip;
    };
    // The length is 0 in jumbograms (RFC 2675) and with segmentation offload.
    if payload != 0 {
        ip.end = (at + 40 + usize::from(payload)).min(bytes.len());
    }
    let (mut next, mut place) = (next, at + 40);
    for _ in 0..MAX_EXTENSIONS {
        let length = match next {
            // A message of mobility, HIP or shim6 is the payload if nothing follows it.
            135 | 139 | 140 if u8(bytes, place) == Some(NOTHING) => {
                ip.proto = next;
                ip.end_of_headers = place;
                ip.whole = true;
                return ip;
            }
            // Hop-by-hop, routing, destination options, mobility, HIP, shim6: in units of 8 bytes.
            0 | 43 | 60 | 135 | 139 | 140 => u8(bytes, place + 1).map(|n| 8 + usize::from(n) * 8),
            // Fragment (RFC 8200, section 4.5).
            44 => be16(bytes, place + 2).map(|fragment| {
                ip.flags |= flags::FRAGMENT;
                if fragment & 0xfff8 != 0 {
                    ip.flags |= flags::LATER_FRAGMENT;
                }
                8
            }),
            // Authentication (RFC 4302): in units of 4 bytes, less 2.
            AH => u8(bytes, place + 1).map(|n| 8 + usize::from(n) * 4),
            _ => {
                ip.proto = next;
                ip.end_of_headers = place;
                ip.whole = true;
                return ip;
            }
        };
        let Some(length) = length.filter(|l| place + l <= ip.end) else {
            ip.proto = next;
            ip.end_of_headers = place;
            ip.flags |= flags::MALFORMED;
            return ip;
        };
        // The first byte of every extension is the type of the next header.
        next = bytes[place];
        place += length;
        if ip.flags & flags::LATER_FRAGMENT != 0 {
            // The first fragment holds the rest of the chain.
            ip.proto = next;
            ip.end_of_headers = place;
            ip.whole = true;
            return ip;
        }
    }
    ip.proto = next;
    ip.end_of_headers = place;
    ip.flags |= flags::MALFORMED;
    ip
}
