//! Whole frames, which a display filter and an expression read alike.

use super::{Numbers, Packet};
use std::net::Ipv6Addr;

/// Returns a whole frame, of few hosts, ports and tags.
pub fn frame(n: &mut Numbers) -> Packet {
    let mut p: Vec<u8> = [n.of(&[2, 2, 2, 1, 0x33]), 0, 0, 0, 0, 1 + n.below(3) as u8].to_vec();
    if n.below(12) == 0 {
        p.fill(0xff);
    }
    p.extend([2, 0, 0, 0, 0, 1 + n.below(3) as u8]);
    let tags = n.of(&[0, 0, 0, 1, 1, 2]);
    (0..tags).for_each(|_| p.extend([0x81, 0, n.of(&[0, 0x20]), 1 + n.below(3) as u8]));
    let proto = n.of(&[6u8, 6, 17, 17, 132, 1, 2, 50, 58]);
    let ports = [0, 50 + n.below(6) as u8, 0, 50 + n.below(6) as u8];
    let data = n.below(80) as u8;
    let transport = match proto {
        6 => [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]].concat(),
        17 => [&ports[..], &[0, 8 + data, 0, 0]].concat(),
        132 => [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 0]].concat(),
        1 => vec![8, 0, 0, 0, 0, 1, 0, 1],
        58 => vec![128, 0, 0, 0, 0, 1, 0, 1],
        _ => vec![0x11, 0, 0, 0, 224, 0, 0, 1],
    };
    let transport = [transport, vec![0; usize::from(data)]].concat();
    let mut kind = n.of(&[4, 4, 4, 4, 6, 6, 6, 0, 1, 2]);
    if n.below(10) == 0 {
        p.extend([0x88, 0x47, 0, 1, n.of(&[0x11, 0x21]), 64]);
        kind = 4;
    } else {
        p.extend(match kind {
            4 => [8, 0],
            6 => [0x86, 0xdd],
            0 => [8, 6],
            1 => [0x80, 0x35],
            _ => [0x88, 0xb5],
        });
    }
    match kind {
        4 => {
            let (words, fragment) =
                (n.of(&[5, 5, 6]), n.of(&[[0, 0], [0, 0], [0x40, 0], [0x20, 0], [0x20, 9], [0, 9]]));
            let length = 4 * u16::from(words) + transport.len() as u16;
            p.extend([0x40 + words, 0]);
            p.extend(length.to_be_bytes());
            p.extend([n.below(256) as u8, n.below(256) as u8, fragment[0], fragment[1], 64, proto, 0, 0]);
            p.extend([10, n.below(2) as u8, 0, 1 + n.below(3) as u8]);
            p.extend(n.of(&[[10, 0, 0, 1], [10, 1, 0, 2], [10, 1, 0, 3], [224, 0, 0, 1], [255; 4], [0; 4]]));
            p.extend(vec![1; 4 * usize::from(words - 5)]);
            p.extend(transport);
        }
        6 => {
            let fragment = [proto, 0, 0, n.of(&[0, 1, 8]), 0, 0, 0, 1];
            let is_fragment = n.below(4) == 0;
            let length = transport.len() as u16 + if is_fragment { 8 } else { 0 };
            p.extend([0x60, 0, 0, 0]);
            p.extend(length.to_be_bytes());
            p.extend([if is_fragment { 44 } else { proto }, 64]);
            p.extend(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1 + n.below(3) as u16).octets());
            p.extend(
                Ipv6Addr::new(n.of(&[0xfe80, 0xff02, 0x2001]), 0, 0, 0, 0, 0, 0, 1 + n.below(3) as u16)
                    .octets(),
            );
            p.extend(&fragment[..if is_fragment { 8 } else { 0 }]);
            p.extend(transport);
        }
        0 | 1 => {
            p.extend([
                0,
                1,
                8,
                0,
                6,
                4,
                0,
                if kind == 0 { 1 } else { 3 },
                2,
                0,
                0,
                0,
                0,
                1,
                10,
                0,
                0,
                1 + n.below(3) as u8,
            ]);
            p.extend([2, 0, 0, 0, 0, 2, 10, 1, 0, 1 + n.below(3) as u8]);
            p.extend([0; 18]);
        }
        _ => p.extend([0; 46]),
    }
    let wire_len = p.len() as u32;
    Packet { bytes: p, wire_len }
}

/// Returns whether a frame is whole and its lengths agree, as far as terms read it. Wireshark reads on
/// where a length is wrong, counts no packet that it finds malformed, has other names for fields of other
/// tags, and takes frames to 01:00:0c:00:00 for a header of Cisco's ISL before another frame.
pub fn is_sound(Packet { bytes, wire_len }: &Packet) -> bool {
    let word =
        |at: usize| bytes.get(at..at + 2).map_or(0, |word| usize::from(word[0]) << 8 | usize::from(word[1]));
    let mut at = 14;
    while word(at - 2) == 0x8100 {
        at += 4;
    }
    let rest = bytes.len().saturating_sub(at);
    let first = bytes.get(at).copied().unwrap_or(0);
    let is_sound = match word(at - 2) {
        0x800 => {
            let header = 4 * usize::from(first & 15);
            let length = word(at + 2);
            first >> 4 == 4 && header >= 20 && (header + 20..=rest).contains(&length)
        }
        0x86dd => first >> 4 == 6 && (20..=rest.saturating_sub(40)).contains(&word(at + 4)),
        0x88a8 | 0x9100 => false,
        _ => rest >= 28,
    };
    is_sound && !bytes.starts_with(&[1, 0, 0xc, 0, 0]) && bytes.len() == *wire_len as usize
}
