//! Link headers, which precede IP.

mod wireless;

pub use wireless::{Subframes, may_aggregate, subframes};

use crate::kind::Kind;
use crate::read::{be16, be32, u8};
use flame_abi::LinkType;

/// The end of a link header, where the network header begins.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub at: usize,
    /// Whether IP follows according to the link header (or, if it does not state that, to the first nibble).
    pub is_ip: bool,
    /// The IP version that the link header states, or 0 if the first nibble of the IP header decides.
    pub version: u8,
    pub malformed: bool,
}

/// The maximum number of tags and labels before IP that are followed. Real networks have at most four.
const MAX_TAGS: usize = 16;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Decodes the link header of a packet. Calls `seen` for every header that holds addresses, with its start
/// and, for [`Kind::Opaque`] and [`Kind::Notes`], its end.
#[inline]
pub fn walk(link: LinkType, bytes: &[u8], seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    match link {
        LinkType::ETHERNET => ethernet(bytes, 0, seen),
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD | LinkType::IPV4 | LinkType::IPV6 => ip(0),
        LinkType::NULL | LinkType::LOOP => family(bytes, 0),
        // Both cooked headers state the protocol as Ethernet does (LINKTYPE_LINUX_SLL, _SLL2).
        LinkType::LINUX_SLL => protocol(bytes, be16(bytes, 14), 16, MAX_FRAMES, seen),
        LinkType::LINUX_SLL2 => protocol(bytes, be16(bytes, 0), 20, MAX_FRAMES, seen),
        LinkType::PPP | LinkType::PPP_HDLC => ppp_framed(bytes, seen),
        LinkType::C_HDLC => cisco(bytes, seen),
        LinkType::IEEE802_11 => wireless::frame(bytes, 0, false, seen),
        LinkType::IEEE802_11_RADIOTAP => wireless::radiotap(bytes, seen),
        LinkType::NFLOG => nflog(bytes, seen),
        LinkType::PPPOE => ppp(bytes, 6, seen),
        // The direction comes first.
        LinkType::PPP_PPPD | LinkType::PPP_WITH_DIR => ppp_at(bytes, 1, seen),
        LinkType::ATM_RFC1483 => protocol(bytes, Some(0), 0, MAX_FRAMES, seen),
        LinkType::FRAME_RELAY => frame_relay(bytes, seen),
        LinkType::ENC => {
            // Family, index and flags of IPsec.
            seen(Kind::Notes, 4, 12.min(bytes.len()));
            Found { at: 12.min(bytes.len()), ..family(bytes, 0) }
        }
        LinkType::PFLOG => pflog(bytes, seen),
        LinkType::PPI | LinkType::PKTAP => noted(link, bytes, seen),
        LinkType::DSA_TAG_BRCM | LinkType::DSA_TAG_DSA => tagged(bytes, 4, seen),
        LinkType::DSA_TAG_EDSA => tagged(bytes, 8, seen),
        LinkType::DSA_TAG_BRCM_PREPEND => ethernet(bytes, 4, seen),
        _ => not_ip(0),
    }
}

/// Decodes Ethernet with a switch's tag of `tag` bytes between addresses and type.
fn tagged(bytes: &[u8], tag: usize, seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    let kind = be16(bytes, 12 + tag);
    if kind.is_some() {
        seen(Kind::Ethernet, 0, 12);
    }
    protocol(bytes, kind, 14 + tag, MAX_FRAMES, seen)
}

/// Decodes PPP in files (RFC 1662): address and control may be left out, and may be Cisco's instead.
fn ppp_framed(bytes: &[u8], seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    match be16(bytes, 0) {
        Some(0x0f00 | 0x8f00) => cisco(bytes, seen),
        _ => ppp_at(bytes, 0, seen),
    }
}

/// Decodes PPP at `at`, with address and control or without.
pub fn ppp_at(bytes: &[u8], at: usize, seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    ppp(bytes, if be16(bytes, at) == Some(0xff03) { at + 2 } else { at }, seen)
}

/// Decodes frame relay (RFC 2427): an address of two to four bytes, the last of them odd; then control, a
/// pad, and the protocol or SNAP. Cisco's own form has an EtherType after the address.
fn frame_relay(bytes: &[u8], seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    let Some(last) = (1..4).find(|at| u8(bytes, *at).is_some_and(|byte| byte & 1 == 1)) else {
        return cut(bytes);
    };
    let control = last + 1;
    if u8(bytes, control) != Some(3) {
        return protocol(bytes, be16(bytes, control), control + 2, MAX_FRAMES, seen);
    }
    let at = control + if u8(bytes, control + 1) == Some(0) { 2 } else { 1 };
    match u8(bytes, at) {
        Some(0xcc) => named(at + 1, 4),
        Some(0x8e) => named(at + 1, 6),
        Some(0x80) if be16(bytes, at + 1) == Some(0) && u8(bytes, at + 3) == Some(0) => {
            protocol(bytes, be16(bytes, at + 4), at + 6, MAX_FRAMES, seen)
        }
        _ => not_ip(control.min(bytes.len())),
    }
}

/// Decodes the log of OpenBSD's packet filter: the header's length without padding, the family, then reasons
/// and rules.
fn pflog(bytes: &[u8], seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    let (Some(length), Some(family)) = (u8(bytes, 0), u8(bytes, 1)) else { return cut(bytes) };
    let at = usize::from(length).next_multiple_of(4);
    if at < 4 || at > bytes.len() {
        seen(Kind::Notes, 2.min(bytes.len()), bytes.len());
        return cut(bytes);
    }
    seen(Kind::Notes, 2, at);
    match family {
        2 => named(at, 4),
        10 | 24 | 28 | 30 => named(at, 6),
        _ => not_ip(at),
    }
}

/// Decodes a header that the capturing system added: its length, the link type of the packet after it, and
/// notes.
fn noted(link: LinkType, bytes: &[u8], seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    let little = |at: usize| be32(bytes, at).map(|word| word.swap_bytes() as usize);
    let (length, inner, notes) = match link {
        // Version, flags, length; then the link type.
        LinkType::PPI => (be16(bytes, 2).map(|length| usize::from(length.swap_bytes())), little(4), 8),
        // Length, type of the next header, link type.
        _ => (little(0), little(8), 12),
    };
    let (Some(at), Some(inner)) = (length.filter(|at| (notes..=bytes.len()).contains(at)), inner) else {
        seen(Kind::Notes, notes.min(bytes.len()), bytes.len());
        return cut(bytes);
    };
    seen(Kind::Notes, notes, at);
    // Systems number some of them in their own way.
    match inner {
        0 | 108 => family(bytes, at),
        1 => ethernet(bytes, at, seen),
        9 => ppp_at(bytes, at, seen),
        12 | 14 | 101 => ip(at),
        105 => wireless::frame(bytes, at, false, seen),
        228 => named(at, 4),
        229 => named(at, 6),
        _ => not_ip(at),
    }
}

fn cut(bytes: &[u8]) -> Found {
    Found { at: bytes.len(), is_ip: false, version: 0, malformed: true }
}

/// Decodes the protocol field of PPP (RFC 1661): two bytes, or one odd byte if it was compressed.
fn ppp(bytes: &[u8], at: usize, seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    let (kind, behind) = match (u8(bytes, at), be16(bytes, at)) {
        (Some(short), _) if short & 1 == 1 => (u16::from(short), at + 1),
        (_, Some(kind)) => (kind, at + 2),
        _ => return Found { at: bytes.len(), is_ip: false, version: 0, malformed: true },
    };
    match kind {
        0x0021 => named(behind, 4),
        0x0057 => named(behind, 6),
        0x0281 | 0x0283 => mpls(bytes, behind, seen),
        _ => not_ip(behind),
    }
}

/// Decodes Cisco HDLC: address, control, then an EtherType.
fn cisco(bytes: &[u8], seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    protocol(bytes, be16(bytes, 2), 4, MAX_FRAMES, seen)
}

/// Decodes Linux's netfilter log: four bytes, then attributes in the byte order of the machine. One of them
/// is the packet; the others contain the hardware address, users and marks.
fn nflog(bytes: &[u8], seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    const PAYLOAD: u16 = 9;
    let mut at = 4;
    while let (Some(length), Some(kind)) = (be16(bytes, at), be16(bytes, at + 2)) {
        // Attributes are short, so the byte order that gives the smaller length is the machine's.
        let swapped = length.swap_bytes() < length;
        let (length, kind) = if swapped { (length.swap_bytes(), kind.swap_bytes()) } else { (length, kind) };
        if length < 4 {
            break;
        }
        if kind & 0x7fff == PAYLOAD {
            seen(Kind::Notes, 4, at);
            return match u8(bytes, 0) {
                Some(2) => named(at + 4, 4),
                Some(10) => named(at + 4, 6),
                _ => not_ip(at + 4),
            };
        }
        at += usize::from(length).next_multiple_of(4);
    }
    seen(Kind::Notes, 4, bytes.len());
    Found { at: 4.min(bytes.len()), is_ip: false, version: 0, malformed: true }
}

/// Decodes the contents of a tunnel that states an EtherType.
pub fn typed(bytes: &[u8], kind: u16, at: usize, seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    protocol(bytes, Some(kind), at, MAX_FRAMES, seen)
}

/// Decodes a frame of IEEE 802.11 in a tunnel.
pub fn ieee802_11(bytes: &[u8], at: usize, seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    wireless::frame(bytes, at, false, seen)
}

/// Decodes IEEE 802.3: two addresses of six bytes, then a type, or a length and LLC.
#[inline]
pub fn ethernet(bytes: &[u8], at: usize, seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    frame(bytes, at, MAX_FRAMES, seen)
}

/// The maximum number of nested frames in one link header that are followed.
const MAX_FRAMES: usize = 4;

#[inline]
fn frame(bytes: &[u8], at: usize, depth: usize, seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    let kind = be16(bytes, at + 12);
    if kind.is_some() {
        seen(Kind::Ethernet, at, at + 14);
    }
    protocol(bytes, kind, at + 14, depth, seen)
}

/// Decodes the bytes after an EtherType or, if `kind` is a length, after LLC.
fn protocol(
    bytes: &[u8],
    kind: Option<u16>,
    at: usize,
    depth: usize,
    seen: &mut impl FnMut(Kind, usize, usize),
) -> Found {
    let (mut kind, mut at) = (kind, at);
    for _ in 0..MAX_TAGS {
        match kind {
            None => return Found { at: bytes.len(), is_ip: false, version: 0, malformed: true },
            Some(ETHERTYPE_IPV4) => return named(at, 4),
            Some(ETHERTYPE_IPV6) => return named(at, 6),
            Some(ETHERTYPE_ARP) => {
                seen(Kind::Arp, at, bytes.len());
                return not_ip(at);
            }
            // IEEE 802.1Q and 802.1ad, and the types used before the latter.
            Some(0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300) => {
                kind = be16(bytes, at + 2);
                at += 4;
            }
            // HSR (IEC 62439-3): path, size and number, then the type. PRP's trailer lies behind the packet.
            Some(0x892f) => {
                kind = be16(bytes, at + 4);
                at += 6;
            }
            // E-TAG (802.1BR) and VN-Tag, its predecessor.
            Some(0x893f) => {
                kind = be16(bytes, at + 6);
                at += 8;
            }
            Some(0x8926) => {
                kind = be16(bytes, at + 4);
                at += 6;
            }
            // Whole frames inside: provider backbone (802.1ah) after its I-TAG, FabricPath after its tag.
            Some(0x88e7) if depth > 0 => return frame(bytes, at + 4, depth - 1, seen),
            Some(0x8903) if depth > 0 => return frame(bytes, at + 2, depth - 1, seen),
            // Network service header (RFC 8300): length in words, then the payload.
            Some(0x894f) => {
                let behind = at + usize::from(u8(bytes, at + 1).unwrap_or(0) & 0x3f) * 4;
                seen(Kind::Opaque, at + 8, behind);
                return match u8(bytes, at + 3) {
                    Some(1) => named(behind, 4),
                    Some(2) => named(behind, 6),
                    Some(3) if depth > 0 => frame(bytes, behind, depth - 1, seen),
                    _ => not_ip(at),
                };
            }
            // RFC 5332: MPLS, unicast and upstream-assigned.
            Some(0x8847 | 0x8848) => return mpls(bytes, at, seen),
            // RFC 2516: PPPoE session; code 0, then PPP's protocol.
            Some(0x8864) => {
                return ppp(bytes, at + 6, seen);
            }
            // Marvell's switch tag after its own EtherType.
            Some(0xdada) => {
                kind = be16(bytes, at + 6);
                at += 8;
            }
            // A length: IEEE 802.2 LLC, with SNAP (RFC 1042) or the SAP of IP.
            // A longer frame of some switches has the type 0x8870 instead.
            Some(length) if length <= 1500 || length == 0x8870 => {
                let (control, oui) = (be32(bytes, at), be16(bytes, at + 3));
                match control {
                    Some(c) if c >> 8 == 0x00aa_aa03 && c & 0xff == 0 && oui == Some(0) => {
                        // With the OUI 0, the value is an EtherType.
                        kind = be16(bytes, at + 6);
                        at += 8;
                    }
                    // A bridged frame (RFC 2684): without its check sequence, after two bytes of padding on
                    // ATM.
                    Some(0xaaaa_0300) if be16(bytes, at + 4) == Some(0x80c2) && depth > 0 => {
                        return match be16(bytes, at + 6) {
                            Some(1 | 7) => frame(bytes, at + 10, depth - 1, seen),
                            _ => not_ip(at),
                        };
                    }
                    Some(c) if c >> 8 == 0x0006_0603 => return ip(at + 3),
                    _ => return not_ip(at),
                }
            }
            Some(_) => return not_ip(at),
        }
    }
    Found { at, is_ip: false, version: 0, malformed: true }
}

/// Decodes MPLS (RFC 3032): labels of four bytes to the bottom of the stack. MPLS does not state its payload,
/// so the first nibble after it decides, unless a frame is more likely there: addresses may begin as IP does.
/// A control word (RFC 4385) begins with the nibble 0.
pub fn mpls(bytes: &[u8], start: usize, seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    let mut at = start;
    for _ in 0..MAX_TAGS {
        let Some(label) = be32(bytes, at) else { break };
        at += 4;
        if label & 0x100 == 0 {
            continue;
        }
        // Explicit null labels state the payload.
        match label >> 12 {
            0 => return named(at, 4),
            2 => return named(at, 6),
            _ => {}
        }
        return match u8(bytes, at).map(|b| b >> 4) {
            Some(4 | 6) if !is_ethernet(bytes, at) || is_likely(bytes, at) => ip(at),
            Some(0) if is_ethernet(bytes, at + 4) => ethernet(bytes, at + 4, seen),
            Some(_) if is_ethernet(bytes, at) => ethernet(bytes, at, seen),
            _ => not_ip(at),
        };
    }
    Found { at: at.min(bytes.len()), is_ip: false, version: 0, malformed: true }
}

/// Returns whether an Ethernet header with a known type lies at `at` (a pseudowire does not state it), and an
/// IP header that is likely where the type is IP's.
fn is_ethernet(bytes: &[u8], at: usize) -> bool {
    match be16(bytes, at + 12) {
        Some(ETHERTYPE_IPV4) => is_likely(bytes, at + 14),
        Some(ETHERTYPE_IPV6) => u8(bytes, at + 14).is_some_and(|b| b >> 4 == 6),
        Some(0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300) => {
            let inner = be16(bytes, at + 16);
            matches!(inner, Some(ETHERTYPE_IPV4..=0xffff))
        }
        Some(0x892f) => matches!(be16(bytes, at + 18), Some(ETHERTYPE_IPV4..=0xffff)),
        Some(ETHERTYPE_ARP) => be16(bytes, at + 14) == Some(1),
        Some(0x8847 | 0x8848 | 0x8863 | 0x8864 | 0x88e7) => true,
        _ => false,
    }
}

/// Returns whether an IP header is likely at `at`: by its lengths and, for IPv4, its checksum, which is 0 if
/// a card computes it. IPv6 has none, so its payload must have been captured.
fn is_likely(bytes: &[u8], at: usize) -> bool {
    let left = bytes.len().saturating_sub(at);
    match u8(bytes, at).map(|b| (b >> 4, usize::from(b & 15) * 4)) {
        Some((4, length @ 20..)) => {
            let Some(header) = bytes.get(at..at + length) else { return left < length };
            let words = header.chunks_exact(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1]));
            let sum: u32 = words.sum();
            let total = usize::from(header[2]) << 8 | usize::from(header[3]);
            let is_sum = sum.is_multiple_of(0xffff) || header[10..12] == [0, 0];
            is_sum && (total == 0 || total >= length)
        }
        Some((6, _)) => be16(bytes, at + 4).is_some_and(|n| usize::from(n) + 40 <= left),
        _ => false,
    }
}

/// Decodes the address family of LINKTYPE_NULL, in the byte order of the capturing machine, or of
/// LINKTYPE_LOOP, in network order. The values of IPv6 differ by system.
fn family(bytes: &[u8], at: usize) -> Found {
    let Some(value) = be32(bytes, at) else {
        return Found { at: bytes.len(), is_ip: false, version: 0, malformed: true };
    };
    let value = if value > 0xffff { value.swap_bytes() } else { value };
    Found { at: at + 4, is_ip: matches!(value, 2 | 10 | 23 | 24 | 28 | 30), version: 0, malformed: false }
}

fn ip(at: usize) -> Found {
    Found { at, is_ip: true, version: 0, malformed: false }
}

fn named(at: usize, version: u8) -> Found {
    Found { at, is_ip: true, version, malformed: false }
}

fn not_ip(at: usize) -> Found {
    Found { at, is_ip: false, version: 0, malformed: false }
}
