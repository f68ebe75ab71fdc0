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
    assert!(err.contains("m :: Module: 1 packet left at the end"), "{err}");
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

/// A module that ends since another one takes its place has held packets, which become what its element
/// stated.
#[test]
fn what_a_replaced_module_holds_is_passed_or_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    module(folder, "fwd", &returning(&[held(HOLD, 0, 0)]), "held = 1");
    let measures = r#"(module (memory (export "memory") 1)
        (func (export "flame_batch") (param i32) (result i64) (i64.const 0)))"#;
    let manifest = "abi = 1\nname = \"meas\"\nversion = \"1\"\ndescription = \"test\"\n";
    let wasm = crate::common::with_manifest(wat::parse_str(measures).unwrap(), manifest.as_bytes());
    std::fs::write(folder.join("meas.wasm"), wasm).unwrap();
    for (config, next, given) in [
        ("ON_EVICT pass", "./fwd.wasm, ON_EVICT drop", 1),
        ("ON_EVICT drop", "./fwd.wasm", 0),
        ("ON_EVICT pass", "./meas.wasm", 1),
        ("ON_EVICT drop", "./meas.wasm", 0),
    ] {
        let graph = format!(
            "{} -> m :: Module(./fwd.wasm, {config}) -> c :: Counter -> Discard;
            Script(wait 0.1s, print $(m.held), write hotconfig $(cat next))",
            source(folder, 1)
        );
        let after = format!(
            "Idle -> m :: Module({next}) -> c :: Counter -> Discard;
            Script(wait 0.1s, print $(c.count) $(m.held), print $(m.account), stop)"
        );
        std::fs::write(folder.join("next"), after).unwrap();
        let (out, err) = ran(folder, &graph, &["-R"]);
        assert!(out.starts_with(&format!("1\n{given} 0\n")), "{config}, {next}: {out}{err}");
        assert_eq!(out.contains("dropped 1 replaced"), given == 0, "{config}, {next}: {out}{err}");
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

/// A module that holds the first packet, and traps after it has released it in the second batch: in the call
/// for the rest of its output. Instances after the first send all packets.
const RELEASES_AND_TRAPS: &str = r#"(module (memory (export "memory") 4)
    (data (i32.const 1024) "\04\00\00\00\f7\ff\00\00\00\00\00\00")
    (data (i32.const 1040) "\04\00\00\00\f6\ff\00\00\00\00\00\00")
    (data (i32.const 1056) "\04\00\00\00\fb\ff\00\00\00\00\00\00")
    (func (export "flame_push") (param $in i32) (param $b i32) (result i64)
      (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (i32.const 1)))
      (if (i32.and (i32.load offset=16 (local.get $b)) (i32.const 1)) (then
        (i32.store (i32.const 8) (i32.const 9))))
      (if (i32.eq (i32.load (i32.const 8)) (i32.const 1)) (then (return (i64.const 0xc00000400))))
      (if (i32.eq (i32.load (i32.const 8)) (i32.const 2)) (then (return (i64.const 0xc40000410))))
      (i64.const 0xc00000420))
    (func (export "flame_rest") (result i64) unreachable))"#;

#[test]
fn a_packet_whose_release_had_no_effect_is_forgotten_with_its_instance() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    module(folder, "fwd", RELEASES_AND_TRAPS, "held = 1");
    for (restarts, policy, given) in [(0, "pass", 6), (0, "drop", 0), (1, "pass", 6), (1, "drop", 4)] {
        let graph = format!(
            "{} -> m :: Module(./fwd.wasm, RESTART {restarts}, ON_EVICT {policy}) -> c :: Counter -> Discard",
            source(folder, 6)
        );
        let (out, err) = ran(folder, &graph, &["-h", "c.count", "-h", "m.account", "-h", "m.held"]);
        let case = format!("{restarts} {policy}: {out}{err}");
        assert_eq!(
            (handler(&out, "c.count"), handler(&out, "m.held")),
            (given.to_string(), "0".into()),
            "{case}"
        );
        assert!(handler(&out, "m.account").contains(&format!("given {given}\nheld 0")), "{case}");
    }
}

/// The module decides about 8 packets: the first leaves by output 1, behind which the element is configured
/// again, the others are held in slots 0 to 6. Its second batch releases them.
#[test]
fn an_element_that_is_replaced_while_its_packets_are_sent_holds_them_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let all: Vec<_> = (0..9).map(|n| crate::common::tcp_packet(n, 80)).collect();
    crate::forwards::capture(&folder.join("in.pcap"), &all);
    let sends: Vec<u8> = crate::forwards::send(0, 1, b"");
    let holds: Vec<_> = (1..8).flat_map(|n| held(HOLD, n, n - 1)).collect();
    let releases: Vec<_> = (0..7).flat_map(|slot| held(RELEASE, slot, 0)).collect();
    let (first, second) = ([&sends[..], &holds].concat(), [&sends[..], &releases].concat());
    let data = |bytes: &[u8]| bytes.iter().map(|b| format!("\\{b:02x}")).collect::<String>();
    let wat = format!(
        r#"(module (memory (export "memory") 4) (data (i32.const 1024) "{}") (data (i32.const 2048) "{}")
          (func (export "flame_push") (param $in i32) (param $b i32) (result i64)
            (if (result i64) (i32.eq (i32.load offset=4 (local.get $b)) (i32.const 8))
              (then (i64.const {})) (else (i64.const {})))))"#,
        data(&first),
        data(&second),
        1024 | (first.len() as u64) << 32,
        2048 | (second.len() as u64) << 32
    );
    module(folder, "fwd", &wat, "outputs = 2\nheld = 7");
    let (pass, drop) = ("./fwd.wasm", "./fwd.wasm, ON_EVICT drop");
    for (config, next, given, account) in [
        (pass, pass, 9, "held 0"),
        // Another element knows nothing of them: they become what the one before states.
        (pass, drop, 9, "held 0"),
        (drop, pass, 2, "dropped 7 replaced"),
    ] {
        std::fs::write(folder.join("next"), next).unwrap();
        let graph = format!(
            "FromDump(in.pcap) -> Queue -> u :: Unqueue(BURST 8, ACTIVE false) -> m :: Module({config});
            m [0] -> c :: Counter -> Discard;
            m [1] -> Script(TYPE PACKET, write m.config $(cat next)) -> d :: Counter -> Discard;
            Script(wait 0.1s, write u.active true, wait 0.5s, print $(m.account), print $(m.held), stop)"
        );
        let (out, err) = ran(folder, &graph, &["-h", "c.count", "-h", "d.count"]);
        let counts: u32 = ["c.count", "d.count"]
            .iter()
            .map(|name| handler(&out, name).trim().parse::<u32>().unwrap())
            .sum();
        assert_eq!(counts, given, "{config}: {out}{err}");
        let is_right = match account {
            "held 0" => !out.contains("dropped"),
            dropped => out.contains(dropped),
        };
        assert!(is_right, "{config}: {out}{err}");
    }
}

#[test]
fn packets_of_a_revoked_module_leave_although_none_come() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    module(folder, "fwd", &returning(&[held(HOLD, 0, 0)]), "held = 1");
    node(folder, "expose = \"headers\"\ncalls = \"forward, hold\"");
    std::fs::write(folder.join("before"), std::fs::read(folder.join("revoked")).unwrap()).unwrap();
    let revoke = ["grant", "revoke", "--policy", "policy.toml", "alice.cred"];
    for policy in ["pass", "drop"] {
        std::fs::copy(folder.join("before"), folder.join("revoked")).unwrap();
        let _ = std::fs::remove_file(folder.join("ready"));
        let graph = format!(
            "{} -> m :: Module(./fwd.wasm, CREDENTIAL alice.cred, ON_EVICT {policy}) -> c :: Counter -> Discard;
            Script(label held, wait 0.05s, save m.held ready, goto held $(eq $(m.held) 0),
                set n 0, label gone, wait 0.05s, set n $(add $n 1),
                goto end $(gt $n 400), goto gone $(eq $(m.held) 1),
                label end, print $(m.gone) $(m.held) $(c.count), stop)",
            source(folder, 1)
        );
        let revoked = std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::common::eventually("a packet that is held", || {
                    std::fs::read_to_string(folder.join("ready")).is_ok_and(|held| held.starts_with('1'))
                });
                crate::commands::done(folder, &revoke);
            });
            // Not in simulated time.
            crate::commands::flame(folder, &["click", "--policy", "policy.toml", "-e", &graph])
        });
        let out = text(&revoked.stdout);
        let given = u8::from(policy == "pass");
        assert!(out.contains(&format!("true 0 {given}")), "{policy}: {out}{}", text(&revoked.stderr));
    }
}

/// The packets that a module may hold and copy do not depend on lengths that it does not see.
#[test]
fn hidden_lengths_limit_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let copies = vec![held(COPY, 0, 1); 100];
    let frames = [&[held(HOLD, 0, 0)][..], &copies].concat();
    module(folder, "fwd", &returning(&frames), "outputs = 2\ntransmit = true\nheld = 1");
    let count = |expose: &str, length: u32| {
        let graph = format!(
            "InfiniteSource(LENGTH {length}, LIMIT 1, STOP true) -> m :: Module(./fwd.wasm, EXPOSE {expose});
            m [0] -> Discard; m [1] -> c :: Counter -> Discard"
        );
        handler(&ran(folder, &graph, &["-h", "c.count", "-h", "m.held"]).0, "c.count")
    };
    assert_eq!((count("headers", 60), count("headers", 60_000)), ("100".into(), "69".into()));
    assert_eq!((count("count", 60), count("count", 60_000)), ("16".into(), "16".into()));
    // A packet that is longer than any that is shown as a whole is not held.
    let graph = format!(
        "InfiniteSource(LIMIT 1, STOP true) {} -> m :: Module(./fwd.wasm); m [0] -> Discard; m [1] -> Discard",
        "-> Unstrip(60000)".repeat(5)
    );
    let (out, err) = ran(folder, &graph, &["-h", "m.account", "-h", "m.held"]);
    assert!(out.contains("dropped 1 too long to hold") && handler(&out, "m.held") == "0", "{out}{err}");
}
