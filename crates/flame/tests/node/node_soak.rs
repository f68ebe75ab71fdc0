//! A node under random changes, hostile modules and kills: nothing leaks, nothing crashes, accounts add up.
//!
//! FLAME_SOAK_SECONDS sets the duration (`make soak-node SOAK_SECONDS=600`), FLAME_SOAK_SEED the choices.

use crate::daemon::{self, Connection, Holder, Node, base64, channel, module, replay, unbase64, wait_for};
use crate::wasm::{self, with_manifest};
use rusqlite::OpenFlags;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time for which a node at rest keeps threads that it needs no more, and some more.
const IDLE: Duration = Duration::from_secs(12);

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

/// The resources that a process holds; threads by their names.
#[derive(Debug)]
struct Held {
    files: usize,
    threads: BTreeMap<String, usize>,
    resident: u64,
}

impl Held {
    fn of(node: &Node) -> Self {
        let folder = format!("/proc/{}", node.pid());
        let statm = std::fs::read_to_string(format!("{folder}/statm")).unwrap();
        let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
        let mut threads = BTreeMap::new();
        for task in std::fs::read_dir(format!("{folder}/task")).unwrap().flatten() {
            // It may have ended meanwhile.
            if let Ok(name) = std::fs::read_to_string(task.path().join("comm")) {
                *threads.entry(name.trim_end().to_owned()).or_default() += 1;
            }
        }
        let files = std::fs::read_dir(format!("{folder}/fd")).unwrap().count();
        Self { files, threads, resident: pages * 4096 }
    }

    /// Returns what the node holds once the threads have ended that it keeps for some seconds after a request
    /// that waited for a file or a compiler, or once it has no more than `enough`.
    fn at_rest(node: &Node, enough: usize) -> Self {
        let (start, mut least) = (Instant::now(), Self::of(node));
        while start.elapsed() < IDLE && least.threads() > enough {
            std::thread::sleep(Duration::from_millis(250));
            let now = Self::of(node);
            if now.threads() < least.threads() {
                least = now;
            }
        }
        least
    }

    fn threads(&self) -> usize {
        self.threads.values().sum()
    }

    /// Panics if the node holds more than it did before some changes, beyond what varies.
    fn check(&self, before: &Self, changes: u64) {
        let all = format!("{before:?} to {self:?} after {changes} changes");
        println!("{all}");
        assert!(self.files <= before.files + 4 && self.threads() <= before.threads() + 4, "{all}");
        let most = before.resident + before.resident / 2 + (64 << 20);
        assert!(self.resident <= most, "{all}");
    }
}

/// Returns all modules to install: good ones, and all hostile texts.
fn modules() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for name in ["count", "flow", "port"] {
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

/// The one who asks for changes.
enum Caller<'a> {
    Operator(&'a Node),
    /// A principal, in a session of its own. Its modules run in a process.
    Tenant(&'a Session),
}

/// A session of a principal, with its challenge.
struct Session {
    connection: Connection,
    holder: Holder,
    challenge: Value,
}

impl Session {
    fn open(node: &Node, name: &str) -> Self {
        let holder = Holder::of(node, name, name);
        let connection = Connection::open(&node.path("node.sock"));
        let challenge = holder.challenge(&connection);
        let answer = holder.answer(&challenge, &channel(&challenge));
        let (code, reply) = connection.post("/v1/session", &answer);
        assert_eq!(code, 200, "{reply}");
        Self { connection, holder, challenge }
    }

    /// Adds the answer that new code requires to a request.
    fn answered(&self, body: Option<&Value>) -> Value {
        let mut body = body.cloned().unwrap_or_default();
        if let Some(wasm) = body["wasm"].as_str() {
            let hash = Sha256::digest(unbase64(wasm)).into();
            body["answer"] = self.holder.answer_for(&self.challenge, &channel(&self.challenge), &hash);
        }
        body
    }
}

impl Caller<'_> {
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        match (self, method) {
            (Self::Operator(node), _) => node.request(method, path, body),
            (Self::Tenant(session), "GET") => session.connection.get(path),
            (Self::Tenant(session), "DELETE") => session.connection.delete(path),
            (Self::Tenant(session), "PUT") => session.connection.put(path, &session.answered(body)),
            (Self::Tenant(session), _) => session.connection.post(path, &session.answered(body)),
        }
    }
}

/// Makes one random change, and checks what the node replies.
fn change(caller: &Caller<'_>, wasm: &[(String, Value)], random: &mut Random, counts: &mut Counts) {
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
            ("install", caller.ask("POST", "/v1/modules", Some(&body)))
        }
        4 | 5 => {
            let body = match random.below(3) {
                0 => json!({ "reserve": reserve }),
                1 => json!({ "wasm": pick, "revision": random.below(4) }),
                _ => json!({ "wasm": pick }),
            };
            ("update", caller.ask("PUT", &path, Some(&body)))
        }
        6 => ("stop", caller.ask("POST", &format!("{path}/stop"), None)),
        7 | 8 => ("remove", caller.ask("DELETE", &path, None)),
        _ => ("log", caller.ask("GET", &format!("{path}/log"), None)),
    };
    *counts.0.entry((what, code)).or_default() += 1;
    // Requests are refused for reasons; the node itself has no fault.
    let is_usual = matches!(code, 200..300 | 404 | 409 | 413 | 422 | 429 | 503);
    // A module whose credential was revoked is renewed before it is changed.
    let is_revoked = what == "update" && code == 403 && reply["cause"].to_string().contains("is revoked");
    assert!(is_usual || is_revoked, "{what} {name}: {code} {reply}");
    if what == "remove" && code == 200 {
        assert_eq!(reply["account"]["adds_up"], true, "{reply}");
    }
}

fn remove_all(node: &Node) {
    let all = node.request("GET", "/v1/modules", None).1;
    for module in all["modules"].as_array().unwrap() {
        let name = module["name"].as_str().unwrap();
        let whose = module["principal"].as_str().map_or(String::new(), |p| format!("?principal={p}"));
        let mut removed = None;
        wait_for("the node's own changes", || {
            let (code, reply) = node.request("DELETE", &format!("/v1/modules/{name}{whose}"), None);
            // The node starts the module's process again, or ends the module: that takes its time.
            let is_free = code != 409;
            assert!(is_free || reply["cause"].to_string().contains("being changed by the node"), "{reply}");
            removed = Some((code, reply));
            is_free
        });
        let (code, reply) = removed.unwrap();
        assert_eq!((code, &reply["account"]["adds_up"]), (200, &json!(true)), "{reply}");
    }
    let capacity = node.request("GET", "/v1/capacity", None).1;
    let none = json!({ "cpu_ppm": 0, "memory": 0, "blocks": 0, "record_bytes": 0 });
    assert_eq!((&capacity["reserved"], &capacity["free"]), (&none, &capacity["capacity"]));
}

fn check_store(node: &Node) {
    let path = node.path("state/node.sqlite");
    let database = rusqlite::Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
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

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[test]
fn random_changes_leak_nothing_and_end_nothing() {
    let wasm = modules();
    if wasm.is_empty() {
        return;
    }
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
            change(&Caller::Operator(&node), &wasm, &mut random, &mut counts);
        }
        remove_all(&node);
        let before = Held::at_rest(&node, 0);
        // Long rounds, so that a leak shows; short ones at the end, for kills.
        let until = Instant::now() + (duration / 4).min(duration.saturating_sub(start.elapsed()));
        let mut changes = 0;
        while changes < 60 || Instant::now() < until {
            changes += 1;
            change(&Caller::Operator(&node), &wasm, &mut random, &mut counts);
            if random.below(100) == 0 {
                node.signal("HUP");
            }
        }
        remove_all(&node);
        Held::at_rest(&node, before.threads()).check(&before, changes);
        let (kernel, accounted) = accounts(&node);
        assert!(accounted <= kernel * 1.02 + 0.05, "{accounted} s of {kernel} s");
        std::thread::sleep(Duration::from_millis(1100));
        let (later, accounted) = accounts(&node);
        assert!(accounted >= kernel * 0.98 - 0.05, "{accounted} s of {kernel} s, {later} s later");
        for _ in 0..10 {
            change(&Caller::Operator(&node), &wasm, &mut random, &mut counts);
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

/// Returns the processes in which modules of principals run.
fn runners(node: &Node) -> Vec<u64> {
    let security = node.request("GET", "/v1/status/security", None).1;
    let all = security["processes"].as_array().unwrap().iter();
    all.filter(|p| p["name"] == "flame-runner").map(|p| p["pid"].as_u64().unwrap()).collect()
}

fn revoke(node: &Node, name: &str) {
    let credential = std::fs::read_to_string(node.path(&format!("{name}.cred"))).unwrap();
    let reply = node.request("POST", "/v1/revocations", Some(&json!({ "credential": credential })));
    assert_eq!(reply.0, 204, "{}", reply.1);
    let listed = node.request("GET", &format!("/v1/modules?principal={name}"), None).1;
    for module in listed["modules"].as_array().unwrap().iter().filter(|m| m["principal"] == name) {
        assert!(module["state"] != "running", "{module}");
    }
}

/// Two principals, whose modules run in processes that are killed at random, and whose credentials are
/// revoked.
#[test]
fn principals_processes_and_revocations_leak_nothing() {
    let wasm = modules();
    if wasm.is_empty() {
        return;
    }
    let duration = Duration::from_secs(number("FLAME_SOAK_SECONDS", 10));
    let mut random = Random(number("FLAME_SOAK_SEED", 88_172_645_463_325_252) | 1);
    let limits = "[limits]\nmodules = 20\nspool = \"64KiB\"\nrequests_per_second = 100000\n\
                  [isolation]\nrestarts = 1000\n";
    let mut node = Node::new(&format!("{}workers = 2\n{limits}", replay()));
    const NAMES: [&str; 2] = ["alice", "bob"];
    NAMES.iter().for_each(|name| node.mint(name, &[]));
    let (start, mut rounds, mut counts, mut kills, mut revoked) =
        (Instant::now(), 0, Counts::default(), 0, 0);
    while rounds == 0 || start.elapsed() < duration {
        rounds += 1;
        node.start();
        remove_all(&node);
        let mut before = None;
        let until = Instant::now() + (duration / 4).min(duration.saturating_sub(start.elapsed()));
        let mut changes = 0;
        while changes < 120 || Instant::now() < until {
            changes += 1;
            let whose = random.below(NAMES.len());
            // The node closes a connection that waits for others.
            let session = Session::open(&node, NAMES[whose]);
            change(&Caller::Tenant(&session), &wasm, &mut random, &mut counts);
            if random.below(20) == 0 {
                let all = runners(&node);
                if let Some(pid) = all.get(random.below(all.len().max(1))) {
                    let killed = Command::new("kill").args(["-9", &pid.to_string()]).output();
                    // It may have ended meanwhile.
                    kills += u64::from(killed.unwrap().status.success());
                }
            }
            if random.below(40) == 0 {
                revoke(&node, NAMES[whose]);
                revoked += 1;
                node.mint(NAMES[whose], &[]);
            }
            if changes == 60 {
                remove_all(&node);
                wait_for("the ends of processes", || runners(&node).is_empty());
                before = Some(Held::at_rest(&node, 0));
            }
        }
        remove_all(&node);
        wait_for("the ends of processes", || runners(&node).is_empty());
        let before = before.unwrap();
        Held::at_rest(&node, before.threads()).check(&before, changes);
        for name in NAMES {
            change(&Caller::Tenant(&Session::open(&node, name)), &wasm, &mut random, &mut counts);
        }
        node.kill();
        check_store(&node);
    }
    println!("{rounds} rounds, {kills} kills, {revoked} revocations: {:?}", counts.0);
    node.start();
    remove_all(&node);
    let said = node.end();
    assert!(!said.contains("panicked") && said.contains("node: ended"), "{said}");
}
