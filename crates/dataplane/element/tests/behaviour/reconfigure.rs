//! Elements and routers that are replaced while they run.

use crate::running::{environment, graph, run, start};
use flame_element::Router;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../demo");

/// Runs to a time of the simulated clock, in seconds after the start.
pub(crate) fn run_to(router: &Router, start: flame_click::Nanos, seconds: f64) {
    let end = start + flame_click::Nanos::from_secs(seconds);
    for _ in 0..100_000 {
        if router.step() != flame_element::Work::Done {
            match router.next_event().filter(|t| *t <= end) {
                Some(time) => router.clock.jump(time),
                None => break,
            };
        }
    }
    router.clock.jump(end);
}

/// Elements that hold packets, with the seconds at which they are replaced.
const HOLDERS: &[(&str, &str, f64)] = &[
    ("Queue -> h :: LinkUnqueue(1s, 100kBps)", "1s, 100kBps", 0.5),
    ("Queue -> h :: DelayUnqueue(1s)", "2s", 0.5),
    ("Queue -> h :: DelayShaper(1s) -> Unqueue", "1s", 0.5),
    ("Queue -> h :: TimeSortedSched -> Unqueue(LIMIT 2)", "", 0.5),
    ("Queue -> h :: TimeSortedSched(BUFFER 3) -> Unqueue(LIMIT 1)", "BUFFER 1", 0.5),
    ("h :: IPReassembler", "HIMEM 99999", 0.5),
    ("h :: IPReassembler", "HIMEM 1", 0.5),
    ("h :: ARPQuerier(9.9.9.9, 1:1:1:1:1:1)", "9.9.9.9, 1:1:1:1:1:1, CAPACITY 1", 0.5),
    ("h :: Queue -> RatedUnqueue(2)", "1", 0.5),
    ("h :: Poll", "2", 0.0),
    ("h :: MixedQueue -> RatedUnqueue(2)", "2", 0.5),
];

/// A source of three fragments of different datagrams to one address, each with its destination annotation.
fn text(holder: &str) -> String {
    format!(
        "InfiniteSource(\\<4500001c0001200040110000010000010200000200010002000c0000>, LIMIT 3, BURST 3)
            -> StoreIPAddress(2.0.0.2, dst) -> MarkIPHeader(0) -> GetIPAddress(16) -> {holder} -> d :: Discard;"
    )
}

#[test]
fn packets_of_replaced_elements_are_moved_or_counted() {
    for (holder, config, time) in HOLDERS {
        let run = start(&text(holder));
        let begin = run.router.clock.now();
        run_to(&run.router, begin, *time);
        run.router.write(None, "h.config", config).unwrap_or_else(|e| panic!("{holder}: {e}"));
        run.adds_up();
        run_to(&run.router, begin, 0.6);
        run.adds_up();
        run_to(&run.router, begin, 100.0);
        run.adds_up();
    }
    let moved = run("InfiniteSource(LIMIT 1) -> Queue -> l :: LinkUnqueue(1s, 100kBps) -> d :: Discard;
        Script(wait 0.1s, writeq l.config \"1s, 100kBps\")");
    assert_eq!(moved.read("d.count"), "1");
}

#[test]
fn packets_of_replaced_routers_are_moved_or_counted() {
    for (holder, config, time) in HOLDERS {
        let old = start(&text(holder));
        let begin = old.router.clock.now();
        run_to(&old.router, begin, *time);
        let declared = holder.split("h :: ").nth(1).unwrap().split([' ', '(']).next().unwrap();
        let rest = holder.split("h :: ").nth(1).unwrap();
        let rest = rest.split_once(" -> ").map_or(String::new(), |(_, r)| format!(" -> {r}"));
        let front = holder.split("h :: ").next().unwrap();
        let new_text = text(&format!("{front}h :: {declared}({config}){rest}")).replace("LIMIT 3", "LIMIT 0");
        let mut env = environment(old.err.clone());
        env.clock = old.router.clock.clone();
        let new = Router::new(graph(&new_text), &new_text, env).unwrap_or_else(|e| panic!("{new_text}\n{e}"));
        new.take_state(&old.router);
        old.adds_up();
        for seconds in [0.6, 100.0] {
            for i in 0..new.nodes_count() {
                assert!(new.account(i).adds_up(), "{holder}: {} {:?}", new.declaration(i), new.account(i));
            }
            run_to(&new, begin, seconds);
        }
    }
}

#[test]
fn packets_between_elements_go_on_in_the_new_router() {
    let text = format!(
        "InfiniteSource(LIMIT 1) -> a :: Null {}-> b :: Null -> d :: Discard;",
        "-> Null ".repeat(300)
    );
    let swapped = |new_text: &str| {
        let old = start(&text);
        // The first step ends in the middle of the path.
        old.router.step();
        assert_eq!(old.read("d.count"), "0");
        let mut env = environment(old.err.clone());
        env.clock = old.router.clock.clone();
        let new = Router::new(graph(new_text), new_text, env).unwrap();
        new.take_state(&old.router);
        old.adds_up();
        new.run();
        new.read(None, "d.count", "").unwrap()
    };
    assert_eq!(swapped(&text.replace("LIMIT 1", "LIMIT 0")), "1");
    assert_eq!(swapped("InfiniteSource(LIMIT 0) -> d :: Discard"), "0");
}

#[test]
fn an_element_that_is_replaced_while_it_works_loses_nothing() {
    // The link pushes a packet, which replaces the link, which then continues to pull.
    let run = run("InfiniteSource(LIMIT 4, BURST 4) -> Queue -> l :: DelayUnqueue(0.1) -> c :: Counter(COUNT_CALL 1 l.config 0.1)
        -> d :: Discard;");
    run.adds_up();
    assert_eq!(run.read("d.count"), "4", "{:?}", run.account("l"));
}

#[test]
fn listeners_do_not_multiply() {
    let run = start("InfiniteSource(LIMIT 1) -> q :: Queue -> u :: Unqueue -> Discard;");
    for _ in 0..50 {
        run.router.write(None, "u.config", "2").unwrap();
    }
    let queue = run.router.graph.find("q").unwrap();
    assert_eq!(run.router.nodes[queue].filled_listeners.borrow().len(), 1);
    assert_eq!(run.read("u.config"), "2");
}

/// Packets that the new element counts while the old one is still at work are not forgotten.
#[test]
fn counts_of_replaced_elements_add_up() {
    let run = run("InfiniteSource(LIMIT 4, BURST 4) -> Paint(0) -> c :: Counter(COUNT_CALL 2 p.run)
        -> s :: PaintSwitch; s [0] -> Paint(1) -> c; s [1] -> Discard;
        p :: Script(TYPE PASSIVE, write c.config \"\")");
    assert_eq!((run.read("c.count"), run.read("c.byte_count")), ("8".to_owned(), "552".to_owned()));
    // The first packet was ten seconds ago, whenever the element was replaced.
    let run =
        start("InfiniteSource(LIMIT 1) -> c :: Counter -> Discard; RatedSource(RATE 1, LIMIT 10) -> c;");
    let begin = run.router.clock.now();
    run_to(&run.router, begin, 10.0);
    let rate = |run: &crate::running::Run| run.read("c.rate").parse::<f64>().unwrap();
    let before = rate(&run);
    run.router.write(None, "c.config", "").unwrap();
    assert_eq!((rate(&run), run.read("c.count")), (before, "11".to_owned()));
}

/// Elements with counts and tables: their path, what is written to them, and the handlers that stay.
const KEEPERS: &[(&str, &str, &[&str])] = &[
    ("x :: Counter -> Discard", "", &["x.count", "x.byte_count"]),
    ("x :: AverageCounter -> Discard", "", &["x.count"]),
    ("x :: Discard", "", &["x.count"]),
    ("x :: AggregateCounter -> Discard", "", &["x.count", "x.nagg"]),
    ("x :: CheckIPHeader -> Discard", "", &["x.drops"]),
    ("x :: CheckIPHeader(DETAILS true) -> Discard", "", &["x.drops", "x.drop_details"]),
    ("x :: CheckUDPHeader -> Discard", "", &["x.drops"]),
    ("x :: DecIPTTL -> Discard", "", &["x.drops"]),
    ("x :: MarkIPCE -> Discard", "", &["x.drops"]),
    ("x :: RandomSample(0) -> Discard", "", &["x.drops"]),
    ("x :: ProbSplitter(1) -> Discard", "", &["x.drops"]),
    ("HostEtherFilter(1:1:1:1:1:1, false, false) -> x :: DropBroadcasts -> Discard", "", &["x.drops"]),
    ("x :: Loop(1) -> Discard", "", &[]),
    ("x :: RED(0, 1, 1) -> Queue -> Idle", "", &["x.drops", "x.avg_queue_size"]),
    ("Queue -> x :: Unqueue -> Discard", "", &["x.count"]),
    ("x :: StaticIPLookup(9.0.0.0/8 0) -> Discard", "add 8.0.0.0/8 0", &["x.table", "x.nroutes"]),
    ("x :: RadixIPLookup(9.0.0.0/8 0) -> Discard", "remove 9.0.0.0/8", &["x.table", "x.nroutes"]),
    ("x :: ARPResponder(9.0.0.0/8 1:1:1:1:1:1) -> Discard", "add 8.8.8.8 2:2:2:2:2:2", &["x.table"]),
    ("x :: Queue(2) -> Idle", "", &["x.drops", "x.length", "x.highwater_length"]),
    (
        "GetIPAddress(16) -> x :: ARPQuerier(9.9.9.9, 1:1:1:1:1:1, CAPACITY 1) -> Discard",
        "",
        &["x.queries", "x.responses", "x.drops", "x.length"],
    ),
    ("x :: Socket(UDP, 127.0.0.1, 9, CLIENT true)", "", &["x.sent", "x.received"]),
    (DUMP, "", &["x.count"]),
];

const DUMP: &str =
    concat!("Discard; x :: FromDump(", env!("CARGO_MANIFEST_DIR"), "/../../../demo/demo.pcap) -> Discard");

/// Packets with a wrong header, which most elements with counts drop.
const SOURCE: &str = "InfiniteSource(\\<4500001c0001400000110000010000010200000200010002000c0000>, LIMIT 3)
    -> MarkIPHeader(0) -> ";

#[test]
fn counts_and_tables_go_on_in_the_element_that_replaces_one() {
    for (path, written, handlers) in KEEPERS {
        let text = format!("{SOURCE}{path};");
        let old = start(&text);
        if let Some((handler, value)) = written.split_once(' ') {
            old.router.write(None, &format!("x.{handler}"), value).unwrap();
        }
        let begin = old.router.clock.now();
        run_to(&old.router, begin, 1.0);
        let read = |router: &Router| -> Vec<String> {
            handlers
                .iter()
                .map(|h| router.read(None, h, "").unwrap_or_else(|e| panic!("{path}: {e}")))
                .collect()
        };
        let before = read(&old.router);
        let is_first = start(&text);
        assert!(
            handlers.is_empty() || before != read(&is_first.router),
            "{path}: nothing has changed: {before:?}"
        );
        let new_text = text.replace("LIMIT 3", "LIMIT 0");
        let mut env = environment(old.err.clone());
        env.clock = old.router.clock.clone();
        let new = Router::new(graph(&new_text), &new_text, env).unwrap();
        new.take_state(&old.router);
        assert_eq!(read(&new), before, "{path}");
        // Other arguments are another table, and the same counts.
        if path.contains("9.0.0.0/8 ") {
            let other = new_text.replace("9.0.0.0/8 ", "7.0.0.0/8 ");
            let mut env = environment(old.err.clone());
            env.clock = old.router.clock.clone();
            let other = Router::new(graph(&other), &other, env).unwrap();
            other.take_state(&new);
            let table = other.read(None, "x.table", "").unwrap();
            assert!(
                table.contains("7.0.0.0/8") && !table.contains("8.8.8.8") && table.lines().count() == 1,
                "{table}"
            );
        }
    }
}

/// A file that is read continues behind the last packet; one of another name or form begins.
#[test]
fn a_file_goes_on_in_the_element_that_replaces_its_reader() {
    let capture = |name: &str| format!("FromDump({DEMO}/{name})");
    let data: String = (1..=9)
        .flat_map(|n| format!("10.0.0.{n} 10.0.0.200\n").into_bytes())
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let lines = |columns: &str| format!("FromIPSummaryDump(DATA \\<{data}>, FIELDS {columns})");
    let cases = [
        (capture("demo.pcap"), capture("demo.pcap"), 1244),
        (capture("demo.pcap"), capture("./demo.pcap"), 5 + 1244),
        (lines("ip_src ip_dst"), lines("ip_src ip_dst"), 9),
        (lines("ip_src ip_dst"), lines("ip_dst ip_src"), 5 + 9),
    ];
    for (first, second, packets) in cases {
        let text = |reader: &str, limit: &str| format!("x :: {reader} -> Unqueue{limit} -> d :: Discard;");
        let old = run(&text(&first, "(LIMIT 5)"));
        assert_eq!(old.read("d.count"), "5");
        let new_text = text(&second, "");
        let new = Router::new(graph(&new_text), &new_text, environment(old.err.clone())).unwrap();
        new.take_state(&old.router);
        new.run();
        let counts = ["x.count", "d.count"].map(|handler| new.read(None, handler, "").unwrap());
        assert_eq!(counts, [packets.to_string(), packets.to_string()], "{first} {second}: {}", old.text());
    }
}

/// A file at its end that gets other arguments asks its router to stop only if it has not done so.
#[test]
fn a_file_at_its_end_asks_a_router_to_stop_once() {
    let file = |stop: bool| format!("{DEMO}/demo.pcap, STOP {stop}");
    let said = |first: bool, then: &[bool]| {
        let writes: String =
            then.iter().map(|stop| format!("writeq f.config \"{}\", ", file(*stop))).collect();
        let text = format!(
            "f :: FromDump({}) -> Discard; Script(wait 1s, {writes} wait 1s, print \"over\", stop);
             DriverManager(wait_stop, print \"asked\", wait_stop, print \"again\", wait 9s)",
            file(first)
        );
        run(&text).text()
    };
    assert_eq!(said(true, &[true]), "asked\nover\nagain\n");
    assert_eq!(said(false, &[true, true]), "asked\nover\nagain\n");
    assert_eq!(said(true, &[false, true]), "asked\nagain\nover\n");
}

/// Each count of an element, a field of type `Cell<u64>`, is among those that the router hands over, or is
/// listed here with the reason.
#[test]
fn no_element_forgets_its_counts() {
    const NONE: &[(&str, &str, &str)] = &[
        ("from_device.rs", "drops_before", "the kernel's drops at the last reset"),
        ("output.rs", "records", "the records that were collected, which go with their bytes"),
        ("rewriter_pattern.rs", "next", "the next port of a pattern"),
        ("source.rs", "rate", "an argument"),
    ];
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/elements");
    let mut left_out = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let bodies = text.split("fn counts(&self)").skip(1).map(|rest| rest.split("\n    }").next().unwrap());
        let handed: Vec<&str> = bodies.collect();
        let has = |field: &str| handed.iter().any(|body| body.contains(&format!("self.{field}")));
        for line in text.lines().map(str::trim) {
            let Some((before, _)) = line.split_once("Cell<u64>") else { continue };
            let field = match before.trim_start_matches("pub ").split_once(": ") {
                // A structure without names for its fields, with the count behind some others.
                None if before.contains("struct ") => before.matches(',').count().to_string(),
                Some((field, "" | "[")) => field.to_owned(),
                _ => continue,
            };
            if !has(&field) {
                left_out.push((name.clone(), field));
            }
        }
    }
    left_out.sort();
    let known = NONE.iter().map(|(file, field, _)| ((*file).to_owned(), (*field).to_owned()));
    assert_eq!(left_out, known.collect::<Vec<_>>());
}
