//! IEEE 802.11 data frames, with and without radiotap.

use super::{Found, MAX_FRAMES, not_ip, protocol};
use crate::kind::Kind;
use crate::read::{be16, be32, u8};

/// Decodes radiotap (radiotap.org): version, padding, length, then words that state which fields follow.
pub fn radiotap(bytes: &[u8], seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    const TSFT: u32 = 1;
    const FLAGS: u32 = 2;
    const MORE: u32 = 1 << 31;
    const PADDED: u8 = 0x20;
    let mut malformed = || {
        seen(Kind::Notes, 8, bytes.len());
        Found { at: bytes.len(), is_ip: false, version: 0, malformed: true }
    };
    let (Some(0), Some(length), Some(first)) = (u8(bytes, 0), be16(bytes, 2), be32(bytes, 4)) else {
        return malformed();
    };
    let (length, first) = (usize::from(length.swap_bytes()), first.swap_bytes());
    if length < 8 || length > bytes.len() {
        return malformed();
    }
    let (mut words, mut at) = (first, 8);
    while words & MORE != 0 {
        let Some(next) = be32(bytes, at).filter(|_| at + 4 <= length) else { return malformed() };
        words = next.swap_bytes();
        at += 4;
    }
    seen(Kind::Notes, at, length);
    if first & TSFT != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let flags = if first & FLAGS != 0 && at < length { u8(bytes, at).unwrap_or(0) } else { 0 };
    frame(bytes, length, flags & PADDED != 0, seen)
}

/// Decodes a frame. `padded` means that its header is padded to a multiple of four bytes.
pub fn frame(bytes: &[u8], start: usize, padded: bool, seen: &mut impl FnMut(Kind, usize, usize)) -> Found {
    const PROTECTED: u8 = 0x40;
    const ORDER: u8 = 0x80;
    let malformed = Found { at: bytes.len(), is_ip: false, version: 0, malformed: true };
    let (Some(control), Some(flags)) = (u8(bytes, start), u8(bytes, start + 1)) else { return malformed };
    let (kind, subtype) = (control >> 2 & 3, control >> 4);
    // Control frames, whose lengths differ, and frames of other versions.
    if control & 3 != 0 || kind == 1 || kind == 3 {
        return not_ip(start);
    }
    let four = kind == 2 && flags & 3 == 3;
    let mut length = if four { 30 } else { 24 };
    if bytes.len() < start + length {
        return malformed;
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
    if four {
        seen(Kind::MacSrc, start + 24, start + 30);
    }
    if kind == 0 {
        return not_ip(start + length);
    }
    let qos = subtype & 8 != 0;
    let aggregate = qos && u8(bytes, start + length).is_some_and(|b| b & 0x80 != 0);
    if qos {
        length += if flags & ORDER != 0 { 6 } else { 2 };
    }
    if padded {
        length = length.next_multiple_of(4);
    }
    let at = start + length;
    if at > bytes.len() {
        return malformed;
    }
    // A frame without data, an encrypted one, or a later fragment.
    let fragment = u8(bytes, start + 22).unwrap_or(0) & 15;
    if subtype & 4 != 0 || flags & PROTECTED != 0 || fragment != 0 {
        return not_ip(at);
    }
    if aggregate {
        // The first of several frames in one: addresses and length as in Ethernet.
        let inner = be16(bytes, at + 12);
        if inner.is_some() {
            seen(Kind::Ethernet, at, at + 14);
        }
        return protocol(bytes, inner.map(|_| 0), at + 14, MAX_FRAMES, seen);
    }
    protocol(bytes, Some(0), at, MAX_FRAMES, seen)
}
