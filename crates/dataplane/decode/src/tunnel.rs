//! The encapsulations of mirror ports and overlays: GRE (RFC 2784, 2890), ERSPAN I, II and III, VXLAN (RFC
//! 7348) and VXLAN-GPE, GENEVE (RFC 8926), IP in IP (RFC 2003, 2473, 4213), MPLS in GRE, IP and UDP (RFC
//! 4023, 7510), EtherIP (RFC 3378), GTP-U (3GPP TS 29.281), L2TP (RFC 2661), PPTP (RFC 2637), Teredo (RFC
//! 4380), LISP (RFC 9300), CAPWAP (RFC 5415, 5416), TZSP.

use crate::kind::Kind;
use crate::link;
use crate::read::{be16, be32, u8};
use flame_abi::{Descriptor, flags};

/// The header that follows a tunnel header, with its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    Ethernet(usize),
    Ip(usize),
    Mpls(usize),
    Ppp(usize),
    Wireless(usize),
    /// What an EtherType states.
    Typed(u16, usize),
}

impl Inside {
    /// Returns the offset of the header.
    fn at(self) -> usize {
        match self {
            Self::Ethernet(at) | Self::Ip(at) | Self::Mpls(at) | Self::Ppp(at) | Self::Wireless(at) => at,
            Self::Typed(_, at) => at,
        }
    }

    /// Decodes the header, up to IP.
    pub fn walk(self, bytes: &[u8], seen: &mut impl FnMut(Kind, usize, usize)) -> link::Found {
        match self {
            Self::Ethernet(at) => link::ethernet(bytes, at, seen),
            Self::Ip(at) => link::Found { at, is_ip: true, version: 0, malformed: false },
            Self::Mpls(at) => link::mpls(bytes, at, seen),
            Self::Ppp(at) => link::ppp_at(bytes, at, seen),
            Self::Wireless(at) => link::ieee802_11(bytes, at, seen),
            Self::Typed(kind, at) => link::typed(bytes, kind, at, seen),
        }
    }
}

const VXLAN: u16 = 4789;
/// The port that Linux used before 4789 was assigned.
const VXLAN_OLD: u16 = 8472;
const VXLAN_GPE: u16 = 4790;
const GENEVE: u16 = 6081;
const GTP_U: u16 = 2152;
const L2TP: u16 = 1701;
const TEREDO: u16 = 3544;
const LISP: u16 = 4341;
const CAPWAP_DATA: u16 = 5247;
const MPLS: u16 = 6635;
const TZSP: u16 = 37008;
/// The EtherType of the network service header.
const NSH: u16 = 0x894f;
/// The type of ERSPAN III in GRE.
const ERSPAN_3: u16 = 0x22eb;

/// The ports of UDP whose payload is a tunnel, on either side: L2TP, GTP (control, user, charging), Teredo,
/// LISP, VXLAN (also VXLAN-GPE and the old port of Linux), CAPWAP, GUE, GENEVE, MPLS, TZSP. Views never show
/// it as mere payload under a transform.
pub const TUNNEL_PORTS: [u16; 16] =
    [1701, 2123, 2152, 3386, 3544, 4341, 4342, 4789, 4790, 5246, 5247, 6080, 6081, 6635, 8472, 37008];

/// Returns the packet inside the packet that `d` describes, if that is a tunnel.
pub fn inside(bytes: &[u8], d: &Descriptor) -> Option<Inside> {
    if !d.is_ip() || d.has(flags::LATER_FRAGMENT) {
        return None;
    }
    let at = usize::from(d.l4);
    match d.proto {
        4 | 41 => Some(Inside::Ip(at)),
        47 => gre(bytes, at),
        97 if u8(bytes, at)? >> 4 == 3 => Some(Inside::Ethernet(at + 2)),
        137 => Some(Inside::Mpls(at)),
        17 if d.has(flags::TRANSPORT) => match be16(bytes, at + 2)? {
            // The I bit means that a network identifier, and therefore an Ethernet frame, follows.
            VXLAN | VXLAN_OLD if u8(bytes, at + 8)? & 0x08 != 0 => Some(Inside::Ethernet(at + 16)),
            GENEVE => geneve(bytes, at + 8),
            VXLAN_GPE => match u8(bytes, at + 11)? {
                // The P bit means that the protocol is stated.
                1 | 2 if u8(bytes, at + 8)? & 4 != 0 => Some(Inside::Ip(at + 16)),
                3 if u8(bytes, at + 8)? & 4 != 0 => Some(Inside::Ethernet(at + 16)),
                4 if u8(bytes, at + 8)? & 4 != 0 => Some(Inside::Typed(NSH, at + 16)),
                5 if u8(bytes, at + 8)? & 4 != 0 => Some(Inside::Mpls(at + 16)),
                _ => None,
            },
            GTP_U => gtp(bytes, at + 8),
            MPLS => Some(Inside::Mpls(at + 8)),
            LISP => ip_at(bytes, at + 16),
            TZSP => tzsp(bytes, at + 8),
            port => match (be16(bytes, at)?, port) {
                (L2TP, _) | (_, L2TP) => l2tp(bytes, at + 8),
                (TEREDO, _) | (_, TEREDO) => teredo(bytes, at + 8),
                (CAPWAP_DATA, _) | (_, CAPWAP_DATA) => capwap(bytes, at + 8),
                _ => None,
            },
        },
        _ => None,
    }
}

/// Returns whether bytes that look like this tunnel are one. In UDP, other tunnels than these are told by a
/// port and few bits, so that the bytes after it may be anything: views hide them.
pub fn is_understood(bytes: &[u8], d: &Descriptor) -> bool {
    let port = be16(bytes, usize::from(d.l4) + 2);
    d.proto != 17 || matches!(port, Some(VXLAN | VXLAN_OLD | GENEVE))
}

/// Returns the bytes of the header of the tunnel that `d` describes that are no lengths, kinds or numbers of
/// networks: the reserved bytes of VXLAN, the options of GENEVE, the times of ERSPAN III.
pub fn unknown(bytes: &[u8], d: &Descriptor) -> [Option<(Kind, usize, usize)>; 2] {
    let l4 = usize::from(d.l4);
    let (Some(inside), Some(word)) = (inside(bytes, d), be16(bytes, l4 + 2)) else { return [None; 2] };
    let inner = inside.at();
    match (d.proto, word) {
        (17, VXLAN | VXLAN_OLD) => [Some((Kind::Opaque, l4 + 9, l4 + 12)), None],
        (17, GENEVE) => [Some((Kind::Opaque, l4 + 16, inner)), None],
        (47, ERSPAN_3) => {
            // The time, and the optional part, whose form depends on the switch: times, ports, any number.
            let at = gre_end(bytes, l4).unwrap_or(inner);
            [Some((Kind::Clock, at + 4, at + 8)), (inner > at + 12).then_some((Kind::Opaque, at + 12, inner))]
        }
        _ => [None; 2],
    }
}

/// Returns IP at `at`, if its version is one.
fn ip_at(bytes: &[u8], at: usize) -> Option<Inside> {
    matches!(u8(bytes, at)? >> 4, 4 | 6).then_some(Inside::Ip(at))
}

/// Decodes GTP-U, version 1: flags, type (255 for a packet), length, tunnel; then optional numbers and
/// headers of extension, which state their lengths in words.
fn gtp(bytes: &[u8], at: usize) -> Option<Inside> {
    let flags = u8(bytes, at)?;
    if flags >> 4 != 3 || u8(bytes, at + 1)? != 255 {
        return None;
    }
    if flags & 7 == 0 {
        return ip_at(bytes, at + 8);
    }
    let (mut next, mut behind) = (if flags & 4 != 0 { u8(bytes, at + 11)? } else { 0 }, at + 12);
    for _ in 0..MAX_OPTIONS {
        if next == 0 {
            return ip_at(bytes, behind);
        }
        let length = usize::from(u8(bytes, behind)?) * 4;
        if length == 0 {
            break;
        }
        next = u8(bytes, behind + length - 1)?;
        behind += length;
    }
    None
}

/// The maximum number of options or headers of extension of a tunnel header.
const MAX_OPTIONS: usize = 8;

/// Decodes L2TP, version 2: messages of data, then PPP. A message with an offset is not followed.
fn l2tp(bytes: &[u8], at: usize) -> Option<Inside> {
    let bits = be16(bytes, at)?;
    if bits & 0x8200 != 0 || bits & 15 != 2 {
        return None;
    }
    let optional = |bit: u16, length: usize| if bits & bit != 0 { length } else { 0 };
    Some(Inside::Ppp(at + 6 + optional(0x4000, 2) + optional(0x0800, 4)))
}

/// Decodes Teredo: an authentication and the origin may come before IPv6.
fn teredo(bytes: &[u8], at: usize) -> Option<Inside> {
    let mut at = at;
    if be16(bytes, at)? == 1 {
        at += 13 + usize::from(u8(bytes, at + 2)?) + usize::from(u8(bytes, at + 3)?);
    }
    if be16(bytes, at)? == 0 {
        at += 8;
    }
    (u8(bytes, at)? >> 4 == 6).then_some(Inside::Ip(at))
}

/// Decodes CAPWAP's messages of data: the preamble, then the header's length in words, radio and binding,
/// bits, and the place of a fragment; then the radio's address and wireless information, in a longer header.
/// Encrypted messages are not followed, and of a message in fragments only the first one.
fn capwap(bytes: &[u8], at: usize) -> Option<Inside> {
    const NATIVE: u32 = 1 << 8;
    const KEEP_ALIVE: u32 = 1 << 3;
    let word = be32(bytes, at)?;
    let (length, binding) = ((word >> 19 & 31) as usize * 4, word >> 9 & 31);
    let is_later_fragment = be16(bytes, at + 6)? >> 3 != 0;
    // Version 0 and a header in clear.
    if word >> 24 != 0 || length < 8 || word & KEEP_ALIVE != 0 || is_later_fragment {
        return None;
    }
    match (word & NATIVE != 0, binding) {
        (false, _) => Some(Inside::Ethernet(at + length)),
        (true, 1) => Some(Inside::Wireless(at + length)),
        (true, _) => None,
    }
}

/// Decodes TZSP: version, type, the link type, then tagged fields up to the last one.
fn tzsp(bytes: &[u8], at: usize) -> Option<Inside> {
    // Version 1; a received frame or one to be sent; Ethernet or 802.11.
    let inside = match be32(bytes, at)? {
        0x0100_0001 | 0x0101_0001 => Inside::Ethernet,
        0x0100_0012 | 0x0101_0012 => Inside::Wireless,
        _ => return None,
    };
    let mut place = at + 4;
    for _ in 0..MAX_OPTIONS {
        match u8(bytes, place)? {
            0 => place += 1,
            1 => return Some(inside(place + 1)),
            _ => place += 2 + usize::from(u8(bytes, place + 1)?),
        }
    }
    None
}

/// Returns the end of the header of GRE.
fn gre_end(bytes: &[u8], at: usize) -> Option<usize> {
    let bits = be16(bytes, at)?;
    // Version 0 only; version 1 is PPTP's. Routing (bit 14) was withdrawn by RFC 2784.
    if bits & 0x4007 != 0 {
        return None;
    }
    let optional = |bit: u16| if bits & bit != 0 { 4 } else { 0 };
    Some(at + 4 + optional(0x8000) + optional(0x2000) + optional(0x1000))
}

/// Decodes PPTP's GRE, version 1: a key, then sequence number and acknowledgement if there are any, then PPP.
fn pptp(bytes: &[u8], at: usize) -> Option<Inside> {
    let bits = be16(bytes, at)?;
    // Without a sequence number, nothing is inside.
    if bits & 0xf07f & !0x1000 != 0x2001 || bits & 0x1000 == 0 {
        return None;
    }
    Some(Inside::Ppp(at + 12 + if bits & 0x0080 != 0 { 4 } else { 0 }))
}

fn gre(bytes: &[u8], at: usize) -> Option<Inside> {
    if be16(bytes, at + 2)? == 0x880b {
        return pptp(bytes, at);
    }
    let (behind, kind) = (gre_end(bytes, at)?, be16(bytes, at + 2)?);
    let sequenced = be16(bytes, at)? & 0x1000 != 0;
    match kind {
        0x0800 | 0x86dd => Some(Inside::Ip(behind)),
        0x6558 => Some(Inside::Ethernet(behind)),
        // ERSPAN I has no header of its own and no sequence number; II has 8 bytes.
        0x88be => Some(Inside::Ethernet(if sequenced { behind + 8 } else { behind })),
        // ERSPAN III: 12 bytes, and 8 more if the O bit is set.
        ERSPAN_3 => {
            let more = u8(bytes, behind + 11)? & 1;
            Some(Inside::Ethernet(behind + 12 + 8 * usize::from(more)))
        }
        kind => tagged(kind, behind),
    }
}

fn geneve(bytes: &[u8], at: usize) -> Option<Inside> {
    let first = u8(bytes, at)?;
    if first >> 6 != 0 {
        return None;
    }
    let behind = at + 8 + usize::from(first & 0x3f) * 4;
    match be16(bytes, at + 2)? {
        0x6558 => Some(Inside::Ethernet(behind)),
        0x0800 | 0x86dd => Some(Inside::Ip(behind)),
        kind => tagged(kind, behind),
    }
}

/// Returns the contents of a tunnel with this EtherType, if it is one of tags or labels before IP.
fn tagged(kind: u16, at: usize) -> Option<Inside> {
    matches!(kind, 0x8100 | 0x88a8 | 0x8847 | 0x8848 | NSH).then_some(Inside::Typed(kind, at))
}
