//! `flame click -j N`: whole commands, with modules in several threads.

use crate::click_modules::{folder, module, packets, trapping};
use crate::commands::{done, flame, ran, text};
use std::path::Path;
use std::process::Output;

/// Runs a graph in threads, which simulated time has not.
pub fn in_threads(folder: &Path, threads: &str, graph: &str, more: &[&str]) -> Output {
    flame(folder, &[&["click", "-j", threads, "--format", "json", "-e", graph][..], more].concat())
}

/// Two ways of the same packets, each through a queue of 100,000 packets that a thread of its own empties.
const TWO: &str = "FromDump(in.pcap) -> t :: Tee
    -> qa :: Queue(100000) -> a :: Module(./counts.wasm) -> ua :: Unqueue
    -> ca :: Counter(COUNT_CALL 2000 stop) -> Discard;
    t [1] -> qb :: Queue(100000) -> b :: Module(./counts.wasm, SELECT \"port 80\") -> ub :: Unqueue(BURST 7)
    -> cb :: Counter(COUNT_CALL 2000 stop) -> Discard;
    DriverManager(wait_stop 2);
    StaticThreadSched(ua 1, ub 2)";

#[test]
fn modules_of_several_threads_see_what_they_see_in_one() {
    let folder = folder();
    let folder = folder.path();
    let handlers =
        ["-h", "a.stats", "-h", "b.stats", "-h", "b.account", "-h", "a.home_thread", "-h", "b.home_thread"];
    let (one, err) = ran(folder, TWO, &handlers);
    assert_eq!(err, "");
    let sorted = |text: &str| {
        let mut all = packets(text);
        all.sort();
        all
    };
    assert_eq!(sorted(&one), [("counts".to_owned(), 2000), ("counts#2".to_owned(), 1000)]);
    for _ in 0..5 {
        let out = in_threads(folder, "3", TWO, &handlers);
        let (three, err) = (text(&out.stdout), text(&out.stderr));
        assert_eq!((sorted(&three), err.as_str()), (sorted(&one), ""));
        let values = |text: &str| text.lines().filter(|l| !l.starts_with('{')).collect::<Vec<_>>().join("\n");
        let expected = values(&one).replace("a.home_thread:\n0", "a.home_thread:\n1");
        let expected = expected.replace("b.home_thread:\n0", "b.home_thread:\n2");
        assert_eq!(values(&three), expected);
    }
}

#[test]
fn a_fault_in_one_thread_leaves_the_others_alone() {
    let folder = folder();
    let folder = folder.path();
    module(folder, "traps", &trapping(700));
    let graph = TWO.replacen("counts", "traps", 1);
    let out = in_threads(folder, "3", &graph, &["-h", "a.gone", "-h", "b.gone", "-h", "ca.count"]);
    let (out, err) = (text(&out.stdout), text(&out.stderr));
    assert!(err.contains("module traps stopped"), "{err}");
    assert!(packets(&out).contains(&("counts".to_owned(), 1000)), "{out}");
    assert!(out.contains("a.gone:\ntrue\n\nb.gone:\nfalse\n\nca.count:\n2000\n"), "{out}");
}

#[test]
fn a_module_that_is_refused_in_one_thread_ends_all() {
    let folder = folder();
    let folder = folder.path();
    let refused = in_threads(folder, "3", &TWO.replacen("counts", "nothing", 2), &[]);
    let err = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{err}");
    assert!(err.contains("nothing.wasm") && err.contains("Router could not be initialized!"), "{err}");
    // One configuration for both, in a run of one thread.
    done(folder, &["run", "./counts.wasm", "-r", "in.pcap", "-q"]);
}

/// Another configuration in several threads has the module of the same arguments, also in another thread.
#[test]
fn a_module_goes_to_its_thread_of_another_configuration() {
    let folder = folder();
    let folder = folder.path();
    let graph = |source: &str, arguments: &str, thread: usize, rest: &str| {
        format!(
            "{source} -> q :: Queue(100000) -> m :: Module(./counts.wasm{arguments}) -> u :: Unqueue -> {rest};
             StaticThreadSched(u {thread})"
        )
    };
    for (arguments, expected) in [("", vec![2000]), (", RESTART 1", vec![1000, 1000])] {
        for thread in [0, 1, 2] {
            let source = "f2 :: FromDump(in.pcap) -> Classifier(36/0050)";
            let rest = "Counter(COUNT_CALL 1000 stop) -> Discard";
            std::fs::write(folder.join("next"), graph(source, arguments, thread, rest)).unwrap();
            let source = "FromDump(in.pcap) -> Classifier(36/01bb)";
            let rest = "Discard; s :: Script(wait 1s, write hotconfig $(cat next)); StaticThreadSched(s 2)";
            let out = in_threads(folder, "3", &graph(source, "", 1, rest), &["-R", "-h", "m.home_thread"]);
            let (out, err) = (text(&out.stdout), text(&out.stderr));
            let found: Vec<_> = packets(&out).into_iter().map(|(_, n)| n).collect();
            assert_eq!((found, err.as_str()), (expected.clone(), ""), "{out}");
            assert!(out.lines().any(|line| line == thread.to_string()), "{out}");
        }
    }
}

/// Packets that a module holds go with it.
#[test]
fn a_module_that_forwards_goes_with_the_packets_that_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let hold = crate::common::frame(0xfff7, &[0; 4]);
    crate::forwards::module(folder, "fwd", &crate::forwards::returning(&[hold]), "held = 1");
    let left = "m :: Module: 1 packet left at the end\n";
    for (argument, expected, said) in [("", "1\n1 0\n", left), (", ON_EVICT drop", "1\n0 1\n", "")] {
        let first = "s :: InfiniteSource(LIMIT 3, BURST 1) -> q :: Queue -> u :: Unqueue
            -> m :: Module(./fwd.wasm) -> c :: Counter -> Discard;
            Script(wait 0.2s, print $(m.held), write hotconfig $(cat next)); StaticThreadSched(u 1)";
        let next = format!(
            "i :: Idle -> m :: Module(./fwd.wasm{argument}) -> c :: Counter -> Discard;
            Script(wait 0.1s, print \"$(m.held) $(c.count)\", stop); StaticThreadSched(i 2)"
        );
        std::fs::write(folder.join("next"), next).unwrap();
        let out = in_threads(folder, "3", first, &["-R"]);
        let (out, err) = (text(&out.stdout), text(&out.stderr));
        // Two of the three were dropped for the next one.
        assert_eq!((out.as_str(), err.as_str()), (expected, said), "{argument}");
    }
}

/// A client that asks for another configuration keeps its connection, whichever thread answers it.
#[test]
fn a_control_socket_of_any_thread_replaces_the_router() {
    use std::io::{BufRead, BufReader, Write};
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let graph = |n: usize, threads: [usize; 3]| {
        let [a, b, c] = threads;
        format!(
            "s :: InfiniteSource -> a :: Counter -> q :: Queue(500) -> u :: Unqueue -> b :: Counter -> Discard;
            n{n} :: Idle -> Discard; control :: ControlSocket(UNIX, control);
            StaticThreadSched(s {a}, u {b}, control {c})"
        )
    };
    let client = |path: std::path::PathBuf, graphs: Vec<String>| {
        let connect = || std::os::unix::net::UnixStream::connect(&path).ok();
        let stream = crate::common::eventually("the socket", connect);
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = move || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        assert_eq!(line(), "Click::ControlSocket/1.3");
        let ask = |text: &str| (&stream).write_all(text.as_bytes()).unwrap();
        let mut write = |text: &str| {
            ask(&format!("WRITEDATA hotconfig {}\n{text}", text.len()));
            let mut lines = vec![line()];
            while lines.last().is_some_and(|l| l.as_bytes().get(3) == Some(&b'-')) {
                lines.push(line());
            }
            lines.join("\n")
        };
        let mut answers = vec![write("nonsense ->")];
        answers.extend(graphs.iter().map(|graph| write(graph)));
        // What cannot be built is reported by the router, which continues.
        answers.push(write("f :: FromDump(nothing.pcap) -> Discard; StaticThreadSched(f 1)"));
        ask("WRITE stop\n");
        answers
    };
    let path = folder.join("control");
    let graphs = (1..20).map(|n| graph(n, [n % 3, (n / 2) % 3, (n + 1) % 3])).collect();
    let asking = std::thread::spawn(move || client(path, graphs));
    let handlers =
        ["-R", "-h", "n19.class", "-h", "a.count", "-h", "b.count", "-h", "q.length", "-h", "q.drops"];
    let out = in_threads(folder, "3", &graph(0, [0, 1, 2]), &handlers);
    let (out, err) = (text(&out.stdout), text(&out.stderr));
    let answers = asking.join().unwrap();
    assert!(answers[0].starts_with("520-") && answers[0].contains("syntax error"), "{answers:?}");
    assert!(answers[1..].iter().all(|a| a == "200 Write handler 'hotconfig' OK"), "{answers:?}");
    let of_run = err.lines().filter(|line| !line.starts_with("q :: Queue: "));
    assert!(err.contains("nothing.pcap") && of_run.count() == 2, "{err}");
    let value = |name: &str| -> u64 {
        let at = out.find(&format!("{name}:\n")).unwrap_or_else(|| panic!("{name}: {out}")) + name.len() + 2;
        out[at..].lines().next().unwrap().parse().unwrap()
    };
    assert!(out.contains("n19.class:\nIdle\n"), "{out}{err}");
    // None is lost: each was counted before the queue and after it, or is in it, or was too much for it.
    let (a, b) = (value("a.count"), value("b.count"));
    assert!(b > 100, "{out}");
    assert_eq!(a, b + value("q.length") + value("q.drops"), "{out}");
}
