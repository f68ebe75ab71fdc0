//! Elements and routers that are replaced while they run.

use crate::running::{environment, graph, run, start};
use flame_element::Router;

/// Runs to a time of the simulated clock, in seconds after the start.
fn run_to(router: &Router, start: flame_click::Nanos, seconds: f64) {
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
    // The link pushes a packet, which replaces the link, which then goes on to pull.
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
