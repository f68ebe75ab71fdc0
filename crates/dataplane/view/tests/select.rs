//! Selecting, mapping in place, and errors.

use crate::common::*;
use flame_abi::{Descriptor, LinkType};
use flame_plan::{Action, Expose, Field, ShownFilter, Transforms, TrustedFilter, ViewKey, ViewSpec};
use flame_transform::TransformError;
use flame_view::{Key, Marks, Misfits, Queues, View, ViewError};

fn spec(select: &[&str], expose: Expose, transforms: &[(Field, Action)]) -> ViewSpec {
    let select = select.iter().filter_map(|s| TrustedFilter::parse(s).unwrap()).collect();
    ViewSpec {
        select,
        expose,
        transforms: transforms.iter().copied().collect::<Transforms>(),
        ..ViewSpec::default()
    }
}

fn error(spec: &ViewSpec) -> String {
    View::new(spec, None).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn every_filter_must_pass() {
    let packets: Vec<Vec<u8>> = [(53, 1), (53, 400), (80, 400)]
        .map(|(port, n)| ethernet(0x0800, &ipv4(17, &[], &udp(port, &vec![0; n]))))
        .to_vec();
    let mut v = View::new(&spec(&["udp port 53", "", "greater 300"], Expose::Headers, &[]), None).unwrap();
    let seen = see(&mut v, LinkType::ETHERNET, &packets);
    assert_eq!(seen.descriptors.len(), 1);
    assert_eq!(seen.descriptors[0].wire_len, 14 + 28 + 400);
    // The checksum also depends on the payload.
    assert_eq!(seen.packet(0), [&packets[1][..40], &[0; 2]].concat());
    assert_eq!(seen.descriptors[0].addr, BASE);
}

#[test]
fn packets_stay_where_they_are_when_nothing_is_hidden() {
    let packets: Vec<Vec<u8>> =
        [80, 53].map(|port| ethernet(0x0800, &ipv4(17, &[], &udp(port, b"hello")))).to_vec();
    let mut v = View::new(&spec(&["port 53"], Expose::All, &[]), None).unwrap();
    assert!(v.hides_nothing() && !v.selects_all());
    let (descriptors, data) = block(LinkType::ETHERNET, &packets);
    let mut out = [Descriptor::default(); 2];
    let written = v.select(&descriptors, |_| LinkType::ETHERNET, &data, &mut out, 1000).unwrap();
    assert_eq!(written.packets, 1);
    assert_eq!(out[0], Descriptor { addr: 1000 + descriptors[1].addr, ..descriptors[1] });
    for hiding in
        [spec(&[], Expose::Payload(u32::MAX), &[]), spec(&[], Expose::All, &[(Field::MacSrc, Action::Zero)])]
    {
        assert!(!View::new(&hiding, None).unwrap().hides_nothing());
    }
    assert!(
        View::new(&spec(&[], Expose::All, &[(Field::IpSrc, Action::Keep)]), None).unwrap().hides_nothing()
    );
}

#[test]
fn link_types_may_be_mixed() {
    let mut v = View::new(&spec(&["udp"], Expose::Headers, &[]), None).unwrap();
    let raw = ipv4(17, &[], &udp(53, b"x"));
    let packets = [ethernet(0x0800, &raw), raw.clone(), raw];
    let links = [LinkType::ETHERNET, LinkType::RAW, LinkType(189)];
    let (mut descriptors, mut data) = (Vec::new(), Vec::new());
    for (bytes, link) in packets.iter().zip(links) {
        let (d, _) = block(link, std::slice::from_ref(bytes));
        descriptors.push(Descriptor { addr: data.len() as u32, ..d[0] });
        data.extend_from_slice(bytes);
    }
    let (mut out, mut out_data) = ([Descriptor::default(); 3], vec![0; data.len()]);
    let written = v.copy(&descriptors, |i| links[i], &data, &mut out, &mut out_data, BASE).unwrap();
    // No filter applies to USB packets, so they are not UDP.
    assert_eq!((written.packets, written.bytes), (2, 42 + 28));
}

/// The operator's own filter is an error. One of a grant would end the run of all others.
#[test]
fn a_filter_of_a_grant_lets_no_packet_pass_that_it_cannot_test() {
    let packets = [ipv4(17, &[], &udp(53, b"hello"))];
    let (descriptors, data) = block(LinkType::RAW, &packets);
    let own = spec(&["not ether host 1:2:3:4:5:6"], Expose::All, &[]);
    let mut out = [Descriptor::default()];
    let result = View::new(&own, None).unwrap().select(&descriptors, |_| LinkType::RAW, &data, &mut out, 0);
    let refused = result.unwrap_err().to_string();
    assert!(refused.contains("at `01:02:03:04:05:06`") && refused.contains("link type 101"), "{refused}");
    let of_grant = ViewSpec { key: Some(ViewKey([7; 32])), ..own };
    let mut view = View::new(&of_grant, None).unwrap();
    assert_eq!(see(&mut view, LinkType::RAW, &packets).descriptors.len(), 0);
    let frames = [ethernet(0x0800, &packets[0])];
    assert_eq!(see(&mut view, LinkType::ETHERNET, &frames).descriptors.len(), 1);
    let misfits = |link| Misfits::of(&of_grant, link).stated.len();
    assert_eq!((misfits(LinkType::RAW), misfits(LinkType::ETHERNET)), (1, 0));
}

#[test]
fn what_is_refused_says_why() {
    let ip = (Field::IpSrc, Action::Prefix);
    assert!(error(&spec(&[], Expose::All, &[ip])).contains("ip.src=prefix needs a key"));
    assert!(error(&spec(&[], Expose::All, &[(Field::PortDst, Action::Hash)])).contains("port.dst=hash"));
    let wide = (Field::PortDst, Action::Truncate(17));
    assert!(error(&spec(&[], Expose::All, &[wide])).contains("has 16 bits"));
    assert!(error(&spec(&["tcp port port 80"], Expose::All, &[])).contains("tcp port port 80"));
    let key = Key::new([1; 32]);
    let mac = View::new(&spec(&[], Expose::All, &[(Field::MacDst, Action::Prefix)]), Some(&key));
    assert!(matches!(mac, Err(ViewError::Transform(TransformError::NotIp { field: "mac.dst" }))));
    // Such filters need a cooked header: they are valid, although not for Ethernet.
    assert!(View::new(&spec(&["inbound"], Expose::All, &[]), None).is_ok());
}

/// Lengths are not shown at `count`, so filters must not test them there.
#[test]
fn filters_for_lengths_are_refused_at_count() {
    let asks = |text: &str, expose, select_expose| {
        let select_shown = ShownFilter::parse(text).unwrap().into_iter().collect();
        View::new(&ViewSpec { select_shown, expose, select_expose, ..ViewSpec::default() }, None).map(|_| ())
    };
    for text in ["greater 100", "len & 1 = 1", "less 9 or tcp", "not (len > 64)", "ip[len - 1] = 0"] {
        assert!(matches!(asks(text, Expose::Count, None), Err(ViewError::Length { .. })), "{text}");
        assert!(asks(text, Expose::None, None).is_ok());
        assert!(asks(text, Expose::Count, Some(Expose::Headers)).is_ok(), "who runs it may see lengths");
    }
    assert!(asks("not tcp", Expose::Count, None).is_ok());
}

#[test]
fn a_slot_too_small_is_an_error_and_never_overrun() {
    let packets = vec![ethernet(0x0800, &ipv4(17, &[], &udp(53, b"x")))];
    let (descriptors, data) = block(LinkType::ETHERNET, &packets);
    let mut v = view(Expose::All, &[]);
    let link = |_| LinkType::ETHERNET;
    let mut out = [Descriptor::default(); 1];
    assert!(v.copy(&descriptors, link, &data, &mut out, &mut [0; 10], BASE).is_err());
    assert!(v.copy(&descriptors, link, &data, &mut [], &mut [0; 100], BASE).is_err());
    assert!(v.copy(&descriptors, link, &data[..20], &mut out, &mut [0; 100], BASE).is_err());
}

/// Each queue has what a view with the same filter on the shown packet would show, without the packets of the
/// queues before it.
#[test]
fn queues_divide_what_a_view_shows() {
    let shown = |text: &str| ShownFilter::parse(text).unwrap();
    let packets: Vec<Vec<u8>> = (0..90_u16)
        .map(|n| match n % 3 {
            0 => ethernet(0x0800, &ipv4(17, &[], &udp(53 + n % 2, &[n as u8; 30]))),
            1 => ethernet(0x86dd, &ipv6(17, &udp(n, &[n as u8; 5]))),
            _ => ethernet(0x88cc, &[n as u8; 40]),
        })
        .collect();
    let transforms = [(Field::IpSrc, Action::Prefix), (Field::IpDst, Action::Hash)];
    let of = |filter: &[&str]| {
        let select_shown = filter.iter().filter_map(|text| shown(text)).collect();
        let spec = ViewSpec { select_shown, ..spec(&["not udp port 7"], Expose::Headers, &transforms) };
        View::new(&spec, Some(&Key::new([9; 32]))).unwrap()
    };
    let filters = ["udp port 53", "ip6", "ether proto 0x88cc"];
    let alone = [&["udp port 53"][..], &["ip6", "not udp port 53"], &["ether proto 0x88cc"]];
    let (mut view, link) = (of(&[]), LinkType::ETHERNET);
    let mut queues = Queues::new(&filters.map(shown), &view).unwrap();
    let (descriptors, data) = block(link, &packets);
    let mut marks = Marks::default();
    let sorted = view.sort(&mut queues, &descriptors, link, &data, &mut marks).unwrap();
    let counts = [0, 1, 2].map(|queue| marks.count(queue));
    assert_eq!((sorted.taken, sorted.eligible), (90, 89), "one is of port 7");
    assert_eq!(u64::from(sorted.packets), counts.iter().sum::<u64>());
    assert!(counts.iter().all(|n| *n > 0) && sorted.packets < 89, "{counts:?}");
    for (queue, filters) in alone.iter().enumerate() {
        let expected = see(&mut of(filters), link, &packets);
        let mut out = vec![Descriptor::default(); 90];
        let mut out_data = vec![0; data.len()];
        // In two parts, of which the first ends with its third packet.
        let place = (&mut out[..3], &mut out_data[..], usize::MAX);
        let first = view.copy_sorted((&marks, queue, 0), &descriptors, link, &data, place, BASE).unwrap();
        let (at, bytes) = (first.packets as usize, first.bytes);
        let place = (&mut out[at..], &mut out_data[bytes..], usize::MAX);
        let from = (&marks, queue, first.taken);
        let base = BASE + bytes as u32;
        let rest = view.copy_sorted(from, &descriptors, link, &data, place, base).unwrap();
        assert_eq!((first.packets, first.taken + rest.taken), (3, 90));
        out.truncate(at + rest.packets as usize);
        assert_eq!(out, expected.descriptors, "queue {queue}");
        assert_eq!(out_data, expected.data, "queue {queue}");
    }
    // A filter on lengths, where none are shown.
    let spec = spec(&[], Expose::Count, &[]);
    let counted = View::new(&spec, Some(&Key::new([9; 32]))).unwrap();
    let error = Queues::new(&[shown("greater 100")], &counted).err().unwrap().to_string();
    assert!(error.contains("asks for lengths"), "{error}");
}
