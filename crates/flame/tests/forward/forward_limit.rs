//! The time that a packet may take in a graph: segments of work, polls between them, and limits of modules.

use crate::commands::{flame, text};
use crate::forwards::{folder, forwarding, handler, module};
use std::path::Path;

fn check(folder: &Path, graph: &str, more: &[&str]) -> std::process::Output {
    flame(folder, &[&["click", "check"], more, &["-e", graph]].concat())
}

/// Returns the number after `before`.
fn number(said: &str, before: &str) -> f64 {
    let rest = said.split(before).nth(1).unwrap_or_else(|| panic!("{before}: {said}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn polls_divide_the_work_on_a_packet() {
    let folder = folder();
    let folder = folder.path();
    let chain: String = (0..40).map(|n| format!("c{n} :: CheckIPHeader -> ")).collect();
    let graph = format!("InfiniteSource -> {chain} Discard");
    let all = number(&text(&check(folder, &graph, &[]).stdout), "a packet costs at most ");
    // Costs are measured again each time, on a machine that may be busy: a third of them needs two polls too.
    let limit = format!("{}ns", (all / 6.0).ceil());
    let out = check(folder, &graph, &["--limit", &limit]);
    let said = text(&out.stdout);
    assert!(!out.status.success() && said.contains("a segment of work costs "), "{said}");
    assert!(said.contains("with Poll (") && said.contains("] -> [0] c"), "{said}");
    let out = check(folder, &graph, &["--limit", &limit, "--insert-polls"]);
    let divided = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(divided.contains("poll1 :: Poll;") && divided.contains("poll2 :: Poll;"), "{divided}");
    assert!(text(&out.stderr).contains("a segment of work costs "), "{}", text(&out.stderr));
    let out = check(folder, &divided, &["--limit", &format!("{}ns", (all * 0.9).ceil())]);
    assert!(out.status.success(), "{}", text(&out.stdout));
    assert!(text(&out.stdout).contains("each segment of work costs at most "), "{}", text(&out.stdout));
    // A configuration that needs none is printed as it is.
    let out = check(folder, "Idle -> Null -> Discard", &["--limit", "1s", "--insert-polls"]);
    assert!(out.status.success() && !text(&out.stdout).contains("Poll"), "{}", text(&out.stdout));
    // No Poll divides an element.
    let out = check(
        folder,
        "InfiniteSource -> c :: CheckIPHeader -> Discard",
        &["--limit", "1ns", "--insert-polls"],
    );
    let said = text(&out.stderr);
    assert!(!out.status.success() && said.contains("no Poll brings it within the limit: "), "{said}");
    assert!(out.stdout.is_empty(), "a report is no configuration");
    for wrong in [&["--limit", "0s"][..], &["--limit", "soon"], &["--insert-polls"]] {
        let out = check(folder, "Idle -> Discard", wrong);
        assert!(!out.status.success() && text(&out.stderr).contains("limit"), "{}", text(&out.stderr));
    }
}

#[test]
fn a_check_states_the_class_of_each_cost() {
    let folder = folder();
    let folder = folder.path();
    module(folder, "fwd", &forwarding("(i32.const 1)", "(i32.const 0)", ""), "");
    let graph = "InfiniteSource -> CheckIPHeader -> m :: Module(./fwd.wasm) -> t :: Tee -> Queue -> Unqueue
        -> Discard; t [1] -> SetUDPChecksum -> IPClassifier(-) -> Discard; t [2] -> IPRewriter(drop) -> Discard";
    let said = text(&check(folder, graph, &[]).stdout);
    let classes = said.split("classes of cost:\n").nth(1).unwrap_or_else(|| panic!("{said}"));
    let of = |class: &str| classes.lines().find(|line| line.trim_start().starts_with(class)).unwrap_or("");
    assert!(of("E1").contains("Discard, ") && of("E1").contains("Queue"), "{classes}");
    assert_eq!(of("E2").trim(), "E2  SetUDPChecksum");
    assert_eq!(of("E3").trim(), "E3  CheckIPHeader");
    assert_eq!((of("E4").trim(), of("E5").trim()), ("E4  IPClassifier", "E5  IPRewriter, Tee"));
    assert_eq!(classes.matches("m (Module)").count(), 1, "{classes}");
}

#[test]
fn a_module_that_keeps_exceeding_its_limit_loses_its_place() {
    let folder = folder();
    let folder = folder.path();
    module(folder, "fwd", &forwarding("(i32.const 1)", "(i32.const 0)", ""), "");
    // Returns whether it is gone, the packets that passed, its account, and the messages.
    let run = |arguments: &str| {
        let graph = format!(
            "InfiniteSource(LIMIT 40000, BURST 32, STOP true)
             -> m :: Module(./fwd.wasm, LIVE true{arguments}) -> c :: Counter -> Discard"
        );
        let handlers = ["-h", "m.gone", "-h", "c.count", "-h", "m.account"];
        let out = flame(folder, &[&["click"], &handlers[..], &["-e", &graph]].concat());
        let said = text(&out.stderr);
        assert!(out.status.success(), "{said}");
        let of = |name: &str| handler(&text(&out.stdout), name).trim().to_owned();
        (of("m.gone"), of("c.count").parse::<u64>().unwrap(), of("m.account"), said)
    };
    for arguments in ["", ", LIMIT 1s, ON_EVICT drop"] {
        let (gone, count, _, said) = run(arguments);
        assert!(gone == "false" && count == 40_000 && !said.contains("metered"), "{gone} {count} {said}");
    }
    let (gone, count, account, said) = run(", LIMIT 1ns, ON_EVICT drop");
    // Its estimate is within the limit times the inflation factor; its batches are not within the limit.
    assert!(gone == "true" && said.contains("evicted: took more than 1 ns"), "{gone} {said}");
    assert!(!said.contains("metered"), "{said}");
    assert!((256..40_000).contains(&count), "{count}");
    assert!(account.contains(&format!("{} evicted", 40_000 - count)), "{account}");
    let (gone, count, ..) = run(", LIMIT 1ns, ON_EVICT pass");
    assert_eq!((gone.as_str(), count), ("true", 40_000));
    let (.., said) = run(", LIMIT 1ns, CAPACITY 1");
    assert!(said.contains("metered"), "without packets that can wait there is no inflation: {said}");
    for wrong in ["soon", "0s"] {
        let graph = format!("Idle -> Module(./fwd.wasm, LIMIT {wrong}) -> Discard");
        let out = flame(folder, &["click", "-e", &graph]);
        assert!(!out.status.success() && text(&out.stderr).contains("LIMIT"), "{}", text(&out.stderr));
    }
}
