//! Packets that modules hold: whole commands, modules in text.

use crate::commands::{click, node, policy, ran, text};
use crate::common::frame;
use crate::forwards::{handler, module, packets, returning};
use std::path::Path;

const HOLD: u16 = 0xfff7;
const RELEASE: u16 = 0xfff6;
const COPY: u16 = 0xfff5;

fn held(kind: u16, first: u16, second: u16) -> Vec<u8> {
    frame(kind, &[first.to_le_bytes(), second.to_le_bytes()].concat())
}

/// A module that holds the first packet of each batch in the slot of its count, and traps in every fourth.
const HOLDS: &str = r#"(module (memory (export "memory") 4)
    (data (i32.const 1024) "\04\00\00\00\f7\ff\00\00\00\00\00\00")
    (func (export "flame_push") (param i32 i32) (result i64)
      (i32.store16 (i32.const 1034) (i32.load (i32.const 8)))
      (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (i32.const 1)))
      (if (i32.eq (i32.load (i32.const 8)) (i32.const 4)) (then unreachable))
      (i64.const 0xc00000400)))"#;

/// A source of `limit` packets, one for each batch, that differ in their last bytes.
fn source(folder: &Path, limit: u16) -> &'static str {
    let all: Vec<_> = (0..limit).map(|n| crate::common::tcp_packet(n, 80)).collect();
    crate::forwards::capture(&folder.join("in.pcap"), &all);
    "FromDump(in.pcap) -> Queue -> Unqueue(BURST 1)"
}

#[test]
fn packets_wait_and_leave_as_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let frames = [held(COPY, 0, 1), held(RELEASE, 0, 0), held(HOLD, 0, 0), held(RELEASE, 1, 0)];
    module(folder, "fwd", &returning(&frames), "outputs = 2\ntransmit = true\nheld = 2");
    let graph = format!(
        "{} -> m :: Module(./fwd.wasm); m [0] -> ToDump(a.pcap) -> Discard; m [1] -> ToDump(b.pcap) -> Discard",
        source(folder, 5)
    );
    let (out, err) = ran(folder, &graph, &["-h", "m.account", "-h", "m.held", "-h", "m.length"]);
    assert_eq!(err, "");
    let account = handler(&out, "m.account");
    assert!(account.starts_with("taken 5\nmade 4\ngiven 8\nheld 1") && !account.contains("dropped"), "{out}");
    assert_eq!((handler(&out, "m.held"), handler(&out, "m.length")), ("1".into(), "0".into()));
    // One later, whole, although the module sees headers only.
    let all = packets(&folder.join("in.pcap"));
    assert_eq!(
        (packets(&folder.join("a.pcap")), packets(&folder.join("b.pcap"))),
        (all[..4].to_vec(), all[..4].to_vec())
    );

    // Without a release, each takes the place of the one before, which is dropped.
    module(folder, "fwd", &returning(&[held(HOLD, 0, 0)]), "outputs = 2\nheld = 1");
    let (out, _) = ran(folder, &graph, &["-h", "m.account", "-h", "m.held"]);
    assert!(handler(&out, "m.account").contains("given 0\nheld 1\ndropped 4 module"), "{out}");
}

#[test]
fn what_an_instance_holds_when_it_ends_is_passed_or_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    module(folder, "holds", HOLDS, "held = 8");
    // Three are held, and the fourth ends the instance; one more begins, or the module is gone.
    for (restarts, policy, given, kept) in
        [(0, "pass", 10, 0), (0, "drop", 0, 0), (1, "pass", 10, 0), (9, "pass", 8, 2), (9, "drop", 0, 2)]
    {
        let graph = format!(
            "{} -> m :: Module(./holds.wasm, RESTART {restarts}, ON_EVICT {policy}) -> c :: Counter -> Discard",
            source(folder, 10)
        );
        let (out, err) = ran(folder, &graph, &["-h", "c.count", "-h", "m.account", "-h", "m.held"]);
        let case = format!("{restarts} {policy}: {out}{err}");
        assert_eq!(
            (handler(&out, "c.count"), handler(&out, "m.held")),
            (given.to_string(), kept.to_string()),
            "{case}"
        );
        assert!(err.contains("unreachable"), "{case}");
        assert_eq!(handler(&out, "m.account").contains(" module gone"), policy == "drop", "{case}");
    }
}

#[test]
fn a_router_that_is_replaced_keeps_what_its_modules_hold() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    module(folder, "fwd", &returning(&[held(HOLD, 0, 0)]), "held = 1");
    let graph = format!(
        "{} -> m :: Module(./fwd.wasm) -> c :: Counter -> Discard;
        Script(wait 0.1s, print $(m.held), write hotconfig $(cat next))",
        source(folder, 3)
    );
    for (argument, expected) in [("", "1\n1\n"), (", ON_EVICT drop", "1\n0\n")] {
        let next = format!(
            "Idle -> m :: Module(./fwd.wasm{argument}) -> c :: Counter -> Discard;
            Script(wait 0.1s, print $(m.held), print $(m.account), stop)"
        );
        std::fs::write(folder.join("next"), next).unwrap();
        let (out, err) = ran(folder, &graph, &["-R"]);
        assert!(out.starts_with(expected), "{argument}: {out}{err}");
    }
}

#[test]
fn a_grant_gives_the_right_to_hold_and_counts_copies() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let frames = [held(COPY, 0, 0), held(HOLD, 0, 0)];
    module(folder, "fwd", &returning(&frames), "transmit = true\nheld = 1");
    let graph = format!(
        "{} -> m :: Module(./fwd.wasm, CREDENTIAL alice.cred) -> c :: Counter -> Discard",
        source(folder, 50)
    );
    let rights = |calls: &str| format!("expose = \"headers\"\ncalls = \"{calls}\"\ntransmit = \"300B\"");
    let run = || click(folder, &graph, &["--policy", "policy.toml", "-h", "c.count"]);
    node(folder, &rights("forward, transmit"));
    let out = run();
    assert!(!out.status.success() && text(&out.stderr).contains("fwd uses hold"), "{}", text(&out.stderr));
    policy(folder, &rights("forward, transmit, hold"));
    let out = run();
    let copies: u64 = text(&out.stdout).trim().parse().unwrap_or_else(|_| panic!("{}", text(&out.stderr)));
    // Each takes 32 bytes more than its own.
    let length = packets(&folder.join("in.pcap"))[0].len() as u64;
    assert_eq!(copies, 300 / (32 + length.next_multiple_of(4)), "{}", text(&out.stderr));
}
