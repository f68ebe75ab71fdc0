//! Routers of several threads.

use crate::account::adds_up;
use crate::running::graph;
use flame_element::threads::run::{Parts, run};
use flame_element::{Clock, Environment, Router, Stream};
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// The text that threads write, one after the other.
#[derive(Clone, Default)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// Returns the environment of a thread in real time.
pub fn environment(written: &Written) -> Environment {
    let stream: Stream = Rc::new(RefCell::new(written.clone()));
    let clock = Rc::new(Clock::real());
    Environment { clock, stdout: stream.clone(), stderr: stream, ..Environment::silent(None) }
}

/// Runs a configuration in threads until it stops. Returns the values of handlers then, and what was written.
fn values(threads: usize, text: &str, handlers: &[&str]) -> (Vec<String>, String) {
    let written = Written::default();
    let result = attempt(threads, text, &written, |router| {
        handlers.iter().map(|h| router.read(None, h, "").unwrap_or_else(|e| e)).collect()
    });
    (result.unwrap_or_else(|e| panic!("{text}\n{e}")), written.text())
}

fn attempt<T>(
    threads: usize,
    text: &str,
    written: &Written,
    act: impl FnOnce(&Router) -> T,
) -> Result<T, String> {
    let environment = || environment(written);
    let graph = graph(text);
    run(&Parts { graph: &graph, text, threads, environment: &environment }, |_, run| {
        let router = run()?;
        adds_up(&router);
        Ok(act(&router))
    })
}

#[test]
fn packets_pass_from_thread_to_thread_in_order_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in"), folder.path().join("out"));
    // No more than may be on their way to an element: `Unqueue` does not wait for room, as Click's.
    let count = 8000;
    let lines: String = (0..count).map(|i| format!("1.0.0.{} {}\n", i % 200, i % 65_536)).collect();
    std::fs::write(&from, format!("!data ip_dst ip_id\n{lines}")).unwrap();
    let text = format!(
        "FromIPSummaryDump({}) -> all :: Queue(100000) -> in :: Unqueue(BURST 7) -> a :: Counter
             -> q :: Queue(1000000) -> mid :: Unqueue -> b :: Counter
             -> r :: Queue(1000000) -> out :: Unqueue(BURST 3)
             -> c :: Counter(COUNT_CALL {count} stop) -> ToIPSummaryDump({}, FIELDS ip_dst ip_id) -> Discard;
         StaticThreadSched(in 0, mid 1, out -1)",
        from.display(),
        to.display()
    );
    let handlers = ["a.count", "b.count", "c.count", "q.home_thread", "r.home_thread", "a.home_thread"];
    let (found, said) = values(3, &text, &handlers);
    let count = count.to_string();
    assert_eq!(found, [&count, &count, &count, "1", "2", "0"], "{said}");
    let out = std::fs::read_to_string(&to).unwrap();
    let out: String = out.lines().filter(|l| !l.starts_with('!')).map(|l| format!("{l}\n")).collect();
    assert!(out == lines, "the order of packets changed");
}

#[test]
fn a_source_waits_for_a_queue_of_another_thread() {
    let text = "s :: InfiniteSource(LIMIT 300000, BURST 10) -> a :: Counter -> q :: Queue(20)
             -> out :: Unqueue(BURST 3) -> c :: Counter(COUNT_CALL 300000 stop) -> Discard;
         StaticThreadSched(out 1)";
    let (found, said) = values(2, text, &["a.count", "c.count", "q.drops", "q.highwater_length"]);
    // Between two looks at the room, a burst may be too much, as with one thread.
    let drops: u64 = found[2].parse().unwrap();
    assert_eq!((&*found[0], drops), ("300000", 0), "{found:?} {said}");
    assert_eq!((&*found[1], &*found[3]), ("300000", "20"), "{said}");
}

#[test]
fn a_source_sees_that_a_queue_of_another_thread_was_enlarged() {
    let text = "s :: InfiniteSource(LIMIT 3000) -> q :: Queue(20) -> out :: Unqueue(ACTIVE false) -> Discard;
         DriverManager(wait 20ms, print $(q.length), write q.capacity 2000, wait 50ms, print $(q.length),
                       write q.config 2500, wait 50ms, print $(q.length), write q.reset, wait 50ms,
                       print $(q.length), stop);
         StaticThreadSched(out 1)";
    let (_, said) = values(2, text, &[]);
    assert_eq!(said, "20\n2000\n2500\n500\n");
}

#[test]
fn packets_for_a_thread_that_is_behind_are_dropped_and_counted() {
    // The source looks at no notification, since a Tee is before the queues, one of which is always ready.
    let text = "s :: InfiniteSource(LIMIT 300000, BURST 100, STOP true) -> t :: Tee -> q :: SimpleQueue(10)
             -> out :: Unqueue(ACTIVE false) -> Discard;
         t [1] -> Discard;
         StaticThreadSched(out 1)";
    let (found, _) = values(2, text, &["q.drops", "q.length", "q.account"]);
    let account = &found[2];
    assert_eq!((&*found[1], account.contains("taken 300000")), ("10", true), "{account}");
}

#[test]
fn handlers_of_all_threads_are_read_and_written_by_each() {
    let text = "a :: InfiniteSource(LIMIT 5) -> ca :: Counter -> Discard;
         b :: InfiniteSource(LIMIT 7, ACTIVE false) -> cb :: Counter -> Discard;
         one :: Script(TYPE PASSIVE, return $(cb.count));
         two :: Script(TYPE PASSIVE, return $(one.run));
         DriverManager(wait 10ms, print $(cb.count), write b.active true, wait 50ms,
                       print $(cb.count), print $(two.run), write cb.reset, print $(cb.count), stop);
         StaticThreadSched(b 1, two 1)";
    let handlers = ["ca.count", "cb.count", "cb.config", "b.limit", "nothing.x", "cb.nothing", "list"];
    let (found, said) = values(2, text, &handlers);
    assert_eq!(said, "0\n7\n7\n0\n");
    assert_eq!(&found[..4], ["5", "0", "", "7"]);
    assert_eq!(&found[4..6], ["no element named 'nothing'", "no 'nothing' handler in 'cb :: Counter'"]);
    assert!(found[6].starts_with("10\na\nca\n"), "{}", found[6]);
}

#[test]
fn threads_that_call_each_other_at_once_go_on() {
    let text = "a :: Script(set i 0, label l, set i $(add $i $(b.run)), goto l $(lt $i 2000), write stop);
         b :: Script(TYPE PASSIVE, return 1);
         c :: Script(set i 0, label l, set i $(add $i $(d.run)), goto l $(lt $i 2000), write stop);
         d :: Script(TYPE PASSIVE, return 1);
         DriverManager(wait_stop 2);
         StaticThreadSched(b 1, c 1)";
    let (_, said) = values(2, text, &[]);
    assert_eq!(said, "");
}

#[test]
fn handlers_that_call_each_other_across_threads_are_given_up() {
    let text = "a :: Script(TYPE PASSIVE, return $(b.run));
         b :: Script(TYPE PASSIVE, return $(a.run));
         DriverManager(wait 1ms, print $(a.run), stop);
         StaticThreadSched(b 1)";
    let (_, said) = values(2, text, &[]);
    assert!(said.contains("too deeply"), "{said}");
}

#[test]
fn calls_across_threads_share_the_fuel_of_their_step() {
    // Eight million million instructions.
    let text =
        "a :: Script(TYPE PASSIVE, set i 0, label l, write b.run, set i $(add $i 1), goto l $(lt $i 20000));
         b :: Script(TYPE PASSIVE, set i 0, label l, write c.run, set i $(add $i 1), goto l $(lt $i 20000));
         c :: Script(TYPE PASSIVE, set i 0, label l, set i $(add $i 1), goto l $(lt $i 20000));
         DriverManager(wait 1ms, write a.run, stop);
         StaticThreadSched(b 1, c 2)";
    let (_, said) = values(3, text, &[]);
    assert!(said.contains("do too much in one step, giving up"), "{said}");
}

#[test]
fn a_thread_that_waits_answers_as_many_as_there_are() {
    let threads = 32;
    let mut text = "c :: Counter; Idle -> c -> Discard;
         far :: Script(TYPE PASSIVE, set i 0, label l, set i $(add $i 1), goto l $(lt $i 100), return 1);
         mid :: Script(TYPE PASSIVE, return $(far.run));
         DriverManager(wait_stop 30);"
        .to_owned();
    let mut bound = vec![format!("far {}", threads - 1)];
    for n in 1..threads - 1 {
        text += &format!(
            "s{n} :: Script(wait 10ms, set i 0, label l, set x $(mid.run), set i $(add $i 1),
                            goto l $(lt $i 100), write stop);"
        );
        bound.push(format!("s{n} {n}"));
    }
    let (_, said) = values(threads, &format!("{text} StaticThreadSched({})", bound.join(", ")), &[]);
    assert_eq!(said, "");
}

#[test]
fn a_thread_that_others_call_all_the_time_does_its_own_work() {
    let calls = "label b, set i 0, label l, set x $(h.run), set i $(add $i 1), goto l $(lt $i 50000), wait 0,
        goto b";
    let text = format!(
        "h :: Script(TYPE PASSIVE, set i 0, label l, set i $(add $i 1), goto l $(lt $i 500), return $i);
         a :: Script({calls}); b :: Script({calls}); DriverManager(wait 300ms, stop);
         InfiniteSource -> c :: Counter -> Discard;
         StaticThreadSched(a 1, b 2)"
    );
    let (found, _) = values(3, &text, &["c.count"]);
    assert!(found[0].parse::<u64>().unwrap() > 100, "{found:?}");
}

#[test]
fn a_thread_that_stops_the_run_does_no_more() {
    let text = "a :: InfiniteSource -> c :: Counter(COUNT_CALL 1000 stop) -> Discard; StaticThreadSched(a 1)";
    for _ in 0..20 {
        assert_eq!(values(2, text, &["c.count"]).0, ["1000"]);
    }
    // Unless the script that manages the run continues.
    let text = format!("DriverManager(wait_stop, print $(c.count), wait 10ms, stop); {text}");
    let (found, said) = values(2, &text, &["c.count"]);
    assert_eq!(said, "1000\n");
    assert!(found[0].parse::<u64>().unwrap() > 1000, "{found:?}");
}

#[test]
fn packets_that_were_on_a_long_way_at_the_end_are_counted() {
    // A push passes 250 elements at a time.
    let way = |name: &str| (0..700).map(|n| format!("{name}{n} :: Null -> ")).collect::<String>();
    let text = format!(
        "InfiniteSource(LIMIT 1000, BURST 10) -> {} Counter(COUNT_CALL 300 stop) -> q :: Queue(10000)
             -> u :: Unqueue -> {} Discard; StaticThreadSched(u 1)",
        way("a"),
        way("b")
    );
    values(2, &text, &[]);
}

#[test]
fn elements_that_no_queue_parts_are_in_one_thread() {
    let text = "a :: InfiniteSource(LIMIT 3) -> c :: Counter -> Discard; b :: InfiniteSource(LIMIT 4) -> c;
         DriverManager(wait 20ms, stop);
         StaticThreadSched(a 1, b 0, c 7)";
    let (found, said) = values(2, text, &["a.home_thread", "b.home_thread", "c.count"]);
    assert_eq!(found, ["1", "1", "7"]);
    assert!(
        said.contains("warning: 'b' runs in thread 1 with 'a', since no queue is between them"),
        "{said}"
    );
    assert!(said.contains("thread 7 of 'c' is out of range, thread 0 has it (-j 2 starts 2)"), "{said}");
}

#[test]
fn the_name_of_a_compound_element_binds_what_is_inside() {
    let text = "a, b :: { s :: InfiniteSource(LIMIT 1) -> Queue -> d :: Discard; StaticThreadSched(d 0) };
         o :: { i :: { s :: InfiniteSource(LIMIT 1) -> Discard }; s :: InfiniteSource(LIMIT 1) -> Discard };
         StaticThreadSched(a 1, o/i 1, o 2); DriverManager(stop)";
    let names = ["a/s", "a/d", "b/s", "b/d", "o/i/s", "o/s"].map(|name| format!("{name}.home_thread"));
    let (found, said) = values(3, text, &names.each_ref().map(String::as_str));
    assert_eq!(found, ["1", "0", "0", "0", "1", "2"], "{said}");
    assert!(!said.contains("warning"), "{said}");
}

#[test]
fn elements_that_read_others_are_in_their_thread() {
    let text = "a :: InfiniteSource(LIMIT 3) -> red :: RED(1, 3, 0.5) -> Null -> q :: Queue -> u :: Unqueue
             -> Discard;
         t :: ARPTable; Idle -> arp :: ARPQuerier(1.0.0.9, 2:2:2:2:2:2, TABLE t) -> Discard; Idle -> [1] arp;
         DriverManager(stop);
         StaticThreadSched(u 1, arp 1)";
    let (found, said) = values(2, text, &["a.home_thread", "t.home_thread"]);
    assert_eq!(found, ["1", "1"], "{said}");
}

#[test]
fn errors_of_all_threads_are_reported() {
    let written = Written::default();
    for (text, wanted) in [
        (
            "FromDump(/nonexistent/1) -> Discard; f :: FromDump(/nonexistent/2) -> Discard; StaticThreadSched(f 1)",
            2,
        ),
        ("Idle -> Strip -> Discard; Idle -> s :: Strip(x) -> Discard; StaticThreadSched(s 1)", 2),
        ("StaticThreadSched(nothing 1)", 1),
        ("StaticThreadSched(nothing)", 1),
        ("Idle -> Nothing", 1),
        ("a :: Null -> Discard", 1),
        ("d :: DriverManager(stop); StaticThreadSched(d 1)", 1),
    ] {
        let error = attempt(2, text, &written, |_| ()).unwrap_err();
        assert_eq!(error.matches(": While").count().max(1), wanted, "{text}: {error}");
    }
}

#[test]
fn time_has_one_speed_in_all_threads() {
    let text = "DriverManager(write hotconfig x, write timewarp 2, stop)";
    let (_, said) = values(2, text, &[]);
    assert!(said.contains("this router cannot be replaced (see -R)"), "{said}");
    assert!(said.contains("'timewarp' is not available with several threads (start with -j 1)"), "{said}");
}

#[test]
fn a_run_that_never_begins_ends() {
    let graph = graph("a :: InfiniteSource -> c :: Counter -> Discard; StaticThreadSched(a 1)");
    let environment = || Environment { clock: Rc::new(Clock::real()), ..Environment::silent(None) };
    let parts = Parts { graph: &graph, text: "", threads: 2, environment: &environment };
    let count = run(&parts, |router, _| router.read(None, "c.count", ""));
    assert_eq!(count, Ok("0".to_owned()));
    assert_eq!(run(&parts, |_, _| Err::<(), _>("no".to_owned())), Err("no".to_owned()));
}

#[test]
fn an_interrupt_ends_all_threads() {
    let graph = graph(
        "a :: InfiniteSource -> c :: Counter -> Discard; b :: InfiniteSource -> Discard; StaticThreadSched(a 1)",
    );
    let interrupt = Arc::default();
    let environment = || Environment {
        clock: Rc::new(Clock::real()),
        interrupt: Arc::clone(&interrupt),
        ..Environment::silent(None)
    };
    let parts = Parts { graph: &graph, text: "", threads: 2, environment: &environment };
    let count = run(&parts, |_, run| {
        let (interrupt, runner) = (interrupt.clone(), std::thread::current());
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
            runner.unpark();
        });
        let router = run()?;
        adds_up(&router);
        router.read(None, "c.count", "")
    });
    assert!(count.unwrap().parse::<u64>().unwrap() > 0);
}
