//! Hidden bytes appear nowhere in the output of a view.
//!
//! Every byte that a view must hide is filled with a pattern that occurs nowhere else, and all memory that
//! the view could write to is searched, not only the parts to which its descriptors point.

use crate::common::*;
use flame_abi::{LinkType, flags};
use flame_plan::{Action, Expose};
use proptest::prelude::*;

/// Two of these in a row occur in no exposed byte.
const CANARY: [u8; 2] = [0xca, 0xfe];

fn has(data: &[u8], pattern: &[u8]) -> bool {
    data.windows(pattern.len()).any(|w| w == pattern)
}

fn canaries(n: usize) -> Vec<u8> {
    CANARY.into_iter().cycle().take(n).collect()
}

/// Generates a packet with a payload of canaries, and the length of its headers.
fn packet() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let header = prop_oneof![
        (0usize..10).prop_map(|n| tcp(&vec![1; n * 4], &[])),
        Just(udp(5000, &[])),
        Just(vec![8, 0, 0, 0, 0, 1, 0, 2]),
    ];
    let tags = prop::collection::vec(Just([0x81u8, 0, 0, 5]), 0..3);
    (header, any::<bool>(), tags, 2usize..300, any::<bool>()).prop_map(|(header, six, tags, n, ip)| {
        let proto = match header.len() {
            8 if header[0] == 8 => 1,
            8 => 17,
            _ => 6,
        };
        let rest = [&header[..], &canaries(n)].concat();
        let (kind, network) = match (ip, six && proto != 1) {
            (false, _) => (0x88ccu16, canaries(n + header.len())),
            (true, true) => (0x86dd, ipv6(proto, &rest)),
            (true, false) => (0x0800, ipv4(proto, &[], &rest)),
        };
        let mut frame = ethernet(kind, &[]);
        frame.truncate(12);
        frame.extend(tags.concat());
        frame.extend(kind.to_be_bytes());
        let link = frame.len();
        frame.extend(&network);
        let headers = if ip { frame.len() - n } else { link };
        (frame, headers)
    })
}

fn actions() -> [Action; 4] {
    [Action::Zero, Action::Hash, Action::Truncate(1), Action::Keep]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_not_exposed_is_nowhere(
        packets in prop::collection::vec(packet(), 1..40), action in 0usize..4
    ) {
        let bytes: Vec<Vec<u8>> = packets.iter().map(|p| p.0.clone()).collect();
        let transforms: Vec<(&str, Action)> = vec![("mac", actions()[action]), ("port", actions()[action])];
        for expose in [Expose::None, Expose::Headers, Expose::Payload(1)] {
            let seen = see(&mut view(expose, &transforms), LinkType::ETHERNET, &bytes);
            prop_assert!(!has(&seen.data, &CANARY), "{expose}");
            let plain = see(&mut view(expose, &[]), LinkType::ETHERNET, &bytes);
            prop_assert!(!has(&plain.data, &CANARY), "{expose}");
            for (i, (_, headers)) in packets.iter().enumerate() {
                let expected = match expose {
                    Expose::Count | Expose::None => 0,
                    Expose::Headers => *headers,
                    _ => headers + 1,
                };
                prop_assert_eq!(plain.packet(i).len(), expected);
            }
        }
    }

    #[test]
    fn what_is_transformed_is_nowhere(packets in prop::collection::vec(packet(), 1..20)) {
        let bytes: Vec<Vec<u8>> = packets.iter().map(|p| p.0.clone()).collect();
        let secrets: [&[u8]; 8] = [
            &[10, 1, 2, 3], &[192, 0, 2, 77], &[0x12, 0x34], &[0x56, 0x78], &[0xc8, 0x22], &[0x1f, 0x91],
            &[0xd1, 0xd2, 0xd3], &[0xe3, 0xe4, 0xe5],
        ];
        for action in [Action::Zero, Action::Truncate(1)] {
            for expose in [Expose::Headers, Expose::Payload(20), Expose::All] {
                let mut v = view(expose, &[("mac", action), ("ip", action), ("port", action)]);
                let seen = see(&mut v, LinkType::ETHERNET, &bytes);
                for i in 0..bytes.len() {
                    // Checksums are not searched, because two bytes may have any value.
                    let shown = seen.packet(i);
                    for secret in secrets.iter().filter(|s| s.len() > 2) {
                        prop_assert!(!has(shown, secret), "{:?} in {:02x?}", secret, shown);
                    }
                    let l4 = usize::from(seen.descriptors[i].l4);
                    if seen.descriptors[i].has(flags::TRANSPORT) && seen.descriptors[i].proto != 1 {
                        prop_assert!(shown[l4..l4 + 4].iter().all(|b| b & 0x7f == 0));
                    }
                }
            }
        }
    }

    /// Nothing panics for random bytes, and no offset lies beyond the exposed ones.
    #[test]
    fn anything_is_taken(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20),
        link in prop::sample::select(&LinkType::DECODED[..]), n in 0u32..100
    ) {
        let all = [("mac", Action::Hash), ("ip", Action::Prefix), ("port", Action::Zero)];
        for expose in [Expose::None, Expose::Headers, Expose::Payload(n), Expose::All] {
            for transforms in [&all[..], &[]] {
                let seen = see(&mut view(expose, transforms), link, &packets);
                for d in &seen.descriptors {
                    prop_assert!(u32::from(d.l3) <= d.cap_len && d.payload() <= d.cap_len);
                    prop_assert_eq!(d.has(flags::TRANSPORT), d.l4_len != 0);
                }
            }
        }
    }
}

/// Packets with an address in an uncommon place, or that cannot be parsed, with the address as pattern.
#[test]
fn addresses_in_uncommon_places() {
    const SECRET: [u8; 4] = [0xca, 0xfe, 0xca, 0xfe];
    let six: Vec<u8> = canaries(16);
    let extension = |next: u8, proto: u8, body: &[u8]| ipv6(next, &[&[proto], body, &tcp(&[], &[])].concat());
    let option = |kind: u8| [&[kind, 7, 4][..], &SECRET, &[0]].concat();
    let echo_to = |kind: u8, rest: &[u8]| ipv4(1, &[], &[&[kind, 0, 0, 0][..], rest].concat());
    let solicitation = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &six, &[1, 1], &six[..6]].concat();
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &six[..6], &SECRET, &six[..6], &SECRET].concat();
    let odd_arp = [&[0, 1, 8, 0, 8, 4, 0, 1][..], &six[..8], &SECRET, &six[..8], &SECRET].concat();
    let quoted = {
        let mut p = ipv4(6, &[], &tcp(&[], &[])[..8]);
        p[12..16].copy_from_slice(&SECRET);
        p[16..20].copy_from_slice(&SECRET);
        p
    };
    let mut later = ipv4(17, &[], &six);
    later[7] = 9;
    let mut cut = quoted.clone();
    cut.truncate(17);
    let cases: Vec<(&str, u16, Vec<u8>)> = vec![
        ("record route", 0x0800, ipv4(6, &option(7), &tcp(&[], &[]))),
        ("loose source route", 0x0800, ipv4(6, &option(131), &tcp(&[], &[]))),
        ("unknown option", 0x0800, ipv4(6, &option(99), &tcp(&[], &[]))),
        ("broken option", 0x0800, ipv4(6, &[&[7, 99, 4][..], &SECRET, &[0]].concat(), &tcp(&[], &[]))),
        ("routing header 0", 0x86dd, extension(43, 6, &[&[2, 0, 1, 0, 0, 0, 0][..], &six].concat())),
        ("segments", 0x86dd, extension(43, 6, &[&[2, 4, 1, 0, 0, 0, 0][..], &six].concat())),
        ("unknown routing", 0x86dd, extension(43, 6, &[&[2, 9, 1, 0, 0, 0, 0][..], &six].concat())),
        (
            "home address",
            0x86dd,
            extension(60, 6, &[&[2, 1, 2, 0, 0, 0xc9, 16][..], &six, &[1, 0][..0]].concat()),
        ),
        ("mobility", 0x86dd, extension(135, 59, &[&[2, 0, 0, 0, 0, 0, 0][..], &six].concat())),
        ("redirect", 0x0800, echo_to(5, &[&SECRET[..], &quoted].concat())),
        ("error", 0x0800, echo_to(11, &[&[0; 4][..], &quoted].concat())),
        ("error, cut", 0x0800, echo_to(11, &[&[0; 4][..], &cut].concat())),
        ("error's extension", 0x0800, echo_to(11, &[&[0; 4][..], &quoted, &six].concat())),
        ("router advertisement", 0x0800, echo_to(9, &[&[1, 2, 0, 9][..], &SECRET].concat())),
        ("neighbour", 0x86dd, ipv6(58, &solicitation)),
        ("listener", 0x86dd, ipv6(58, &[&[131, 0, 0, 0, 0, 0, 0, 0][..], &six].concat())),
        ("arp", 0x0806, arp),
        ("arp of another form", 0x0806, odd_arp),
        ("lldp", 0x88cc, six.clone()),
        ("ospf", 0x0800, ipv4(89, &[], &six)),
        ("sctp init", 0x0800, ipv4(132, &[], &[&[0; 12][..], &six].concat())),
        ("later fragment", 0x0800, later),
        ("cut header", 0x0800, cut),
        ("ip in ip", 0x0800, ipv4(4, &[], &quoted)),
        ("gre", 0x0800, ipv4(47, &[], &[&[0, 0, 8, 0][..], &quoted].concat())),
        ("gre of something", 0x0800, ipv4(47, &[], &[&[0, 0, 0x12, 0x34][..], &six].concat())),
        (
            "vxlan",
            0x0800,
            ipv4(17, &[], &udp(4789, &[&[8, 0, 0, 0, 0, 0, 0, 0][..], &ethernet(0x0800, &quoted)].concat())),
        ),
        ("not quite vxlan", 0x0800, ipv4(17, &[], &udp(4789, &[&[0; 8][..], &six].concat()))),
        ("multipath tcp", 0x0800, ipv4(6, &[], &tcp(&[&[30, 8, 0x30, 1][..], &SECRET].concat(), &[]))),
    ];
    let everything = [("mac", Action::Zero), ("ip", Action::Zero), ("port", Action::Zero)];
    for (name, kind, packet) in cases {
        let frame = ethernet(kind, &packet);
        // Padding of the link with leaked data of the sender (CVE-2003-0001).
        let padded = if kind == 0x0800 { [&frame[..], &SECRET].concat() } else { frame.clone() };
        for frame in [frame, padded] {
            let open = see(&mut view(Expose::All, &[]), LinkType::ETHERNET, std::slice::from_ref(&frame));
            assert!(has(&open.data, &SECRET), "{name}: the search finds what is not hidden");
            let seen =
                see(&mut view(Expose::All, &everything), LinkType::ETHERNET, std::slice::from_ref(&frame));
            assert!(!has(&seen.data, &SECRET), "{name}: {:02x?}", seen.packet(0));
            assert!(!has(&seen.data, &[0xd1, 0xd2]), "{name}");
        }
    }
}
