//! The encapsulations of mirror ports and overlays: GRE (RFC 2784, 2890), ERSPAN I, II and III, VXLAN (RFC
//! 7348), GENEVE (RFC 8926), IP in IP (RFC 2003, 2473, 4213).

use crate::kind::Kind;
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
        17 if d.has(flags::TRANSPORT) => match be16(bytes, at + 2)? {
            // The I bit means that a network identifier, and therefore an Ethernet frame, follows.
            VXLAN | VXLAN_OLD if u8(bytes, at + 8)? & 0x08 != 0 => Some(Inside::Ethernet(at + 16)),
            GENEVE => geneve(bytes, at + 8),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the bytes of the header of the tunnel that `d` describes that are no lengths, kinds or numbers of
/// networks: the reserved bytes of VXLAN, the options of GENEVE, the times of ERSPAN III.
pub fn unknown(bytes: &[u8], d: &Descriptor) -> [Option<(Kind, usize, usize)>; 2] {
    let l4 = usize::from(d.l4);
    let (Some(inside), Some(word)) = (inside(bytes, d), be16(bytes, l4 + 2)) else { return [None; 2] };
    let (Inside::Ethernet(inner) | Inside::Ip(inner)) = inside;
    match (d.proto, word) {
        (17, VXLAN | VXLAN_OLD) => [Some((Kind::Opaque, l4 + 9, l4 + 12)), None],
        (17, GENEVE) => [Some((Kind::Opaque, l4 + 16, inner)), None],
        (47, ERSPAN_3) => {
            // Four bytes, and the optional part, whose form depends on the switch.
            let at = gre_end(bytes, l4).unwrap_or(inner);
            [Some((Kind::Clock, at + 4, at + 8)), (inner > at + 12).then_some((Kind::Clock, at + 12, inner))]
        }
        _ => [None; 2],
    }
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

fn gre(bytes: &[u8], at: usize) -> Option<Inside> {
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
