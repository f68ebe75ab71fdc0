//! Random graphs of random elements under random traffic: nothing crashes, runs on, or loses count.

#[path = "common/account.rs"]
mod accounts;
mod common;

use flame_click::Graph;
use flame_element::threads::run::{Parts, run};
use flame_element::{CLASSES, Clock, Environment, Router};
use proptest::prelude::*;
use std::rc::Rc;

fn environment(seed: u64) -> Environment {
    Environment { seed, ..Environment::silent(None) }
}

fn graph(text: &str) -> Graph {
    (common::LANGUAGE.read)(text.as_bytes(), "f", &[]).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// Elements with one input and one output, pushed or agnostic, whose further outputs are unconnected.
const STAGES: &[&str] = &[
    "Null",
    "PushNull",
    "Paint(3)",
    "PaintTee(3)",
    "CheckPaint(3)",
    "Strip(3)",
    "Unstrip(20)",
    "Truncate(30)",
    "Pad(60)",
    "Resize(-2, 5)",
    "MarkIPHeader(0)",
    "CheckIPHeader",
    "CheckTCPHeader",
    "CheckUDPHeader",
    "CheckICMPHeader",
    "GetIPAddress(16)",
    "SetIPAddress(1.0.0.7)",
    "StoreIPAddress(src)",
    "FixIPSrc(9.9.9.9)",
    "DecIPTTL",
    "SetIPDSCP(9)",
    "MarkIPCE(FORCE true)",
    "SetIPChecksum",
    "SetTCPChecksum",
    "SetUDPChecksum",
    "IPGWOptions(1.0.0.1)",
    "IPFragmenter(60, HONOR_DF false)",
    "IPReassembler",
    "ICMPError(1.0.0.1, timeexceeded)",
    "ICMPPingResponder",
    "ARPResponder(1.0.0.0/8 1:2:3:4:5:6)",
    "ARPQuerier(1.0.0.9/24, 2:2:2:2:2:2, CAPACITY 3)",
    "EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2)",
    "HostEtherFilter(0:1:2:3:4:5)",
    "DropBroadcasts",
    "EtherMirror",
    "VLANEncap(5)",
    "VLANDecap",
    "UDPIPEncap(1.0.0.1, 5, 2.0.0.2, 53)",
    "IPEncap(tcp, 1.0.0.1, 2.0.0.2)",
    "ICMPPingEncap(1.0.0.1, 2.0.0.2)",
    "Classifier(0/45)",
    "IPClassifier(tcp or udp)",
    "IPFilter(allow src net 1.0.0.0/8, deny all)",
    "StaticIPLookup(1.0.0.0/8 0)",
    "RadixIPLookup(0.0.0.0/0 1.0.0.3 0)",
    "IPRewriter(pattern 7.0.0.1 1024-1030# - - 0 0)",
    "IPAddrRewriter(pattern 7.0.0.1-7.0.0.3# - 0 0)",
    "IPAddrRewriter(pattern 7.0.0.1/30 - 0 0)",
    "UDPRewriter(pattern 7.0.0.1 0-9 - - 0 0, MAPPING_CAPACITY 2, REPLY_ANNO PAINT)",
    "ICMPPingRewriter(pattern 7.0.0.1 - 0-3 0 0)",
    "{ input->IPRewriter(keep 0 0, MAPPING_CAPACITY s)->s::UDPRewriter(keep 0 0)->output; }",
    "Counter",
    "AverageCounter",
    "AggregateCounter",
    "Print",
    "IPPrint",
    "RandomSample(0.7)",
    "RatedSplitter(50)",
    "Switch(0)",
    "RoundRobinSwitch",
    "HashSwitch(0, 4)",
    "Tee",
    "Hub",
    "SetTimestamp",
    "TimeFilter(0)",
    "Bypass",
    "Loop(2)",
    "Poll(2)",
    "Queue(4) -> Unqueue",
    "FrontDropQueue(2) -> Unqueue(BURST 3)",
    "MixedQueue(3) -> RatedUnqueue(100)",
    "SimpleQueue(3) -> Unqueue",
    "Queue -> DelayShaper(0.01) -> Unqueue",
    "Queue(5) -> LinkUnqueue(1ms, 100kb/s)",
    "Queue(5) -> DelayUnqueue(1ms)",
    "Queue(5) -> Shaper(40) -> Unqueue",
    "Script(TYPE PACKET, return 0)",
    "Strip(6) -> Unstrip(9)",
    "Strip(4) -> ToDump(/dev/null)",
    "StripToNetworkHeader -> UnstripIPHeader",
    "IPReassembler(HIMEM 9000)",
    "ARPQuerier(1.0.0.9, 2:2:2:2:2:2, ENTRY_CAPACITY 1, CAPACITY 2)",
    "IPRewriter(keep 0 0, MAPPING_CAPACITY 2, GUARANTEE 0)",
    "Queue(4) -> TimeSortedSched -> Unqueue",
    "Queue(4) -> TimeSortedSched(BUFFER 3) -> Unqueue",
    "{ input->q::ARPQuerier(1.0.0.9, 2:2:2:2:2:2, ENTRY_PACKET_CAPACITY 1, POLL_TIMEOUT 1us)->output; q[1]->ARPResponder(0/0 1:2:3:4:5:6)->[1]q; }",
    "Queue(4) -> StrideSched(2) -> Unqueue",
    "Queue(4) -> BandwidthShaper(9kBps) -> Unqueue",
    "RED(1, 3, 0.5) -> SimpleQueue(3) -> Unqueue",
    "ICMPPingRewriter(pattern 7.0.0.1 1024-1026# - - 0 0)",
    "{ input->r::IPRewriter(keep 0 0)->ICMPError(9.9.9.9, timeexceeded)->i::ICMPRewriter(r)->output; i[1]->output; }",
    "{ t::ARPTable; input->ARPQuerier(1.0.0.9, 2:2:2:2:2:2, TABLE t, CAPACITY 3)->output; }",
];

prop_compose! {
    fn configurations()(
        sources in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..80), 1..9_u32, 0..3_u8, any::<bool>()), 1..4),
        stages in prop::collection::vec(0..STAGES.len(), 1..14),
        taps in prop::collection::vec((0..14_usize, 0..14_usize), 0..4),
    ) -> String {
        let mut text = String::new();
        for (i, stage) in stages.iter().enumerate() {
            // The first of a sequence has the name that connections go to.
            let (first, rest) = STAGES[*stage].split_once(" -> ").unwrap_or((STAGES[*stage], "Null"));
            text.push_str(&format!("s{i} :: {first} -> {rest} -> t{i} :: Tee;\n"));
        }
        for i in 0..stages.len() {
            match i + 1 < stages.len() {
                true => text.push_str(&format!("t{i} [0] -> s{};\n", i + 1)),
                false => text.push_str(&format!("t{i} [0] -> Discard;\n")),
            }
        }
        // Further ways; those that lead back pass a bound.
        for (n, (from, to)) in taps.iter().enumerate() {
            let (from, to) = (from % stages.len(), to % stages.len());
            let port = taps[..n].iter().filter(|(f, _)| f % stages.len() == from).count() + 1;
            text.push_str(&format!("t{from} [{port}] -> Loop(2) -> Poll -> s{to};\n"));
        }
        for (i, (bytes, limit, kind, ip)) in sources.iter().enumerate() {
            let mut bytes = bytes.clone();
            if *ip && !bytes.is_empty() {
                bytes[0] = 0x45;
            }
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            let source = match kind {
                0 => format!("InfiniteSource(\\<{hex}>, LIMIT {limit}, BURST 3)"),
                1 => format!("RatedSource(\\<{hex}>, 100, LIMIT {limit})"),
                _ => format!("TimedSource(0.01, \\<{hex}>, LIMIT {limit})"),
            };
            text.push_str(&format!("{source} -> MarkIPHeader(0) -> s{};\n", i % stages.len()));
        }
        text
    }
}

fn check(text: &str, seed: u64) {
    let router = Router::new(graph(text), text, environment(seed)).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let begin = router.clock.now();
    run_to(&router, begin, 15);
    assert_adds_up(&router, text);
    // All elements are replaced by themselves, then the router by itself.
    for i in 0..router.nodes_count() {
        let name = &router.nodes[i].name;
        let config = router.read(None, &format!("{name}.config"), "").unwrap();
        let _ = router.write(None, &format!("{name}.config"), &config);
    }
    assert_adds_up(&router, text);
    run_to(&router, begin, 30);
    assert_adds_up(&router, text);
    let made: u64 = (0..router.nodes_count()).map(|i| router.account(i).made).sum();
    assert!(made > 0, "no traffic\n{text}");
    let mut env = environment(seed);
    env.clock = router.clock.clone();
    let new = Router::new(graph(text), text, env).unwrap();
    new.take_state(&router);
    assert_adds_up(&router, text);
    run_to(&new, begin, 60);
    assert_adds_up(&new, text);
}

/// Runs to `seconds` after the beginning, or for a while if there is always work.
fn run_to(router: &Router, begin: flame_click::Nanos, seconds: i64) {
    let end = begin + flame_click::Nanos(seconds * 1_000_000_000);
    for _ in 0..10_000 {
        let work = router.step();
        if work != flame_element::Work::Done {
            match router.next_event().filter(|t| *t <= end) {
                Some(time) => router.clock.jump(time),
                None => break,
            };
        }
    }
}

fn assert_adds_up(router: &Router, text: &str) {
    for i in 0..router.nodes_count() {
        let account = router.account(i);
        assert!(account.adds_up(), "{}: {account:?}\n{text}", router.declaration(i));
    }
}

/// Returns the number of graphs to try: `FLAME_GRAPHS`, or 400.
fn cases() -> ProptestConfig {
    let cases = std::env::var("FLAME_GRAPHS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]
    #[test]
    fn accounts_of_random_graphs_add_up((text, seed) in (configurations(), any::<u64>())) {
        check(&text, seed);
    }
}

/// Runs a configuration for a moment in three threads, to which its stages are bound.
fn check_in_threads(text: &str, threads: &[usize], seed: u64) {
    let stages = (0..).take_while(|i| text.contains(&format!("s{i} :: "))).zip(threads);
    let bound: Vec<String> = stages.map(|(i, thread)| format!("t{i} {thread}")).collect();
    let text = format!("{text}StaticThreadSched({});\nDriverManager(wait 15ms, stop);\n", bound.join(", "));
    let environment = || Environment { clock: Rc::new(Clock::real()), ..environment(seed) };
    let graph = graph(&text);
    let parts = Parts { graph: &graph, text: &text, threads: 3, environment: &environment };
    run(&parts, |_, run| {
        accounts::adds_up(&*run()?);
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{text}\n{e}"));
}

/// Runs configurations after each other, each of which a script of some thread replaces by the next.
fn check_swaps(texts: &[String], threads: usize, places: &[usize], seed: u64) {
    let last = texts.len() - 1;
    let texts: Vec<String> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| {
            // Elements of the same name have other threads in each configuration.
            let place = |i: usize| places[(n * 5 + i) % places.len()] % threads;
            let stages = (0..).take_while(|i| text.contains(&format!("s{i} :: ")));
            let bound: String = stages.map(|i| format!("t{i} {}, ", place(i))).collect();
            let end = match n == last {
                true => "DriverManager(wait 6ms, stop)".to_owned(),
                false => format!("Script(wait {}ms, write hotconfig {})", n % 4, n + 1),
            };
            format!(
                "{text}end :: {end};\nStaticThreadSched({bound} end {});\n",
                if n == last { 0 } else { place(9) }
            )
        })
        .collect();
    let environment = || {
        let all = texts.clone();
        let parse = move |number: &str| Ok(graph(&all[number.parse::<usize>().unwrap()]));
        let clock = Rc::new(Clock::real());
        Environment { clock, parse: Some(Rc::new(Box::new(parse))), ..environment(seed) }
    };
    let first = graph(&texts[0]);
    let parts = Parts { graph: &first, text: &texts[0], threads, environment: &environment };
    run(&parts, |router, run| {
        drop(router);
        let router = run()?;
        accounts::adds_up(&router);
        assert_eq!(router.read(None, "end.class", "").as_deref(), Ok("DriverManager"));
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{texts:?}\n{e}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases().cases / 4, ..ProptestConfig::default() })]
    #[test]
    fn accounts_of_random_graphs_that_replace_each_other_add_up(
        (texts, swaps, threads, places, seed) in (
            prop::collection::vec(configurations(), 1..4),
            prop::collection::vec(0..3_usize, 1..6),
            2..7_usize,
            prop::collection::vec(0..6_usize, 16),
            any::<u64>(),
        )
    ) {
        let texts: Vec<String> = swaps.iter().map(|n| texts[n % texts.len()].clone()).collect();
        check_swaps(&texts, threads, &places, seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases().cases / 4, ..ProptestConfig::default() })]
    #[test]
    fn accounts_of_random_graphs_in_threads_add_up(
        (text, threads, seed) in (configurations(), prop::collection::vec(0..3_usize, 14), any::<u64>())
    ) {
        check_in_threads(&text, &threads, seed);
    }
}

#[test]
fn a_cycle_without_a_bound_does_not_overflow_the_stack() {
    let text = "InfiniteSource(LIMIT 1) -> a :: Null -> b :: Null -> a;";
    let router = Router::new(graph(text), text, environment(0)).unwrap();
    for _ in 0..50 {
        router.step();
    }
    // The packet is still on its way, in the router's hands.
    let a = router.account(router.graph.find("a").unwrap());
    assert!(a.taken > 10_000, "{a:?}");
}

#[test]
fn pull_cycles_are_refused() {
    let text = "a :: PullNull -> b :: PullNull -> a;";
    let error = Router::new(graph(text), text, environment(0)).err().unwrap();
    assert_eq!(error, "f:1: 'b :: PullNull' pulls from itself without a queue between");
}

#[test]
fn port_errors_are_clicks() {
    for (text, wanted) in [
        ("InfiniteSource -> Discard -> Discard;", "has no output 0"),
        ("Queue -> Queue -> Discard; Idle -> Queue;", "pull output 0 connected to"),
        (
            "Idle -> q :: Queue -> n :: Null -> p :: PushNull -> Discard;",
            "agnostic 'n :: Null' in mixed context",
        ),
        ("Idle -> Paint(300) -> Discard", "COLOR: expected an integer (u8), found '300'"),
        ("Idle -> Strip -> Discard", "LENGTH: required argument missing"),
        ("require(nothing)", "requirement 'nothing' is not available"),
    ] {
        let error = Router::new(graph(text), text, environment(0)).err().unwrap_or_default();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn every_class_refuses_or_accepts_odd_arguments_without_a_panic() {
    for class in CLASSES {
        for config in [
            "",
            "x",
            "1",
            "-1, -1",
            "\\<00ff>, 1, 2, 3",
            "1.0.0.1, 2:2:2:2:2:2, 9, 9",
            "99999999999999999999",
        ] {
            let text = format!("e :: {}({config});", class.name);
            let _ = Router::check(&graph(&text), None);
        }
    }
}
