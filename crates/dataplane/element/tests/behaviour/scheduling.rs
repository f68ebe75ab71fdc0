//! Elements that choose what is pulled, and when.

use crate::running::{refused, run, start};
use flame_element::Work;

#[test]
fn an_input_without_packets_loses_its_turns() {
    // Input 1 has packets after ten of input 0; the turns that it missed are not made up for.
    let text = "a :: InfiniteSource(LIMIT 100, \\<aa>) -> qa :: Queue; b :: InfiniteSource(ACTIVE false, LIMIT 100, \\<bb>) -> qb :: Queue;
        qa -> s :: StrideSched(1, 1) -> u :: Unqueue(LIMIT 10) -> Print(x) -> Discard; qb -> [1] s;
        Script(wait 1s, write b.active true, wait 1s, write u.limit 16)";
    let order: String = run(text).text().lines().map(|l| if l.contains("aa") { 'a' } else { 'b' }).collect();
    let (first, then) = order.split_at(10);
    assert_eq!(first, "aaaaaaaaaa");
    assert!(then == "ababab" || then == "bababa", "{then}");
}

#[test]
fn marking_a_header_sets_no_annotation() {
    let shown = |element: &str| {
        run(&format!("InfiniteSource(\\<4500001400000000400066e70100000102000002>, LIMIT 1) -> {element} -> Print(PRINTANNO true, CONTENTS NONE) -> Discard")).text()
    };
    assert!(shown("MarkIPHeader(0)").contains("| 00000000 "), "{}", shown("MarkIPHeader(0)"));
    assert!(
        shown("CheckIPHeader(CHECKSUM false)").contains("| 02000002 "),
        "{}",
        shown("CheckIPHeader(CHECKSUM false)")
    );
}

#[test]
fn a_shaper_sleeps_without_packets_and_keeps_its_rate() {
    for shaper in ["Shaper(1000)", "BandwidthShaper(64000Bps)"] {
        // Behind an empty queue nothing asks.
        let idle = start(&format!("Idle -> Queue -> {shaper} -> Unqueue -> Discard"));
        for _ in 0..5 {
            idle.router.step();
        }
        assert_eq!(idle.router.step(), Work::None, "{shaper}");
    }
    // 64 bytes each, for ten seconds.
    for (shaper, wanted) in [
        ("Shaper(100)", 1000),
        ("Shaper(100000)", 1_000_000),
        ("Shaper(3)", 30),
        ("BandwidthShaper(6400Bps)", 1000),
    ] {
        let text = format!(
            "InfiniteSource(LENGTH 64) -> Queue -> {shaper} -> Unqueue(BURST 64) -> c :: Counter -> Discard; Script(wait 10s, stop)"
        );
        let count: i64 = run(&text).read("c.count").parse().unwrap();
        assert!((count - wanted).abs() <= wanted / 100 + 2, "{shaper}: {count}");
    }
    // A clock that comes late at each timer does not slow it.
    let late =
        start("InfiniteSource -> Queue -> Shaper(100000) -> Unqueue(BURST 64) -> c :: Counter -> Discard");
    let clock = &late.router.clock;
    let begin = clock.now();
    while clock.now() < begin + flame_click::Nanos(1_000_000_000) {
        while late.router.step() == Work::Done && late.router.next_event().is_none_or(|t| t <= clock.now()) {}
        clock.jump(clock.now() + flame_click::Nanos(1_000_000));
    }
    let count: i64 = late.read("c.count").parse().unwrap();
    assert!((90_000..=101_100).contains(&count), "{count}");
}

#[test]
fn a_shaper_that_is_reset_has_no_savings() {
    let text = |then: &str| {
        format!(
            "i :: InfiniteSource(LIMIT 100, ACTIVE false) -> Queue -> s :: Shaper(1000) -> Unqueue
                -> c :: Counter -> Discard;
             Script(wait 1s, {then}write i.active true, wait 20.5ms, print c.count)"
        )
    };
    assert_eq!(run(&text("")).text(), "30\n");
    assert_eq!(run(&text("write s.reset, ")).text(), "20\n");
}

#[test]
fn a_buffer_brings_packets_in_order_that_are_a_little_late() {
    let dump = |times: &str| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, format!("!data timestamp\n{times}").as_bytes()).unwrap();
        file
    };
    let (a, b) = (dump("3\n2\n1\n6\n5\n"), dump("4\n7\n"));
    let order = |args: &str| {
        let ended = run(&format!(
            "FromIPSummaryDump({}) -> t :: TimeSortedSched({args}) -> Unqueue
                -> Print(x, TIMESTAMP true, CONTENTS NONE) -> Discard; FromIPSummaryDump({}) -> [1] t;",
            a.path().display(),
            b.path().display()
        ));
        ended.adds_up();
        let text = ended.text();
        let order: String = text.lines().filter_map(|l| l.strip_prefix("x: ")?.chars().next()).collect();
        (order, ended.read("t.well_ordered"))
    };
    assert_eq!(order(""), ("3214657".into(), "false".into()));
    assert_eq!(order("BUFFER 2"), ("2134567".into(), "false".into()));
    assert_eq!(order("BUFFER 3"), ("1234567".into(), "true".into()));
    assert_eq!(order("BUFFER 65536"), ("1234567".into(), "true".into()));
    for bad in ["0", "65537"] {
        assert!(refused(&format!("Idle -> TimeSortedSched(BUFFER {bad}) -> Discard")).contains("BUFFER"));
    }
}

#[test]
fn a_delay_begins_when_a_packet_without_a_time_comes() {
    for element in ["DelayUnqueue(0.5)", "DelayShaper(0.5) -> Unqueue"] {
        // The second packet has a time, which is long ago.
        let ended = run(&format!(
            "InfiniteSource(LIMIT 2) -> s :: RoundRobinSwitch -> SetTimestamp(0.2) -> q :: Queue
                -> {element} -> c :: Counter -> Discard; s [1] -> SetTimestamp(7) -> q;
             Script(wait 0.4, print c.count, wait 0.2, print c.count)"
        ));
        assert_eq!(ended.text(), "0\n2\n", "{element}");
        ended.adds_up();
    }
}

#[test]
fn red_stands_before_any_queue() {
    for queue in ["Queue", "SimpleQueue", "NotifierQueue", "FrontDropQueue", "MixedQueue"] {
        let text =
            format!("InfiniteSource(LIMIT 500) -> r :: RED(1, 3, 1) -> Null -> q :: {queue}(9) -> Idle;");
        let ended = run(&text);
        assert!(ended.read("r.drops").parse::<u32>().unwrap() > 0, "{queue}");
    }
    assert!(refused("Idle -> RED(1, 3, 1) -> Discard").contains("expected a queue"));
    let pulled =
        run("InfiniteSource(LIMIT 500) -> SimpleQueue(9) -> r :: RED(1, 3, 1) -> Unqueue -> d :: Discard;");
    pulled.adds_up();
}

#[test]
fn each_output_gives_what_its_input_gives() {
    let text = "InfiniteSource(\\<aa>, LIMIT 2) -> Queue -> a :: AggregateCounter -> Unqueue -> Print(x) -> c :: Counter -> Discard;
        InfiniteSource(\\<bb>, LIMIT 3) -> Queue -> [1] a [1] -> Unqueue -> Print(y) -> Discard;";
    let ended = run(text);
    let count = |what: &str| ended.text().lines().filter(|l| l.contains(what)).count();
    assert_eq!((count("x:    1 | aa"), count("y:    1 | bb")), (2, 3), "{}", ended.text());
}

#[test]
fn requirements_have_a_place() {
    assert_eq!(refused("Idle -> Discard;\nrequire(nothing)"), "f:2: requirement 'nothing' is not available");
}
