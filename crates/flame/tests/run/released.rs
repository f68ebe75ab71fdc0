//! Tests of what a holder learns of packets between two ticks of its grant: nothing, however often it asks.

use crate::daemon::{Node, dense, module, session};
use crate::network::{self, Net, wait_for};
use crate::wasm::with_manifest;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The resolution of the grant, and the time for which it is looked at.
const TICK: Duration = Duration::from_secs(3);
const LOOKED: Duration = Duration::from_secs(10);
/// The most ticks within the time, and those at both of its ends.
const TICKS: usize = (LOOKED.as_secs() / TICK.as_secs()) as usize + 2;

/// Creates a node whose packets come without a pause, with a module of alice's at this resolution.
fn node(workers: u8, place: &str) -> Option<Node> {
    let count = module("count")?;
    let mut node = Node::new("");
    dense(&node.path("dense.pcap"));
    node.configure(&format!(
        "[sources.tap]\nfile = \"dense.pcap\"\nrepeat = true\nworkers = {workers}\ninterval = \"{}s\"\n\
         [isolation]\nplace = \"{place}\"\n[limits]\nrequests_per_second = 10000\n",
        TICK.as_secs()
    ));
    let text = std::fs::read_to_string(node.path("node.toml")).unwrap();
    let often = text.replace("[node]\n", "[node]\naccounting = \"100ms\"\n");
    std::fs::write(node.path("node.toml"), often).unwrap();
    node.mint("alice", &["--resolution", &format!("{}s", TICK.as_secs())]);
    node.start();
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    node.json(&[&["install", &count.display().to_string()][..], &as_alice].concat());
    Some(node)
}

/// The distinct answers to one question, in any order.
#[derive(Default)]
struct Seen(BTreeSet<String>);

impl Seen {
    fn add(&mut self, answer: &Value) {
        self.0.insert(answer.to_string());
    }
}

/// Returns the parts of a module's description that packets change.
fn parts(module: &Value) -> [&Value; 3] {
    assert_eq!(module["name"], "count", "{module}");
    ["account", "usage", "spool"].map(|part| &module[part])
}

fn polled(workers: u8, place: &str) {
    let Some(node) = node(workers, place) else { return };
    let alice = session(&node, "alice", "alice");
    let (mut operator, mut shown, mut listed) =
        (Seen::default(), [(); 3].map(|()| Seen::default()), [(); 3].map(|()| Seen::default()));
    let (mut metrics, mut highest) = (Seen::default(), 0);
    let start = Instant::now();
    while start.elapsed() < LOOKED {
        let (code, exact) = node.request("GET", "/v1/modules/count?principal=alice", None);
        assert_eq!(code, 200, "{exact}");
        operator.add(&exact["account"]["offered"]);
        let (code, module) = alice.get("/v1/modules/count");
        assert_eq!(code, 200, "{module}");
        shown.iter_mut().zip(parts(&module)).for_each(|(seen, part)| seen.add(part));
        let offered = module["account"]["offered"].as_u64().unwrap();
        assert!(
            offered >= highest && Some(offered) <= exact["account"]["offered"].as_u64().map(|n| n + 5000)
        );
        highest = offered;
        let (code, modules) = alice.get("/v1/modules");
        assert_eq!(code, 200, "{modules}");
        listed.iter_mut().zip(parts(&modules["modules"][0])).for_each(|(seen, part)| seen.add(part));
        metrics.add(&alice.text("/metrics").into());
        std::thread::sleep(Duration::from_millis(66));
    }
    // The probe works: the numbers grow all the time, and the holder has those of ticks.
    assert!(operator.0.len() > 3 * TICKS, "{place}: {:?}", operator.0);
    assert!(highest > 5000 && shown[0].0.len() >= 3, "{place}: {:?}", shown[0].0);
    assert!(metrics.0.iter().any(|text| text.contains("flame_module_packets_offered_total{")));
    for (what, Seen(answers)) in [("show", &shown), ("list", &listed)]
        .into_iter()
        .flat_map(|(what, all)| all.iter().map(move |seen| (what, seen)))
        .chain([("metrics", &metrics)])
    {
        assert!(answers.len() <= TICKS, "{place}, {what}: {answers:#?}");
    }
    rows_of_the_account(&node);
}

/// The intervals of the accounting are far shorter than those of the grant. A row that is not of a tick
/// states no use.
fn rows_of_the_account(node: &Node) {
    let rows = |more: &[&str]| {
        let out = node.run(&[&["records", "--accounting", "--format", "json", "-q"][..], more].concat());
        let all = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mine = all.filter(|row| row["table"] == "module" && row["session"] == "alice");
        mine.filter(|row| row["packets"].as_u64() > Some(0)).count()
    };
    let (exact, own) = (rows(&[]), rows(&["--credential", "alice.cred", "--identity", "alice.key"]));
    assert!(
        exact > 3 * TICKS && own > 0 && own <= TICKS + 2,
        "{exact} rows for the operator, {own} for alice"
    );
}

#[test]
fn polling_sees_no_change_between_the_ticks_of_a_grant() {
    for (workers, place) in [(2, "inline"), (1, "process")] {
        polled(workers, place);
    }
}

/// Returns a module that sends a text and more rows than are collected at once for each batch.
fn talkative() -> Vec<u8> {
    const ROWS: u64 = 9000;
    let end = 76 + 16 * ROWS;
    let output = (end - 64) << 32 | 64;
    let text = format!(
        r#"(module (memory (export "memory") 5)
          (data (i32.const 64) "\04\00\00\00\fc\ff\00\00text")
          (func (export "flame_batch") (param i32) (result i64) (local $at i32)
            (local.set $at (i32.const 76))
            (loop $l
              (i64.store (local.get $at) (i64.const 8))
              (i64.store offset=8 (local.get $at) (i64.const 1))
              (br_if $l (i32.lt_u
                (local.tee $at (i32.add (local.get $at) (i32.const 16))) (i32.const {end}))))
            (i64.const {output})))"#
    );
    let manifest = "abi = 1\nname = \"talkative\"\nversion = \"1\"\ndescription = \"d\"\nlog = true\n\
        [[tables]]\nname = \"t\"\ncolumns = [{ name = \"n\", type = \"u64\" }]\n";
    with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())
}

/// Sends packets of more than a block soon after a tick, and returns whether rows and texts came before the
/// next one. Both come after it.
fn came_early(net: &Net, arguments: &[&str]) -> [bool; 2] {
    let since_tick = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Duration::from_nanos((now.as_nanos() % TICK.as_nanos()) as u64)
    };
    let frames: Vec<_> = (0..100).map(|i| network::ipv4(&[], 17, (i, 9), (2, 53), 122)).collect();
    let came = |(rows, said): (String, String)| [!rows.is_empty(), said.contains("talkative: text")];
    loop {
        let capture = net.capture(arguments, 1);
        wait_for("a tick", || since_tick() < TICK / 6);
        let begun = Instant::now();
        net.send(&frames, 30);
        std::thread::sleep(TICK / 4);
        let early = came(capture.so_far());
        // On a busy machine the tick may have come.
        if begun.elapsed() > TICK * 4 / 6 {
            continue;
        }
        wait_for("rows and texts", || came(capture.so_far()) == [true; 2]);
        assert!(capture.interrupt().status.success());
        return early;
    }
}

#[test]
fn rows_and_texts_of_a_run_reach_a_holder_at_ticks() {
    let Some(net) = Net::new() else { return };
    let node = Node::new("");
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    let policy = policy.replace("records, messages, state", "records, log");
    std::fs::write(node.path("policy.toml"), policy).unwrap();
    let tick = format!("{}s", TICK.as_secs());
    node.mint("alice", &["--resolution", &tick]);
    let wasm = node.path("talkative.wasm");
    std::fs::write(&wasm, talkative()).unwrap();
    let path = |name: &str| node.path(name).display().to_string();
    let (wasm, policy) = (path("talkative.wasm"), path("policy.toml"));
    let (credential, key) = (path("alice.cred"), path("alice.key"));
    let run = [&wasm, "--format", "json", "--interval", &tick];
    // The probe works.
    assert_eq!(came_early(&net, &run), [true; 2]);
    let under = ["--policy", &policy, "--credential", &credential, "--identity", &key];
    assert_eq!(came_early(&net, &[&run[..], &under].concat()), [false; 2]);
}
