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
