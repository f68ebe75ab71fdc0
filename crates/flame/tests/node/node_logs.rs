//! Tests of a module's log on a node: faults as they happen, restarts, texts, evictions.

use crate::daemon::{Node, replay, wait_for};
use crate::wasm::with_manifest;
use serde_json::Value;

/// Writes a module in the node's folder and returns its path.
fn write(node: &Node, name: &str, wat: &str, more: &str) -> String {
    let manifest = format!("abi = 1\nname = \"{name}\"\nversion = \"1\"\ndescription = \"test\"\n{more}");
    let wasm = with_manifest(wat::parse_str(wat).unwrap(), manifest.as_bytes());
    let path = node.path(&format!("{name}.wasm"));
    std::fs::write(&path, wasm).unwrap();
    path.display().to_string()
}

fn lines(node: &Node, arguments: &[&str]) -> Vec<Value> {
    let out = node.run(&[&["logs", "--format", "json"][..], arguments].concat());
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a str> {
    lines.iter().filter(|l| l["kind"] == kind).map(|l| l["text"].as_str().unwrap()).collect()
}

/// Traps on each packet, which it marks.
const TRAP: &str = r#"(module
  (import "flame" "packet" (func $p (param i32)))
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (call $p (i32.const 0)) (unreachable)))"#;

/// Says the same with each batch: a frame of kind 0xfffc with an escape sequence.
const TALK: &str = r#"(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\06\00\00\00\fc\ff\00\00hi\1b[2J")
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0xe00000000)))"#;

#[test]
fn faults_are_in_the_log_as_they_happen_with_their_place() {
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    node.start();
    let trap = write(&node, "trap", TRAP, "");
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    node.json(&["install", &trap]);
    node.json(&[&["install", &trap][..], &as_alice].concat());
    let faults = |lines: &[Value]| of_kind(lines, "fault").len();
    // Sixteen restarts, while the module is installed.
    wait_for("faults", || faults(&lines(&node, &["trap"])) == 17);
    wait_for("faults under a grant", || {
        faults(&lines(&node, &["trap", "--principal", "alice"])) == 16
            && node.json(&["show", "trap", "--principal", "alice"])["account"]["faults"] == 17
    });
    let own = lines(&node, &["trap"]);
    let texts = of_kind(&own, "fault");
    assert!(texts[0].starts_with("fault (worker 0, packet 0): flame_batch: trap: "), "{texts:?}");
    assert!(texts[0].contains("unreachable"), "{texts:?}");
    assert!(texts[..16].iter().all(|t| t.ends_with("a new, empty instance was started")), "{texts:?}");
    assert!(texts[16].ends_with("it receives no more packets on this worker"), "{texts:?}");
    assert_eq!(of_kind(&own, "change"), ["installed"]);
    // Under a grant the packet is not named, and not all faults are told.
    let granted = lines(&node, &[&["trap"][..], &as_alice].concat());
    let texts = of_kind(&granted, "fault");
    assert!(texts.iter().all(|t| t.starts_with("fault (worker 0): flame_batch: trap")), "{texts:?}");
    // Its end in the audit log has the faults.
    node.json(&[&["remove", "trap"][..], &as_alice].concat());
    let audit = std::fs::read_to_string(node.path("audit.log")).unwrap();
    assert_eq!(
        audit.lines().filter(|l| l.contains("a new, empty instance was started")).count(),
        16,
        "{audit}"
    );
    node.run(&["audit", "verify", "--policy", "policy.toml"]);
    node.end();
}

/// It receives no packets any more, so nothing that the node says of it may be that it runs.
#[test]
fn a_module_that_no_instance_follows_has_failed_wherever_it_is_shown() {
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    node.start();
    let (trap, as_alice) =
        (write(&node, "trap", TRAP, ""), ["--credential", "alice.cred", "--identity", "alice.key"]);
    node.json(&["install", &trap]);
    node.json(&[&["install", &trap][..], &as_alice].concat());
    let readers: [&[&str]; 3] = [&[], &["--principal", "alice"], &as_alice];
    for reader in readers {
        let show = || node.json(&[&["show", "trap"][..], reader].concat());
        wait_for("the failure", || show()["state"] == "failed");
        let failed = show();
        let reason = failed["reason"].as_str().unwrap();
        assert!(reason.contains("no instance is started again"), "{reason}");
        // It is in its place, so that each packet is accounted for: later ones as shed.
        let later = || show()["account"]["shed"]["stopped"].as_u64();
        wait_for("more packets", || later() > failed["account"]["offered"].as_u64());
        assert_eq!(show()["state"], "failed");
        let log = lines(&node, &[&["trap"][..], reader].concat());
        let (faults, changes) = (of_kind(&log, "fault"), of_kind(&log, "change"));
        // The last fault is not told under a grant, but that nothing follows it.
        let says_so = faults.last().unwrap().ends_with("no more packets on this worker");
        assert!(says_so || changes.iter().any(|change| change.starts_with("failed: ")), "{log:?}");
    }
    let listed = node.request("GET", "/v1/modules", None).1;
    assert!(listed["modules"].as_array().unwrap().iter().all(|m| m["state"] == "failed"), "{listed}");
    assert!(node.run(&["list"]).contains("trap: "), "with the reason");
    let status = node.json(&["node", "status"]);
    assert_eq!((&status["modules"], &status["running"]), (&2.into(), &0.into()), "{status}");
    // What a principal's module does is no fault of the node, which is told of it.
    let (code, health) = node.request("GET", "/v1/health", None);
    let reasons = health["reasons"].to_string();
    assert!(code == 200 && reasons.contains("module trap of alice has failed: "), "{code} {health}");
    let request = b"GET /metrics HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n";
    let metrics = crate::daemon::text(&crate::daemon::raw(&node.path("node.sock"), request).unwrap());
    for principal in ["", "alice"] {
        let line =
            format!("flame_module_running{{module=\"trap\",principal=\"{principal}\",source=\"trial\"}} 0");
        assert!(metrics.contains(&line), "{metrics}");
    }
    // Its owner can run it again, with better code.
    let quiet = write(&node, "trap", &TALK.replace("0xe00000000", "0"), "");
    assert_eq!(node.json(&["update", "trap", &quiet])["state"], "running");
    wait_for("packets", || node.json(&["show", "trap"])["account"]["processed"].as_u64() > Some(0));
    assert_eq!(node.json(&["show", "trap"])["state"], "running");
    let (_, health) = node.request("GET", "/v1/health", None);
    assert_eq!(health["reasons"].as_array().map(Vec::len), Some(1), "{health}");
    let removed = node.json(&[&["remove", "trap"][..], &as_alice].concat());
    assert_eq!(removed["account"]["adds_up"], true, "{removed}");
    node.end();
}

#[test]
fn texts_of_modules_are_in_the_log_escaped_and_displace_no_change() {
    let mut node = Node::new(&replay());
    node.start();
    let talk = write(&node, "talk", TALK, "log = true\n");
    node.json(&["install", &talk]);
    wait_for("texts", || of_kind(&lines(&node, &["talk"]), "text").len() == 200);
    let lines = lines(&node, &["talk"]);
    assert!(of_kind(&lines, "text").iter().all(|text| *text == "hi\u{1b}[2J"));
    assert_eq!(of_kind(&lines, "change"), ["installed"], "200 texts do not displace it");
    let shown = node.run(&["logs", "talk"]);
    assert!(shown.contains("text: hi\\u{1b}[2J") && !shown.contains('\u{1b}'), "{shown}");
    assert_eq!(node.json(&["show", "talk"])["account"]["faults"], 0);
}

#[test]
fn an_eviction_is_in_the_log_once_with_its_reason() {
    let mut node = Node::new(&format!("{}workers = 2\n", replay()));
    node.mint("alice", &[]);
    node.start();
    let quiet = write(&node, "quiet", &TALK.replace("0xe00000000", "0"), "");
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    node.json(&[&["install", &quiet][..], &as_alice].concat());
    wait_for("packets", || {
        node.json(&["show", "quiet", "--principal", "alice"])["account"]["processed"].as_u64() > Some(0)
    });
    node.run(&["grant", "revoke", "alice.cred", "--policy", "policy.toml"]);
    wait_for("its end", || node.json(&["show", "quiet", "--principal", "alice"])["state"] == "evicted");
    // A second entry would come with another look at the policy.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let lines = lines(&node, &["quiet", "--principal", "alice"]);
    let changes = of_kind(&lines, "change");
    assert_eq!((changes.len(), changes[0]), (2, "installed"), "{changes:?}");
    assert!(changes[1].starts_with("evicted: ") && changes[1].contains("revoked"), "{changes:?}");
    assert!(of_kind(&lines, "fault").is_empty(), "{lines:?}");
}
