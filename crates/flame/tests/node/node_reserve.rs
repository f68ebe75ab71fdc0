//! Tests of reservations: admitted or refused with the arithmetic, held across restarts, given back,
//! enforced.

use crate::common::runner;
use crate::daemon::{self, Node, module, replay, root, wait_for};
use crate::services;
use crate::wasm::{self, busy, with_manifest};
use serde_json::{Value, json};

/// The arithmetic is tested here, not what the kernel of this machine has left.
const CAPACITY: &str = "[isolation]\nscheduler = \"fair\"\n[capacity]\ncpu = \"50%\"\nmemory = \"1GiB\"\nblocks = 8\nrecords = \"1MiB\"\n";

fn capacity(node: &Node, what: &str) -> Value {
    node.request("GET", "/v1/capacity", None).1[what].clone()
}

fn reserved(node: &Node) -> Value {
    capacity(node, "reserved")
}

const NONE: [u64; 4] = [0; 4];

fn amounts(r: &Value) -> [u64; 4] {
    ["cpu_ppm", "memory", "blocks", "record_bytes"].map(|name| r[name].as_u64().unwrap())
}

#[test]
fn what_does_not_fit_is_refused_with_the_arithmetic_and_what_ends_gives_back() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let mut node = Node::new(&format!("{}{CAPACITY}", replay()));
    node.mint("alice", &[]);
    node.start();
    assert_eq!(amounts(&capacity(&node, "free")), [500_000, 1 << 30, 8, 1 << 20]);
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    let reserve = "cpu=20%,memory=64MiB,blocks=4,records=512KiB";
    let first = node.json(&["install", &count, "--reserve", reserve]);
    assert_eq!(amounts(&first["reserved"]), [200_000, 64 << 20, 4, 512 << 10]);
    let notes = first["notes"].to_string();
    assert!(notes.contains("reserved processor: 0.00 % + 20.00 % = 20.00 % of 50.00 %"), "{notes}");
    let by_alice =
        |reserve: &'static str| [&["install", count.as_str(), "--reserve", reserve][..], &as_alice].concat();
    let refused = node.refused(&by_alice("cpu=31%,memory=1MiB"));
    assert!(refused.contains("processor: the node has less than that left"), "{refused}");
    assert!(!refused.contains("memory:") && refused.contains("[capacity]"), "{refused}");
    assert!(!refused.contains("20.00"), "what others have is not told: {refused}");
    let refused = node.refused(&by_alice("cpu=51%"));
    assert!(refused.contains("processor: 0.00 % + 51.00 % = 51.00 % > 50.00 %"), "{refused}");
    let seen = daemon::session(&node, "alice", "alice").get("/v1/capacity").1;
    assert_eq!((amounts(&seen["reserved"]), amounts(&seen["free"])[0]), (NONE, 500_000));
    assert_eq!(node.request("GET", "/v1/modules", None).1["modules"].as_array().unwrap().len(), 1);
    assert_eq!(amounts(&reserved(&node)), [200_000, 64 << 20, 4, 512 << 10], "nothing is left of it");
    let odd = node.refused(&by_alice("blocks=5"));
    assert!(odd.contains("reserve 1 to 4 blocks"), "{odd}");
    for wrong in ["cpu=5", "disk=1", "cpu=1%,cpu=1%"] {
        assert!(node.refused(&by_alice(wrong)).contains("--reserve"), "{wrong}");
    }
    let second = node.json(&by_alice("cpu=30%,blocks=4"));
    assert_eq!(amounts(&second["reserved"]), [300_000, 0, 4, 0]);
    assert_eq!(amounts(&reserved(&node)), [500_000, 64 << 20, 8, 512 << 10]);

    // It survives a kill, and what is held by others stays held.
    node.kill();
    node.start();
    assert_eq!(amounts(&reserved(&node)), [500_000, 64 << 20, 8, 512 << 10]);
    assert!(
        node.refused(&["install", &count, "--name", "third", "--reserve", "cpu=0.0001%"])
            .contains("> 50.00 %")
    );
    // Others may ask for less, or for other amounts, while they run.
    let less = node.json(&["update", "count", "--reserve", "cpu=10%"]);
    assert_eq!(amounts(&less["reserved"]), [100_000, 0, 0, 0]);
    let kept = node.json(&["update", "count"]);
    assert_eq!(kept["reserved"], less["reserved"], "an update without a reservation keeps it");
    let renewed = node.json(&[&["renew", "count", "--reserve", "cpu=40%,blocks=4"][..], &as_alice].concat());
    assert_eq!(amounts(&renewed["reserved"]), [400_000, 0, 4, 0]);
    let notes = renewed["notes"].to_string();
    assert!(notes.contains("0.00 % + 40.00 % = 40.00 % of 50.00 %"), "{notes}");
    let refused =
        node.refused(&[&["renew", "count", "--reserve", "cpu=41%,blocks=4"][..], &as_alice].concat());
    assert!(refused.contains("the node has less than that left"), "{refused}");
    let refused = node.refused(&[&["renew", "count", "--reserve", "cpu=1%"][..], &as_alice].concat());
    assert!(refused.contains("flame update --reserve"), "{refused}");
    assert_eq!(amounts(&reserved(&node)), [500_000, 0, 4, 0]);

    // A stopped module gives back what it has, and asks for it again.
    node.json(&["stop", "count"]);
    assert_eq!(amounts(&reserved(&node)), [400_000, 0, 4, 0]);
    node.json(&["install", &count, "--name", "third", "--reserve", "cpu=10%"]);
    assert!(node.refused(&["update", "count"]).contains("> 50.00 %"));
    node.json(&["update", "third", "--reserve", "none"]);
    assert_eq!(node.json(&["update", "count"])["reserved"], less["reserved"]);
    for name in ["count", "third"] {
        node.json(&["remove", name]);
    }
    node.json(&["remove", "count", "--principal", "alice"]);
    assert_eq!(amounts(&reserved(&node)), NONE);
    // The operator may give less. What does not fit after a restart says so.
    node.json(&["install", &count, "--reserve", "cpu=50%"]);
    let text = std::fs::read_to_string(node.path("node.toml")).unwrap();
    std::fs::write(node.path("node.toml"), text.replace("50%", "49%")).unwrap();
    node.signal("HUP");
    node.wait_for_text("node: reloaded");
    assert_eq!((amounts(&capacity(&node, "free"))[0], amounts(&reserved(&node))[0]), (0, 500_000));
    node.end();
    node.start();
    let failed = node.json(&["show", "count"]);
    assert_eq!(failed["state"], "failed");
    assert!(failed["reason"].as_str().unwrap().contains("50.00 % > 49.00 %"), "{failed}");
    node.end();
}

#[test]
fn a_reservation_ends_with_its_credential_and_is_no_wider_than_it() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&format!("{}{CAPACITY}", replay()));
    node.mint("alice", &["--expires", "+15s", "--cpu", "50ms/1s", "--memory", "128MiB"]);
    node.start();
    let count = count.display().to_string();
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    let install =
        |reserve: &'static str| [&["install", count.as_str(), "--reserve", reserve][..], &as_alice].concat();
    let wide = node.refused(&install("cpu=6%"));
    assert!(wide.contains("wider than the grant: 60000 ppm of a processor, it allows 50000"), "{wide}");
    let wide = node.refused(&install("memory=129MiB"));
    assert!(wide.contains("it allows 134217728"), "{wide}");
    assert_eq!(amounts(&reserved(&node)), NONE);
    node.json(&install("cpu=5%,memory=64MiB"));
    assert_eq!(amounts(&reserved(&node)), [50_000, 64 << 20, 0, 0]);
    wait_for("its end", || node.json(&["show", "count", "--principal", "alice"])["state"] == "evicted");
    wait_for("its reservation", || amounts(&reserved(&node)) == NONE);
}

#[test]
fn a_module_gets_no_more_than_it_reserved() {
    let mut node = Node::new(&replay());
    node.start();
    // About a millisecond for each batch.
    std::fs::write(node.path("heavy.wasm"), busy("heavy", 300_000)).unwrap();
    node.json(&["install", "./heavy.wasm", "--name", "free"]);
    node.json(&["install", "./heavy.wasm", "--name", "held", "--reserve", "cpu=0.1%"]);
    let used = |name: &str| node.json(&["show", name])["usage"]["cpu_ns"].as_u64().unwrap();
    wait_for("work", || used("free") > 300_000_000);
    let (free, held) = (used("free"), used("held"));
    assert!(held * 3 < free, "{held} {free}");
    let account = node.json(&["show", "held"])["account"].clone();
    assert!(account["shed"]["share"].as_u64() > Some(0), "{account}");
    assert_eq!(node.json(&["show", "free"])["account"]["shed"], json!({}));
    // Memory that was not reserved is not had.
    let refused = node.json(&["install", "./heavy.wasm", "--name", "tiny", "--reserve", "memory=1KiB"]);
    assert_eq!(refused["account"]["processed"], 0);
    wait_for("the reason", || node.run(&["logs", "tiny"]).contains("fault"));
}

#[test]
fn a_dry_run_says_what_would_be_needed_and_whether_it_fits() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let capture = root().join("demo/demo.pcap").display().to_string();
    let mut node = Node::new(&format!("{}{CAPACITY}", replay()));
    node.start();
    let dry = node.json(&["install", &count, "--dry-run", &capture]);
    let need = amounts(&dry["need"]);
    assert!(dry["fits"] == true && need[0] > 0 && need[1] >= 65_536 && need[2] >= 1 && need[3] > 0, "{dry}");
    assert_eq!((dry["arithmetic"].as_array().unwrap().len(), &dry["faults"]), (5, &json!([])));
    assert_eq!(node.request("GET", "/v1/modules", None).1["modules"], json!([]), "nothing was installed");
    // What it proposes is what install takes.
    let shown = node.run(&["install", &count, "--dry-run", &capture]);
    let option = shown.lines().last().unwrap().split("--reserve ").nth(1).unwrap().to_owned();
    assert!(shown.contains("it fits: --reserve cpu=") && shown.contains("packets: 12"), "{shown}");
    let installed = node.json(&["install", &count, "--reserve", &option]);
    assert_eq!(amounts(&installed["reserved"])[1..3], need[1..3]);
    // Where less is left, it says what is missing.
    node.json(&["update", "count", "--reserve", "cpu=50%,memory=1GiB,blocks=4,records=1MiB"]);
    let out = node.output(&["install", &count, "--dry-run", &capture]);
    let shown = daemon::text(&out.stdout);
    assert!(out.status.code() == Some(1) && shown.contains("> 0 ppm that are free"), "{shown}");
    assert!(shown.contains("it does not fit"), "{shown}");
    // Calls may cost as much as on the node: more than the usual 1,000,000,000 units, if the manifest asks.
    let long = r#"(module (memory (export "memory") 1)
        (func (export "flame_init") (param i32 i32) (result i64) (local $i i32)
            (loop $next (br_if $next (i32.lt_u
                (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 200000000))))
            (i64.const 0))
        (func (export "flame_batch") (param i32) (result i64) (i64.const 0)))"#;
    let manifest = "abi = 1\nname = \"long\"\nversion = \"1\"\ndescription = \"test\"\n\
        [limits]\npacket_budget = 100000000\ncall_budget = 20000000000\n";
    let wasm = with_manifest(wat::parse_str(long).unwrap(), manifest.as_bytes());
    std::fs::write(node.path("long.wasm"), wasm).unwrap();
    let out = node.output(&["install", "./long.wasm", "--dry-run", &capture, "--format", "json"]);
    assert!(daemon::text(&out.stdout).contains("\"faults\":[]"), "{}", daemon::text(&out.stderr));
    // A module that faults on it is reported.
    let traps = std::fs::read_to_string(root().join("tests/hostile/trap-in-batch.wat")).unwrap();
    let wasm = with_manifest(wat::parse_str(traps).unwrap(), wasm::MANIFEST.as_bytes());
    std::fs::write(node.path("trap.wasm"), wasm).unwrap();
    let out = node.output(&["install", "./trap.wasm", "--dry-run", &capture]);
    assert_eq!(out.status.code(), Some(4), "{}", daemon::text(&out.stderr));
    assert!(daemon::text(&out.stderr).contains("unreachable"));
    assert!(node.refused(&["install", &count, "--dry-run", "no-such.pcap"]).contains("no-such.pcap"));
}

/// A module whose processor time is refused never runs: it makes no call.
#[test]
fn a_module_without_its_time_never_runs() {
    runner();
    let mut node = Node::new(&format!("{}[capacity]\ncpu = \"300%\"\n", replay()));
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    let calls = "calls = \"records, messages, call, serve\"\ncall = \"s\"\nserve = \"s\"";
    let policy = policy.replace("calls = \"records, messages, state\"", calls);
    std::fs::write(node.path("policy.toml"), policy).unwrap();
    ["alice", "bob"].iter().for_each(|name| node.mint(name, &[]));
    node.start();
    let parts = [("server", services::server_parts(services::REPLY)), ("caller", services::caller_parts(1))];
    let [server, caller] = parts.map(|(name, parts)| {
        std::fs::write(node.path(&format!("{name}.wasm")), services::wasm(parts)).unwrap();
        node.path(&format!("{name}.wasm")).display().to_string()
    });
    node.json_of("bob", &["install", &server]);
    let first = node.json_of("alice", &["install", &caller, "--name", "first", "--reserve", "cpu=60%"]);
    if !first["notes"].to_string().contains("is guaranteed by the kernel") {
        eprintln!("skipped: the kernel guarantees no processor time here");
        return;
    }
    node.json_of("alice", &["remove", "first"]);
    let idle = services::wasm(("idle", String::new(), services::NO_BATCH.to_owned()));
    std::fs::write(node.path("idle.wasm"), idle).unwrap();
    let idle = node.path("idle.wasm").display().to_string();
    node.json_of("alice", &["install", &idle, "--reserve", "cpu=60%"]);
    let replies = || node.json_of("bob", &["show", "server"])["account"]["replies"].as_u64();
    // Calls of the module that was removed are answered later.
    let (mut before, mut same) = (replies(), 0);
    wait_for("the end of the replies", || {
        let last = std::mem::replace(&mut before, replies());
        same = if last == before { same + 1 } else { 0 };
        same == 10
    });
    let own = ["--credential", "alice.cred", "--identity", "alice.key"];
    for _ in 0..3 {
        let refused =
            node.refused(&[&["install", caller.as_str(), "--reserve", "cpu=60%"][..], &own].concat());
        assert!(refused.contains("share a thread"), "{refused}");
    }
    // In place of the module that has it, the time fits.
    node.json_of("alice", &["update", "idle", &idle, "--reserve", "cpu=90%"]);
    assert_eq!(replies(), before, "nothing of what was refused has run");
    let log = node.run(&["audit", "show", "--policy", "policy.toml"]);
    assert_eq!(log.matches("it did not run").count(), 3, "{log}");
}
