extern crate std;

use super::*;
use flame_abi::tcp;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn ipv4(proto: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut p =
        vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 1, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    p.extend(payload);
    p
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
    p.extend([0x20; 16]);
    p.extend([0x21; 16]);
    p.extend(payload);
    p
}

const SYN: [u8; 20] = [4, 210, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0];
const DECAPSULATED: Options = Options { decapsulate: true, without_hash: false };
const UDP: [u8; 8] = [0, 53, 4, 210, 0, 8, 0, 0];

fn frame(kind: &[u8], rest: &[u8]) -> Vec<u8> {
    [&MACS[..], kind, rest].concat()
}

fn eth(bytes: &[u8]) -> Descriptor {
    decode(LinkType::ETHERNET, bytes, bytes.len() as u32, Options::default())
}

#[test]
fn ethernet_ipv4_tcp() {
    let d = eth(&frame(&[8, 0], &ipv4(6, &SYN)));
    assert_eq!((d.l3, d.l4, d.l4_len, d.proto, d.tcp_flags), (14, 34, 20, 6, tcp::SYN));
    assert_eq!(d.flags, flags::IPV4 | flags::TRANSPORT);
}

#[test]
fn what_lies_between_link_and_ip() {
    let ip = ipv4(17, &UDP);
    let cases: [(&[u8], u16); 9] = [
        // PPPoE with a compressed protocol field; Marvell's switch tag.
        (&[0x88, 0x64, 0x11, 0, 0, 1, 0, 29, 0x21], 21),
        (&[0xda, 0xda, 0, 0, 0x40, 0, 0, 0, 8, 0], 22),
        (&[0x81, 0, 0, 5, 8, 0], 18),
        (&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0], 22),
        (&[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64], 22),
        (&[0x88, 0x64, 0x11, 0, 0, 1, 0, 30, 0, 0x21], 22),
        (&[0, 36, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], 22),
        (&[0, 31, 6, 6, 3], 17),
        (&[0x88, 0x47, 0, 1, 1, 64], 18),
    ];
    for (kind, l3) in cases {
        let d = eth(&frame(kind, &ip));
        assert_eq!((d.l3, d.l4, d.proto), (l3, l3 + 20, 17), "{kind:x?}");
        assert!(d.has(flags::TRANSPORT) && !d.has(flags::MALFORMED));
    }
}

#[test]
fn other_links() {
    let v4 = ipv4(17, &UDP);
    let v6 = ipv6(17, &UDP);
    for link in [LinkType::RAW, LinkType::RAW_BSD, LinkType::RAW_OPENBSD, LinkType::IPV4] {
        assert_eq!(decode(link, &v4, 28, Options::default()).proto, 17);
    }
    let d = decode(LinkType::IPV6, &v6, 48, Options::default());
    assert!(d.has(flags::IPV6) && d.l3 == 0 && d.l4 == 40);
    for head in [[2, 0, 0, 0], [0, 0, 0, 2]] {
        let d = decode(LinkType::NULL, &[&head[..], &v4].concat(), 32, Options::default());
        assert_eq!((d.l3, d.proto), (4, 17));
    }
    let d = decode(LinkType::NULL, &[&[30, 0, 0, 0][..], &v6].concat(), 52, Options::default());
    assert!(d.has(flags::IPV6));
    let sll = [&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0][..], &v4].concat();
    assert_eq!(decode(LinkType::LINUX_SLL, &sll, 44, Options::default()).l3, 16);
    let sll2 = [&[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0][..], &v4].concat();
    assert_eq!(decode(LinkType::LINUX_SLL2, &sll2, 48, Options::default()).l3, 20);
    let d = decode(LinkType(105), &v4, 28, Options::default());
    assert!(!d.is_ip() && d.hash == 0);
}

#[test]
fn extensions_and_fragments() {
    let options = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &UDP].concat();
    let d = eth(&frame(&[0x86, 0xdd], &ipv6(0, &options)));
    assert_eq!((d.l3, d.l4, d.proto), (14, 62, 17));
    let later = [&[17, 0, 0, 8, 0, 0, 0, 1][..], &UDP].concat();
    let d = eth(&frame(&[0x86, 0xdd], &ipv6(44, &later)));
    assert!(d.has(flags::LATER_FRAGMENT) && !d.has(flags::TRANSPORT) && d.l4_len == 0);
    let mut v4 = ipv4(6, &SYN);
    v4[7] = 1;
    let d = eth(&frame(&[8, 0], &v4));
    assert!(d.has(flags::LATER_FRAGMENT) && d.tcp_flags == 0 && d.proto == 6);
}

#[test]
fn tunnels_on_request() {
    let inner = frame(&[8, 0], &ipv4(6, &SYN));
    let udp = |port: u16, rest: &[u8]| {
        let mut u = vec![0x12, 0x34, (port >> 8) as u8, port as u8, 0, 8, 0, 0];
        u.extend(rest);
        ipv4(17, &u)
    };
    let vxlan = udp(4789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &inner].concat());
    let geneve = udp(6081, &[&[1, 0, 0x65, 0x58, 0, 0, 1, 0, 9, 9, 9, 9][..], &inner].concat());
    let gre = ipv4(47, &[&[0x20, 0, 8, 0, 0, 0, 0, 7][..], &ipv4(6, &SYN)].concat());
    let erspan1 = ipv4(47, &[&[0, 0, 0x88, 0xbe][..], &inner].concat());
    let erspan2 =
        ipv4(47, &[&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 16, 0, 0, 0, 0, 0, 0, 0][..], &inner].concat());
    let erspan3 = ipv4(
        47,
        &[&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 8], &inner]
            .concat(),
    );
    let ipip = ipv4(4, &ipv4(6, &SYN));
    let sit = ipv4(41, &ipv6(6, &SYN));
    for outer in [vxlan, geneve, gre, erspan1, erspan2, erspan3, ipip, sit] {
        let bytes = frame(&[8, 0], &outer);
        assert_ne!(eth(&bytes).proto, 6);
        let d = decode(LinkType::ETHERNET, &bytes, bytes.len() as u32, DECAPSULATED);
        assert_eq!((d.proto, d.tcp_flags), (6, tcp::SYN), "{outer:x?}");
        assert!(d.has(flags::TUNNEL));
        let l = layers(LinkType::ETHERNET, &bytes);
        assert!(l.complete && l.iter().any(|l| l.kind == Kind::Tcp), "{outer:x?}");
    }
}

#[test]
fn quoted_packets_are_listed() {
    let quoted = ipv4(17, &UDP);
    let error = ipv4(1, &[&[3, 3, 0, 0, 0, 0, 0, 0][..], &quoted].concat());
    let l = layers(LinkType::ETHERNET, &frame(&[8, 0], &error));
    let kinds: Vec<_> = l.iter().map(|l| (l.kind, l.at, l.quoted)).collect();
    assert_eq!(
        kinds,
        [
            (Kind::Ethernet, 0, false),
            (Kind::Ipv4, 14, false),
            (Kind::Icmp, 34, false),
            (Kind::Ipv4, 42, true),
            (Kind::Udp, 62, true)
        ]
    );
}

#[test]
fn padding_is_no_payload_and_truncation_is_flagged() {
    let mut bytes = frame(&[8, 0], &ipv4(17, &UDP[..4]));
    bytes.extend([0; 20]);
    let d = eth(&bytes);
    assert!(d.has(flags::MALFORMED) && !d.has(flags::TRANSPORT), "UDP header ends in the padding");
    let whole = frame(&[8, 0], &ipv4(6, &SYN));
    let d = decode(LinkType::ETHERNET, &whole[..48], 54, Options::default());
    assert!(d.has(flags::TRUNCATED) && !d.has(flags::TRANSPORT) && !d.has(flags::MALFORMED));
    assert_eq!(d.tcp_flags, tcp::SYN);
}

proptest! {
    #[test]
    fn any_bytes_give_offsets_inside(
        link in prop::sample::select(LinkType::DECODED.to_vec()),
        head in prop::sample::select(vec![vec![], frame(&[8, 0], &[]), frame(&[0x86, 0xdd], &[]), frame(&[8, 0], &ipv4(47, &[]))]),
        tail in prop::collection::vec(any::<u8>(), 0..200),
        decapsulate in any::<bool>(),
    ) {
        let bytes = [head, tail].concat();
        let options = Options { decapsulate, ..Options::default() };
        let d = decode(link, &bytes, 1500, options);
        // Without the hash, all else is the same.
        let without = decode(link, &bytes, 1500, Options { without_hash: true, ..options });
        prop_assert_eq!(without, Descriptor { hash: 0, ..d });
        prop_assert!(u32::from(d.l3) <= d.cap_len && u32::from(d.l4) <= d.cap_len && d.payload() <= d.cap_len);
        prop_assert!(!d.has(flags::TRANSPORT) || d.l4_len > 0);
        let l = layers(link, &bytes);
        prop_assert!(l.understood <= bytes.len());
        prop_assert!(l.iter().all(|l| l.at <= l.end.max(l.at) && l.end <= bytes.len()));
    }

    #[test]
    fn the_hash_is_symmetric(a in any::<[u8; 6]>(), b in any::<[u8; 6]>(), tcp in any::<bool>()) {
        let packet = |x: [u8; 6], y: [u8; 6]| {
            let mut p = ipv4(if tcp { 6 } else { 17 }, &SYN);
            p[12..16].copy_from_slice(&x[..4]);
            p[16..20].copy_from_slice(&y[..4]);
            p[20..22].copy_from_slice(&x[4..]);
            p[22..24].copy_from_slice(&y[4..]);
            frame(&[8, 0], &p)
        };
        prop_assert_eq!(eth(&packet(a, b)).hash, eth(&packet(b, a)).hash);
    }
}

proptest! {
    /// Reading at fixed offsets gives the same result as the full decoder, for plain packets and for similar
    /// ones.
    #[test]
    fn plain_packets_are_as_the_walk_finds_them(
        v6: bool,
        proto in prop::sample::select(vec![6u8, 17, 1, 58, 132, 44, 51]),
        payload in prop::collection::vec(any::<u8>(), 0..64),
        changes in prop::collection::vec((0usize..90, any::<u8>()), 0..3),
        cut in 0usize..140,
        more in 0u32..100,
    ) {
        let mut segment = SYN.to_vec();
        segment.extend(payload);
        let mut bytes = if v6 { frame(&[0x86, 0xdd], &ipv6(proto, &segment)) } else { frame(&[8, 0], &ipv4(proto, &segment)) };
        for (at, to) in changes {
            if let Some(b) = bytes.get_mut(at) {
                *b = to;
            }
        }
        bytes.truncate(cut.max(40));
        let wire_len = bytes.len() as u32 + more;
        for without_hash in [false, true] {
            let options = Options { without_hash, ..Options::default() };
            // What the descriptor described before does not show.
            let (hash, wire, l3) = (!0, !0, !0);
            let before = Descriptor {
                ts_ns: 7, addr: 9, hash, wire_len: wire, cap_len: wire, l3, l4: l3, l4_len: !0, proto: !0,
                flags: !0, tcp_flags: !0,
            };
            let mut fast = before;
            let is_fast = fast::decode(&bytes, wire_len, options, &mut fast).is_some();
            let all = Descriptor { ts_ns: 7, addr: 9, ..walk(LinkType::ETHERNET, &bytes, wire_len, options) };
            prop_assert_eq!(fast, if is_fast { all } else { before });
        }
    }
}

#[test]
fn ordinary_packets_take_the_fast_path() {
    for bytes in
        [frame(&[8, 0], &ipv4(6, &SYN)), frame(&[0x86, 0xdd], &ipv6(17, &[&UDP[..], &[0; 20]].concat()))]
    {
        assert!(fast::decode(&bytes, 100, Options::default(), &mut Descriptor::default()).is_some());
    }
}

/// The beginning of IP after each kind of link header, byte by byte.
#[test]
fn link_headers() {
    let ip = ipv4(17, &UDP);
    // To the access point: receiver, sender, destination; then LLC and SNAP.
    let data: Vec<u8> =
        [&[0x08, 0x01, 0x2c, 0][..], &[2, 0, 0, 0, 0, 9], &MACS[6..], &MACS[..6], &[0x10, 0]].concat();
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let with = |control: u8, flags: u8, more: &[u8]| {
        let mut frame = data.clone();
        (frame[0], frame[1]) = (control, flags);
        [&frame[..], more, &snap].concat()
    };
    // Radiotap: time, flags that mark the header as padded, rate.
    let radiotap = |padded: u8, frame: Vec<u8>| {
        let head = [0, 0, 18, 0, 7, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, padded, 2];
        [&head[..], &frame].concat()
    };
    let nflog: Vec<u8> =
        [&[2, 0, 0, 5][..], &[8, 0, 1, 0, 8, 0, 1, 0], &[5, 0, 10, 0, 0, 0, 0, 0], &[32, 0, 9, 0]].concat();
    let nflog_big: Vec<u8> = [&[2, 0, 0, 5][..], &[0, 5, 0, 10, 0, 0, 0, 0], &[0, 32, 0, 9]].concat();
    let cases: Vec<(LinkType, Vec<u8>)> = vec![
        (LinkType::PPP, vec![0xff, 3, 0, 0x21]),
        (LinkType::PPP, vec![0, 0x21]),
        (LinkType::PPP, vec![0x21]),
        (LinkType::PPP, vec![0xff, 3, 2, 0x81, 0, 1, 1, 64]),
        (LinkType::PPP_HDLC, vec![0xff, 3, 0x21]),
        (LinkType::PPP_HDLC, vec![0x0f, 0, 8, 0]),
        (LinkType::C_HDLC, vec![0x0f, 0, 8, 0]),
        (LinkType::C_HDLC, vec![0x8f, 0, 0x88, 0x47, 0, 1, 1, 64]),
        (LinkType::IEEE802_11, with(8, 1, &[])),
        (LinkType::IEEE802_11, with(8, 2, &[])),
        (LinkType::IEEE802_11, with(8, 3, &MACS[..6])),
        (LinkType::IEEE802_11, with(0x88, 1, &[0, 0])),
        (LinkType::IEEE802_11, with(0x88, 0x81, &[0, 0, 1, 2, 3, 4])),
        // Several frames in one: the first has its own addresses and length.
        (LinkType::IEEE802_11, with(0x88, 1, &[&[0x80, 0][..], &MACS, &[0, 36]].concat())),
        (LinkType::IEEE802_11_RADIOTAP, radiotap(0, with(8, 1, &[]))),
        (LinkType::IEEE802_11_RADIOTAP, radiotap(0x20, with(0x88, 1, &[0, 0, 0xee, 0xee]))),
        (LinkType::NFLOG, nflog),
        (LinkType::NFLOG, nflog_big),
        (LinkType::DSA_TAG_DSA, [&MACS[..], &[0x40, 0, 0, 0, 8, 0]].concat()),
        (LinkType::DSA_TAG_BRCM, [&MACS[..], &[0, 0, 0, 0, 8, 0]].concat()),
        (LinkType::DSA_TAG_BRCM_PREPEND, [&[0, 0, 0, 0][..], &MACS, &[8, 0]].concat()),
        (LinkType::DSA_TAG_EDSA, [&MACS[..], &[0xda, 0xda, 0, 0, 0x40, 0, 0, 0, 8, 0]].concat()),
    ];
    for (link, head) in cases {
        let bytes = [&head[..], &ip].concat();
        let d = decode(link, &bytes, bytes.len() as u32, Options::default());
        assert_eq!((usize::from(d.l3), d.proto, d.l4_len), (head.len(), 17, 8), "{link:?} {head:x?}");
        assert!(d.has(flags::IPV4 | flags::TRANSPORT) && !d.has(flags::MALFORMED), "{link:?} {head:x?}");
        // No cut causes a panic, and headers that are cut off are not found.
        for n in 0..bytes.len() {
            let d = decode(link, &bytes[..n], bytes.len() as u32, Options::default());
            assert!(d.payload() as usize <= n);
            layers(link, &bytes[..n]);
        }
    }
    // Encrypted, without data, a later fragment, management: not IP.
    for (control, flags, sequence) in [(8, 0x41, 0), (0x48, 1, 0), (8, 1, 3), (0x80, 0, 0)] {
        let mut bytes = [&with(control, flags, &[])[..], &ip].concat();
        bytes[22] = sequence;
        let d = decode(LinkType::IEEE802_11, &bytes, bytes.len() as u32, Options::default());
        assert!(!d.is_ip() && d.l4 == 24, "{control:x} {flags:x}");
    }
}

/// Returns a frame of 802.11 to the access point that holds frames of these lengths of data, each numbered.
fn aggregated(lengths: &[usize]) -> Vec<u8> {
    let mut frame = [&[0x88, 0x01, 0, 0][..], &MACS, &[9; 6], &[0x10, 0, 0x80, 0]].concat();
    let head = frame.len();
    for (number, length) in lengths.iter().enumerate() {
        frame.resize(head + (frame.len() - head).next_multiple_of(4), 0xee);
        frame.extend([&MACS[..], &(*length as u16).to_be_bytes(), &vec![number as u8; *length]].concat());
    }
    frame
}

proptest! {
    /// Each frame of an aggregated one is found where it lies, whatever follows it and wherever it is cut.
    #[test]
    fn frames_in_frames_are_found(
        lengths in prop::collection::vec(0usize..100, 2..20),
        radio in prop::collection::vec(any::<u8>(), 0..40),
        more in 0usize..13,
        cut in 0usize..3000,
    ) {
        let frame = aggregated(&lengths);
        let radiotap = [&[0, 0, 8 + radio.len() as u8, 0, 0, 0, 0, 0][..], &radio].concat();
        let ppi = [&[0, 0, 8 + radio.len() as u8, 0, 105, 0, 0, 0][..], &radio].concat();
        for (link, before) in [
            (LinkType::IEEE802_11, Vec::new()),
            (LinkType::IEEE802_11_RADIOTAP, radiotap),
            (LinkType::PPI, ppi),
        ] {
            // A check sequence, shorter than a header.
            let whole = [&before[..], &frame, &vec![0xff; more]].concat();
            let found = subframes(link, &whole).unwrap();
            prop_assert_eq!(found.head, before.len() + 26);
            let places: Vec<_> = found.collect();
            prop_assert_eq!(places.len(), lengths.len());
            for (number, (place, length)) in places.iter().zip(&lengths).enumerate() {
                prop_assert_eq!(&whole[place.start..place.start + 12], &MACS[..]);
                prop_assert_eq!(place.len(), 14 + length);
                prop_assert!(whole[place.start + 14..place.end].iter().all(|b| *b == number as u8));
            }
            let cut = &whole[..cut.min(whole.len())];
            let of_cut: Vec<_> = subframes(link, cut).into_iter().flatten().collect();
            prop_assert!(of_cut.len() <= places.len() && of_cut[..] == places[..of_cut.len()]);
            prop_assert!(of_cut.iter().all(|place| place.start + 14 <= cut.len()));
        }
        // One frame in another, encrypted ones, and other link types stay as they are.
        prop_assert!(subframes(LinkType::IEEE802_11, &aggregated(&lengths[..1])).is_none());
        prop_assert!(subframes(LinkType::ETHERNET, &frame).is_none());
        let mut encrypted = frame;
        encrypted[1] |= 0x40;
        prop_assert!(subframes(LinkType::IEEE802_11, &encrypted).is_none());
    }
}

/// Copies of the headers before many frames must not take much memory.
#[test]
fn aggregated_frames_are_bounded() {
    assert_eq!(subframes(LinkType::IEEE802_11, &aggregated(&[0; 3000])).unwrap().count(), 256);
    let notes = [&[0, 0, 0, 4, 0, 0, 0, 0][..], &[0; 1016], &aggregated(&[9, 9])].concat();
    assert!(subframes(LinkType::IEEE802_11_RADIOTAP, &notes).is_none());
}

/// A message of mobility is the payload if nothing follows it, and a header of extension otherwise.
#[test]
fn mobility_is_a_protocol() {
    let message = [59, 0, 5, 0, 0, 0, 0, 0];
    let before_udp = [&[17, 0, 5, 0, 0, 0, 0, 0][..], &UDP].concat();
    for (payload, expected) in [(&message[..], (135, 54)), (&before_udp, (17, 62))] {
        let d = eth(&frame(&[0x86, 0xdd], &ipv6(135, payload)));
        assert_eq!((d.proto, d.l4), expected);
        assert!(!d.has(flags::MALFORMED));
    }
}

/// Frames of a ring, with tags around the ring's, and wherever they are cut.
#[test]
fn rings_and_controllers_show_their_packets() {
    let ip = ipv4(17, &UDP);
    let hsr = [0x89, 0x2f, 0x10, 0x34, 0, 9];
    for (before, after) in [(&[][..], &[][..]), (&[0x81, 0, 0, 5], &[]), (&[], &[0x81, 0, 0, 7])] {
        let bytes = [&MACS[..], before, &hsr, after, &[8, 0], &ip].concat();
        let d = decode(LinkType::ETHERNET, &bytes, bytes.len() as u32, Options::default());
        let l3 = 14 + before.len() + 6 + after.len();
        assert_eq!((usize::from(d.l3), d.proto, d.l4_len), (l3, 17, 8), "{bytes:x?}");
        for n in 0..bytes.len() {
            let d = decode(LinkType::ETHERNET, &bytes[..n], bytes.len() as u32, Options::default());
            assert!(!d.has(flags::TRANSPORT) && d.payload() as usize <= n);
        }
    }
    // Supervision is no packet.
    let bytes = [&MACS[..], &hsr, &[0x88, 0xfb, 0, 0, 0, 0]].concat();
    assert!(!decode(LinkType::ETHERNET, &bytes, 60, Options::default()).is_ip());

    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let wireless = [&[0x08, 0x02, 0, 0][..], &MACS, &[9; 6], &[0x10, 0], &snap, &ip].concat();
    let frame = [&MACS[..], &[8, 0], &ip].concat();
    // HLEN in words, radio 1, binding 1, bits; fragment, place.
    let header = |words: u8, bits: u16, place: u16| {
        let word = u32::from(words) << 19 | 1 << 14 | 1 << 9 | u32::from(bits);
        [&word.to_be_bytes()[..], &[0, 3], &(place << 3).to_be_bytes(), &vec![7; usize::from(words) * 4 - 8]]
            .concat()
    };
    let outer = |from: u16, to: u16, header: &[u8], inner: &[u8]| {
        let length = (8 + header.len() + inner.len()) as u16;
        let udp = [from, to, length, 0].map(u16::to_be_bytes).concat();
        [&MACS[..], &[8, 0], &ipv4(17, &[&udp, header, inner].concat())].concat()
    };
    let options = Options { decapsulate: true, ..Options::default() };
    let opened = |bytes: &[u8]| decode(LinkType::ETHERNET, bytes, bytes.len() as u32, options);
    for (header, inner, l3) in [
        (header(2, 0x100, 0), &wireless, 32),
        (header(4, 0x110, 0), &wireless, 32),
        (header(7, 0x130, 0), &wireless, 32),
        (header(2, 0, 0), &frame, 14),
        (header(4, 0x20, 0), &frame, 14),
        // The first of several fragments.
        (header(2, 0x180, 0), &wireless, 32),
    ] {
        for (from, to) in [(5247, 40_000), (40_000, 5247)] {
            let bytes = outer(from, to, &header, inner);
            let d = opened(&bytes);
            assert!(d.has(flags::TUNNEL) && d.has(flags::TRANSPORT), "{header:x?}");
            assert_eq!((usize::from(d.l3), d.proto), (42 + header.len() + l3, 17), "{header:x?}");
            for n in 0..bytes.len() {
                assert!(opened(&bytes[..n]).payload() as usize <= n);
            }
            // Views show nothing of it.
            let layers = layers(LinkType::ETHERNET, &bytes);
            assert_eq!(layers.understood, 42);
        }
    }
    // A later fragment, a keep-alive, encrypted data, a header that is too short, another version or binding.
    let mut encrypted = header(2, 0x100, 0);
    encrypted[0] = 1;
    let other = [0, 0x10, 0x45, 0, 0, 0, 0, 0].to_vec();
    for header in [header(2, 0x180, 5), header(2, 0x108, 0), encrypted, other] {
        assert!(!opened(&outer(5247, 9, &header, &wireless)).has(flags::TUNNEL), "{header:x?}");
    }
}
