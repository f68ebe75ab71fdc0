//! A fast path for nearly all packets, which changes them at fixed offsets: Ethernet II, IPv4 without options
//! or IPv6 without extensions, then TCP (with options that stay) or UDP that is no tunnel, captured at least
//! through its header. It gives the same result as the general rewriter in a third of the time; all other
//! packets are left to that.

use super::look::{Length, holds_packet};
use super::transport::{NOP, is_clock, tcp_stay};
use crate::Rewriter;
use crate::checksum::sum;
use crate::contains::{Part, may_contain_ip, twin};
use crate::cover::moved;
use flame_decode::TUNNEL_PORTS;
use flame_plan::Field;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The offset of the IP header.
const L3: usize = 14;

/// Rewrites a packet of this form and returns the number of bytes that are shown, or `None` for other
/// packets.
#[inline]
pub(super) fn rewrite(rewriter: &mut Rewriter, bytes: &mut [u8], ask: usize) -> Option<usize> {
    // Without a branch for each place where it matters.
    match rewriter.loses(Part::TcpClock) {
        true => rewrite_as::<true>(rewriter, bytes, ask),
        false => rewrite_as::<false>(rewriter, bytes, ask),
    }
}

/// Rewrites likewise; `LOSES` states whether timestamps of TCP are hidden.
#[inline(always)]
fn rewrite_as<const LOSES: bool>(rewriter: &mut Rewriter, bytes: &mut [u8], ask: usize) -> Option<usize> {
    let head: &[u8; 34] = bytes.first_chunk()?;
    let be16 = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let (v4, proto, l4, end) = match (be16(12), head[L3]) {
        (0x0800, 0x45) if be16(L3 + 6) & 0x3fff == 0 => {
            (true, head[L3 + 9], 34, L3 + usize::from(be16(L3 + 2)))
        }
        (0x86dd, 0x60..=0x6f) if be16(L3 + 4) != 0 => {
            (false, head[L3 + 6], 54, L3 + 40 + usize::from(be16(L3 + 4)))
        }
        _ => return None,
    };
    let (ask, changes) = (ask.min(bytes.len()), rewriter.changes_any());
    let segment = bytes.get(l4..end.min(bytes.len()))?;
    let ports = segment.first_chunk::<4>()?;
    let ports = [u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]])];
    // Whether timestamps become padding.
    let mut pads = false;
    let (checksum, optional, payload) = match (proto, segment.get(12)) {
        (TCP, Some(offset)) => {
            let payload = usize::from(offset >> 4) * 4;
            let options = segment.get(20..payload)?;
            pads = LOSES && is_clock(options);
            if !pads && !tcp_stay(options, !LOSES) && (changes || LOSES || end > ask) {
                return None;
            }
            (l4 + 16, false, l4 + payload)
        }
        (UDP, _)
            if segment.len() >= 8
                && usize::from(u16::from_be_bytes([segment[4], segment[5]])) == end - l4 =>
        {
            if (changes || LOSES) && (TUNNEL_PORTS.contains(&ports[0]) || TUNNEL_PORTS.contains(&ports[1])) {
                return None;
            }
            (l4 + 6, true, l4 + 8)
        }
        _ => return None,
    };
    // Payload that contains a packet is left to the general rewriter.
    let length = Length { stated: Some(end.saturating_sub(payload)), is_stream: proto == TCP };
    if changes && payload < ask && holds_packet(&bytes[payload..end.min(ask).max(payload)], length) {
        return None;
    }
    let shown = if changes { end.min(ask) } else { ask };
    // Whether the checksum was right, if all the bytes it covers are present and shown.
    let right = end <= shown && (changes || pads) && {
        let pseudo = if v4 { sum(&bytes[L3 + 12..34]) } else { sum(&bytes[L3 + 8..54]) };
        (sum(&bytes[l4..end]) + pseudo + i64::from(proto) + (end - l4) as i64).rem_euclid(0xffff) == 0
    };
    let padded = if pads { pad(bytes, l4 + 22) } else { 0 };
    if !changes {
        if pads || end > shown {
            follow(bytes, checksum, right.then_some(padded), optional);
        }
        return Some(shown);
    }
    let header_right = v4 && sum(&bytes[L3..34]).rem_euclid(0xffff) == 0;
    if rewriter.changes_mac() || may_contain_ip([bytes[0], bytes[1]]) || may_contain_ip([bytes[6], bytes[7]])
    {
        replace_mac(rewriter, bytes, 0, Field::MacDst);
        replace_mac(rewriter, bytes, 6, Field::MacSrc);
    }
    let mut change = padded;
    change += if v4 {
        let change = replace4(rewriter, bytes, L3 + 12, Field::IpSrc)
            + replace4(rewriter, bytes, L3 + 16, Field::IpDst);
        follow(bytes, L3 + 10, header_right.then_some(change), false);
        change
    } else {
        replace6(rewriter, bytes, L3 + 8, (Field::IpSrc, Field::MacSrc))
            + replace6(rewriter, bytes, L3 + 24, (Field::IpDst, Field::MacDst))
    };
    if rewriter.changes(Field::PortSrc) || rewriter.changes(Field::PortDst) {
        change += replace_port(rewriter, bytes, l4, Field::PortSrc);
        change += replace_port(rewriter, bytes, l4 + 2, Field::PortDst);
    }
    follow(bytes, checksum, right.then_some(change), optional);
    Some(shown)
}

/// Changes an IPv4 address like `replace`. Inlined, because two calls per packet would be noticeable.
#[inline(always)]
fn replace4(rewriter: &mut Rewriter, bytes: &mut [u8], at: usize, field: Field) -> i64 {
    let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) else { return 0 };
    let old = u32::from_be_bytes(*place);
    let new = rewriter.map4(field, old);
    *place = new.to_be_bytes();
    let sum = |n: u32| i64::from(n >> 16) + i64::from(n & 0xffff);
    sum(new) - sum(old)
}

/// Changes an IPv6 address at an even distance from the start of its checksum. Returns the change of its sum.
fn replace6(rewriter: &mut Rewriter, bytes: &mut [u8], at: usize, (field, mac): (Field, Field)) -> i64 {
    if !rewriter.changes_addresses() {
        return 0;
    }
    let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<16>) else { return 0 };
    let old = *place;
    *place = rewriter.map6(field, mac, old);
    sum(place) - sum(&old)
}

/// Changes a port likewise.
fn replace_port(rewriter: &mut Rewriter, bytes: &mut [u8], at: usize, field: Field) -> i64 {
    if !rewriter.changes(field) {
        return 0;
    }
    let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) else { return 0 };
    let old = *place;
    place.copy_from_slice(&rewriter.map(field, &old)[..2]);
    sum(place) - sum(&old)
}

/// Changes a MAC address, which no checksum covers.
#[inline(always)]
fn replace_mac(rewriter: &mut Rewriter, bytes: &mut [u8], at: usize, field: Field) {
    let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<6>) else { return };
    *place = rewriter.map_mac(field, twin(field), *place);
}

/// Replaces the timestamps of TCP by padding likewise. Returns the change of its sum.
fn pad(bytes: &mut [u8], at: usize) -> i64 {
    let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<10>) else { return 0 };
    let old = std::mem::replace(place, [NOP; 10]);
    sum(place) - sum(&old)
}

/// Writes the checksum after a change, or zero.
#[inline(always)]
fn follow(bytes: &mut [u8], at: usize, change: Option<i64>, optional: bool) {
    let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) else { return };
    let old = u16::from_be_bytes(*place);
    if optional && old == 0 {
        return;
    }
    *place = change.map_or(0, |change| moved(old, change, optional)).to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::L3;
    use crate::contains::NEIGHBOURS;
    use crate::{Key, Rewriter, Secrets};
    use flame_abi::LinkType;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    /// Generates frames of this form, and others that differ from it in a few places.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let bytes = prop::collection::vec(any::<u8>(), 120);
        let edit = prop::collection::vec((0usize..70, any::<u8>()), 0..3);
        (bytes, any::<bool>(), any::<bool>(), any::<bool>(), 40usize..=120, edit).prop_map(
            |(mut b, v4, tcp, options, len, edit)| {
                let l4 = if v4 { 34 } else { 54 };
                match b[3] % 8 {
                    0 => b[..3].copy_from_slice(&[1, 0, 0x5e]),
                    1 => b[..3].copy_from_slice(&[0x33, 0x33, 0xff]),
                    2 => b[6..8].copy_from_slice(&[2, 0x42]),
                    3 if !v4 => b[L3 + 19..L3 + 21].copy_from_slice(&[0xff, 0xfe]),
                    4 if !v4 => b[L3 + 24..L3 + 37].copy_from_slice(&NEIGHBOURS),
                    _ => {}
                }
                b[12..15].copy_from_slice(if v4 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] });
                let total = (len.max(l4 + 8) - if v4 { 14 } else { 54 }) as u16;
                b[if v4 { 16 } else { 18 }..][..2].copy_from_slice(&total.to_be_bytes());
                if v4 {
                    b[20..22].copy_from_slice(&[0x40, 0]);
                }
                b[if v4 { 23 } else { 20 }] = if tcp { 6 } else { 17 };
                if tcp {
                    b[l4 + 12] = if options { 0x80 } else { 0x50 } + (b[l4 + 12] & 0x3f);
                    let first: [u8; 4] = if b[0] & 1 == 0 { [1, 1, 8, 10] } else { [2, 4, 30, 8] };
                    b[l4 + 20..l4 + 24].copy_from_slice(&first);
                    b[l4 + 24] = if b[0] & 2 == 0 { 1 } else { 30 };
                    b[l4 + 25] = 7;
                } else {
                    b[l4 + 4..l4 + 6].copy_from_slice(&((len.max(l4 + 8) - l4) as u16).to_be_bytes());
                    if options {
                        b[l4 + 6..l4 + 8].fill(0);
                    }
                }
                edit.into_iter().for_each(|(at, byte)| b[at] = byte);
                // A view of headers shows only those.
                if b[1] & 1 == 0 {
                    b.truncate(l4 + usize::from(b[2] % 48));
                }
                b
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn it_does_what_the_walk_does(
            frame in frame(), what in 0usize..8, ask in 30usize..130, hides_time: bool
        ) {
            let what = [
                "", "ip=prefix", "ip.src=prefix", "ip=zero,mac=hash", "port=hash", "ip=truncate:9,port=zero",
                "mac=zero", "mac.src=truncate:30,ip.dst=truncate:120",
            ][what];
            let transforms = crate::parse(what).unwrap();
            let rewriter = || {
                let mut rewriter = Rewriter::hiding(&transforms, Some(&Key::new([7; 32]))).unwrap();
                if hides_time {
                    rewriter.hide(Secrets::TIME);
                }
                rewriter
            };
            let (mut fast, mut slow) = (frame.clone(), frame);
            if let Some(understood) = super::rewrite(&mut rewriter(), &mut fast, ask) {
                let link = LinkType::ETHERNET;
                prop_assert_eq!(understood, super::super::walk(&mut rewriter(), link, &mut slow, ask));
                prop_assert_eq!(fast, slow);
            } else {
                prop_assert_eq!(fast, slow, "left alone");
            }
        }
    }

    #[test]
    fn the_common_shapes_are_taken() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let transforms = crate::parse("ip=prefix").unwrap();
        let mut rewriter = Rewriter::new(&transforms, Some(&Key::new([7; 32]))).unwrap().unwrap();
        let taken = (0..500).filter(|_| {
            let mut frame = frame().new_tree(&mut runner).unwrap().current();
            super::rewrite(&mut rewriter, &mut frame, 1500).is_some()
        });
        assert!(taken.count() > 100);
    }
}
