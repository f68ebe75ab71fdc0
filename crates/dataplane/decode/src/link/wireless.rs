//! IEEE 802.11 data frames, with and without radiotap.

use super::{Found, MAX_FRAMES, not_ip, protocol};
use crate::kind::Kind;
use crate::read::{be16, be32, u8};
use core::ops::Range;
use flame_abi::LinkType;

/// Decodes radiotap, then a frame.
pub fn radiotap(bytes: &[u8], seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    match radiotap_header(bytes) {
        Some(Radiotap { notes, end, padded }) => {
            seen(Kind::Notes, notes, end);
            frame(bytes, end, padded, seen)
        }
        None => {
            seen(Kind::Notes, 8, bytes.len());
            malformed(bytes)
        }
    }
}

/// The header of the capturing system.
struct Radiotap {
    /// The offset of the first field.
    notes: usize,
    /// The offset of the frame.
    end: usize,
    /// Whether the frame's header is padded to a multiple of four bytes.
    padded: bool,
}

/// Decodes radiotap (radiotap.org): version, padding, length, then words that state which fields follow.
fn radiotap_header(bytes: &[u8]) -> Option<Radiotap> {
    const TSFT: u32 = 1;
    const FLAGS: u32 = 2;
    const MORE: u32 = 1 << 31;
    const PADDED: u8 = 0x20;
    let (0, length, first) = (u8(bytes, 0)?, be16(bytes, 2)?.swap_bytes(), be32(bytes, 4)?.swap_bytes())
    else {
        return None;
    };
    let end = usize::from(length);
    if end < 8 || end > bytes.len() {
        return None;
    }
    let (mut words, mut notes) = (first, 8);
    while words & MORE != 0 {
        words = be32(bytes, notes).filter(|_| notes + 4 <= end)?.swap_bytes();
        notes += 4;
    }
    let at = if first & TSFT != 0 { notes.next_multiple_of(8) + 8 } else { notes };
    let flags = if first & FLAGS != 0 && at < end { u8(bytes, at).unwrap_or(0) } else { 0 };
    Some(Radiotap { notes, end, padded: flags & PADDED != 0 })
}

/// Decodes a frame. `padded` means that its header is padded to a multiple of four bytes.
pub fn frame(bytes: &[u8], start: usize, padded: bool, seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    let (Some(control), Some(flags)) = (u8(bytes, start), u8(bytes, start + 1)) else {
        return malformed(bytes);
    };
    let kind = control >> 2 & 3;
    // Control frames, whose lengths differ, and frames of other versions.
    if control & 3 != 0 || kind == 1 || kind == 3 {
        return not_ip(start);
    }
    let length = addresses_end(kind, flags);
    if bytes.len() < start + length {
        return malformed(bytes);
    }
    let addresses = match flags & 3 {
        _ if kind == 0 => [Kind::MacDst, Kind::MacSrc, Kind::MacAny],
        0 => [Kind::MacDst, Kind::MacSrc, Kind::MacAny],
        // To the access point; from it; between two access points.
        1 => [Kind::MacAny, Kind::MacSrc, Kind::MacDst],
        2 => [Kind::MacDst, Kind::MacAny, Kind::MacSrc],
        _ => [Kind::MacAny, Kind::MacAny, Kind::MacDst],
    };
    for (kind, at) in addresses.into_iter().zip([4, 10, 16]) {
        seen(kind, start + at, start + at + 6);
    }
    if length == 30 {
        seen(Kind::MacSrc, start + 24, start + 30);
    }
    if kind == 0 {
        return not_ip(start + length);
    }
    match body(bytes, start, padded) {
        // The first of several frames in one: addresses and length as in Ethernet.
        Ok(Body { at, aggregated: true }) => {
            let inner = be16(bytes, at + 12);
            if inner.is_some() {
                seen(Kind::Ethernet, at, at + 14);
            }
            protocol(bytes, inner.map(|_| 0), at + 14, MAX_FRAMES, seen)
        }
        Ok(Body { at, aggregated: false }) => protocol(bytes, Some(0), at, MAX_FRAMES, seen),
        Err(found) => found,
    }
}

/// Returns the length of a header up to its last address.
fn addresses_end(kind: u8, flags: u8) -> usize {
    if kind == 2 && flags & 3 == 3 { 30 } else { 24 }
}

/// The data of a frame.
struct Body {
    at: usize,
    /// Whether they are several frames, each with addresses and a length (A-MSDU).
    aggregated: bool,
}

/// Returns the data of a data frame, or the end of one whose data is not decoded.
fn body(bytes: &[u8], start: usize, padded: bool) -> Result<Body, Found> {
    const PROTECTED: u8 = 0x40;
    const ORDER: u8 = 0x80;
    let (Some(control), Some(flags)) = (u8(bytes, start), u8(bytes, start + 1)) else {
        return Err(malformed(bytes));
    };
    let subtype = control >> 4;
    let mut length = addresses_end(control >> 2 & 3, flags);
    let qos = subtype & 8 != 0;
    let aggregated = qos && u8(bytes, start + length).is_some_and(|b| b & 0x80 != 0);
    if qos {
        length += if flags & ORDER != 0 { 6 } else { 2 };
    }
    if padded {
        length = length.next_multiple_of(4);
    }
    let at = start + length;
    if at > bytes.len() {
        return Err(malformed(bytes));
    }
    // A frame without data, an encrypted one, or a later fragment.
    let fragment = u8(bytes, start + 22).unwrap_or(0) & 15;
    if subtype & 4 != 0 || flags & PROTECTED != 0 || fragment != 0 {
        return Err(not_ip(at));
    }
    Ok(Body { at, aggregated })
}

fn malformed(bytes: &[u8]) -> Found {
    Found { at: bytes.len(), is_ip: false, version: 0, malformed: true }
}

/// The frames in an aggregated one (A-MSDU; IEEE 802.11-2020, section 9.3.2.2), in order.
#[derive(Clone, Debug)]
pub struct Subframes<'a> {
    bytes: &'a [u8],
    /// The number of bytes before the first of them: headers that belong to all.
    pub head: usize,
    next: usize,
    left: usize,
}

/// The maximum number of frames that are found in one. The longest frame holds 176 acknowledgements of TCP.
const MAX_SUBFRAMES: usize = 256;
/// The maximum number of bytes before the first of them.
const MAX_HEAD: usize = 512;

/// Returns whether packets of a link type may be aggregated frames.
pub fn may_aggregate(link: LinkType) -> bool {
    matches!(link, LinkType::IEEE802_11 | LinkType::IEEE802_11_RADIOTAP | LinkType::PPI)
}

/// Returns the frames in a packet, if it holds more than one.
pub fn subframes(link: LinkType, bytes: &[u8]) -> Option<Subframes<'_>> {
    let (start, padded) = match link {
        LinkType::IEEE802_11 => (0, false),
        LinkType::IEEE802_11_RADIOTAP => radiotap_header(bytes).map(|r| (r.end, r.padded))?,
        LinkType::PPI if be32(bytes, 4)?.swap_bytes() == u32::from(LinkType::IEEE802_11.0) => {
            (usize::from(be16(bytes, 2)?.swap_bytes()), false)
        }
        _ => return None,
    };
    // Version 0, and data.
    let is_data = u8(bytes, start)? & 15 == 8;
    let head = body(bytes, start, padded).ok().filter(|body| is_data && body.aggregated)?.at;
    let all = Subframes { bytes, head, next: head, left: MAX_SUBFRAMES };
    (head <= MAX_HEAD && all.clone().nth(1).is_some()).then_some(all)
}

impl Iterator for Subframes<'_> {
    /// The place of a frame, whose end may lie behind the captured bytes.
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let at = self.next;
        // Addresses and length; then padding to a multiple of four bytes, other than after the last one.
        let length = 14 + usize::from(be16(self.bytes, at + 12)?);
        self.left = self.left.checked_sub(1)?;
        self.next = at + length.next_multiple_of(4);
        Some(at..at + length)
    }
}
