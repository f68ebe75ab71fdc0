//! Tests of the table "hiding X hides Y": each row is applied, and documented.

use flame_abi::LinkType;
use flame_plan::{Action, Expose, Transforms};
use flame_transform::{Key, Part, Rewriter, Secrets, TABLE, parse, remains};
use std::path::Path;

const NO_CLOCK: &str = "";

fn ethernet(dst: [u8; 6], src: [u8; 6], kind: u16, rest: &[u8]) -> Vec<u8> {
    [&dst[..], &src, &kind.to_be_bytes(), rest].concat()
}

fn ipv4(proto: u8, options: &[u8], rest: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let mut p =
        vec![0x40 | (header / 4) as u8, 0, 0, (header + rest.len()) as u8, 1, 2, 0, 0, 64, proto, 0, 0];
    p.extend([10, 1, 2, 3, 224, 1, 2, 3]);
    [&p, options, rest].concat()
}

fn ipv6(src: [u8; 16], dst: [u8; 16], next: u8, rest: &[u8]) -> Vec<u8> {
    [&[0x60, 0, 0, 0, 0, rest.len() as u8, next, 64], &src[..], &dst, rest].concat()
}

const HOST: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];
const OTHER: [u8; 6] = [0x52, 0x54, 0, 4, 5, 6];
const EUI: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0x50, 0x54, 0, 0xff, 0xfe, 1, 2, 3];
const PLAIN: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
const NEIGHBOUR: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 1, 2, 3];
const NO_PAYLOAD: u8 = 59;

fn tcp(options: &[u8]) -> Vec<u8> {
    let mut p = vec![0xc8, 0x22, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, (80 + options.len() * 4) as u8, 0x10, 1, 0];
    p[12] = ((20 + options.len()) * 4) as u8;
    [&p, &[0; 4][..], options].concat()
}

/// One packet for a row: its link type, its bytes, the place of the part, the transform and the secrets that
/// hide it, and its new bytes.
struct Sample(Part, LinkType, Vec<u8>, usize, &'static str, Secrets, Vec<u8>);

fn samples() -> Vec<Sample> {
    use LinkType as L;
    let none = Secrets::default();
    let four = |dst, src| ethernet(dst, src, 0x0800, &ipv4(17, &[], &[]));
    let six = |dst, from, to| ethernet(dst, HOST, 0x86dd, &ipv6(from, to, NO_PAYLOAD, &[]));
    let group = [1, 0, 0x5e, 1, 2, 3];
    let shown_eui = [&EUI[..8], &[2, 0, 0, 0xff, 0xfe, 0, 0, 0]].concat();
    let clock = [&[1, 1, 8, 10][..], &[7; 8]].concat();
    let stamp = [&[68, 12, 5, 0][..], &[7; 8]].concat();
    let ioam = [&[NO_PAYLOAD, 1, 0x31, 8][..], &[7; 8], &[1, 2, 0, 0]].concat();
    let times = [&[13, 0, 0, 0, 0, 0, 0, 0][..], &[7; 12]].concat();
    let erspan = [&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 1, 0, 1][..], &[7; 4], &[0; 4]].concat();
    // The O bit announces the switch's own part.
    let platform = [&erspan[..19], &[1], &[7; 8][..], &[0; 14]].concat();
    let vxlan = [&[0xc8, 0x22, 0x12, 0xb5, 0, 30, 0, 0, 8][..], &[7; 3], &[0, 0, 9, 0], &[0; 14]].concat();
    let radiotap = [&[0, 0, 16, 0, 1, 0, 0, 0][..], &[7; 8], &[0x80; 24]].concat();
    let at_ip =
        |packet: &[u8]| ethernet(OTHER, HOST, if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd }, packet);
    vec![
        Sample(
            Part::GroupMac,
            L::ETHERNET,
            four(group, HOST),
            0,
            "ip.dst=zero",
            none,
            vec![1, 0, 0x5e, 0, 0, 0],
        ),
        Sample(
            Part::GroupMac,
            L::ETHERNET,
            six([0x33, 0x33, 1, 2, 3, 4], PLAIN, PLAIN),
            0,
            "ip.dst=prefix",
            none,
            vec![0x33, 0x33, 0, 0, 0, 0],
        ),
        Sample(
            Part::Neighbour,
            L::ETHERNET,
            six([0x33, 0x33, 0xff, 1, 2, 3], PLAIN, NEIGHBOUR),
            0,
            "mac.src=zero",
            none,
            vec![0x33, 0x33, 0xff, 0, 0, 0],
        ),
        Sample(
            Part::Neighbour,
            L::ETHERNET,
            six(OTHER, PLAIN, NEIGHBOUR),
            38,
            "ip.src=zero",
            none,
            [&NEIGHBOUR[..13], &[0; 3]].concat(),
        ),
        Sample(
            Part::ContainerMac,
            L::ETHERNET,
            four(OTHER, [2, 0x42, 10, 1, 2, 3]),
            6,
            "ip.src=truncate:8",
            none,
            vec![2, 0x42, 0, 0, 0, 0],
        ),
        Sample(Part::InterfaceId, L::ETHERNET, six(OTHER, EUI, PLAIN), 22, "mac.src=zero", none, shown_eui),
        Sample(
            Part::InterfaceId,
            L::ETHERNET,
            six(OTHER, PLAIN, EUI),
            38,
            "mac.dst=zero,ip.dst=truncate:96",
            none,
            [&EUI[..8], &[0; 8]].concat(),
        ),
        Sample(
            Part::TcpClock,
            L::ETHERNET,
            at_ip(&ipv4(6, &[], &tcp(&clock))),
            14 + 40,
            NO_CLOCK,
            Secrets::TIME,
            vec![1; 12],
        ),
        Sample(
            Part::IpClock,
            L::ETHERNET,
            at_ip(&ipv4(17, &stamp, &[])),
            14 + 20,
            NO_CLOCK,
            Secrets::TIME,
            vec![1; 12],
        ),
        Sample(
            Part::IpClock,
            L::ETHERNET,
            at_ip(&ipv6(PLAIN, PLAIN, 0, &ioam)),
            14 + 42,
            NO_CLOCK,
            Secrets::TIME,
            [&[1, 8][..], &[0; 8]].concat(),
        ),
        Sample(
            Part::IcmpClock,
            L::ETHERNET,
            at_ip(&ipv4(1, &[], &times)),
            14 + 28,
            NO_CLOCK,
            Secrets::TIME,
            vec![0; 12],
        ),
        Sample(
            Part::TunnelClock,
            L::ETHERNET,
            at_ip(&ipv4(47, &[], &erspan)),
            14 + 32,
            NO_CLOCK,
            Secrets::TIME,
            vec![0; 4],
        ),
        Sample(
            Part::Opaque,
            L::ETHERNET,
            at_ip(&ipv4(17, &[], &vxlan)),
            14 + 29,
            NO_CLOCK,
            Secrets::TIME,
            vec![0; 3],
        ),
        Sample(
            Part::Opaque,
            L::ETHERNET,
            at_ip(&ipv4(47, &[], &platform)),
            14 + 40,
            "ip=zero",
            none,
            vec![0; 8],
        ),
        Sample(Part::Notes, L::IEEE802_11_RADIOTAP, radiotap, 8, NO_CLOCK, Secrets::NUMBER, vec![0; 8]),
    ]
}

/// Returns the bytes as they are shown.
fn shown(link: LinkType, packet: &[u8], transform: &str, secrets: Secrets) -> Vec<u8> {
    let transforms = parse(transform).unwrap();
    let mut rewriter = Rewriter::hiding(&transforms, Some(&Key::new([7; 32]))).unwrap();
    rewriter.hide(secrets);
    let mut bytes = packet.to_vec();
    let n = rewriter.rewrite(link, &mut bytes);
    bytes.truncate(n);
    bytes
}

#[test]
fn each_row_is_applied() {
    for Sample(part, link, packet, at, transform, secrets, expected) in samples() {
        let place = at..at + expected.len();
        assert_ne!(packet[place.clone()], expected, "{part:?}");
        let plain = shown(link, &packet, "", Secrets::default());
        assert_eq!(plain[place.clone()], packet[place.clone()], "{part:?}: shown where nothing is hidden");
        let shown = shown(link, &packet, transform, secrets);
        assert_eq!(shown[place], expected, "{part:?}");
    }
    for (i, row) in TABLE.iter().enumerate() {
        assert_eq!(row.part as usize, i);
        assert!(samples().iter().any(|sample| sample.0 == row.part), "{:?} has no sample", row.part);
    }
}

/// Pseudonyms are of the true value: they show whether it is the same, as their field may.
#[test]
fn pseudonyms_stay_apart() {
    let mac = |last| ethernet([1, 0, 0x5e, 1, 2, last], HOST, 0x0800, &ipv4(17, &[], &[]));
    let of =
        |last, transform| shown(LinkType::ETHERNET, &mac(last), transform, Secrets::default())[..6].to_vec();
    assert_eq!(of(3, "ip=zero,mac=hash"), of(4, "ip=zero,mac=hash"), "no more than with mac as it is");
    assert_ne!(of(3, "mac=hash"), of(4, "mac=hash"));
    assert_eq!(of(3, "ip=zero,mac=truncate:40"), of(4, "ip=zero,mac=truncate:40"));
    let six = |last: u8| {
        let mut from = EUI;
        from[15] = last;
        ethernet(OTHER, HOST, 0x86dd, &ipv6(from, PLAIN, NO_PAYLOAD, &[]))
    };
    let of = |last, transform| {
        shown(LinkType::ETHERNET, &six(last), transform, Secrets::default())[22..38].to_vec()
    };
    assert_ne!(of(3, "ip=prefix,mac=zero"), of(4, "ip=prefix,mac=zero"));
    assert_ne!(of(3, "mac=hash"), of(4, "mac=hash"));
    assert_eq!(of(3, "mac=hash")[..8], EUI[..8]);
    assert_eq!(of(3, "mac=truncate:24"), of(4, "mac=truncate:24"));
    assert_eq!(of(3, "mac=truncate:24")[8..13], EUI[8..13], "the manufacturer");
}

#[test]
fn the_table_is_documented() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/operators.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    for row in &TABLE {
        let line = format!("| {} | {} | {} | {} |", row.name, row.contains, row.with, row.becomes);
        assert!(docs.contains(&line), "docs/operators.md: expected the line\n{line}");
    }
    let every = parse("ip.src=zero").unwrap();
    for remains in remains(Expose::All, &every, 1_000_000_000) {
        assert!(docs.contains(remains.text), "docs/operators.md: expected {:?}", remains.text);
    }
}

#[test]
fn what_remains_follows_from_what_is_shown() {
    let count = |expose, transform, resolution| remains(expose, &parse(transform).unwrap(), resolution).len();
    assert_eq!(count(Expose::All, "", 1), 0);
    assert_eq!(count(Expose::Headers, "ip=prefix,mac=zero", 1), 0);
    assert_eq!(count(Expose::Headers, "ip=prefix", 1), 1);
    assert_eq!(count(Expose::None, "ip=prefix", 1_000_000), 0);
    assert_eq!(count(Expose::All, "mac=zero", 1), 1);
    assert_eq!(count(Expose::Headers, "mac.src=zero", 1), 1);
    assert_eq!(count(Expose::Payload(9), "", 1_000_000), 2);
    let kept: Transforms = parse("ip=keep").unwrap();
    assert!(kept.values().all(|action| *action == Action::Keep));
    assert!(remains(Expose::All, &kept, 1).is_empty());
}
