//! Tests of what a holder learns of packets between two ticks of its grant: nothing, however often it asks.

use crate::daemon::{Node, dense, module, session};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

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

/// The intervals of the accounting are far shorter than those of the grant. A row that is not of a tick states
/// no use.
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
