//! Right checksums stay right after any change: they are recomputed from the changed bytes.

use crate::common::*;
use flame_abi::LinkType;
use flame_plan::{Action, Expose};
use flame_view::View;

fn views() -> Vec<View> {
    let all = Expose::All;
    vec![
        view(all, &[("ip", Action::Prefix)]),
        view(all, &[("ip", Action::Hash), ("port", Action::Hash), ("mac", Action::Hash)]),
        view(all, &[("ip.src", Action::Zero), ("port.dst", Action::Zero), ("mac.dst", Action::Zero)]),
        view(all, &[("ip", Action::Truncate(19)), ("port", Action::Truncate(3))]),
    ]
}

/// Checks every checksum of IPv4 or IPv6 at `at`: TCP, UDP, ICMP, and those of their payload.
fn right(bytes: &[u8], at: usize) {
    let ip = &bytes[at..];
    let (proto, l4, end) = if ip[0] >> 4 == 4 {
        let n = usize::from(ip[0] & 15) * 4;
        assert_eq!(word_sum(&[&ip[..n]]), 0xffff, "IPv4 header {bytes:02x?}");
        (ip[9], n, usize::from(u16::from_be_bytes([ip[2], ip[3]])))
    } else {
        (ip[6], 40, 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])))
    };
    let segment = &ip[l4..end];
    let pseudo =
        if ip[0] >> 4 == 4 { pseudo4(ip, proto, segment.len()) } else { pseudo6(ip, proto, segment.len()) };
    let sum = match proto {
        1 => word_sum(&[segment]),
        17 if segment[6..8] == [0, 0] => 0xffff,
        6 | 17 | 58 => word_sum(&[&pseudo, segment]),
        47 => word_sum(&[segment]),
        _ => return,
    };
    assert_eq!(sum, 0xffff, "protocol {proto} in {bytes:02x?}");
}

fn tcp4(options: &[u8]) -> Vec<u8> {
    let mut p = ipv4(6, options, &tcp(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8], b"odd payload"));
    let l4 = 20 + options.len();
    let (end, pseudo) = (p.len(), pseudo4(&p, 6, p.len() - l4));
    set_sum(&mut p, l4 + 16, l4, end, &pseudo);
    p
}

fn udp4(dport: u16, payload: &[u8]) -> Vec<u8> {
    let mut p = ipv4(17, &[], &udp(dport, payload));
    let (end, pseudo) = (p.len(), pseudo4(&p, 17, p.len() - 20));
    set_sum(&mut p, 26, 20, end, &pseudo);
    p
}

fn icmp4(head: [u8; 8], rest: &[u8]) -> Vec<u8> {
    let mut p = ipv4(1, &[], &[&head[..], rest].concat());
    let end = p.len();
    set_sum(&mut p, 22, 20, end, &[]);
    p
}

fn with6(proto: u8, sum: usize, rest: &[u8]) -> Vec<u8> {
    let mut p = ipv6(proto, rest);
    let (end, pseudo) = (p.len(), pseudo6(&p, proto, rest.len()));
    set_sum(&mut p, 40 + sum, 40, end, &pseudo);
    p
}

/// Returns packets, each with the number of bytes that must stay exposed and the offsets of its IP headers.
fn packets() -> Vec<(Vec<u8>, usize, Vec<usize>)> {
    let inner = ethernet(0x0800, &tcp4(&[]));
    let mut list = vec![
        (ethernet(0x0800, &tcp4(&[])), usize::MAX, vec![14]),
        // Record route with two addresses, at an odd offset.
        (ethernet(0x0800, &tcp4(&[1, 7, 11, 12, 10, 9, 8, 7, 6, 5, 4, 0])), usize::MAX, vec![14]),
        (ethernet(0x0800, &udp4(5000, b"abc")), usize::MAX, vec![14]),
        (ethernet(0x0800, &icmp4([8, 0, 0, 0, 0, 1, 0, 2], b"echo!")), usize::MAX, vec![14]),
        (ethernet(0x86dd, &with6(6, 16, &tcp(&[], b"six"))), usize::MAX, vec![14]),
        (ethernet(0x86dd, &with6(17, 6, &udp(53, b"question"))), usize::MAX, vec![14]),
        // VXLAN: changes of the inner packet also change the outer UDP checksum.
        (
            ethernet(0x0800, &udp4(4789, &[&[8, 0, 0, 0, 0, 0, 9, 0][..], &inner].concat())),
            usize::MAX,
            vec![14, 14 + 20 + 8 + 8 + 14],
        ),
        // An ICMP error that quotes a whole UDP header; and a redirect with its gateway.
        (ethernet(0x0800, &icmp4([3, 3, 0, 0, 0, 0, 0, 0], &udp4(9999, &[]))), usize::MAX, vec![14, 14 + 28]),
        (
            ethernet(0x0800, &icmp4([5, 1, 0, 0, 10, 1, 2, 254], &udp4(9999, &[]))),
            usize::MAX,
            vec![14, 14 + 28],
        ),
    ];
    // Neighbour solicitation with the sender's address.
    let mut solicitation = vec![135, 0, 0, 0, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0xc, 0, 0xd];
    solicitation.extend([0, 0, 0, 0, 0, 0, 0x56, 0x78, 1, 1, 2, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5]);
    list.push((ethernet(0x86dd, &with6(58, 2, &solicitation)), usize::MAX, vec![14]));
    // GRE with its checksum around IPv4.
    let mut gre = [&[0x80, 0, 8, 0, 0, 0, 0, 0][..], &tcp4(&[])].concat();
    let end = gre.len();
    set_sum(&mut gre, 4, 0, end, &[]);
    list.push((ethernet(0x0800, &ipv4(47, &[], &gre)), usize::MAX, vec![14, 14 + 28]));
    for (packet, keep, _) in &mut list {
        *keep = (*keep).min(packet.len());
    }
    list
}

#[test]
fn right_ones_stay_right() {
    for (packet, keep, places) in packets() {
        places.iter().for_each(|at| right(&packet, *at));
        for mut view in views() {
            let seen = see(&mut view, LinkType::ETHERNET, std::slice::from_ref(&packet));
            let shown = seen.packet(0);
            assert_eq!(shown.len(), keep, "{packet:02x?}");
            assert_ne!(shown, packet);
            places.iter().for_each(|at| right(shown, *at));
            let again = flame_decode::decode(
                LinkType::ETHERNET,
                shown,
                packet.len() as u32,
                flame_decode::Options::default(),
            );
            assert_eq!(seen.descriptors[0].hash, again.hash);
        }
    }
}

/// The field holds the sum of the true addresses under transmit offload; any difference would reveal them.
#[test]
fn a_wrong_one_becomes_zero() {
    let right = tcp4(&[]);
    let unfilled = {
        let mut packet = right.clone();
        let pseudo = word_sum(&[&pseudo4(&packet, 6, packet.len() - 20)]);
        packet[36..38].copy_from_slice(&pseudo.to_be_bytes());
        packet
    };
    let mut header = right.clone();
    header[10] ^= 0x5a;
    for mut view in views() {
        let seen =
            see(&mut view, LinkType::ETHERNET, &[ethernet(0x0800, &unfilled), ethernet(0x0800, &header)]);
        assert_eq!(seen.packet(0)[50..52], [0, 0]);
        assert_eq!(seen.packet(1)[24..26], [0, 0]);
    }
    // A checksum that covers no changed byte stays.
    let mut view = view(Expose::Payload(100), &[]);
    let seen = see(&mut view, LinkType::ETHERNET, &[ethernet(0x0800, &unfilled)]);
    assert_eq!(seen.packet(0), ethernet(0x0800, &unfilled));
}

/// A checksum reveals a short payload completely.
#[test]
fn what_covers_hidden_payload_is_zero() {
    let sctp = ipv4(132, &[], &[&[1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9][..], b"chunk"].concat());
    let ah = |rest: &[u8]| [&[6, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2][..], &[0xab; 12], rest].concat();
    let cases: [(u16, Vec<u8>, usize, usize, usize); 7] = [
        (0x0800, tcp4(&[]), 16, 2, 32 + 8),
        (0x0800, udp4(5000, b"k"), 6, 2, 8),
        (0x0800, icmp4([8, 0, 0, 0, 0, 1, 0, 2], b"k"), 2, 2, 8),
        (0x86dd, with6(58, 2, &[128, 0, 0, 0, 0, 1, 0, 2, 7]), 2, 2, 8),
        (0x86dd, with6(17, 6, &udp(53, b"k")), 6, 2, 8),
        (0x0800, sctp, 8, 4, 12),
        (0x0800, ipv4(51, &[], &ah(&tcp(&[], b"key"))), 12, 12, 12),
    ];
    for (kind, packet, at, n, least) in cases {
        let l4 = 14 + if kind == 0x0800 { 20 } else { 40 };
        let mut shows = view(Expose::Headers, &[]);
        let seen = see(&mut shows, LinkType::ETHERNET, &[ethernet(kind, &packet)]);
        assert!(seen.packet(0).len() >= l4 + least.min(12) && seen.packet(0).len() < packet.len() + 14);
        assert!(seen.packet(0)[l4 + at..l4 + at + n].iter().all(|b| *b == 0), "{:02x?}", seen.packet(0));
        let seen = see(&mut view(Expose::Payload(100), &[]), LinkType::ETHERNET, &[ethernet(kind, &packet)]);
        assert_eq!(seen.packet(0), ethernet(kind, &packet), "all is shown");
    }
}

#[test]
fn no_udp_checksum_stays_none() {
    let packet = ethernet(0x0800, &ipv4(17, &[], &udp(5000, b"x")));
    for mut view in views() {
        assert_eq!(
            see(&mut view, LinkType::ETHERNET, std::slice::from_ref(&packet)).packet(0)[40..42],
            [0, 0]
        );
    }
}
