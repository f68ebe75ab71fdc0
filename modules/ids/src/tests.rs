mod bad;
mod expressions;
mod fragments;
mod suricata;
mod words;
mod work;

use super::*;
use crate::engine::{Engine, Limits};
use crate::rule::parse;
use flame_abi::{BatchHeader, manifest::Manifest};
use flame_module::testing::{Native, Parameters};
use flame_module::{Descriptor, flags};
use proptest::prelude::*;

/// A TCP segment from 10.0.0.`src`:`sport` to 10.0.1.`dst`:`dport`.
#[derive(Clone)]
struct Segment<'a> {
    ends: (u8, u16, u8, u16),
    tcp_flags: u8,
    ts_ns: u64,
    payload: &'a [u8],
}

const PUSH: u8 = 0x18;

fn to(dport: u16, payload: &[u8]) -> Segment<'_> {
    Segment { ends: (1, 1024, 1, dport), tcp_flags: PUSH, ts_ns: 0, payload }
}

impl Segment<'_> {
    fn put(&self, memory: &mut Vec<u8>) -> Descriptor {
        let (src, sport, dst, dport) = self.ends;
        let (addr, total) = (memory.len() as u32, 40 + self.payload.len() as u16);
        memory.extend([0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        memory.extend([10, 0, 0, src, 10, 0, 1, dst]);
        memory.extend([sport.to_be_bytes(), dport.to_be_bytes()].concat());
        memory.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, self.tcp_flags, 0, 0, 0, 0, 0, 0]);
        memory.extend(self.payload);
        let cap_len = memory.len() as u32 - addr;
        Descriptor {
            ts_ns: self.ts_ns,
            addr,
            cap_len,
            wire_len: cap_len,
            l4: 20,
            l4_len: 20,
            proto: 6,
            flags: flags::IPV4 | flags::TRANSPORT,
            tcp_flags: self.tcp_flags,
            ..Descriptor::default()
        }
    }
}

fn engine(rules: &str) -> Engine {
    of(Source { rules, ..Source::default() })
}

fn of(source: Source<'_>) -> Engine {
    Engine::new(rule::load(&source), Limits { connections: 64, tracked: 64 })
}

fn in_snort(rules: &str) -> Engine {
    of(Source { rules, dialect: Dialect::Snort, ..Source::default() })
}

/// Returns the sids that alert on each segment.
fn run(engine: &mut Engine, segments: &[Segment<'_>]) -> Vec<Vec<u32>> {
    let mut memory = Vec::new();
    let descriptors: Vec<_> = segments.iter().map(|s| s.put(&mut memory)).collect();
    let batch = Batch::new(&descriptors, &memory, 0, &BatchHeader::default());
    let of = |packet| {
        let mut sids = Vec::new();
        engine.packet(&Facts::of(&packet, engine.set.dialect).unwrap(), |rule, _| sids.push(rule.sid));
        sids
    };
    batch.packets().map(of).collect()
}

/// Returns whether a rule with these options alerts on a payload.
fn alerts(options: &str, payload: &[u8]) -> bool {
    let mut engine = engine(&format!("alert tcp any any -> any any ({options} sid:1;)"));
    assert!(engine.set.unsupported.is_empty(), "{:?}", engine.set.unsupported);
    !run(&mut engine, &[to(80, payload)])[0].is_empty()
}

#[test]
fn manifest_and_shipped_rules_are_good() {
    Manifest::parse(include_bytes!("../module.toml")).unwrap();
    let set = parse(SHIPPED);
    assert!(set.unsupported.is_empty(), "{:?}", set.unsupported);
    let engine = Engine::new(set, Limits { connections: 64, tracked: 64 });
    assert!(engine.rules() >= 60 && engine.set.unsupported.is_empty(), "{:?}", engine.set.unsupported);
}

#[test]
fn contents_lie_where_they_must() {
    for (options, payload, expected) in [
        (r#"content:"abc";"#, "..abc", true),
        (r#"content:"abc";"#, "..ABC", false),
        (r#"content:"abc"; nocase;"#, "..aBC", true),
        (r#"content:"abc"; depth:4;"#, ".abc", true),
        (r#"content:"abc"; depth:4;"#, "..abc", false),
        (r#"content:"abc"; offset:2; depth:3;"#, "..abc", true),
        (r#"content:"abc"; offset:3;"#, "..abc", false),
        (r#"content:"a"; content:"b"; distance:2; within:2;"#, "a..b", true),
        (r#"content:"a"; content:"b"; distance:2; within:2;"#, "a....b", false),
        (r#"content:"a"; content:"b"; distance:0; within:1;"#, "a.ab", true),
        (r#"content:"b"; content:"a"; distance:-2; within:1;"#, "ab", true),
        (r#"content:!"x";"#, "abc", true),
        (r#"content:!"x";"#, "axc", false),
        (r#"content:"a"; content:!"b"; within:2;"#, "a..b", true),
        (r#"content:"a"; content:!"b"; within:2;"#, "a.b", false),
        (r#"content:"|61 62|c\;\"";"#, "abc;\"", true),
        (r#"content:"GET"; fast_pattern; content:"host"; nocase; distance:0;"#, "GET / HOST", true),
        (r#"pcre:"/^a[0-9]+b$/";"#, "a123b", true),
        (r#"pcre:"/^a[0-9]+b$/";"#, "a123bx", false),
        (r#"pcre:!"/x/i";"#, "abc", true),
        (r#"content:"a"; pcre:"/^\d/R";"#, "a.a1", true),
        (r#"content:"a"; pcre:"/^\d/R";"#, "1a.a.", false),
        (r#"pcre:"/a./"; content:"c"; distance:0; within:1;"#, "ab.acc", true),
        (r#"isdataat:4;"#, "12345", true),
        (r#"isdataat:5;"#, "12345", false),
        (r#"content:"a"; isdataat:!1,relative;"#, "..ab", false),
        (r#"content:"b"; isdataat:!1,relative;"#, "..ab", true),
        (r#"content:"a"; isdataat:1,relative;"#, "..ab", true),
        (r#"dsize:3<>5;"#, "abc", false),
        (r#"dsize:2<>5;"#, "abc", true),
        (r#"dsize:>3;"#, "abc", false),
        (r#"ttl:64; ip_proto:6; window:0; ack:2; fragbits:D;"#, "", true),
        (r#"flags:PA;"#, "", true),
        (r#"flags:P;"#, "", false),
        (r#"flags:P+;"#, "", true),
        (r#"flags:!S;"#, "", true),
    ] {
        assert_eq!(alerts(options, payload.as_bytes()), expected, "{options} on {payload:?}");
    }
}

#[test]
fn headers_are_compared_in_their_direction() {
    let rules = "
        ipvar HOME [10.0.0.0/24,!10.0.0.9]\nportvar WEB [80,8000:8010]
        alert tcp $HOME any -> !$HOME $WEB (sid:1;)
        alert tcp any 80 -> any any (sid:2;)
        alert tcp any 80 <> any 1024 (sid:3;)
        alert udp any any -> any any (sid:4;)
        alert ip 10.0.0.1-10.0.0.5 any -> any any (sid:5;)";
    let mut engine = engine(rules);
    let segment = |ends| Segment { ends, ..to(0, b"") };
    let ends = [(1, 1024, 1, 80), (9, 1024, 1, 80), (1, 80, 1, 1024), (1, 1, 1, 8005), (7, 1, 1, 22)];
    let found = run(&mut engine, &ends.map(segment));
    assert_eq!(found, [vec![1, 3, 5], vec![3], vec![2, 3, 5], vec![1, 5], vec![]]);
}

#[test]
fn connections_have_sides_from_their_syn_on() {
    let rules = "
        alert tcp any any -> any any (flow:established,to_server; sid:1;)
        alert tcp any any -> any any (flow:to_client; sid:2;)
        alert tcp any any -> any any (flow:not_established; sid:3;)";
    // A change of state applies from the next packet on; Suricata waits for the client's ACK.
    connection(&mut engine(rules), [vec![3], vec![2, 3], vec![3], vec![2], vec![1], vec![1]]);
    connection(&mut in_snort(rules), [vec![3], vec![2, 3], vec![1], vec![2], vec![1], vec![3]]);
}

fn connection(engine: &mut Engine, expected: [Vec<u32>; 6]) {
    let (there, back) = ((1, 1024, 1, 80), (2, 80, 1, 1024));
    // The networks differ, so the reverse direction needs its own addresses: they are swapped by hand below.
    let mut memory = Vec::new();
    let steps = [(there, 0x02), (back, 0x12), (there, PUSH), (back, PUSH), (there, 0x04), (there, PUSH)];
    let mut descriptors = Vec::new();
    for (ends, tcp_flags) in steps {
        let d = Segment { ends, tcp_flags, ..to(0, b"") }.put(&mut memory);
        if ends == back {
            let at = d.addr as usize;
            memory[at + 12..at + 20].copy_from_slice(&[10, 0, 1, 1, 10, 0, 0, 1]);
        }
        descriptors.push(d);
    }
    let batch = Batch::new(&descriptors, &memory, 0, &BatchHeader::default());
    let mut found = Vec::new();
    for packet in batch.packets() {
        let mut sids = Vec::new();
        engine.packet(&Facts::of(&packet, engine.set.dialect).unwrap(), |rule, _| sids.push(rule.sid));
        found.push(sids);
    }
    assert_eq!(found, expected);
}

#[test]
fn rates_count_in_periods_of_packet_time() {
    let of = |rate: &str| {
        let mut engine = engine(&format!("alert tcp any any -> any any (flow:stateless; {rate} sid:1;)"));
        // Six packets within ten seconds, one after.
        let at = [0u64, 1, 2, 3, 4, 9, 11];
        let found = run(&mut engine, &at.map(|s| Segment { ts_ns: s * 1_000_000_000, ..to(80, b"") }));
        let bits: String = found.iter().map(|sids| if sids.is_empty() { '.' } else { '!' }).collect();
        assert_eq!(engine.counts.alerts + engine.counts.held_back, 7);
        bits
    };
    assert_eq!(of("threshold:type limit, track by_src, count 2, seconds 10;"), "!!....!");
    assert_eq!(of("threshold:type threshold, track by_src, count 3, seconds 10;"), "..!..!.");
    assert_eq!(of("threshold:type both, track by_dst, count 3, seconds 10;"), "..!....");
    assert_eq!(of("detection_filter:track by_src, count 4, seconds 10;"), "....!!.");
}

#[test]
fn tables_stay_as_large_as_they_are_and_count_what_they_drop() {
    let mut engine = engine("alert tcp any any -> any any (flow:established; threshold:type limit, track by_src, count 1, seconds 9; sid:1;)
        alert tcp any any -> any any (threshold:type limit, track by_src, count 1, seconds 9; sid:2;)");
    let scan: Vec<_> =
        (0..1000u16).map(|i| Segment { ends: (i as u8, i, 1, 80), tcp_flags: 2, ..to(80, b"") }).collect();
    run(&mut engine, &scan);
    let (connections, rates) = engine.evicted();
    assert_eq!(connections, 1000 - 64);
    assert!(rates >= 256 - 64, "{rates}");
}

#[test]
fn work_on_one_packet_has_an_end() {
    let mut engine = engine(
        r#"alert tcp any any -> any any (content:"a"; content:"a"; distance:0; content:"a"; distance:0; content:"a"; distance:0; content:"b"; distance:0; sid:1;)
        alert tcp any any -> any any (content:"a"; sid:2;)"#,
    );
    let payload = [b'a'; 20_000];
    assert_eq!(
        run(&mut engine, &[to(80, &payload)]),
        [Vec::<u32>::new()],
        "the rules after it are given up too"
    );
    assert_eq!(engine.counts.given_up, 1);
    assert_eq!(run(&mut engine, &[to(80, b"a")]), [[2]]);
}

#[test]
fn rows_are_as_the_manifest_has_them() {
    let rules = b"alert tcp any any -> any any (msg:\"hello\"; content:\"x\"; classtype:trojan-activity; metadata:created_at 2020_01_01; sid:9; rev:3;)
        drop ip any any -> any any (sid:8;)";
    let parameters = Parameters::of(tables::Params::DEFAULTS).with("rules", rules);
    let mut native = Native::<Ids>::new(&parameters.integer("payload", 1), 0);
    let mut memory = Vec::new();
    let packets = [to(80, b"xx").put(&mut memory), to(80, b"y").put(&mut memory)];
    native.packets(&packets, &memory);
    native.end(0);
    let numbers: Vec<u16> = native.rows.iter().map(|r| r.table).collect();
    assert_eq!(numbers, [2, 0, 3, 1], "the state precedes the list");
    let alert: tables::Alert = native.of()[0];
    assert_eq!((alert.gid, alert.sid, alert.rev, alert.msg), (1, 9, 3, "hello"));
    assert_eq!((alert.packet, alert.payload, alert.metadata), (1, "eHg=", "created_at 2020_01_01"));
    let notice: tables::Notice = native.of()[0];
    assert_eq!(notice.text, "1 of 2 rules run; by reason: 1 action drop");
    let state: tables::State = native.of()[0];
    assert_eq!((state.rules, state.unsupported, state.packets, state.alerts), (1, 1, 2, 1));
}

/// Contents of a chain: bytes, negated, relative, start, length.
type Chain = Vec<(String, bool, bool, i32, Option<u32>)>;

fn chain() -> impl Strategy<Value = Chain> {
    let one = ("[abAB]{1,4}", any::<bool>(), any::<bool>(), -2i32..5, prop::option::of(0u32..6));
    prop::collection::vec(one, 1..5)
}

/// Tries every position, without automaton, gate or order.
fn naively(
    chain: &[(String, bool, bool, i32, Option<u32>)],
    nocase: bool,
    payload: &[u8],
    cursor: i32,
) -> bool {
    let Some(((bytes, not, relative, start, len), rest)) = chain.split_first() else { return true };
    let base = if *relative { cursor } else { 0 } + start;
    let n = bytes.len() as i32;
    let end = len.map_or(payload.len() as i32, |l| base + n + l as i32).min(payload.len() as i32);
    let found: Vec<i32> = (base.max(0)..=end - n)
        .filter(|at| {
            let here = &payload[*at as usize..(*at + n) as usize];
            if nocase { here.eq_ignore_ascii_case(bytes.as_bytes()) } else { here == bytes.as_bytes() }
        })
        .collect();
    match not {
        true => found.is_empty() && naively(rest, nocase, payload, cursor),
        false => found.iter().any(|at| naively(rest, nocase, payload, at + n)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn as_a_search_of_every_place_finds(
        chains in prop::collection::vec((chain(), any::<bool>()), 1..6),
        payload in "[abABc]{0,40}",
    ) {
        let mut rules = String::new();
        for (sid, (chain, nocase)) in chains.iter().enumerate() {
            rules += "alert tcp any any -> any any (";
            for (bytes, not, relative, start, len) in chain {
                let (from, within) = if *relative { ("distance", "within") } else { ("offset", "depth") };
                rules += &format!("content:{}\"{bytes}\"; {from}:{start};", if *not { "!" } else { "" });
                rules += if *nocase { "nocase;" } else { "" };
                if let Some(len) = len {
                    rules += &format!("{within}:{};", bytes.len() as u32 + len);
                }
            }
            rules += &format!("sid:{};)\n", sid + 1);
        }
        let found = run(&mut engine(&rules), &[to(80, payload.as_bytes())]);
        let fits = |(chain, nocase): &(Chain, bool)| naively(chain, *nocase, payload.as_bytes(), 0);
        // No rule looks for contents where there is no payload.
        let fits = |chain: &(Chain, bool)| !payload.is_empty() && fits(chain);
        let fitting = (1u32..).zip(&chains).filter(|(_, c)| fits(c));
        let expected: Vec<u32> = fitting.map(|(sid, _)| sid).collect();
        prop_assert_eq!(&found[0], &expected, "{}", rules);
    }

    #[test]
    fn any_text_is_read_or_refused_with_its_place(text in "\\PC{0,80}", options in "[a-z:;\"!|,0-9 ()\\\\]{0,60}") {
        for text in [text, format!("alert tcp any any -> any any ({options} sid:1;)")] {
            let set = parse(&text);
            let lines = text.lines().count().max(1);
            prop_assert!(set.unsupported.iter().all(|u| u.line as usize <= lines && !u.reason.is_empty()));
        }
    }
}
