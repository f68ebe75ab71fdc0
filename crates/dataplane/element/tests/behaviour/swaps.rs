//! Routers of several threads that other configurations replace while they run.

use crate::account::adds_up;
use crate::common::LANGUAGE;
use crate::running::graph;
use crate::threads::{Written, environment};
use flame_element::threads::run::{Parts, run};
use flame_element::{Environment, Outcome, Router};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns an environment in which the value of `hotconfig` is the number of one of the configurations.
fn numbered(texts: &[String], written: &Written) -> Environment {
    let texts = texts.to_vec();
    let parse = move |number: &str| {
        let text = &texts[number.parse::<usize>().map_err(|e| e.to_string())?];
        (LANGUAGE.read)(text.as_bytes(), "g", &[])
    };
    Environment { parse: Some(Rc::new(Box::new(parse))), ..environment(written) }
}

/// Runs the first of some configurations in threads until it, or one that has replaced it, stops. Returns the
/// values of handlers then, and what was written.
fn values(threads: usize, texts: &[String], handlers: &[&str]) -> (Vec<String>, String) {
    let written = Written::default();
    let read = |router: &Router| {
        adds_up(router);
        handlers.iter().map(|h| router.read(None, h, "").unwrap_or_else(|e| e)).collect()
    };
    let found = match threads {
        // As the command does with one thread.
        1 => {
            let env = numbered(texts, &written);
            let mut router = Router::new(graph(&texts[0]), "", env.clone()).unwrap();
            while router.run() == Outcome::Replaced {
                let (graph, text) = router.take_hotconfig().unwrap();
                match Router::new(graph, &text, env.clone()) {
                    Ok(new) => {
                        new.take_state(&router);
                        router.cleanup();
                        router = new;
                    }
                    Err(e) => router.message(&e),
                }
            }
            read(&router)
        }
        _ => {
            let environment = || numbered(texts, &written);
            let first = graph(&texts[0]);
            let parts = Parts { graph: &first, text: "", threads, environment: &environment };
            run(&parts, |router, run| {
                drop(router);
                Ok(read(&*run()?))
            })
            .unwrap_or_else(|e| panic!("{e}"))
        }
    };
    (found, written.text())
}

/// Returns `text` with a script in a thread, which asks for another configuration after some milliseconds.
fn then(text: &str, next: usize, after: usize, thread: usize) -> String {
    format!(
        "{text}; next :: Script(wait {after}ms, write hotconfig {next}); StaticThreadSched(next {thread})"
    )
}

#[test]
fn packets_stay_in_order_while_their_elements_go_from_thread_to_thread() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in"), folder.path().join("out"));
    // No more than may be on their way at once, so that none is dropped since a thread is behind.
    let count = 8000;
    let lines: String = (0..count).map(|i| format!("1.0.0.{} {i}\n", i % 200)).collect();
    std::fs::write(&from, format!("!data ip_dst ip_id\n{lines}")).unwrap();
    let text = |threads: [usize; 3]| {
        let [a, b, c] = threads;
        format!(
            "Idle -> all :: Queue(100000) -> in :: RatedUnqueue(100000) -> a :: Counter
                 -> q :: Queue(100000) -> mid :: Unqueue -> b :: Counter
                 -> r :: Queue(100000) -> out :: Unqueue(BURST 3)
                 -> c :: Counter -> to :: ToIPSummaryDump({}, FIELDS ip_dst ip_id) -> d :: Discard;
             StaticThreadSched(in {a}, mid {b}, out {c})",
            to.display()
        )
    };
    let swaps = 30;
    let first = format!(
        "FromIPSummaryDump({}) -> Counter(COUNT_CALL {count} hotconfig 1) -> all :: Queue(100000) -> i :: Idle;
         StaticThreadSched(i 2)",
        from.display()
    );
    let mut texts = vec![first];
    for n in 1..swaps {
        let threads = [n % 4, (n / 2) % 3, if n % 5 == 0 { 0 } else { (n + 1) % 4 }];
        texts.push(then(&text(threads), n + 1, 1 + n % 3, n % 4));
    }
    let end = format!("; DriverManager(label l, wait 1ms, goto l $(lt $(c.count) {count}), stop)");
    texts.push(text([1, 2, 3]) + &end);
    let handlers = ["a.count", "b.count", "c.count", "d.count", "q.drops", "r.drops", "r.home_thread"];
    let (found, said) = values(4, &texts, &handlers);
    let count = count.to_string();
    let out = std::fs::read_to_string(&to).unwrap();
    let out: String = out.lines().filter(|l| !l.starts_with('!')).map(|l| format!("{l}\n")).collect();
    assert!(out == lines, "packets were lost or changed their order: {found:?} {said}");
    assert_eq!(found[..6], [&count, &count, &count, &count, "0", "0"], "{said}");
    assert_eq!(found[6], "3", "all configurations had their turn: {said}");
}

/// Elements with state, in one path each, so that each may be in another thread.
const STATEFUL: &str = "
    s0 :: InfiniteSource(\\<4500001c0001000040110000010000010200000200010002000c0000>, LIMIT 40, BURST 5)
        -> MarkIPHeader(0) -> t :: Tee -> q0 :: Queue(30) -> u0 :: Unqueue(ACTIVE false) -> c0 :: Counter -> Discard;
    t [1] -> q1 :: Queue -> u1 :: Unqueue -> GetIPAddress(16) -> arp :: ARPQuerier(1.0.0.9, 2:2:2:2:2:2)
        -> Discard;
    Idle -> [1] arp;
    t [2] -> q2 :: Queue -> u2 :: Unqueue -> rw :: IPRewriter(pattern 7.0.0.1 1024-65535# - - 0 0)
        -> sum :: AggregateCounter -> h :: Queue(7) -> Idle;
    t [3] -> q3 :: Queue -> u3 :: Unqueue -> avg :: AverageCounter -> late :: Queue -> DelayUnqueue(100) -> Discard";

#[test]
fn all_that_elements_hold_is_what_one_thread_hands_over() {
    let handlers = [
        "q0.length",
        "q0.drops",
        "c0.count",
        "c0.byte_count",
        "arp.account",
        "rw.nmappings",
        "sum.count",
        "h.length",
        "h.drops",
        "h.account",
        "avg.count",
        "late.length",
    ];
    let text = STATEFUL.to_owned();
    let bound = |threads: [usize; 4]| {
        let [a, b, c, d] = threads;
        format!("; StaticThreadSched(u0 {a}, u1 {b}, u2 {c}, u3 {d}, s0 {d})")
    };
    let texts = |places: &[[usize; 4]]| {
        let mut all: Vec<String> = Vec::new();
        for (n, threads) in places.iter().enumerate() {
            // A limit holds for each configuration.
            let text = if n == 0 {
                text.clone()
            } else {
                text.replace("LIMIT 40", "LIMIT 0").replace("ACTIVE false", "LIMIT 2")
            };
            let text = text + &bound(*threads);
            all.push(match n + 1 < places.len() {
                true => then(&text, n + 1, 40, threads[n % 4]),
                false => format!("{text}; DriverManager(wait 60ms, stop)"),
            });
        }
        all
    };
    let (one, said) = values(1, &texts(&[[0; 4]; 4]), &handlers);
    assert_eq!(said, "");
    assert_eq!(one[1..3], ["10", "6"], "{one:?}");
    for places in [
        [[1, 1, 1, 1], [2, 2, 2, 2], [0, 0, 0, 0], [3, 3, 3, 3]],
        [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [0, 0, 1, 1]],
        [[4, 1, 5, 3], [0, 0, 0, 0], [5, 4, 3, 2], [1, 1, 0, 0]],
    ] {
        let (many, said) = values(6, &texts(&places), &handlers);
        assert_eq!((many, said.as_str()), (one.clone(), ""), "{places:?}");
    }
}

#[test]
fn a_configuration_that_cannot_run_leaves_all_threads_as_they_were() {
    let bad = [
        "nonsense ->",
        "a :: Null -> Discard",
        "Idle -> Strip(x) -> Discard; f :: Idle -> s :: Strip(y) -> Discard; StaticThreadSched(f 1)",
        "f :: FromDump(/nonexistent/1) -> Discard; StaticThreadSched(f 1)",
        "q :: Queue; s :: InfiniteSource -> q -> u :: Unqueue -> c :: Counter -> ToDump(/nonexistent/2);
         StaticThreadSched(u 1)",
        "d :: DriverManager(stop); StaticThreadSched(d 1)",
    ];
    for thread in 0..3 {
        let writes: String = (1..=bad.len()).map(|n| format!("write hotconfig {n}, wait 20ms, ")).collect();
        let first = format!(
            "s :: InfiniteSource(LIMIT 5000) -> q :: Queue(10000) -> u :: Unqueue -> c :: Counter -> Discard;
             w :: Script({writes} write go.run); go :: Script(TYPE PASSIVE, write stop);
             DriverManager(wait_stop, print $(c.count), stop); StaticThreadSched(u 1, w {thread})"
        );
        let texts: Vec<String> =
            std::iter::once(first).chain(bad.iter().map(|text| (*text).to_owned())).collect();
        let (found, said) = values(3, &texts, &["c.count", "c.account"]);
        assert_eq!(found[0], "5000", "{said}");
        assert!(said.ends_with("5000\n"), "{said}");
        for part in [
            "g:1: syntax error",
            "'a :: Null' input 0 unused",
            "found 'x'",
            "found 'y'",
            "/nonexistent/1",
            "/nonexistent/2",
            "DriverManager",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn an_interrupt_ends_a_router_that_is_replaced_again_and_again() {
    let text = |threads: [usize; 2]| {
        format!(
            "s :: InfiniteSource -> c :: Counter -> q :: Queue(100) -> u :: Unqueue -> d :: Discard;
             StaticThreadSched(s {}, u {})",
            threads[0], threads[1]
        )
    };
    let texts: Vec<String> = (0..3).map(|n| then(&text([n, (n + 1) % 3]), (n + 1) % 3, 0, 2 - n)).collect();
    for delay in [0, 3, 20, 60] {
        let (written, interrupt) = (Written::default(), Arc::new(AtomicBool::new(false)));
        let environment = || Environment { interrupt: interrupt.clone(), ..numbered(&texts, &written) };
        let first = graph(&texts[0]);
        let parts = Parts { graph: &first, text: "", threads: 3, environment: &environment };
        run(&parts, |router, run| {
            drop(router);
            let (interrupt, runner) = (interrupt.clone(), std::thread::current());
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(delay));
                interrupt.store(true, Ordering::Relaxed);
                runner.unpark();
            });
            let last = run()?;
            adds_up(&last);
            Ok(())
        })
        .unwrap();
        assert_eq!(written.text(), "");
    }
}

#[test]
fn what_was_asked_for_last_comes() {
    let of = |n: usize| format!("i{n} :: Idle -> Discard; DriverManager(stop)");
    let first = "Script(wait 1ms, write hotconfig 1, write hotconfig 2); Idle -> Discard".to_owned();
    let (found, _) = values(2, &[first, of(1), of(2)], &["i2.class"]);
    assert_eq!(found, ["Idle"]);
}

#[test]
fn a_script_of_the_start_may_ask_for_another_configuration() {
    let text =
        |n: usize| format!("s :: Script(write hotconfig {}); Idle -> Discard; StaticThreadSched(s 1)", n + 1);
    let mut texts: Vec<String> = (0..10).map(text).collect();
    texts.push("last :: Idle -> Discard; DriverManager(wait 1ms, stop)".to_owned());
    assert_eq!(values(2, &texts, &["last.class"]).0, ["Idle"]);
}

/// A queue of another thread that is full stays so for the sources of the router that replaces it.
#[test]
fn a_swap_loses_no_packet_for_a_full_queue_of_another_thread() {
    let graph = "f :: InfiniteSource(BURST 1) -> q :: Queue(50) -> u :: Unqueue(ACTIVE false) -> Discard;
        StaticThreadSched(f 0, u 1)";
    let swaps = 8;
    let mut texts: Vec<String> = (1..=swaps).map(|next| then(graph, next, 20, 0)).collect();
    texts.push(format!("{graph}; Script(wait 20ms, stop)"));
    let (values, said) = values(2, &texts, &["q.length", "q.drops"]);
    assert_eq!(values, ["50", "0"], "{said}");
}

/// A request to stop ends with the router that it came to, so a file at its end asks the next one again.
#[test]
fn a_file_that_ends_in_the_moment_of_a_swap_stops_the_router_that_follows() {
    let data: String = "1.0.0.1\n".repeat(9).bytes().map(|byte| format!("{byte:02x}")).collect();
    let file = format!("f :: FromIPSummaryDump(DATA \\<{data}>, FIELDS ip_src, STOP true)");
    let late = "Script(wait 5s, print \"late\", stop)";
    // The last packets, and the end of the file after them, are read in the round that asks for the swap.
    let graph = |way: &str, n: usize, thread: usize| {
        let call = if n == 0 { "(COUNT_CALL 7 hotconfig 1)" } else { "" };
        let scripts = format!("Script(print {n}); {late}; StaticThreadSched(f {thread})");
        format!("{file} -> {way} c :: Counter{call} -> Discard; {scripts}")
    };
    for way in ["", "Unqueue ->", "TimeSortedSched -> Unqueue ->"] {
        for (threads, from, to) in [(1, 0, 0), (2, 0, 0), (2, 1, 1), (2, 0, 1), (2, 1, 0)] {
            let found = values(threads, &[graph(way, 0, from), graph(way, 1, to)], &["c.count"]);
            assert_eq!(found, (vec!["9".to_owned()], "0\n1\n".to_owned()), "{way} {threads} {from} {to}");
        }
    }
    // The script of a router that is replaced took a request that the next script waits for.
    let managed = |then: &str| format!("{file} -> Discard; {late}; DriverManager(wait_stop, {then}, stop)");
    for threads in [1, 2] {
        let texts = [managed("write hotconfig 1, wait 10s"), managed("print \"again\"")];
        assert_eq!(values(threads, &texts, &["f.count"]), (vec!["9".to_owned()], "again\n".to_owned()));
    }
}
