//! Packets that the capture cut off, that are fragments, or that contradict themselves: headers before hidden
//! payload reveal nothing about it, wherever the packet ends.

use crate::common::*;
use flame_abi::{Descriptor, LinkType};
use flame_plan::{Expose, ViewSpec};
use flame_view::View;

type Make = fn(u8) -> Vec<u8>;

fn summed4(proto: u8, at: usize, mut segment: Vec<u8>) -> Vec<u8> {
    let end = segment.len();
    let pseudo =
        if matches!(proto, 1 | 47) { Vec::new() } else { pseudo4(&ipv4(proto, &[], &[]), proto, end) };
    set_sum(&mut segment, at, 0, end, &pseudo);
    ethernet(0x0800, &ipv4(proto, &[], &segment))
}

/// No transport header is looked for after this many extension headers.
fn deep6(secret: u8) -> Vec<u8> {
    let mut segment = tcp(&[], &[secret]);
    let end = segment.len();
    set_sum(&mut segment, 16, 0, end, &pseudo6(&ipv6(6, &[]), 6, end));
    for n in 0..16 {
        segment = [vec![if n == 0 { 6 } else { 60 }, 0, 1, 4, 0, 0, 0, 0], segment].concat();
    }
    ethernet(0x86dd, &ipv6(60, &segment))
}

/// Packets whose payload, and values computed from it, is the given byte.
const PACKETS: [(&str, Make); 10] = [
    ("TCP", |b| summed4(6, 16, tcp(&[], &[b]))),
    ("TCP with a sum in an option", |b| summed4(6, 16, tcp(&[30, 8, 0x20, 0, b, b, 1, 1], &[b]))),
    ("UDP", |b| summed4(17, 6, udp(53, &[b]))),
    ("ICMP", |b| summed4(1, 2, vec![8, 0, 0, 0, 0, 1, 0, 2, b])),
    ("ICMPv6", |b| {
        let mut echo = vec![128, 0, 0, 0, 0, 1, 0, 2, b];
        set_sum(&mut echo, 2, 0, 9, &pseudo6(&ipv6(58, &[]), 58, 9));
        ethernet(0x86dd, &ipv6(58, &echo))
    }),
    ("SCTP", |b| {
        let chunk = [0, 3, 0, 17, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, b];
        ethernet(0x0800, &ipv4(132, &[], &[&[9, 9, 7, 7, 0, 0, 0, 1, b, b, b, b][..], &chunk].concat()))
    }),
    ("AH", |b| {
        let ah = [59, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, b, b, b, b, b, b, b, b, b, b, b, b];
        ethernet(0x86dd, &ipv6(51, &[&ah[..], &[b]].concat()))
    }),
    ("GRE", |b| summed4(47, 4, vec![0x80, 0, 0x12, 0x34, 0, 0, 0, 0, b])),
    ("TCP in a first fragment", |b| {
        let mut packet = summed4(6, 16, tcp(&[], &[b]));
        packet[20] = 0x20;
        packet[16..18].copy_from_slice(&40u16.to_be_bytes());
        packet.truncate(54);
        set_sum(&mut packet, 24, 14, 34, &[]);
        packet
    }),
    ("TCP behind sixteen extensions", deep6),
];

/// Returns the form in a view of a packet of which `cut` bytes were captured. If `told`, its descriptor
/// states so.
fn shown(expose: Expose, packet: &[u8], cut: usize, told: bool) -> (Descriptor, Vec<u8>) {
    let mut view = View::new(&ViewSpec { expose, ..ViewSpec::default() }, None).unwrap();
    let bytes = packet[..cut.min(packet.len())].to_vec();
    let wire = if told { packet.len() } else { bytes.len() };
    let (descriptors, data) = block_of(LinkType::ETHERNET, &[bytes], |_| wire as u32);
    let (mut out, mut seen) = ([Descriptor::default()], vec![0; data.len()]);
    view.copy(&descriptors, |_| LinkType::ETHERNET, &data, &mut out, &mut seen, BASE).unwrap();
    (out[0], seen)
}

#[test]
fn what_stands_before_hidden_payload_tells_nothing_of_it() {
    for (name, make) in PACKETS {
        let (a, b) = (make(1), make(77));
        assert_ne!(a, b, "{name}");
        let payload = if name.ends_with("fragment") { a.len() } else { a.len() - 1 };
        for cut in 14..=a.len() {
            for told in [true, false] {
                let mut exposes = vec![Expose::None, Expose::Headers];
                // If the byte of the payload was not captured, no exposure shows it.
                exposes.extend((cut <= payload).then_some(Expose::Payload(100)));
                for expose in exposes {
                    let (one, other) = (shown(expose, &a, cut, told), shown(expose, &b, cut, told));
                    assert_eq!(one, other, "{name}, {expose}, {cut} bytes, told: {told}");
                }
            }
        }
    }
}

/// Ports and flags of headers that were cut off are still shown.
#[test]
fn headers_that_are_cut_off_are_shown_as_far_as_they_tell_nothing() {
    let packet = summed4(6, 16, tcp(&[2, 4, 5, 0xb4], &[9; 30]));
    let (d, bytes) = shown(Expose::Headers, &packet, 54, true);
    assert_eq!((d.cap_len, &bytes[34..50]), (54, &packet[34..50]));
    assert_eq!(bytes[50..52], [0, 0], "the checksum covers what is not there");
}

/// The sender fills the bytes after a datagram.
#[test]
fn padding_is_shown_as_no_header() {
    let arp = [0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    let frames = [
        ("TCP", ethernet(0x0800, &ipv4(6, &[], &[1, 2, 3, 4, 0, 0, 0, 1]))),
        ("AH", ethernet(0x0800, &ipv4(51, &[], &[6, 4, 0, 0, 0, 0, 0, 1]))),
        ("options", ethernet(0x86dd, &ipv6(60, &[6, 2, 1, 4, 0, 0, 0, 0]))),
        ("AH behind options", ethernet(0x86dd, &ipv6(60, &[51, 0, 1, 4, 0, 0, 0, 0, 6]))),
        ("ARP", ethernet(0x0806, &arp)),
        ("LLC", ethernet(9, &[0x42, 0x42, 3, 0, 0, 0, 0, 0, 0])),
    ];
    for (name, frame) in frames {
        for expose in [Expose::None, Expose::Headers, Expose::Payload(60)] {
            let with = |fill: u8| {
                let padded = [&frame[..], &[fill; 40]].concat();
                let (d, bytes) = shown(expose, &padded, padded.len(), true);
                assert!(d.cap_len as usize <= frame.len(), "{name}, {expose}: {d:?}");
                (d, bytes)
            };
            assert_eq!(with(6), with(17), "{name}, {expose}");
        }
    }
}

/// Link headers that note the time of a packet and the number of packets before it.
#[test]
fn notes_of_captures_tell_no_hidden_times_and_packets() {
    let ip = |n: u8| ipv4(17, &[], &udp(53 + u16::from(n), &[9; 4]));
    let nflog = |b: u8, n: u8| {
        let ip = ip(n);
        let time = [&[20, 0, 3, 0][..], &[b; 16]].concat();
        [&[2, 0, 0, 0][..], &time, &[8, 0, 12, 0, b, b, b, b, 4 + ip.len() as u8, 0, 9, 0], &ip].concat()
    };
    let radiotap = |b: u8, n: u8| {
        let data = [8, 0, 0, 0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 3, 0, 0];
        let llc = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
        [&[0, 0, 16, 0, 1, 0, 0, 0][..], &[b; 8], &data, &llc, &ip(n)].concat()
    };
    let key = Some(flame_plan::ViewKey([1; 32]));
    let select = flame_plan::TrustedFilter::parse("udp").unwrap();
    let hiding = [
        ViewSpec { resolution_ns: 1_000_000_000, ..ViewSpec::default() },
        ViewSpec { sample: 2, sample_key: key.clone(), ..ViewSpec::default() },
        ViewSpec { select: select.into_iter().collect(), key, ..ViewSpec::default() },
    ];
    type Make<'a> = (LinkType, &'a dyn Fn(u8, u8) -> Vec<u8>);
    let makes: [Make; 2] = [(LinkType::NFLOG, &nflog), (LinkType::IEEE802_11_RADIOTAP, &radiotap)];
    for (link, make) in makes {
        for expose in [Expose::Headers, Expose::Payload(2), Expose::All] {
            // libpcap has no filters for NFLOG.
            for spec in hiding.iter().filter(|s| s.select.is_empty() || link != LinkType::NFLOG) {
                let seen = |b: u8| {
                    let mut view = View::new(&ViewSpec { expose, ..spec.clone() }, None).unwrap();
                    see(&mut view, link, &(0..8).map(|n| make(b, n)).collect::<Vec<_>>())
                };
                let (one, other) = (seen(1), seen(200));
                assert!(!one.descriptors.is_empty());
                assert_eq!(
                    (&one.descriptors, &one.data),
                    (&other.descriptors, &other.data),
                    "{link:?} {spec:?}"
                );
            }
            let mut all = View::new(&ViewSpec { expose, ..ViewSpec::default() }, None).unwrap();
            let seen = see(&mut all, link, &[make(77, 0)]);
            assert!(seen.packet(0).windows(4).any(|w| w == [77; 4]), "who is kept from nothing has them");
        }
    }
}
