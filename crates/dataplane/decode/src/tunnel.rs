//! The encapsulations of mirror ports and overlays: GRE (RFC 2784, 2890), ERSPAN I, II and III, VXLAN (RFC
//! 7348), GENEVE (RFC 8926), IP in IP (RFC 2003, 2473, 4213).

use crate::read::{be16, u8};
use flame_abi::{Descriptor, flags};

/// The header that follows a tunnel header, with its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    Ethernet(usize),
    Ip(usize),
}

const VXLAN: u16 = 4789;
/// The port that Linux used before 4789 was assigned.
const VXLAN_OLD: u16 = 8472;
const GENEVE: u16 = 6081;

/// The ports of UDP whose payload is a tunnel, on either side: L2TP, GTP (control, user, charging), Teredo,
/// LISP, VXLAN (also VXLAN-GPE and the old port of Linux), CAPWAP, GUE, GENEVE, MPLS, TZSP. Views never show
/// it as mere payload under a transform.
pub const TUNNEL_PORTS: [u16; 16] =
    [1701, 2123, 2152, 3386, 3544, 4341, 4342, 4789, 4790, 5246, 5247, 6080, 6081, 6635, 8472, 37008];

/// Returns the packet inside the one that `d` describes, if that is a tunnel.
pub fn inside(bytes: &[u8], d: &Descriptor) -> Option<Inside> {
    if !d.is_ip() || d.has(flags::LATER_FRAGMENT) {
        return None;
    }
    let at = usize::from(d.l4);
    match d.proto {
        4 | 41 => Some(Inside::Ip(at)),
        47 => gre(bytes, at),
        17 if d.has(flags::TRANSPORT) => match be16(bytes, at + 2)? {
            // The I bit means that a network identifier, and therefore an Ethernet frame, follows.
            VXLAN | VXLAN_OLD if u8(bytes, at + 8)? & 0x08 != 0 => Some(Inside::Ethernet(at + 16)),
            GENEVE => geneve(bytes, at + 8),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the bytes without known meaning in the header of the tunnel that `d` describes: the reserved bytes
/// of VXLAN or the options of GENEVE.
pub fn opaque(bytes: &[u8], d: &Descriptor) -> Option<(usize, usize)> {
    let at = usize::from(d.l4) + 8;
    match (inside(bytes, d)?, d.proto, be16(bytes, usize::from(d.l4) + 2)?) {
        (_, 17, VXLAN | VXLAN_OLD) => Some((at + 1, at + 4)),
        (Inside::Ethernet(inner) | Inside::Ip(inner), 17, GENEVE) => Some((at + 8, inner)),
        _ => None,
    }
}

fn gre(bytes: &[u8], at: usize) -> Option<Inside> {
    let (bits, kind) = (be16(bytes, at)?, be16(bytes, at + 2)?);
    // Version 0 only; version 1 is PPTP's. Routing (bit 14) was withdrawn by RFC 2784.
    if bits & 0x4007 != 0 {
        return None;
    }
    let optional = |bit: u16| if bits & bit != 0 { 4 } else { 0 };
    let sequenced = bits & 0x1000 != 0;
    let behind = at + 4 + optional(0x8000) + optional(0x2000) + optional(0x1000);
    match kind {
        0x0800 | 0x86dd => Some(Inside::Ip(behind)),
        0x6558 => Some(Inside::Ethernet(behind)),
        // ERSPAN I has no header of its own and no sequence number; II has 8 bytes.
        0x88be => Some(Inside::Ethernet(if sequenced { behind + 8 } else { behind })),
        // ERSPAN III: 12 bytes, and 8 more if the O bit is set.
        0x22eb => {
            let more = u8(bytes, behind + 11)? & 1;
            Some(Inside::Ethernet(behind + 12 + 8 * usize::from(more)))
        }
        _ => None,
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
        _ => None,
    }
}
