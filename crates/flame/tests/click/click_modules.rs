//! Tests of `Module` elements that measure: whole commands, modules in text.

use crate::commands::{click, done, flame, node, ran, text};
use crate::common::{self, COUNT, MANIFEST, pcap, tcp_packet, with_manifest};
use std::path::Path;

/// Writes a capture of packets to these ports, one each millisecond.
fn capture(path: &Path, ports: impl IntoIterator<Item = u16>) {
    let packets = ports.into_iter().map(|port| tcp_packet(7, port));
    std::fs::write(path, pcap((5_000_u64..).zip(packets))).unwrap();
}

fn manifest(name: &str) -> String {
    MANIFEST.replace("hostile", name)
}

/// Writes a module from text.
pub fn module(folder: &Path, name: &str, wat: &str) {
    let wasm = with_manifest(wat::parse_str(wat).unwrap(), manifest(name).as_bytes());
    std::fs::write(folder.join(format!("{name}.wasm")), wasm).unwrap();
}

/// Counts packets, and traps when there were `most`.
pub fn trapping(most: u32) -> String {
    COUNT.replace(
        "(func (export \"flame_batch\") (param i32) (result i64)",
        &format!(
            "(func (export \"flame_batch\") (param i32) (result i64)
               (if (i64.gt_u (i64.load (i32.const 8)) (i64.const {most})) (then (unreachable)))"
        ),
    )
}

/// Returns a folder with a capture of 2,000 packets, every other one to port 80, and the module `count`.
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    capture(&folder.path().join("in.pcap"), (0..2000).map(|i| if i % 2 == 0 { 80 } else { 443 }));
    module(folder.path(), "counts", COUNT);
    folder
}

pub fn packets(records: &str) -> Vec<(String, u64)> {
    let rows = records.lines().filter(|l| l.starts_with('{'));
    let rows = rows.map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
    rows.map(|r| (r["module"].as_str().unwrap().to_owned(), r["packets"].as_u64().unwrap())).collect()
}

#[test]
fn a_module_sees_what_passes_as_in_a_run() {
    let folder = folder();
    let folder = folder.path();
    let run = done(folder, &["run", "./counts.wasm", "-r", "in.pcap", "-q", "--format", "json"]);
    let graph = "FromDump(in.pcap, STOP true) -> m :: Module(./counts.wasm) -> c :: Counter -> Discard";
    let more = ["-h", "c.count", "-h", "m.account", "-h", "m.stats", "-h", "m.gone"];
    let (out, err) = ran(folder, graph, &more);
    let records: String = out.lines().filter(|l| l.starts_with('{')).collect();
    assert_eq!((records, err.as_str()), (run, ""));
    let said = out.replace('\n', " ");
    assert!(said.contains("c.count: 2000"), "{out}");
    assert!(said.contains("taken 2000 made 0 given 2000 held 0"), "{out}");
    assert!(said.contains("offered 2000 processed 2000 filtered 0 sampled 0 records 0 faults 0"), "{out}");
    assert!(said.contains("m.gone: false"), "{out}");
}

#[test]
fn standard_modules_report_the_same_in_a_graph() {
    let Some(wasm) = common::module("flow") else { return };
    let demo = common::root().join("demo/demo.pcap").canonicalize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("flow.wasm"), wasm).unwrap();
    let demo = demo.display().to_string();
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().filter(|l| l.starts_with('{')).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let run = done(folder.path(), &["run", "./flow.wasm", "-r", &demo, "-q", "--format", "json"]);
    for graph in [
        format!("FromDump({demo}, STOP true) -> Module(./flow.wasm) -> Discard"),
        // Pulled, and in batches of another size.
        format!(
            "FromDump({demo}, STOP true) -> Queue(100000) -> Module(./flow.wasm) -> Unqueue(BURST 7) -> Discard"
        ),
    ] {
        let (out, _) = ran(folder.path(), &graph, &[]);
        assert_eq!(sorted(&out), sorted(&run), "{graph}");
    }
}

#[test]
fn the_element_narrows_the_view_and_two_of_one_name_are_told_apart() {
    let folder = folder();
    let graph = "FromDump(in.pcap, STOP true)
        -> a :: Module(./counts.wasm, SELECT \"port 80\") -> b :: Module(./counts.wasm) -> Discard";
    let (out, _) = ran(folder.path(), graph, &["-h", "a.stats"]);
    assert_eq!(packets(&out), [("counts".to_owned(), 1000), ("counts#2".to_owned(), 2000)]);
    assert!(out.contains("filtered 1000"), "{out}");
}

#[test]
fn records_go_to_a_file() {
    let folder = folder();
    let graph = "FromDump(in.pcap, STOP true) -> Module(./counts.wasm) -> Discard";
    let (out, _) = ran(folder.path(), graph, &["--records", "out.json"]);
    let records = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    assert_eq!((out.as_str(), packets(&records)), ("", vec![("counts".to_owned(), 2000)]));
    // No packet is handled without a place for its records.
    let refused = click(folder.path(), graph, &["--records", "none/out.json"]);
    assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(1), ""));
    assert!(text(&refused.stderr).contains("none/out.json"), "{}", text(&refused.stderr));
}

#[test]
fn a_fault_does_not_stop_the_graph() {
    let folder = folder();
    let folder = folder.path();
    module(folder, "traps", &trapping(700));
    let handlers = ["-h", "c.count", "-h", "m.account", "-h", "m.stats", "-h", "m.gone", "-h", "m.faults"];
    for (arguments, count, account, gone) in [
        ("", 2000, "given 2000 held 0", true),
        (", ON_EVICT pass", 2000, "given 2000 held 0", true),
        (", RESTART 5", 2000, "given 2000 held 0", false),
    ] {
        let graph = format!(
            "FromDump(in.pcap, STOP true) -> m :: Module(./traps.wasm{arguments}) -> c :: Counter -> Discard"
        );
        let (out, err) = ran(folder, &graph, &handlers);
        let said = out.replace('\n', " ");
        assert!(said.contains(&format!("c.count: {count}")), "{arguments}: {out}");
        assert!(said.contains(account), "{arguments}: {out}");
        assert!(said.contains(&format!("m.gone: {gone}")), "{arguments}: {out}");
        assert!(err.contains("module traps") && err.contains("unreachable"), "{err}");
        assert!(said.contains("m.faults: flame_batch: trap"), "{out}");
    }
    // Dropped packets are counted by the element, and what the module lost by the module.
    let graph =
        "FromDump(in.pcap, STOP true) -> m :: Module(./traps.wasm, ON_EVICT drop) -> c :: Counter -> Discard";
    let (out, _) = ran(folder, graph, &handlers);
    let number = |line: &str| {
        let line = out.lines().find(|l| l.starts_with(line)).unwrap_or_else(|| panic!("{line}: {out}"));
        line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let (given, dropped, offered) = (number("given"), number("dropped"), number("offered"));
    assert_eq!((given + dropped, given), (2000, offered), "{out}");
    assert!(dropped > 0 && out.contains(" module gone"), "{out}");
    assert_eq!(offered, number("processed") + number("shed"), "{out}");
}

#[test]
fn a_metered_module_lets_others_work_between_its_slices() {
    let folder = folder();
    let folder = folder.path();
    // A loop whose end the host does not see.
    let spins = COUNT.replace(
        "(i64.const 0))\n    (func (export \"flame_end\")",
        "(i32.store (i32.const 64) (i32.const 2000000))
         (loop (i32.store (i32.const 64) (i32.sub (i32.load (i32.const 64)) (i32.const 1)))
               (br_if 0 (i32.load (i32.const 64))))
         (i64.const 0))\n    (func (export \"flame_end\")",
    );
    let wasm = wat::parse_str(&spins).unwrap();
    let manifest = manifest("spins") + "[limits]\npacket_budget = 1000000000\n";
    std::fs::write(folder.join("spins.wasm"), with_manifest(wasm, manifest.as_bytes())).unwrap();
    let graph = "InfiniteSource(LIMIT 5, BURST 1) -> m :: Module(./spins.wasm, LIVE true) -> Discard;
        Idle -> c :: Counter -> Discard; t :: TimedSource(0.0001, LIMIT 10) -> n :: Counter -> Discard;
        DriverManager(wait 0.5s, read n.count, stop)";
    let out = flame(folder, &["click", "--format", "json", "-e", graph, "-h", "m.stats"]);
    let (out, err) = (text(&out.stdout), text(&out.stderr));
    assert!(err.contains("n.count:\n10"), "{out}{err}");
    assert!(out.contains("offered 5\n"), "{out}");
    assert_eq!(packets(&out), [("spins".to_owned(), 5)], "{err}");
}

/// A module with a bound gives the same when it is metered, and then a check of its graph states no bound.
#[test]
fn a_bounded_module_is_metered_on_request() {
    let folder = folder();
    let folder = folder.path();
    let graph = "FromDump(in.pcap, STOP true) -> m :: Module(./counts.wasm, LIVE true) -> Discard";
    assert_eq!(ran(folder, graph, &["--metered"]), ran(folder, graph, &[]));
    let check = |more: &[&str]| {
        let out = flame(folder, &[&["click", "check", "-e", graph][..], more].concat());
        (out.status.success(), text(&out.stderr).contains("m :: Module has no bound: the module is metered"))
    };
    assert_eq!((check(&[]), check(&["--metered"])), ((true, false), (false, true)));
}

/// Calls other than batches may cost as much as a full batch, as in a run: here 2,560,000 units.
#[test]
fn calls_have_the_budgets_of_a_run() {
    let folder = folder();
    let folder = folder.path();
    let init = r#"(func (export "flame_init") (param i32 i32) (result i64) (local $i i32)
        (loop $next (br_if $next (i32.lt_u
            (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 200000))))
        (i64.const 0))
        (func (export "flame_end")"#;
    let wasm = wat::parse_str(COUNT.replace("(func (export \"flame_end\")", init)).unwrap();
    let limits = "[limits]\npacket_budget = 10000\ncall_budget = 2560000\n";
    let wasm = with_manifest(wasm, (manifest("starts") + limits).as_bytes());
    std::fs::write(folder.join("starts.wasm"), wasm).unwrap();
    let run = ["run", "./starts.wasm", "-r", "in.pcap", "--packet-budget", "10000", "-q", "--format", "json"];
    let run = done(folder, &run);
    let graph = "FromDump(in.pcap, STOP true) -> Module(./starts.wasm, BUDGET 10000) -> Discard";
    let (out, err) = ran(folder, graph, &[]);
    assert_eq!((out.trim(), err.as_str()), (run.as_str(), ""));
    assert_eq!(packets(&out), [("starts".to_owned(), 2000)]);
}

#[test]
fn another_configuration_keeps_the_module_of_the_same_arguments() {
    let folder = folder();
    let folder = folder.path();
    for (arguments, expected) in [("", vec![2000]), (", RESTART 1", vec![1000, 1000])] {
        let next = format!(
            "f2 :: FromDump(in.pcap, STOP true) -> Classifier(36/0050) -> m :: Module(./counts.wasm{arguments}) -> Discard"
        );
        std::fs::write(folder.join("next"), next).unwrap();
        let graph =
            "FromDump(in.pcap, STOP false) -> Classifier(36/01bb) -> m :: Module(./counts.wasm) -> Discard;
            Script(wait 1s, write hotconfig $(cat next))";
        let (out, _) = ran(folder, graph, &["-R"]);
        let found: Vec<_> = packets(&out).into_iter().map(|(_, n)| n).collect();
        assert_eq!(found, expected, "{out}");
    }
}

/// The output has columns for the modules of its start.
#[test]
fn records_of_other_tables_do_not_go_under_the_same_name() {
    let folder = folder();
    let folder = folder.path();
    let other = manifest("counts").replace("\"packets\"", "\"others\"");
    std::fs::write(
        folder.join("others.wasm"),
        with_manifest(wat::parse_str(COUNT).unwrap(), other.as_bytes()),
    )
    .unwrap();
    let next = "f2 :: FromDump(in.pcap, STOP true) -> m :: Module(./others.wasm) -> Discard";
    let graph = "FromDump(in.pcap, STOP false) -> m :: Module(./counts.wasm) -> Discard;
        Script(wait 1s, write hotconfig $(cat next), wait 1s, stop)";
    for element in ["m", "other"] {
        std::fs::write(folder.join("next"), next.replace(" m ::", &format!(" {element} ::"))).unwrap();
        let (out, err) = ran(folder, graph, &["-R"]);
        assert!(err.contains("the records of counts have no place in the output"), "{element}: {err}");
        assert_eq!(packets(&out), [("counts".to_owned(), 2000)], "the first one goes on");
    }
}

#[test]
fn what_cannot_run_is_named_with_its_place() {
    let folder = folder();
    let folder = folder.path();
    let writes = manifest("writes") + "packets = true\n";
    let writes =
        writes.replace("[[tables]]", "packets = true\n[[tables]]").replace("}]\npackets = true\n", "}]\n");
    let wasm = with_manifest(wat::parse_str(COUNT).unwrap(), writes.as_bytes());
    std::fs::write(folder.join("writes.wasm"), wasm).unwrap();
    let through = |element: &str| format!("Idle -> m :: {element} -> Discard");
    for (graph, said) in [
        (through("Module(nothing)"), "no module \"nothing\""),
        (through("Module(./missing.wasm)"), "missing.wasm"),
        (through("Module(./in.pcap)"), "in.pcap"),
        (through("Module"), "FILE: required argument missing"),
        (through("Module(./counts.wasm, colour 1)"), "colour"),
        (through("Module(./counts.wasm, ON_EVICT wait)"), "ON_EVICT: expected drop or pass, found 'wait'"),
        (through("Module(./counts.wasm, ENCAP PPP)"), "ENCAP: expected ETHER or IP, found 'PPP'"),
        (through("Module(./counts.wasm, SELECT \"porrt 80\")"), "SELECT \"porrt 80\""),
        (through("Module(./counts.wasm, EXPOSE some)"), "EXPOSE"),
        (through("Module(./counts.wasm, INTERVAL 0s)"), "INTERVAL 0s: must be longer than 0"),
        (through("Module(./counts.wasm, CREDENTIAL x)"), "flame click --policy FILE"),
        (through("Module(./writes.wasm)"), "writes packets to a capture file"),
        (
            "Idle -> m :: Module(./counts.wasm); m [0] -> Discard; m [1] -> Discard".into(),
            "1 input and 1 output",
        ),
    ] {
        let out = click(folder, &graph, &[]);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{graph}: {err}");
        assert!(err.contains("config:1: While configuring 'm :: Module':"), "{graph}: {err}");
        assert!(err.contains(said), "{graph}: {err}");
    }
    let out = flame(folder, &["click", "--format", "yaml", "-e", "Idle -> Discard"]);
    assert!(text(&out.stderr).contains("--format: \"yaml\" is no format"), "{}", text(&out.stderr));
}

#[test]
fn under_a_policy_an_element_has_the_rights_of_its_credential() {
    let dir = folder();
    let folder = dir.path();
    let graph =
        |more: &str| format!("FromDump(in.pcap, STOP true) -> m :: Module(./counts.wasm{more}) -> Discard");
    let policy = ["--policy", "policy.toml", "-h", "m.stats"];
    node(folder, "expose = \"headers\"\ncalls = \"records\"");
    // A filter of the role holds for the element, too.
    let all = std::fs::read_to_string(folder.join("policy.toml")).unwrap();
    std::fs::write(folder.join("policy.toml"), all.replace("select = \"\"", "select = \"port 443\""))
        .unwrap();
    let (out, _) = ran(folder, &graph(", CREDENTIAL alice.cred"), &policy);
    assert_eq!(packets(&out), [("counts".to_owned(), 1000)]);
    // Without its credential it has the rights of anyone.
    let (out, _) = ran(folder, &graph(""), &policy);
    let run = ["run", "./counts.wasm", "-r", "in.pcap", "--policy", "policy.toml", "-q", "--format", "json"];
    assert_eq!(packets(&out), packets(&done(folder, &run)));
    // The audit log has install and end of both.
    let log = std::fs::read_to_string(folder.join("audit.log")).unwrap();
    assert!(log.contains("install") && log.contains("1000 packets offered, 1000 processed"), "{log}");
    // Packets of a graph are none of an interface.
    let only = all.replace("code = \"any\"", "code = \"any\"\ninterface = \"eth0\"");
    std::fs::write(folder.join("policy.toml"), only).unwrap();
    let out = click(folder, &graph(", CREDENTIAL alice.cred"), &policy);
    assert!(
        text(&out.stderr).contains("not for this interface: here it is \"click\""),
        "{}",
        text(&out.stderr)
    );
}

/// The numbers of an element's module that a handler states.
fn stats(out: &str) -> Vec<(String, u64)> {
    let pairs = out.lines().filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(name, n)| Some((name.trim().to_owned(), n.parse().ok()?))).collect()
}

#[test]
fn handlers_of_an_element_state_what_the_policy_lets_its_reader_know() {
    let dir = folder();
    let folder = dir.path();
    let number = |out: &str, name: &str| {
        let all = stats(&out.replace("m.stats:", ""));
        all.into_iter().find(|(of, _)| of == name).unwrap_or_else(|| panic!("no {name} in {out}")).1
    };
    // The number of packets that a sample leaves out is not the holder's.
    let graph =
        |more: &str| format!("FromDump(in.pcap, STOP true) -> m :: Module(./counts.wasm{more}) -> Discard");
    let credential = ", CREDENTIAL alice.cred";
    node(folder, "expose = \"headers\"\ncalls = \"records\"\nsample = 4");
    let policy = ["--policy", "policy.toml", "-h", "m.stats"];
    let (out, _) = ran(folder, &graph(credential), &policy);
    assert_eq!(number(&out, "sampled"), 0, "{out}");
    assert!((1..1500).contains(&number(&out, "offered")), "{out}");
    // In a live graph, nothing grows between two ticks.
    let graph = |more: &str| {
        format!(
            "RatedSource(RATE 1000) -> m :: Module(./counts.wasm, LIVE true{more}) -> c :: Counter -> Discard;
             Script(wait 700ms, print \"count $(c.count)\", stop)"
        )
    };
    let all = std::fs::read_to_string(folder.join("policy.toml")).unwrap();
    std::fs::write(folder.join("policy.toml"), all.replace("sample = 4", "resolution = \"1h\"")).unwrap();
    let (out, _) = ran(folder, &graph(credential), &policy);
    assert!(number(&out, "count") > 100, "{out}");
    assert_eq!((number(&out, "offered"), number(&out, "processed")), (0, 0), "{out}");
    let (out, _) = ran(folder, &graph(""), &["-h", "m.stats"]);
    assert!(number(&out, "offered") > 100, "{out}");
}

/// A module that reports how many packets are in each batch.
const BATCHES: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 64) "\08\00\00\00\00\00\00\00")
    (func (export "flame_batch") (param $batch i32) (result i64)
        (i64.store (i32.const 72) (i64.load32_u offset=4 (local.get $batch)))
        (i64.const 0x1000000040)))"#;

/// A module of a live graph whose grant shows times in steps gives nothing of an interval that has not ended.
#[test]
fn a_live_graph_shows_whole_intervals_only() {
    let dir = folder();
    let folder = dir.path();
    module(folder, "batches", BATCHES);
    node(folder, "expose = \"none\"\ncalls = \"records\"");
    let mint = ["grant", "mint", "--key", "root.key", "--to", "alice", "--role", "all", "--code", "any"];
    done(folder, &[&mint[..], &["--resolution", "8s", "-o", "steps.cred"]].concat());
    let seen = |credential: &str, wait: u64| -> u64 {
        let graph = format!(
            "RatedSource(RATE 100) -> m :: Module(./batches.wasm, LIVE true, CREDENTIAL {credential}.cred)
             -> Discard; Script(wait {wait}s, stop)"
        );
        let (out, _) = ran(folder, &graph, &["--policy", "policy.toml"]);
        packets(&out).iter().map(|(_, count)| count).sum()
    };
    // Simulated time, which begins with an interval. The module is shown the next ones.
    for (wait, exact, whole) in [(7, 700, 0), (15, 1500, 0), (17, 1700, 800), (31, 3100, 1600)] {
        let found = (seen("alice", wait), seen("steps", wait));
        assert!(found.0.abs_diff(exact) < 20 && found.1 == whole, "{wait} s: {found:?}");
    }
}
