//! Tests of the state that modules keep on a node: over updates, restarts of the node in order and by
//! `kill -9`, of a principal's process, and from rows that were damaged.

use crate::daemon::{self, Node, replay, wait_for};
use crate::wasm::{MANIFEST, with_manifest};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;

/// A module that counts packets, reports their number at ticks and at its end, and keeps it. A state whose
/// first byte is 255 is refused.
const COUNT: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\08\00\00\00\00\00\00\00")
    (func (export "flame_batch") (param i32) (result i64)
        (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.load32_u offset=4 (local.get 0))))
        (i64.const 0))
    (func (export "flame_export") (result i64) (i64.const 0x800000008))
    (func (export "flame_import") (param i32 i32) (result i64)
        (if (i32.eq (i32.load8_u offset=7 (local.get 0)) (i32.const 255)) (then (return (i64.const 1))))
        (i64.store (i32.const 8) (i64.load (local.get 0))) (i64.const 0))
    (func (export "flame_tick") (param i64) (result i64) (i64.const 0x1000000000))
    (func (export "flame_end") (param i64) (result i64) (i64.const 0x1000000000)))"#;

/// Writes the module to a file, with `state` in its manifest.
fn write(node: &Node, file: &str, state: &str) -> String {
    let manifest =
        MANIFEST.replace("hostile", "counter").replace("[[tables]]", &format!("{state}[[tables]]"));
    let mut text = COUNT.to_owned();
    if state.is_empty() {
        text = text.replace("flame_export", "x").replace("flame_import", "y");
    }
    let path = node.path(file);
    std::fs::write(&path, with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())).unwrap();
    path.display().to_string()
}

const STATE: &str = "[state]\nversion = 1\nmax = 64\n";

/// Starts a node that writes states often, and returns the module's file.
fn started(more: &str) -> (Node, String) {
    let mut node = Node::new("");
    configure(&node, "", more);
    node.mint("alice", &[]);
    node.start();
    let file = write(&node, "count.wasm", STATE);
    (node, file)
}

fn configure(node: &Node, source: &str, more: &str) {
    write_often(node, &format!("{}{source}{more}", replay()));
}

fn write_often(node: &Node, more: &str) {
    node.configure(more);
    let path = node.path("node.toml");
    let text = std::fs::read_to_string(&path).unwrap().replace("[node]\n", "[node]\nstates = \"100ms\"\n");
    std::fs::write(path, text).unwrap();
}

/// The options by which a command acts for its module: the operator's or Alice's.
fn of(principal: bool) -> &'static [&'static str] {
    if principal { &["--credential", "alice.cred", "--identity", "alice.key"] } else { &[] }
}

fn act(node: &Node, principal: bool, arguments: &[&str]) -> Value {
    node.json(&[arguments, of(principal)].concat())
}

/// Returns the module as the operator sees it.
fn show(node: &Node, principal: bool) -> Value {
    let more: &[&str] = if principal { &["--principal", "alice"] } else { &[] };
    node.json(&[&["show", "counter"], more].concat())
}

fn processed(node: &Node, principal: bool) -> u64 {
    show(node, principal)["account"]["processed"].as_u64().unwrap()
}

fn wait_for_packets(node: &Node, principal: bool, more: u64) {
    let before = processed(node, principal);
    wait_for("packets", || processed(node, principal) >= before + more);
}

/// Stops the module, and returns its last count and the packets that it has processed since the node was
/// started.
fn stop(node: &Node, principal: bool) -> (u64, u64) {
    let stopped = act(node, principal, &["stop", "counter"]);
    assert_eq!((&stopped["account"]["adds_up"], &stopped["account"]["faults"]), (&true.into(), &0.into()));
    let rows = node.run(&[&["records", "counter", "--format", "json", "-q"], of(principal)].concat());
    let last: Value = serde_json::from_str(rows.lines().last().unwrap()).unwrap();
    (last["packets"].as_u64().unwrap(), stopped["account"]["processed"].as_u64().unwrap())
}

fn notes(module: &Value) -> String {
    module["notes"].to_string()
}

fn database(node: &Node) -> rusqlite::Connection {
    let database = rusqlite::Connection::open(node.path("state/node.sqlite")).unwrap();
    database.busy_timeout(daemon::PATIENCE).unwrap();
    database
}

/// Returns the count that is stored.
fn stored(node: &Node) -> Option<u64> {
    let read = database(node).query_row("SELECT state FROM states", [], |row| row.get::<_, Vec<u8>>(0));
    Some(u64::from_le_bytes(read.ok()?.try_into().unwrap()))
}

#[test]
fn updates_carry_the_state_or_begin_empty_and_say_which() {
    let (node, file) = started("");
    let second = write(&node, "second.wasm", &STATE.replace("version = 1", "version = 2"));
    let without = write(&node, "without.wasm", "");
    for principal in [false, true] {
        let act = |arguments: &[&str]| act(&node, principal, arguments);
        act(&["install", &file]);
        for _ in 0..6 {
            wait_for_packets(&node, principal, 50);
            let updated = act(&["update", "counter", &file]);
            assert!(notes(&updated).contains("state: version 1 is carried on: worker 0"), "{updated}");
        }
        wait_for_packets(&node, principal, 50);
        // Every packet that was processed is counted once. The last instance alone has ended.
        let (count, packets) = stop(&node, principal);
        assert_eq!(count, packets);
        assert_eq!(stored(&node), Some(count), "written with its end");
        // What was stopped continues.
        assert!(notes(&act(&["update", "counter"])).contains("carried on"));
        wait_for_packets(&node, principal, 50);
        let (count, packets) = stop(&node, principal);
        assert_eq!(count, packets);

        let empty = act(&["update", "counter", "--empty"]);
        assert!(notes(&empty).contains("begins empty: as requested"), "{empty}");
        wait_for_packets(&node, principal, 50);
        let (count, packets) = stop(&node, principal);
        assert!(count > 0 && count < packets, "{count} {packets}");
        act(&["update", "counter"]);
        for (file, said) in [
            (&second, "the state has version 1, this module has 2"),
            (&file, "the state has version 2, this module has 1"),
        ] {
            let updated = act(&["update", "counter", file]);
            assert!(notes(&updated).contains(&format!("begins empty: {said}")), "{updated}");
            wait_for_packets(&node, principal, 50);
        }
        act(&["update", "counter", &without]);
        assert_eq!(stored(&node), None, "nothing of the code before is left");
        let updated = act(&["update", "counter", &file]);
        assert!(notes(&updated).contains("version 1 begins empty: none was kept"), "{updated}");
        if principal {
            // What was seen with wider rights is not for narrower ones.
            let narrowed = act(&["update", "counter", "--narrow", "expose=count"]);
            assert!(
                notes(&narrowed).contains("begins empty: the state was made with other rights"),
                "{narrowed}"
            );
        }
        wait_for("the write", || stored(&node).is_some());
        act(&["remove", "counter"]);
        assert_eq!(stored(&node), None, "removed with the module");
    }
}

/// Narrowings of rights on which a state depends, and of rights on which it does not. The policy has names
/// for all of them.
const IN_STATE: [&str; 16] = [
    "select=tcp",
    "expose=count",
    "transform=ip.src=hash",
    "resolution=1ms",
    "ticks=2s",
    "sample=2",
    "calls=records,messages,state",
    "records_per_second=999999",
    "bytes_per_second=1KiB",
    "transmit=1KiB",
    "send=udp",
    "call=a",
    "serve=a",
    "read=a",
    "write=a",
    "group=1",
];
const NOT_IN_STATE: [&str; 8] = [
    "memory=1GiB",
    "packet_budget=1000000",
    "cpu=90ms/100ms",
    "buffer=8",
    "priority=1",
    "expires=2999-01-01T00:00:00Z",
    "node=tap1",
    "interface=file",
];

#[test]
fn a_state_goes_on_only_under_the_rights_it_was_made_with() {
    let mut node = Node::new("");
    configure(&node, "", "");
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    let names = "calls = \"records, messages, state, log\"\ncall = \"a, b\"\nserve = \"a, b\"\n\
                 read = \"a, b\"\nwrite = \"a, b\"\ntransmit = \"1MiB\"";
    let policy = policy.replace("calls = \"records, messages, state\"", names);
    std::fs::write(node.path("policy.toml"), policy).unwrap();
    node.mint("alice", &[]);
    node.start();
    let file = write(&node, "count.wasm", STATE);
    let hash: String =
        Sha256::digest(std::fs::read(&file).unwrap()).iter().map(|b| format!("{b:02x}")).collect();
    let code = format!("code=sha256:{hash}");
    act(&node, true, &["install", &file]);
    let in_state = IN_STATE.into_iter().chain([&*code]);
    for (narrow, depends) in in_state.map(|n| (n, true)).chain(NOT_IN_STATE.map(|n| (n, false))) {
        wait_for_packets(&node, true, 10);
        // The second update goes back to the earlier rights.
        let update = |narrow| notes(&act(&node, true, &["update", "counter", &file, "--narrow", narrow]));
        let notes = [narrow, NOT_IN_STATE[0]].map(update);
        let said =
            if depends { "begins empty: the state was made with other rights" } else { "is carried on" };
        assert!(notes.iter().all(|notes| notes.contains(said)), "{narrow}: {notes:?}");
    }
}

#[test]
fn a_restart_of_the_node_goes_on_where_it_ended() {
    let (mut node, file) = started("");
    for principal in [false, true] {
        act(&node, principal, &["install", &file]);
        wait_for_packets(&node, principal, 100);
        // In order: nothing is lost.
        node.end();
        let before = stored(&node).expect("written at the end");
        assert!(before >= 100, "{before}");
        node.start();
        wait_for_packets(&node, principal, 100);
        let (count, packets) = stop(&node, principal);
        assert_eq!(count, before + packets);
        act(&node, principal, &["update", "counter"]);
        // By force: the count that was written last.
        for _ in 0..3 {
            let earlier = stored(&node).unwrap();
            wait_for("a write", || stored(&node).unwrap() > earlier);
            node.kill();
            let before = stored(&node).unwrap();
            node.start();
            let logs = || node.run(&[&["logs", "counter"], of(principal)].concat());
            wait_for("the import", || logs().contains("worker 0: it goes on with its state"));
            wait_for_packets(&node, principal, 100);
            let (count, packets) = stop(&node, principal);
            assert_eq!(count, before + packets);
            act(&node, principal, &["update", "counter"]);
        }
        act(&node, principal, &["remove", "counter"]);
    }
}

#[test]
fn a_process_that_is_killed_begins_with_the_state_of_before() {
    let (node, file) = started("");
    act(&node, true, &["install", &file]);
    for _ in 0..2 {
        wait_for_packets(&node, true, 50);
        wait_for("a write", || stored(&node).is_some_and(|count| count > 50));
        let before = stored(&node).unwrap();
        let process = show(&node, true)["process"].as_u64().expect("a process").to_string();
        assert!(std::process::Command::new("kill").args(["-9", &process]).status().unwrap().success());
        wait_for("another process", || {
            show(&node, true)["process"].as_u64().is_some_and(|pid| pid.to_string() != process)
        });
        wait_for_packets(&node, true, 50);
        wait_for("a later write", || stored(&node).unwrap() > before + 50);
    }
    let log = node.run(&["logs", "counter", "--principal", "alice"]);
    assert!(log.contains("it goes on with its state"), "{log}");
    let shown = show(&node, true);
    let stopped = act(&node, true, &["stop", "counter"]);
    assert_eq!(stopped["account"]["adds_up"], true, "{shown} {stopped}");
    assert!(stored(&node).unwrap() <= stopped["account"]["processed"].as_u64().unwrap());
}

/// A capture of 20 packets in 200 ms.
fn short_capture() -> Vec<u8> {
    let packet = |n: u64| (1_000_000_000_000 + n * 10_000_000, [0; 60]);
    flame_testing::Pcap::default().with((0..20).map(packet)).bytes()
}

#[test]
fn a_source_that_is_started_again_goes_on() {
    let mut node = Node::new("");
    let (there, away) = (node.path("short.pcap"), node.path("away.pcap"));
    std::fs::write(&there, short_capture()).unwrap();
    write_often(&node, "[sources.trial]\nfile = \"short.pcap\"\nrepeat = true\ninterval = \"100ms\"\n");
    node.mint("alice", &[]);
    let file = write(&node, "count.wasm", STATE);
    node.start();
    for principal in [false, true] {
        act(&node, principal, &["install", &file]);
        wait_for_packets(&node, principal, 50);
        // The file cannot be opened again at its end.
        std::fs::rename(&there, &away).unwrap();
        let logs = || node.run(&[&["logs", "counter"], of(principal)].concat());
        wait_for("the end of the source", || logs().contains("the source does not run"));
        std::fs::rename(&away, &there).unwrap();
        wait_for("the state", || logs().contains("it goes on with its state"));
        assert!(logs().contains("the source runs again"), "{}", logs());
        wait_for_packets(&node, principal, 50);
        let (count, packets) = stop(&node, principal);
        assert_eq!(count, packets);
        act(&node, principal, &["remove", "counter"]);
    }
}

#[test]
fn damaged_rows_begin_empty_and_say_so() {
    let (mut node, file) = started("");
    act(&node, false, &["install", &file]);
    wait_for_packets(&node, false, 50);
    let whole = "SELECT terms FROM states";
    for damage in [
        "UPDATE states SET state = x'0102'",
        "UPDATE states SET state = zeroblob(2000000)",
        "UPDATE states SET hash = x''",
        "UPDATE states SET place = 7",
        "UPDATE states SET place = -9223372036854775808",
        "UPDATE states SET terms = '{}'",
        "UPDATE states SET terms = '{\"module\":\"counter\",\"version\":-1}'",
    ] {
        wait_for("a write", || stored(&node).is_some());
        node.kill();
        let database = database(&node);
        let _: String = database.query_row(whole, [], |row| row.get(0)).unwrap();
        assert_eq!(database.execute(damage, []).unwrap(), 1);
        drop(database);
        node.start();
        let shown = show(&node, false);
        assert_eq!(shown["state"], "running", "{damage}: {shown}");
        assert!(notes(&shown).contains("damaged"), "{damage}: {shown}");
        wait_for_packets(&node, false, 50);
        let (count, packets) = stop(&node, false);
        assert_eq!(count, packets, "{damage}");
        act(&node, false, &["update", "counter"]);
    }
    // A whole state that the module refuses.
    wait_for("a write", || stored(&node).is_some());
    node.end();
    configure(&node, "workers = 2\n", "");
    node.start();
    let shown = show(&node, false);
    assert!(notes(&shown).contains("the state is of 1 workers, now there are 2"), "{shown}");
    wait_for_packets(&node, false, 50);
    assert!(Path::new(&node.path("state/node.sqlite")).exists());
    // Damage of one place loses nothing of another.
    let of_worker = |worker: u8| {
        let find = "SELECT state FROM states WHERE place = ?1";
        let state = database(&node).query_row(find, [worker], |row| row.get::<_, Vec<u8>>(0));
        state.ok().map(|state| u64::from_le_bytes(state.try_into().unwrap()))
    };
    act(&node, false, &["stop", "counter"]);
    let before = of_worker(1).expect("a state of the second worker");
    assert_eq!(database(&node).execute("UPDATE states SET hash = x'' WHERE place = 0", []).unwrap(), 1);
    let shown = act(&node, false, &["update", "counter"]);
    assert!(of_worker(1).is_some_and(|now| now >= before), "{:?} {before}", of_worker(1));
    assert!(notes(&shown).contains("1 are damaged, and 0 larger than max"), "{shown}");
    wait_for("a write of both", || of_worker(0).is_some() && of_worker(1) >= Some(before));
}

#[test]
fn a_principal_has_a_limit_of_state() {
    let (node, _) = started("[limits]\nstate_per_principal = \"2MiB\"\n");
    let large = write(&node, "large.wasm", "[state]\nversion = 1\nmax = 800_000\n");
    let too_large = write(&node, "too_large.wasm", "[state]\nversion = 1\nmax = 1_040_000\n");
    act(&node, true, &["install", &large]);
    let refused = node.refused(&[&["install", &large, "--name", "other"], of(true)].concat());
    let arithmetic = "800000 bytes for each of 1 workers and a slow instance = 1600000; 1600000 of the others + \
                      1600000 = 3200000 > 2097152 bytes";
    assert!(refused.contains(arithmetic) && refused.contains("state_per_principal"), "{refused}");
    // An update counts in place of what the module had.
    act(&node, true, &["update", "counter", &too_large]);
    act(&node, true, &["remove", "counter"]);
    act(&node, true, &["install", &large, "--name", "other"]);
    // The operator has none.
    act(&node, false, &["install", &large]);
    act(&node, false, &["install", &large, "--name", "other"]);
}
