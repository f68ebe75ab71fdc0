//! Modules that forward packets, in elements and routers that are replaced while packets are on their way.

use crate::commands::{done, flame, node, ran, text};
use crate::common::{self, eventually, with_manifest};
use crate::forwards::{self, forwarding, handler, module, returning, send};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Writes a module `pass` that sends each packet as it came.
fn pass(folder: &Path) {
    module(folder, "pass", &forwarding("(i32.const 1)", "(i32.const 0)", ""), "");
}

/// Writes a module `slow` with `ports`, which sends packets from the output `port`. Each of its calls takes
/// `iterations` of a loop, within the budget of one packet.
fn slow(folder: &Path, iterations: u32, budget: u64, (port, ports): (&str, &str)) {
    let spin = format!(
        "(i32.store (i32.const 64) (i32.const {iterations}))
        (loop (i32.store (i32.const 64) (i32.sub (i32.load (i32.const 64)) (i32.const 1)))
              (br_if 0 (i32.load (i32.const 64))))"
    );
    let manifest = forwards::manifest_with(&format!("limits = {{ packet_budget = {budget} }}\n"), ports);
    let wasm = wat::parse_str(forwarding("(i32.const 1)", port, &spin)).unwrap();
    std::fs::write(folder.join("slow.wasm"), with_manifest(wasm, manifest.as_bytes())).unwrap();
}

/// Returns what each line of the log of the node in this folder is about.
fn log(folder: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(folder.join("audit.log")).unwrap_or_default();
    let events = ["install", "evict", "end"];
    let lines = log.lines().filter_map(|l| events.iter().find(|e| l.contains(&format!("\"{e}\""))));
    lines.map(|e| (*e).to_owned()).collect()
}

/// Runs a graph in real time, beside the test.
fn start(folder: &Path, arguments: &[&str]) -> Child {
    let mut click = Command::new(env!("CARGO_BIN_EXE_flame"));
    click.arg("click").args(arguments).current_dir(folder).env("FLAME_CACHE", folder.join("cache"));
    click.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn wait_for(folder: &Path, events: &[&str]) {
    eventually(format!("{events:?}"), || log(folder) == events);
}

/// The element is configured again inside its module's own push. The loop of the old element continues then.
#[test]
fn a_module_that_is_replaced_in_its_own_push_starts_once_and_is_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    pass(folder);
    node(folder, "expose = \"headers\"\ncalls = \"forward\"");
    let graph = "RatedSource(RATE 100) -> m :: Module(./pass.wasm, CREDENTIAL alice.cred, ON_EVICT drop)
          -> c :: Counter(COUNT_CALL 5 p.run) -> Discard;
        p :: Script(TYPE PASSIVE, write m.config $(m.config));
        Script(label l, wait 0.1s, goto l $(eq $(m.gone) false), set n $(c.count), wait 0.5s,
            print $(sub $(c.count) $n), print $(gt $n 5), stop)";
    let click = start(folder, &["--policy", "policy.toml", "-e", graph, "-h", "m.account"]);
    wait_for(folder, &["install"]);
    std::thread::sleep(Duration::from_millis(300));
    done(folder, &["grant", "revoke", "--policy", "policy.toml", "alice.cred"]);
    let out = click.wait_with_output().unwrap();
    let (out, err) = (text(&out.stdout), text(&out.stderr));
    assert!(out.starts_with("0\ntrue\n"), "packets pass a module that was evicted: {out}{err}");
    assert!(out.contains(" evicted"), "{out}{err}");
    assert_eq!(log(folder), ["install", "evict", "end"], "{err}");
}

/// A module that was never needed is not in the log, and a module with other rights now starts again.
#[test]
fn the_log_names_what_runs_with_the_rights_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    pass(folder);
    node(folder, "expose = \"headers\"\ncalls = \"forward\"");
    let element = "m :: Module(./pass.wasm, CREDENTIAL alice.cred)";
    let with_policy = ["--policy", "policy.toml"];
    ran(folder, &format!("Idle -> {element} -> Discard"), &with_policy);
    assert!(log(folder).is_empty(), "{:?}", log(folder));
    let next = format!("InfiniteSource(LIMIT 3, STOP true) -> {element} -> Discard");
    std::fs::write(folder.join("next"), next).unwrap();
    let graph = format!(
        "InfiniteSource(LIMIT 1) -> {element} -> Discard; Script(wait 1s, write hotconfig $(cat next))"
    );
    ran(folder, &graph, &["--policy", "policy.toml", "-R"]);
    assert_eq!(log(folder), ["install", "end"], "the same rights: the module goes on");
    // There is another credential when the second configuration is read.
    std::fs::write(folder.join("go"), "no").unwrap();
    let graph = graph.replace("wait 1s", "label l, wait 0.1s, goto l $(eq $(cat go) no)");
    let click = start(folder, &[&with_policy[..], &["-R", "-e", &graph]].concat());
    wait_for(folder, &["install", "end", "install"]);
    let mint = ["grant", "mint", "--key", "root.key", "--to", "alice", "--role", "all", "--code", "any"];
    done(folder, &[&mint[..], &["-o", "other.cred"]].concat());
    std::fs::rename(folder.join("other.cred"), folder.join("alice.cred")).unwrap();
    std::fs::write(folder.join("go"), "yes").unwrap();
    let out = click.wait_with_output().unwrap();
    let all = log(folder);
    let expected = ["install", "end", "install", "end", "install", "end"];
    assert_eq!(all, expected, "another credential: another start: {}", text(&out.stderr));
}

/// Packets that came back are being decided about when the push of the old element ends, and its packets are
/// handed over once more.
#[test]
fn packets_in_flight_stay_when_an_element_is_replaced_in_its_own_push() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let spin = "(if (local.get $in) (then (i32.store (i32.const 64) (i32.const 100000000))
        (loop (i32.store (i32.const 64) (i32.sub (i32.load (i32.const 64)) (i32.const 1)))
              (br_if 0 (i32.load (i32.const 64))))))";
    let manifest =
        forwards::manifest_with("limits = { packet_budget = 4000000000 }\n", "inputs = 2\noutputs = 2");
    let slow = forwarding("(i32.const 1)", "(i32.eqz (local.get $in))", spin);
    let wasm = with_manifest(wat::parse_str(slow).unwrap(), manifest.as_bytes());
    std::fs::write(folder.join("slow.wasm"), wasm).unwrap();
    for live in [true, false] {
        let graph = format!(
            "InfiniteSource(LIMIT 8, BURST 8) -> m :: Module(./slow.wasm, LIVE {live}, BUDGET 4000000000);
            m [1] -> k :: Counter(COUNT_CALL 1 p.run) -> [1] m; m [0] -> c :: Counter -> Discard;
            p :: Script(TYPE PASSIVE, write m.config $(m.config));
            Script(label l, wait 0.1s, goto l $(lt $(c.count) 8), stop)"
        );
        let (out, err) = ran(folder, &graph, &["-h", "c.count", "-h", "m.account"]);
        assert_eq!(handler(&out, "c.count"), "8", "live {live}: {out}{err}");
        assert_eq!(handler(&out, "m.account"), "taken 16\nmade 0\ngiven 16\nheld 0", "live {live}: {err}");
    }
}

/// The first packet goes round, and on its way the element is configured again. Those behind it have not been
/// sent yet.
#[test]
fn order_is_kept_when_an_element_is_replaced_in_its_own_push() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let all = (0..1000).map(|i| common::tcp_packet(i, 80)).collect::<Vec<_>>();
    forwards::capture(&folder.join("in.pcap"), &all);
    let is_first = "(i32.and (i32.eqz (local.get $in)) (i32.eqz (i32.load (i32.const 64))))";
    let mark =
        "(i32.store (i32.const 64) (i32.load (i32.const 68))) (i32.store (i32.const 68) (i32.const 1))";
    let rounds = forwarding("(i32.const 1)", &format!("(i32.and {is_first} (i32.eqz (local.get $i)))"), mark);
    module(folder, "rounds", &rounds, "inputs = 2\noutputs = 2");
    let graph = "FromDump(in.pcap, STOP false) -> Queue(2000) -> u :: Unqueue(BURST 1000, ACTIVE false)
          -> m :: Module(./rounds.wasm); m [1] -> Counter(COUNT_CALL 1 p.run) -> [1] m;
        m [0] -> c :: Counter -> ToDump(out.pcap) -> Discard;
        p :: Script(TYPE PASSIVE, write m.config $(m.config));
        Script(wait 0.3s, write u.active true, label l, wait 0.1s, goto l $(lt $(c.count) 1000), stop)";
    ran(folder, graph, &[]);
    let sent = forwards::packets(&folder.join("out.pcap"));
    let place = |packet: &Vec<u8>| sent.iter().position(|p| p == packet).unwrap();
    assert_eq!(sent.len(), 1000);
    assert!(place(&all[0]) > 0, "it went round");
    let rest: Vec<_> = sent.iter().filter(|p| **p != all[0]).cloned().collect();
    assert!(rest == all[1..], "the others keep their order");
}

/// The packets that wait for a module of two inputs go to a module of one input.
#[test]
fn packets_that_wait_fit_the_element_that_replaces_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    slow(folder, 200_000_000, 4_000_000_000, ("(i32.const 0)", "inputs = 2"));
    let one = forwarding("(i32.const 1)", "(i32.const 0)", "(if (local.get $in) (then (unreachable)))");
    module(folder, "one", &one, "");
    let next = "Idle -> m :: Module(./one.wasm, CAPACITY 4) -> c :: Counter -> Discard;
        Script(wait 0.2s, print $(c.count) $(m.gone), print $(m.account), stop)";
    std::fs::write(folder.join("next"), next).unwrap();
    let graph = "a :: InfiniteSource(LIMIT 9, BURST 1) -> m :: Module(./slow.wasm, LIVE true, BUDGET 4000000000) -> Discard;
        b :: InfiniteSource(LIMIT 6, BURST 1) -> [1] m;
        Script(label l, wait 0.01s, goto l $(lt $(add $(a.count) $(b.count)) 15), write hotconfig $(cat next))";
    let out = flame(folder, &["click", "-R", "-e", graph]);
    let (out, err) = (text(&out.stdout), text(&out.stderr));
    assert!(out.starts_with("4 false\n"), "{out}{err}");
    assert!(out.contains("made 15\ngiven 4\nheld 0\ndropped 11 replaced"), "{out}{err}");
}

/// Packets that come back while others are sent wait for these.
#[test]
fn packets_that_come_back_wait_for_their_turn() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Of input 0, packets of an even index go round by output 1.
    let is_even = "(i32.and (i32.eqz (local.get $in)) (i32.eqz (i32.and (local.get $i) (i32.const 1))))";
    module(folder, "order", &forwarding("(i32.const 1)", is_even, ""), "inputs = 2\noutputs = 2");
    let all = (0..8).map(|i| common::tcp_packet(i, 80)).collect::<Vec<_>>();
    forwards::capture(&folder.join("in.pcap"), &all);
    let graph = "FromDump(in.pcap, STOP false) -> Queue -> u :: Unqueue(BURST 8, ACTIVE false)
          -> m :: Module(./order.wasm) -> ToDump(out.pcap) -> Discard; m [1] -> [1] m;
        Script(wait 1s, write u.active true, wait 1s, stop)";
    ran(folder, graph, &[]);
    let expected: Vec<_> = [1, 3, 5, 7, 0, 2, 4, 6].map(|i: usize| all[i].clone()).to_vec();
    assert!(forwards::packets(&folder.join("out.pcap")) == expected);
    // What goes round for ever lets others work.
    let round = "InfiniteSource(LIMIT 1) -> m :: Module(./round.wasm) -> [1] m; m [1] -> Discard;
        Script(wait 0.1s, print $(add 1 0), stop)";
    module(folder, "round", &forwarding("(i32.const 1)", "(i32.const 0)", ""), "inputs = 2\noutputs = 2");
    let out = flame(folder, &["click", "-e", round]);
    assert_eq!(text(&out.stdout), "1\n", "{}", text(&out.stderr));
}

/// A module makes a packet in place of the one that it got: that has passed the `Loop` as well.
#[test]
fn made_packets_have_passed_the_loops_of_those_that_came() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    module(folder, "again", &returning(&[send(0xffff, 0, &[2; 60])]), "transmit = true");
    for element in ["m :: Module(./again.wasm)", "m :: Module(./again.wasm, LIVE true)"] {
        let graph = format!(
            "InfiniteSource(LIMIT 1) -> {element} -> l :: Loop(3) -> c :: Counter -> m; Script(wait 1s, stop)"
        );
        let (out, err) = ran(folder, &graph, &["-h", "c.count", "-h", "l.exceeded"]);
        let counts = (handler(&out, "c.count"), handler(&out, "l.exceeded"));
        assert_eq!(counts, ("3".to_owned(), "1".to_owned()), "{element}: {err}");
    }
}

/// Returns the processor time of a process, in clock ticks.
fn ticks(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// The share bounds the cost of a module, so the router does not spend more on waiting for it.
#[test]
fn a_router_sleeps_while_a_module_waits_for_its_share() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    slow(folder, 16_000_000, 1_000_000_000, ("(i32.const 0)", ""));
    node(folder, "expose = \"headers\"\ncalls = \"forward\"\ncpu = \"10ms/100s\"");
    let graph = "InfiniteSource(LIMIT 30, BURST 1)
        -> m :: Module(./slow.wasm, LIVE true, BUDGET 1000000000, CREDENTIAL alice.cred) -> Discard;
        RatedSource(RATE 1000) -> m; Script(wait 60s, stop)";
    let mut click = start(folder, &["--policy", "policy.toml", "-e", graph]);
    wait_for(folder, &["install"]);
    std::thread::sleep(Duration::from_secs(1));
    let (before, start) = (ticks(&click), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let (used, elapsed) = ((ticks(&click) - before) * 10, start.elapsed().as_millis() as u64);
    click.kill().unwrap();
    let out = click.wait_with_output().unwrap();
    assert!(used * 3 < elapsed, "{used} ms in {elapsed} ms: {}", text(&out.stderr));
}

/// The module has not decided about them, and is neither gone nor at fault.
#[test]
fn packets_wait_for_a_module_that_waits_for_its_share() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // More than the share of a period, for each batch.
    slow(folder, 3_000_000, 90_000_000, ("(i32.const 1)", "outputs = 2"));
    node(
        folder,
        "expose = \"headers\"\ncalls = \"forward\"\ncpu = \"5ms/200ms\"\npacket_budget = 90_000_000",
    );
    let graph = "InfiniteSource(LIMIT 210, BURST 70)
          -> m :: Module(./slow.wasm, LIVE true, BUDGET 90000000, CREDENTIAL alice.cred, CAPACITY 3000);
        m [0] -> a :: Counter -> Discard; m [1] -> b :: Counter -> Discard;
        Script(set n 0, label l, wait 0.1s, set n $(add $n 1), goto e $(gt $n 900),
            goto l $(lt $(b.count) 210), label e, stop)";
    let arguments = ["--policy", "policy.toml", "-e", graph, "-h", "a.count", "-h", "b.count"];
    let out = start(folder, &arguments).wait_with_output().unwrap();
    let (out, err) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(
        (handler(&out, "a.count"), handler(&out, "b.count")),
        ("0".into(), "210".into()),
        "{out}{err}"
    );
}

/// The element has another module by then, which only measures.
#[test]
fn packets_that_wait_for_a_module_that_is_replaced_by_another_kind_end_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    pass(folder);
    let measures = r#"(module (memory (export "memory") 1)
        (func (export "flame_batch") (param i32) (result i64) (i64.const 0)))"#;
    let manifest = "abi = 1\nname = \"meas\"\nversion = \"1\"\ndescription = \"test\"\n";
    let wasm = with_manifest(wat::parse_str(measures).unwrap(), manifest.as_bytes());
    std::fs::write(folder.join("meas.wasm"), wasm).unwrap();
    let graph = "InfiniteSource(LIMIT 3000, BURST 1000) -> m :: Module(./pass.wasm)
          -> Counter(COUNT_CALL 200 p.run) -> Discard;
        p :: Script(TYPE PASSIVE, write m.config ./meas.wasm); Script(wait 1s, stop)";
    let (out, err) = ran(folder, graph, &["-h", "m.account"]);
    let counts: Vec<u64> = out.lines().filter_map(|l| l.split(' ').nth(1)?.parse().ok()).collect();
    let [taken, made, given, held, dropped] = counts[..] else { panic!("{out}{err}") };
    assert_eq!((taken, made, held), (3000, 0, 0), "{out}");
    assert!(dropped > 0 && given + dropped == 3000, "{out}");
}

/// An eviction does not wait for the share of time that the module waits for.
#[test]
fn a_module_that_waits_for_its_share_is_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    slow(folder, 3_000_000, 90_000_000, ("(i32.const 0)", ""));
    node(folder, "expose = \"headers\"\ncalls = \"forward\"\ncpu = \"1ms/1h\"\npacket_budget = 90_000_000");
    let graph = "InfiniteSource(LIMIT 700, BURST 70)
          -> m :: Module(./slow.wasm, LIVE true, BUDGET 90000000, CREDENTIAL alice.cred) -> c :: Counter -> Discard;
        Script(set n 0, label l, wait 0.1s, set n $(add $n 1), goto e $(gt $n 600), goto l $(eq $(m.gone) false),
            label e, wait 0.1s, stop)";
    let click = start(folder, &["--policy", "policy.toml", "-e", graph, "-h", "c.count", "-h", "m.gone"]);
    wait_for(folder, &["install"]);
    std::thread::sleep(Duration::from_millis(500));
    done(folder, &["grant", "revoke", "--policy", "policy.toml", "alice.cred"]);
    let out = click.wait_with_output().unwrap();
    let (out, err) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(
        (handler(&out, "c.count"), handler(&out, "m.gone")),
        ("700".into(), "true".into()),
        "{out}{err}"
    );
}
