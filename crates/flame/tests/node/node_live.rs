//! Tests of a node on a live interface: exact accounts while modules change, several principals, and the
//! rights that the process keeps.

use crate::daemon::{Connection, Node, base64, module, wait_for};
use crate::network::{self, Net};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TAP: &str =
    "[sources.tap]\ninterface = \"rx0\"\ninterval = \"100ms\"\n[limits]\nrequests_per_second = 10000\n";

fn frames() -> Vec<Vec<u8>> {
    (0..100).map(|i| network::ipv4(&[], 17, (i, 9), (2, 53), 122)).collect()
}

fn account(module: &Value) -> (u64, bool) {
    let account = &module["account"];
    (account["offered"].as_u64().unwrap(), account["adds_up"].as_bool().unwrap())
}

/// The pause after a change. Without one, changes and packets together need more than two processors, and
/// modules without a reservation fall behind.
const PAUSE: Duration = Duration::from_millis(10);

/// FLAME_SECONDS sets the duration of the changes.
#[test]
fn fifty_changes_a_second_lose_no_packet_and_accounts_are_exact() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let Some(net) = Net::new() else { return };
    let seconds = std::env::var("FLAME_SECONDS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let code = [&count, &flow].map(|path| base64(&std::fs::read(path).unwrap()));
    let mut node = Node::new(TAP).within(&net.namespace);
    for name in ["alice", "bob"] {
        node.mint(name, &[]);
    }
    node.start();
    let (count, flow) = (count.display().to_string(), flow.display().to_string());
    let of = |name: &str| {
        vec![
            "--credential".to_owned(),
            format!("{name}.cred"),
            "--identity".to_owned(),
            format!("{name}.key"),
        ]
    };
    // Modules of each that are not changed, so that what they compiled stays, and a module that is updated
    // all the time.
    node.json(&["install", &count]);
    node.json(&["install", &flow]);
    for (name, module) in [("alice", &count), ("bob", &flow)] {
        let of = of(name);
        let of: Vec<&str> = of.iter().map(String::as_str).collect();
        node.json(&[&["install", module, "--name", "steady"][..], &of].concat());
    }
    node.json(&["install", &count, "--name", "swap"]);
    let socket = node.path("node.sock");
    let (stop, sent, changes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let frames = frames();
            while !stop.load(Ordering::Relaxed) {
                net.send(&frames, 20);
                sent.fetch_add(2000, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            let connection = Connection::open(&socket);
            for n in (1..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                let (status, reply) =
                    connection.put("/v1/modules/swap", &json!({ "wasm": code[n % 2], "revision": n }));
                assert_eq!(status, 200, "{reply}");
                changes.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
        });
        scope.spawn(|| {
            let connection = Connection::open(&socket);
            while !stop.load(Ordering::Relaxed) {
                let (status, reply) =
                    connection.post("/v1/modules", &json!({ "wasm": code[1], "name": "flick" }));
                assert_eq!(status, 201, "{reply}");
                let (status, reply) = connection.delete("/v1/modules/flick");
                assert_eq!((status, account(&reply).1), (200, true), "{reply}");
                changes.fetch_add(2, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
        });
        // The configuration is read again meanwhile, which loses no packet either.
        for _ in 0..seconds * 5 {
            std::thread::sleep(Duration::from_millis(200));
            node.signal("HUP");
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (sent, changes) = (sent.into_inner(), changes.into_inner());
    let rate = changes as f64 / start.elapsed().as_secs_f64();
    eprintln!("{changes} changes, {rate:.0} a second, while {sent} packets were sent");
    assert!(changes > seconds * 10, "{changes} changes in {seconds} s");
    let reloads = node.said().matches("node: reloaded").count() as u64;
    assert!(reloads >= seconds, "{reloads} reloads in {seconds} s");
    let source = || node.json(&["node", "status"])["sources"][0].clone();
    wait_for("all packets", || source()["packets"] == sent);
    assert_eq!(source()["kernel_drops"], 0);
    let list = || -> Vec<Value> {
        let out = node.run(&["list", "--format", "json"]);
        out.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    };
    // Ticks hand over the blocks that are being filled.
    wait_for("exact accounts", || list().iter().all(|m| account(m).1));
    let list = list();
    assert_eq!(list.len(), 5);
    for module in &list {
        assert_eq!(account(module).0, sent, "{module}");
        assert_eq!(module["account"]["shed"], json!({}), "{module}");
    }
    node.end();
}

#[test]
fn once_started_it_has_one_right_left() {
    let Some(count) = module("count") else { return };
    let Some(net) = Net::new() else { return };
    let mut node = Node::new(TAP).within(&net.namespace);
    let text = std::fs::read_to_string(node.path("node.toml")).unwrap();
    std::fs::write(node.path("node.toml"), text.replace("[node]\n", "[node]\nuser = \"nobody\"\n")).unwrap();
    net.shell(&format!("chown -R nobody {}", node.folder.path().display()));
    node.start();
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let field = |name: &str| -> Vec<String> {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    let nobody = net.said("id -u nobody");
    assert_eq!(field("Uid:"), vec![nobody; 4]);
    // CAP_NET_RAW has number 13.
    let only = "0000000000002000";
    let none = "0000000000000000";
    for (set, expected) in
        [("CapEff:", only), ("CapPrm:", only), ("CapBnd:", only), ("CapInh:", none), ("NoNewPrivs:", "1")]
    {
        assert_eq!(field(set), [expected], "{set}");
    }
    // It can do all that it is for: compile, store, capture, reload.
    node.json(&["install", &count.display().to_string()]);
    net.send(&frames(), 1);
    wait_for("packets", || account(&node.json(&["show", "count"])).0 == 100);
    node.signal("HUP");
    node.wait_for_text("node: reloaded");
    let out = node.end();
    assert!(out.contains("node: ended"), "{out}");
}

/// Sources with several workers have groups of their own: each has all packets of its interface.
#[test]
fn sources_do_not_share_the_packets_of_an_interface() {
    let Some(count) = module("count") else { return };
    let Some(net) = Net::new() else { return };
    let source = |(name, interface)| format!("[sources.{name}]\ninterface = \"{interface}\"\nworkers = 2\n");
    let sources = [("one", "rx0"), ("two", "rx0"), ("other", "tx0")];
    let mut node = Node::new(&sources.map(source).concat()).within(&net.namespace);
    node.start();
    for (name, _) in sources {
        node.json(&["install", &count.display().to_string(), "--name", name, "--source", name]);
    }
    net.send(&frames(), 20);
    for (name, _) in sources {
        wait_for("all packets", || account(&node.json(&["show", name])) == (2000, true));
    }
    node.end();
}

/// An interface that goes down is waited for; an interface that is removed and made again ends no module.
#[test]
fn a_source_that_fails_is_opened_again() {
    let Some(count) = module("count") else { return };
    let Some(net) = Net::new() else { return };
    let mut node = Node::new(TAP).within(&net.namespace);
    node.start();
    node.json(&["install", &count.display().to_string()]);
    net.send(&frames(), 1);
    wait_for("packets", || account(&node.json(&["show", "count"])).0 == 100);
    net.shell("ip link set rx0 down");
    let logged = |node: &Node, text: &str| wait_for(text, || node.run(&["logs", "count"]).contains(text));
    let source = |node: &Node| node.json(&["node", "status"])["sources"][0].clone();
    logged(&node, "rx0 went down");
    assert_eq!(
        (source(&node)["running"].clone(), node.request("GET", "/v1/health", None).0),
        (json!(true), 503)
    );
    assert!(source(&node)["reason"].as_str().unwrap().contains("rx0 went down"), "{}", source(&node));
    node.wait_for_text("node: source tap: interface rx0 went down");
    net.shell("ip link set rx0 up");
    logged(&node, "rx0 is up again");
    assert_eq!(
        (source(&node)["reason"].clone(), node.request("GET", "/v1/health", None).0),
        (json!(null), 200)
    );
    node.wait_for_text("node: source tap: works again");
    net.shell("ip link del rx0");
    wait_for("the fault", || source(&node)["running"] == false);
    assert!(source(&node)["reason"].as_str().unwrap().contains("rx0"), "{}", source(&node));
    assert_eq!(node.request("GET", "/v1/health", None).0, 503);
    net.link();
    wait_for("the source", || source(&node)["running"] == true);
    net.send(&frames(), 1);
    wait_for("packets", || account(&node.json(&["show", "count"])).0 == 200);
    node.end();
}
