use super::*;
use crate::signature::{Signature, parse};
use flame_module::Descriptor;
use flame_module::testing::{Native, Parameters};
use merge::Merge;
use proptest::prelude::*;

#[test]
fn the_shipped_list_is_good() {
    let all = parse(include_str!("../worms.txt")).unwrap();
    assert_eq!(all.len(), 8);
    let slammer = all.iter().find(|s| s.name == "slammer").unwrap();
    assert_eq!((slammer.proto, slammer.port, slammer.offset), (17, Some(1434), Some(0)));
    assert_eq!(slammer.pattern[..3], [4, 1, 1]);
}

#[test]
fn a_wrong_line_is_named() {
    let cases = [
        ("", 1, 1, "no signature"),
        ("\n# x\nw", 3, 2, "tcp or udp"),
        ("w icmp 1 0 xx", 1, 3, "found \"icmp\""),
        ("w tcp 70000 0 xx", 1, 7, "a port from 0 to 65535"),
        ("w tcp 80 -1 xx", 1, 10, "an offset"),
        ("w tcp 80 0", 1, 11, "two bytes or more"),
        ("w tcp 80 0 ab|0", 1, 15, "two digits"),
        ("w tcp 80 0 ab|00", 1, 17, "closing |"),
        ("w tcp 80 0 ab|0g|", 1, 16, "hexadecimal"),
    ];
    for (text, line, column, reason) in cases {
        let e = parse(text).unwrap_err();
        assert_eq!((e.line, e.column), (line, column), "{text:?}: {e}");
        assert!(e.to_string().contains(reason), "{text:?}: {e}");
    }
}

fn signature(pattern: &[u8], offset: Option<u32>) -> Signature {
    Signature { name: "w".into(), proto: 6, port: None, offset, pattern: pattern.into() }
}

const PLACE: Place = Place { proto: 6, dport: 80 };

fn hits(search: &mut Search, seq: u32, payload: &[u8]) -> usize {
    let mut n = 0;
    search.segment(PLACE, 7, seq, payload, &mut |_| n += 1);
    n
}

#[test]
fn a_match_crosses_one_boundary_in_order_and_no_gap() {
    let mut search = Search::new(&[signature(b"worm!", Some(2))], 16);
    assert_eq!(hits(&mut search, 0, b"..wor"), 0);
    assert_eq!(hits(&mut search, 5, b"m!.."), 1);
    // There is no match after a gap, at another offset, or in another direction.
    assert_eq!(hits(&mut search, 100, b"..wor"), 0);
    assert_eq!(hits(&mut search, 106, b"m!"), 0);
    assert_eq!(hits(&mut search, 200, b".wor"), 0);
    assert_eq!(hits(&mut search, 204, b"m!"), 0, "begins at offset 1");
    assert_eq!(hits(&mut search, 300, b"..worm!..worm!"), 1, "the second begins elsewhere");
    let mut other = 0;
    assert_eq!(hits(&mut search, 400, b"..wor"), 0);
    search.segment(PLACE, 8, 405, b"m!", &mut |_| other += 1);
    assert_eq!(other, 0);
}

proptest! {
    /// The result is that of a plain search over the whole, for any division into segments, unless a segment
    /// has more matches than are checked. That is counted.
    #[test]
    fn segments_are_searched_as_a_plain_search_would(
        patterns in prop::collection::vec(prop::collection::vec(0u8..3, 2..6), 1..5),
        data in prop::collection::vec(0u8..3, 1..80),
        cuts in prop::collection::vec(0usize..80, 0..4),
    ) {
        let signatures: Vec<_> = patterns.iter().map(|p| signature(p, None)).collect();
        let mut search = Search::new(&signatures, 16);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(data.len())).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let mut found = 0;
        for pair in cuts.windows(2).filter(|p| p[0] < p[1]) {
            found += hits(&mut search, pair[0] as u32, &data[pair[0]..pair[1]]);
        }
        let plain: usize = patterns.iter().map(|p| data.windows(p.len()).filter(|w| w == p).count()).sum();
        if search.crowded == 0 {
            prop_assert_eq!(found, plain);
        } else {
            // It is counted only if so many positions, or so many patterns at them, match.
            prop_assert!(found < plain && plain > search::MOST_MATCHES, "{} of {}", found, plain);
        }
    }

    #[test]
    fn any_list_is_read_or_refused(text in "[ -~\n]{0,60}") {
        let _ = parse(&text);
    }
}

/// Returns IPv4 and TCP from 10.0.0.`src` to 10.0.1.`dst`:80 with this payload.
fn packet(memory: &mut Vec<u8>, src: u8, dst: u8, ts_ns: u64, seq: u32, payload: &[u8]) -> Descriptor {
    let addr = memory.len() as u32;
    memory.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, src, 10, 0, 1, dst]);
    memory.extend([4, 0, 0, 80]);
    memory.extend(seq.to_be_bytes());
    memory.extend([0, 0, 0, 0, 0x50, 16, 0, 0, 0, 0, 0, 0]);
    memory.extend(payload);
    let cap_len = memory.len() as u32 - addr;
    Descriptor {
        ts_ns,
        addr,
        cap_len,
        wire_len: cap_len,
        l4: 20,
        l4_len: 20,
        proto: 6,
        flags: flags::IPV4 | flags::TRANSPORT,
        ..Descriptor::default()
    }
}

const CODE_RED: &[u8] = b"GET /default.ida?NNNNNNNNNNNNNNNNNNNNNNNN%u9090";

fn module(max_infections: i64) -> Native<Worm, Merge> {
    let parameters = Parameters::default().with("signatures", b"").integer("max_infections", max_infections);
    Native::with_slow(&parameters.integer("max_pending", 64), 0)
}

#[test]
fn sources_and_targets_are_recorded_once_with_counts_and_times() {
    let mut native = module(100);
    let mut memory = Vec::new();
    let packets = [
        packet(&mut memory, 1, 1, 10, 0, CODE_RED),
        packet(&mut memory, 1, 2, 20, 0, CODE_RED),
        packet(&mut memory, 9, 2, 25, 0, b"GET / HTTP/1.0"),
        packet(&mut memory, 1, 1, 30, 500, CODE_RED),
        packet(&mut memory, 2, 1, 40, 0, &CODE_RED[..20]),
        packet(&mut memory, 2, 1, 41, 20, &CODE_RED[20..]),
    ];
    native.packets(&packets[..3], &memory);
    native.tick(100);
    native.packets(&packets[3..], &memory);
    native.end(200);
    let table = |n: u16| native.rows.iter().filter(|r| r.table == n).collect::<Vec<_>>();
    assert_eq!((table(0).len(), table(1).len(), table(2).len()), (3, 3, 2));
    // worm, src, dst, dport, packets, first, last: after a text of 12 bytes and two addresses.
    let infection = table(1)[0];
    assert_eq!(&infection.bytes[2..12], b"code-red-i");
    let numbers: Vec<u64> = [48, 56, 64].map(|at| infection.integer(at, 8)).into();
    assert_eq!((infection.integer(46, 2), numbers), (80, vec![2, 10, 30]));
    // worm, src, targets, packets.
    assert_eq!((table(2)[0].integer(29, 8), table(2)[0].integer(37, 8)), (2, 3));
    assert_eq!(table(3)[0].integer(0, 8), 6, "searched");
}

#[test]
fn first_waits_until_every_worker_has_told() {
    let mut native = module(100);
    let mut firsts = Vec::new();
    // One worker is a tick ahead of the other, which saw the same source and target before.
    let [src, dst] = [[10, 0, 0, 1], [10, 0, 1, 1]].map(flame_module::Ip::v4);
    for (ts_ns, now_ns) in [(25, 20), (22, 30), (35, 40)] {
        native.fast.found.add(0, src, dst, 80, ts_ns);
        native.tick(now_ns);
        firsts.push(native.rows.iter().filter(|r| r.table == 0).map(|r| r.integer(0, 8)).collect::<Vec<_>>());
    }
    assert_eq!(firsts, [vec![], vec![22], vec![22]]);
}

#[test]
fn padding_is_no_payload_and_breaks_no_match() {
    let mut native = module(100);
    let mut memory = Vec::new();
    // Total length 40: the rest is padding, which happens to be the beginning of the worm.
    let mut padded = |payload: &[u8], seq, total: u16| {
        let d = packet(&mut memory, 1, 1, 10, seq, payload);
        memory[d.addr as usize + 2..][..2].copy_from_slice(&total.to_be_bytes());
        d
    };
    let packets = [
        padded(CODE_RED, 900, 40),
        padded(&CODE_RED[..20], 0, 60),
        padded(b"GET /d", 20, 40),
        padded(&CODE_RED[20..], 20, 0),
    ];
    native.packets(&packets, &memory);
    native.end(20);
    let of = |n: u16| native.rows.iter().find(|r| r.table == n).unwrap();
    assert_eq!(of(1).integer(48, 8), 1, "the one that crosses");
    assert_eq!((of(3).integer(0, 8), of(3).integer(8, 8)), (2, 0), "searched, without payload");
}

#[test]
fn headers_alone_are_counted() {
    let mut native = module(100);
    let mut memory = Vec::new();
    let mut shown = packet(&mut memory, 1, 1, 10, 0, CODE_RED);
    memory[2..4].copy_from_slice(&(shown.cap_len as u16).to_be_bytes());
    shown.cap_len = 40;
    native.packets(&[shown], &memory);
    native.end(20);
    let counts: Vec<u64> = [0, 8].map(|at| native.rows[0].integer(at, 8)).into();
    assert_eq!((native.rows.len(), counts), (1, vec![0, 1]));
}

#[test]
fn a_packet_counts_once_for_a_worm() {
    let mut native = module(100);
    let mut memory = Vec::new();
    let twice = b"GET /MSADC/root.exe?/c+dir GET /scripts/root.exe?/c+dir /winnt/system32/cmd.exe?/c+dir";
    let packets = [packet(&mut memory, 1, 1, 10, 0, twice), packet(&mut memory, 1, 1, 11, 900, twice)];
    native.packets(&packets, &memory);
    native.end(20);
    let infection = native.rows.iter().find(|r| r.table == 1).unwrap();
    // After `nimda`, two addresses and a port.
    assert_eq!(infection.integer(43, 8), 2);
}

#[test]
fn a_scan_by_many_sources_stays_in_its_bounds_and_is_counted() {
    let mut native = module(100);
    let mut memory = Vec::new();
    let packets: Vec<_> =
        (0..2000u32).map(|i| packet(&mut memory, (i % 250) as u8, (i / 250) as u8, 1, 0, CODE_RED)).collect();
    native.packets(&packets, &memory);
    native.end(2);
    let state = native.rows.iter().find(|r| r.table == 3).unwrap();
    let infections = native.rows.iter().filter(|r| r.table == 1).count() as u64;
    assert_eq!((infections, infections + state.integer(16, 8)), (100, 2000));
    assert_eq!(native.lost, 0);
}

#[test]
fn every_shipped_signature_finds_its_worm_and_only_there() {
    let all = parse(include_str!("../worms.txt")).unwrap();
    let mut search = Search::new(&all, 16);
    for s in &all {
        let name = search.names.iter().position(|n| *n == s.name).unwrap() as u16;
        let payload = [&b"...."[..if s.offset.is_none() { 4 } else { 0 }], &s.pattern, b"rest"].concat();
        let mut found = |proto, dport, payload: &[u8]| {
            let mut worms = Vec::new();
            search.datagram(Place { proto, dport }, payload, &mut |worm| worms.push(worm));
            worms
        };
        let port = s.port.unwrap_or(4444);
        assert_eq!(found(s.proto, port, &payload), [name], "{}", s.name);
        assert_eq!(found(23 - s.proto, port, &payload), [0u16; 0], "{}: the other protocol", s.name);
        assert_eq!(found(s.proto, port, &payload[..payload.len() - 5]), [0u16; 0], "{}: cut", s.name);
        if s.port.is_some() {
            assert_eq!(found(s.proto, port + 1, &payload), [0u16; 0], "{}: another port", s.name);
        }
    }
}
