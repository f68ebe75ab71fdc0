//! Datagrams of fragments. The orders and overlaps are from Suricata's own tests of its default policy,
//! and of RFC 1858 and RFC 3128.

use super::*;
use crate::engine::{Fragments, MOST_FRAGMENTS};
use flame_module::testing::{PacketBuilder, Traffic};

const SECOND: u64 = 1_000_000_000;

/// A fragment: its offset in bytes, whether more follow, and its data.
type Piece<'a> = (u16, bool, &'a [u8]);

/// Adds a fragment of a datagram with this identification.
fn add<'a>(
    traffic: &'a mut Traffic,
    v4: bool,
    proto: u8,
    id: u16,
    (offset, more, data): Piece<'_>,
) -> PacketBuilder<'a> {
    let later = if offset > 0 { flags::LATER_FRAGMENT } else { 0 };
    let mut packet = match v4 {
        true => {
            let mut packet = traffic.ip("10.0.0.1", "10.0.0.2", proto);
            packet.payload(data);
            packet.bytes()[18..20].copy_from_slice(&id.to_be_bytes());
            let place = if more { 0x2000 } else { 0 } | (offset / 8);
            packet.bytes()[20..22].copy_from_slice(&place.to_be_bytes());
            packet
        }
        false => {
            let mut packet = traffic.ip("fd00::1", "fd00::2", proto);
            let [high, low] = (offset | u16::from(more)).to_be_bytes();
            let [id_high, id_low] = id.to_be_bytes();
            packet.payload(&[proto, 0, high, low, 0, 0, id_high, id_low]).payload(data);
            packet.bytes()[20] = 44;
            packet.descriptor().l4 += 8;
            packet
        }
    };
    packet.descriptor().flags |= flags::FRAGMENT | later;
    packet
}

/// Returns the datagrams that packets complete, each with the number of the packet.
fn complete(fragments: &mut Fragments, traffic: &Traffic) -> Vec<(usize, Descriptor, Vec<u8>)> {
    let batch = Batch::new(traffic.descriptors(), traffic.memory(), 0, &BatchHeader::default());
    let each = batch.packets().enumerate().filter_map(|(number, packet)| {
        let whole = fragments.see(&packet)?;
        let packet = whole.packet();
        Some((number, *packet, packet.bytes().to_vec()))
    });
    each.collect()
}

/// Returns the data of the only datagram that fragments complete, in both versions of IP, if they do.
fn whole(pieces: &[Piece<'_>]) -> Option<String> {
    let [v4, v6] = [true, false].map(|v4| {
        let mut traffic = Traffic::default();
        for piece in pieces {
            add(&mut traffic, v4, 253, 7, *piece);
        }
        let found = complete(&mut Fragments::default(), &traffic);
        assert!(found.len() < 2);
        let (number, whole, bytes) = found.into_iter().next()?;
        assert_eq!(number + 1, pieces.len(), "the last fragment completes it");
        assert_eq!((whole.proto, whole.flags & flags::FRAGMENT), (253, 0));
        let head = if v4 { 20 } else { 40 };
        let stated = u16::from_be_bytes(bytes[if v4 { 2..4 } else { 4..6 }].try_into().unwrap());
        assert_eq!(usize::from(stated), bytes.len() - if v4 { 0 } else { 40 });
        Some(bytes[head..].iter().map(|b| char::from(*b)).collect::<String>())
    });
    assert_eq!(v4, v6);
    v4
}

/// Eight bytes of each letter.
fn eights(letters: &str) -> String {
    letters.chars().map(|c| c.to_string().repeat(8)).collect()
}

#[test]
fn fragments_come_in_any_order() {
    let (a, b, c) = ((0, true, &b"AAAAAAAA"[..]), (8, true, &b"BBBBBBBB"[..]), (16, false, &b"CCC"[..]));
    let expected = Some("AAAAAAAABBBBBBBBCCC".to_owned());
    for order in [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]] {
        assert_eq!(whole(&order), expected);
    }
    assert_eq!(whole(&[a, c]), None);
    assert_eq!(whole(&[b, c]), None);
    assert_eq!(whole(&[a, b]), None);
}

/// Fragments, each with its place and its length in units of eight bytes and its letter, and the units of the
/// datagram.
type Case<'a> = (&'a [(u16, u16, &'a str)], Option<&'a str>);

#[test]
fn overlaps_are_decided_as_by_bsd() {
    let cases: &[Case<'_>] = &[
        // The whole range of overlaps of Shankar and Paxson, in the order of Novak.
        (
            &[
                (0, 3, "1"),
                (4, 2, "2"),
                (6, 3, "3"),
                (10, 1, "a"),
                (13, 2, "b"),
                (15, 3, "c"),
                (18, 2, "d"),
                (20, 2, "e"),
                (22, 1, "f"),
                (1, 4, "4"),
                (6, 3, "5"),
                (9, 3, "6"),
                (12, 3, "7"),
                (16, 1, "8"),
                (19, 1, "9"),
                (20, 1, "x"),
                (22, 2, "y"),
            ],
            Some("111442333666777cccddeefy"),
        ),
        // A later fragment begins before an earlier one and takes what they share.
        (&[(0, 3, "m"), (1, 3, "e")], Some("mmme")),
        (&[(1, 2, "b"), (0, 2, "a"), (2, 2, "c")], Some("aabc")),
        // A hole remains.
        (&[(2, 2, "a"), (5, 1, "b"), (1, 2, "c"), (0, 1, "d"), (6, 1, "e")], None),
        // The same fragment twice.
        (&[(0, 1, "a"), (0, 1, "b"), (1, 1, "c")], Some("ac")),
        // A long one within which others lie.
        (&[(0, 4, "a"), (1, 2, "b"), (4, 1, "c")], Some("aaaac")),
        // A later one covers several earlier ones.
        (&[(1, 1, "b"), (2, 1, "c"), (4, 1, "d"), (0, 4, "a"), (5, 1, "e")], Some("aaaade")),
    ];
    for (pieces, expected) in cases {
        let data: Vec<_> =
            pieces.iter().map(|(_, units, letter)| eights(&letter.repeat(usize::from(*units)))).collect();
        let last = pieces.len() - 1;
        let pieces: Vec<Piece<'_>> = pieces
            .iter()
            .zip(&data)
            .enumerate()
            .map(|(i, ((at, ..), data))| (at * 8, i < last, data.as_bytes()))
            .collect();
        assert_eq!(whole(&pieces), expected.map(eights), "{pieces:?}");
    }
}

#[test]
fn the_first_fragment_without_more_states_the_length() {
    let [a, b, c, d] = ["A", "B", "C", "D"].map(eights);
    let [a, b, c, d] = [&a, &b, &c, &d].map(String::as_bytes);
    // What lies after the end is not part of the datagram, as in Suricata.
    assert_eq!(whole(&[(16, true, c), (0, true, a), (8, false, b)]), Some(eights("AB")));
    assert_eq!(whole(&[(8, false, b), (16, false, c), (0, true, a)]), Some(eights("AB")));
    // The fragment that ends it comes first, and others begin before it and overlap it.
    let ad = [a, d].concat();
    let ba = [b, a].concat();
    let cd = [c, d].concat();
    assert_eq!(
        whole(&[(24, false, &ad), (8, true, &ba), (16, true, &cd), (0, true, d)]),
        Some(eights("DBADD"))
    );
    // No data, or more than a datagram may have.
    assert_eq!(whole(&[(0, true, a), (8, false, b"")]), None);
    assert_eq!(whole(&[(65_528, false, &ad), (0, true, a)]), None);
}

#[test]
fn rules_look_at_the_whole_datagram_once() {
    let rules = r#"alert udp any any -> any 53 (content:"spread over"; sid:1;)
        alert udp any any -> any any (content:"spread"; sid:2;)
        alert udp any any -> any any (fragbits:M; sid:3;)
        alert udp any any -> any !80 (sid:4;)
        alert udp any any -> any any (dsize:11; flow:to_server; sid:5;)
        alert ip any any -> any any (fragoffset:1; sid:6;)
        alert ip [10.0.0.1,fd00::1] any -> any any (sid:7;)
        alert udp any any -> any any (dsize:0; sid:8;)
        alert tcp any any -> any any (flags:!S; sid:9;)"#;
    let udp = b"\x04\x00\x00\x35\x00\x13\x00\x00spread over";
    for v4 in [true, false] {
        let mut traffic = Traffic::default();
        add(&mut traffic, v4, 17, 1, (0, true, &udp[..8])).descriptor().ts_ns = SECOND;
        add(&mut traffic, v4, 17, 1, (8, true, &udp[8..16])).descriptor().ts_ns = 2 * SECOND;
        add(&mut traffic, v4, 17, 1, (16, false, &udp[16..])).descriptor().ts_ns = 3 * SECOND;
        let mut parameters = Parameters::of(DEFAULTS);
        parameters = parameters.text("rules", rules);
        let mut native = Native::<Ids>::new(&parameters, 0);
        native.packets(traffic.descriptors(), traffic.memory());
        native.end(3 * SECOND);
        let alerts: Vec<tables::Alert> = native.of();
        let of = |number: u64| {
            let mut sids: Vec<_> = alerts.iter().filter(|a| a.packet == number).map(|a| a.sid).collect();
            sids.sort_unstable();
            sids
        };
        // `fragbits` and `fragoffset` are fields of IPv4.
        assert_eq!(of(1), if v4 { vec![3, 7, 8] } else { vec![7, 8] }, "v4 {v4}");
        assert_eq!(of(2), if v4 { vec![3, 6, 7, 8] } else { vec![7, 8] }, "v4 {v4}");
        // The last fragment, and the datagram: its rule about addresses alerts once for its connection.
        assert_eq!(of(3), [1, 2, 4, 5, 7, 7, 8], "v4 {v4}");
        let whole = alerts.iter().find(|a| a.sid == 1).unwrap();
        assert_eq!((whole.ts_ns, whole.sport, whole.dport), (3 * SECOND, 1024, 53));
        let state: tables::State = native.of()[0];
        assert_eq!((state.packets, state.datagrams, state.incomplete), (3, 1, 0));
    }
}

#[test]
fn headers_between_are_those_of_the_first_fragment() {
    // Destination options before the fragment header, and more of them in the data.
    let mut traffic = Traffic::default();
    let data = [&[17u8, 0, 1, 4, 0, 0, 0, 0], &b"\x04\x00\x00\x35\x00\x0d\x00\x00hello"[..]].concat();
    for (offset, more, part) in [(0u16, 1u16, &data[..16]), (16, 0, &data[16..])] {
        let [high, low] = (offset | more).to_be_bytes();
        let mut packet = traffic.ip("fd00::1", "fd00::2", 17);
        packet.payload(&[44, 0, 1, 4, 0, 0, 0, 0, 60, 0, high, low, 0, 0, 0, 9]).payload(part);
        packet.bytes()[20] = 60;
        packet.descriptor().flags |= flags::FRAGMENT | if offset > 0 { flags::LATER_FRAGMENT } else { 0 };
    }
    let (_, whole, bytes) = complete(&mut Fragments::default(), &traffic).remove(0);
    assert_eq!((whole.proto, whole.l4, bytes.len()), (17, 56, 40 + 8 + data.len()));
    assert!(whole.has(flags::TRANSPORT));
    assert_eq!((bytes[6], bytes[40], &bytes[64..]), (60, 60, &b"hello"[..]));
}

#[test]
fn datagrams_differ_by_identification_protocol_addresses_and_vlans() {
    let [a, b] = ["A", "B"].map(eights);
    let mut fragments = Fragments::default();
    let mut traffic = Traffic::default();
    add(&mut traffic, true, 253, 1, (0, true, a.as_bytes()));
    add(&mut traffic, true, 253, 2, (8, false, b.as_bytes()));
    add(&mut traffic, true, 254, 1, (8, false, b.as_bytes()));
    add(&mut traffic, true, 253, 1, (8, false, b.as_bytes())).bytes()[29] = 9;
    // The same in a VLAN, four bytes later.
    for id in [5u8, 6, 5] {
        let more = traffic.descriptors().len() < 6;
        let mut packet = add(&mut traffic, true, 253, 3, (if more { 0 } else { 8 }, more, a.as_bytes()));
        packet.payload(b"tag!");
        let bytes = packet.bytes();
        bytes.copy_within(12..bytes.len() - 4, 16);
        // The priority is not part of the number.
        bytes[12..16].copy_from_slice(&[0x81, 0, if more { 0 } else { 0x20 }, id]);
        bytes[20..22].copy_from_slice(&28u16.to_be_bytes());
        let (offset, flag) = if more { (0, 0x20) } else { (1, 0) };
        bytes[24..26].copy_from_slice(&[flag, offset]);
        bytes[22..24].copy_from_slice(&[0, 3]);
        let descriptor = packet.descriptor();
        (descriptor.l3, descriptor.l4) = (18, 38);
        descriptor.flags |= flags::FRAGMENT | if more { 0 } else { flags::LATER_FRAGMENT };
    }
    let found = complete(&mut fragments, &traffic);
    assert_eq!(found.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [6], "of VLAN 5 alone");
    assert_eq!(fragments.incomplete(), 5);
}

#[test]
fn memory_and_time_are_bounded() {
    let data = [b'x'; 1000];
    let mut fragments = Fragments::default();
    let mut traffic = Traffic::default();
    // Each begins a datagram; the oldest ones give way.
    for id in 0..20_000u16 {
        add(&mut traffic, true, 17, id, (8, true, &data));
    }
    assert!(complete(&mut fragments, &traffic).is_empty());
    assert_eq!(fragments.incomplete(), 20_000);
    let most = MOST_FRAGMENTS / data.len();
    assert!((most / 2..most).contains(&fragments.kept()), "{} of at most {most}", fragments.kept());
    // The last that was begun is there, the first is not.
    let mut more = Traffic::default();
    for id in [0, 19_999] {
        add(&mut more, true, 17, id, (1008, false, b"y")).descriptor().ts_ns = SECOND;
        add(&mut more, true, 17, id, (0, true, &data[..8])).descriptor().ts_ns = SECOND;
    }
    let found = complete(&mut fragments, &more);
    assert_eq!(found.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [3]);
    // A minute after the latest fragment, another datagram begins.
    for (after, expected) in [(59, 1), (60, 0)] {
        let mut slow = Traffic::default();
        add(&mut slow, true, 17, 1, (8, true, &data[..8])).descriptor().ts_ns = 0;
        add(&mut slow, true, 17, 1, (16, false, &data[..8])).descriptor().ts_ns = 59 * SECOND;
        add(&mut slow, true, 17, 1, (0, true, &data[..8])).descriptor().ts_ns = (59 + after) * SECOND;
        let mut fragments = Fragments::default();
        assert_eq!(complete(&mut fragments, &slow).len(), expected);
        assert_eq!(fragments.incomplete(), 2 * (1 - expected as u64));
    }
}

proptest! {
    /// Whatever a view shows of headers and data, nothing panics.
    #[test]
    fn any_bytes_are_kept_or_not(
        packets in prop::collection::vec((any::<bool>(), any::<[u8; 12]>(), 0usize..40, any::<u8>()), 1..20),
    ) {
        let mut traffic = Traffic::default();
        for (v4, header, length, byte) in packets {
            let data = vec![byte; length];
            let mut packet = add(&mut traffic, v4, 44, 1, (0, byte & 1 == 0, &data));
            let bytes = packet.bytes();
            let (head, rest) = bytes.split_at_mut(if v4 { 24 } else { 54 });
            head[14..22].copy_from_slice(&header[..8]);
            let rest_len = rest.len().min(4);
            rest[..rest_len].copy_from_slice(&header[8..8 + rest_len]);
        }
        let batch = Batch::new(traffic.descriptors(), traffic.memory(), 0, &BatchHeader::default());
        let mut fragments = Fragments::default();
        for packet in batch.packets() {
            let _ = Facts::of(&packet, Dialect::Suricata);
            if let Some(whole) = fragments.see(&packet) {
                let _ = Facts::of(&whole.packet(), Dialect::Suricata);
            }
        }
    }

    /// Byte by byte, a datagram holds what the rule of BSD chooses, however it was cut.
    #[test]
    fn as_a_model_of_single_bytes_has_it(
        cuts in prop::collection::vec((0u16..12, 1u16..6), 1..20),
        last in 1u16..16,
    ) {
        let data: Vec<_> = (0..=cuts.len()).map(|i| char::from(b'a' + i as u8).to_string()).collect();
        let mut pieces: Vec<_> = cuts.iter().map(|(at, n)| (*at, *n, true)).collect();
        pieces.push((last, 1, false));
        // For each unit, the start of the rest of the fragment that it is of, and that fragment.
        let mut units: Vec<Option<(u16, usize)>> = vec![None; 20];
        for (number, (at, n, more)) in pieces.iter().enumerate() {
            let end = at + n;
            if !more {
                units.truncate(usize::from(end));
            }
            let mut start = *at;
            if let Some(Some((_, of))) = units.get(usize::from(start)).copied().filter(|u| u.is_some_and(|(s, _)| s <= *at)) {
                let begins = units[usize::from(start)].unwrap().0;
                while units.get(usize::from(start)).copied().flatten() == Some((begins, of)) {
                    start += 1;
                }
            }
            if start >= end {
                continue;
            }
            // What is left behind the end begins there.
            if let Some(Some((begins, of))) = units.get(usize::from(end)).copied()
                && begins < end
            {
                for unit in units[usize::from(end)..].iter_mut().take_while(|u| **u == Some((begins, of))) {
                    *unit = Some((end, of));
                }
            }
            for unit in units.iter_mut().take(usize::from(end)).skip(usize::from(start)) {
                *unit = Some((start, number));
            }
        }
        let expected: Option<String> = units.iter().map(|u| u.map(|(_, of)| data[of].as_str())).collect();
        let bytes: Vec<_> = pieces.iter().zip(&data).map(|((_, n, _), c)| eights(&c.repeat(usize::from(*n)))).collect();
        let pieces: Vec<Piece<'_>> =
            pieces.iter().zip(&bytes).map(|((at, _, more), data)| (at * 8, *more, data.as_bytes())).collect();
        let mut traffic = Traffic::default();
        for piece in &pieces {
            add(&mut traffic, true, 253, 7, *piece);
        }
        let found = complete(&mut Fragments::default(), &traffic);
        let found = found.first().map(|(_, _, bytes)| bytes[20..].to_vec());
        prop_assert_eq!(found, expected.map(|letters| eights(&letters).into_bytes()));
    }
}
