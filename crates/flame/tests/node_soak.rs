//! A node under random changes, hostile modules and kills: nothing leaks, nothing crashes, accounts add up.
//!
//! FLAME_SOAK_SECONDS sets the duration (`make soak-node SOAK_SECONDS=600`), FLAME_SOAK_SEED the choices.

use crate::daemon::{self, Node, base64, module, replay};
use crate::wasm::{self, with_manifest};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}

/// The resources that a process holds.
#[derive(Debug)]
struct Held {
    files: usize,
    threads: usize,
    resident: u64,
}

fn held(node: &Node) -> Held {
    let folder = format!("/proc/{}", node.pid());
    let entries = |name: &str| std::fs::read_dir(format!("{folder}/{name}")).unwrap().count();
    let statm = std::fs::read_to_string(format!("{folder}/statm")).unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    Held { files: entries("fd"), threads: entries("task"), resident: pages * 4096 }
}

/// Returns all modules to install: good ones, and every hostile one that is text.
fn modules() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for name in ["count", "flow", "http"] {
        let Some(path) = module(name) else { return Vec::new() };
        all.push((name.to_owned(), base64(&std::fs::read(path).unwrap()).into()));
    }
    for entry in std::fs::read_dir(daemon::root().join("tests/hostile")).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "wat") {
            let text = std::fs::read_to_string(&path).unwrap();
            let wasm = with_manifest(wat::parse_str(&text).unwrap(), wasm::MANIFEST.as_bytes());
            all.push((path.file_stem().unwrap().to_string_lossy().into_owned(), base64(&wasm).into()));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[derive(Default)]
struct Counts(BTreeMap<(&'static str, u16), u64>);

/// Makes one random change, and checks what the node replies.
fn change(node: &Node, wasm: &[(String, Value)], random: &mut Random, counts: &mut Counts) {
    let name = format!("m{}", random.below(12));
    let path = format!("/v1/modules/{name}");
    let pick = &wasm[random.below(wasm.len())].1;
    let reserve =
        json!({ "cpu_ppm": random.below(400_000), "memory": random.below(1 << 28), "record_bytes": 0 });
    let (what, (code, reply)) = match random.below(10) {
        0..4 => {
            let mut body = json!({ "name": name, "wasm": pick });
            if random.below(3) == 0 {
                body["reserve"] = reserve;
            }
            ("install", node.request("POST", "/v1/modules", Some(&body)))
        }
        4 | 5 => {
            let body = match random.below(3) {
                0 => json!({ "reserve": reserve }),
                1 => json!({ "wasm": pick, "revision": random.below(4) }),
                _ => json!({ "wasm": pick }),
            };
            ("update", node.request("PUT", &path, Some(&body)))
        }
        6 => ("stop", node.request("POST", &format!("{path}/stop"), None)),
        7 | 8 => ("remove", node.request("DELETE", &path, None)),
        _ => ("log", node.request("GET", &format!("{path}/log"), None)),
    };
    *counts.0.entry((what, code)).or_default() += 1;
    // Requests are refused for reasons; the node itself has no fault.
    assert!(matches!(code, 200..300 | 404 | 409 | 413 | 422 | 429 | 503), "{what} {name}: {code} {reply}");
    if what == "remove" && code == 200 {
        assert_eq!(reply["account"]["adds_up"], true, "{reply}");
    }
}

fn remove_all(node: &Node) {
    let all = node.request("GET", "/v1/modules", None).1;
    for module in all["modules"].as_array().unwrap() {
        let (code, reply) =
            node.request("DELETE", &format!("/v1/modules/{}", module["name"].as_str().unwrap()), None);
        assert_eq!((code, &reply["account"]["adds_up"]), (200, &json!(true)), "{reply}");
    }
    let capacity = node.request("GET", "/v1/capacity", None).1;
    let none = json!({ "cpu_ppm": 0, "memory": 0, "blocks": 0, "record_bytes": 0 });
    assert_eq!((&capacity["reserved"], &capacity["free"]), (&none, &capacity["capacity"]));
}

fn check_store(node: &Node) {
    let path = node.path("state/node.sqlite");
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    let check: String = database.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

/// Returns the processor time of the node as the kernel counts it, and as its accounting does.
fn accounts(node: &Node) -> (f64, f64) {
    let out = node.run(&["records", "--accounting", "--format", "json", "-q", "--table", "session"]);
    let rows = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let accounted: u64 = rows.map(|row| row["cpu_ns"].as_u64().unwrap()).sum();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", node.pid())).unwrap();
    let fields: Vec<i64> =
        stat.rsplit(')').next().unwrap().split(' ').filter_map(|word| word.parse().ok()).collect();
    // User and system time, in hundredths of a second; the numbers begin with the parent's.
    ((fields[10] + fields[11]) as f64 / 100.0, accounted as f64 / 1e9)
}

#[test]
fn random_changes_leak_nothing_and_end_nothing() {
    let wasm = modules();
    if wasm.is_empty() {
        return;
    }
    let number = |name: &str, usual| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    let duration = Duration::from_secs(number("FLAME_SOAK_SECONDS", 10));
    let mut random = Random(number("FLAME_SOAK_SEED", 88_172_645_463_325_252) | 1);
    let limits = "[limits]\nmodules = 10\nspool = \"64KiB\"\nrequests_per_second = 100000\n";
    let mut node = Node::new(&format!("{}workers = 2\n{limits}", replay()));
    let text = std::fs::read_to_string(node.path("node.toml")).unwrap();
    std::fs::write(node.path("node.toml"), text.replace("[node]\n", "[node]\naccounting = \"500ms\"\n"))
        .unwrap();
    let (start, mut rounds, mut counts) = (Instant::now(), 0, Counts::default());
    while rounds == 0 || start.elapsed() < duration {
        rounds += 1;
        node.start();
        // Whatever was installed when it was killed runs again, or says why not.
        remove_all(&node);
        for _ in 0..60 {
            change(&node, &wasm, &mut random, &mut counts);
        }
        remove_all(&node);
        let before = held(&node);
        // Long rounds, so that a leak shows; short ones at the end, for kills.
        let until = Instant::now() + (duration / 4).min(duration.saturating_sub(start.elapsed()));
        let mut changes = 0;
        while changes < 60 || Instant::now() < until {
            changes += 1;
            change(&node, &wasm, &mut random, &mut counts);
            if random.below(100) == 0 {
                node.signal("HUP");
            }
        }
        remove_all(&node);
        let after = held(&node);
        println!("round {rounds}: {changes} changes, {before:?} to {after:?}");
        assert!(
            after.files <= before.files + 4 && after.threads <= before.threads + 4,
            "{before:?} {after:?}"
        );
        let most = before.resident + before.resident / 2 + (64 << 20);
        assert!(after.resident <= most, "{before:?} {after:?} after {changes} changes");
        let (kernel, accounted) = accounts(&node);
        assert!(accounted <= kernel * 1.02 + 0.05, "{accounted} s of {kernel} s");
        std::thread::sleep(Duration::from_millis(1100));
        let (later, accounted) = accounts(&node);
        assert!(accounted >= kernel * 0.98 - 0.05, "{accounted} s of {kernel} s, {later} s later");
        for _ in 0..10 {
            change(&node, &wasm, &mut random, &mut counts);
        }
        node.kill();
        check_store(&node);
    }
    println!("{rounds} rounds: {:?}", counts.0);
    node.start();
    remove_all(&node);
    let said = node.end();
    assert!(!said.contains("panicked") && said.contains("node: ended"), "{said}");
}
