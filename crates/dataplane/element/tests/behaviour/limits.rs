//! Configurations that would run without end, or deeper than the stack.

use crate::running::{refused, run, start};

#[test]
fn a_way_around_a_bypass_that_comes_back_is_refused() {
    let text = "InfiniteSource -> Queue -> b :: Bypass(true) -> Discard; b -> PullNull -> [1] b;";
    assert_eq!(refused(text), "f:1: 'PullNull@5 :: PullNull' pulls from itself without a queue between");
    let text = "InfiniteSource -> Queue -> b :: Bypass -> Discard; b [1] -> PullNull -> n :: PullNull;
        n -> [1] b; b [1] -> Unqueue -> Discard";
    run(&text.replace("InfiniteSource", "InfiniteSource(LIMIT 3)")).adds_up();
    // Two that lead into each other.
    let text = "Idle -> a :: Bypass -> Discard; Idle -> b :: Bypass -> Discard;
        a [1] -> [1] b; b [1] -> [1] a;";
    assert!(start(&text.replace("Idle ->", "Idle -> Queue ->")).text().is_empty());
    let text = "Idle -> Queue -> a :: Bypass -> Discard; Idle -> Queue -> b :: Bypass -> Discard;
        a -> PullNull -> [1] b; b -> PullNull -> [1] a;";
    assert!(refused(text).contains("pulls from itself"));
}

#[test]
fn long_pull_paths_run_on_a_small_stack() {
    let path = |count: usize| {
        format!(
            "InfiniteSource(LIMIT 5) -> Queue {} -> Unqueue -> d :: Discard",
            "-> PullNull ".repeat(count)
        )
    };
    assert_eq!(run(&path(990)).read("d.count"), "5");
    assert!(refused(&path(1000)).contains("exceeds 1000 elements"));
}

#[test]
fn scripts_that_run_each_other_end() {
    let mut text = "Script(write s0.run);".to_owned();
    for i in 0..20_000 {
        text.push_str(&format!("s{i} :: Script(TYPE PASSIVE, write s{}.run);", (i + 1) % 20_000));
    }
    let ended = run(&text);
    assert_eq!(
        ended.text(),
        "handlers call each other too deeply, giving up\nWhile executing 's49 :: Script':\n  given up, since handlers call each other too deeply\n"
    );
    // References inside handlers inside references.
    let text = "s :: Script(TYPE PASSIVE, return $(s.run $(s.run $(s.run)))); Script(print $(s.run))";
    assert!(run(text).text().starts_with("handlers call each other too deeply, giving up\n"));
    let nested = format!("Script(print {}{})", "$(add 1 ".repeat(3000), ")".repeat(3000));
    assert!(run(&nested).text().starts_with("references nest too deeply, giving up\n"));
}

#[test]
fn scripts_that_multiply_end_and_let_others_run() {
    for (script, wanted) in [
        ("s :: Script(TYPE PASSIVE, write s.run, write s.run); Script(write s.run);", "too deeply"),
        (
            "s0 :: Script(TYPE PASSIVE, label l, goto l); s1 :: Script(TYPE PASSIVE, label l, write s0.run, goto l);
             Script(write s1.run);",
            "too much",
        ),
        ("Script(set x aaaaaaaa, label l, set x $x$x, goto l);", "a text exceeds 1 MiB"),
        ("Script(set x aaaaaaaa, label l, set x $x.$x, print >> /dev/null $x, goto l);", "a text exceeds 1 MiB"),
        ("Script(set n 0, label l, set v$n x, set n $(add $n 1), goto l);", "too much"),
        ("Script(print $(cat /dev/zero));", "longer than the limit"),
    ] {
        let text = format!("{script} c :: Script(wait 1s, set done yes, export out 1); t :: TimedSource(0.1, LIMIT 3) -> d :: Discard;");
        let ended = run(&text);
        assert!(ended.text().contains(wanted), "{script}: {:.500}", ended.text());
        assert!(ended.text().len() < 100_000, "{script}: {} bytes of messages", ended.text().len());
        assert_eq!(ended.read("d.count"), "3", "{script}");
    }
}

#[test]
fn an_interrupt_ends_a_script() {
    let run = start("s :: Script(wait 1s, label l, write q.reset, goto l); q :: Queue; Idle -> q -> Discard");
    run.router.clock.jump(run.router.next_event().unwrap());
    run.router.interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
    run.router.step();
    assert_eq!(run.text().lines().filter(|l| !l.starts_with(' ')).count(), 1, "{}", run.text());
    assert!(!run.text().contains("too much in one step"), "{}", run.text());
    // Handlers are read at the end nevertheless.
    assert_eq!(run.read("q.length"), "0");
}

#[test]
fn calls_of_a_time_filter_end() {
    for call in ["extend_interval 1ns", "extend_interval -1ns", "extend_interval 0"] {
        let text = format!("InfiniteSource(LIMIT 1) -> f :: TimeFilter(END 10, END_CALL {call}) -> Discard;");
        let ended = run(&text);
        assert_eq!(ended.account("f").dropped.get("outside the span"), Some(&1), "{call}");
        assert!(ended.text().lines().count() <= 2, "{}", ended.text());
    }
    let ended = run(
        "InfiniteSource(LIMIT 1) -> f :: TimeFilter(END 10, END_CALL extend_interval 1000000000) -> d :: Discard",
    );
    assert_eq!(ended.read("d.count"), "1");
}

#[test]
fn a_large_burst_is_made_in_steps() {
    let run = start("s :: InfiniteSource(BURST 4000000000) -> c :: Counter -> Discard");
    run.router.step();
    let count: u64 = run.read("c.count").parse().unwrap();
    assert!((1..10_000_000).contains(&count), "{count}");
    let ended =
        crate::running::run("s :: InfiniteSource(BURST 200000, LIMIT 300000) -> c :: Counter -> Discard");
    assert_eq!(ended.read("c.count"), "300000");
}

#[test]
fn many_errors_are_counted() {
    let error = refused("TimedSource -> s :: Script; s [65535] -> Discard");
    assert!(error.lines().count() <= 101 && error.ends_with("more errors)"), "{:.300}", error);
}
