//! Tests of the walls between the principals of a node: what one of them sends, has or breaks is not the
//! others' concern, and no session does more than its own credential says.

use crate::common::runner;
use crate::daemon::{Connection, Node, base64, module, raw, replay, reply, session, wait_for};
use crate::services::{caller_parts, server_parts, wasm};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Starts a node with Alice's credential, and those that she made of it.
fn started(more: &str) -> Node {
    let mut node = Node::new(&format!("{}{more}", replay()));
    node.mint("alice", &[]);
    node.start();
    node
}

/// Makes a narrower credential of NAME.cred.
fn narrow(node: &Node, name: &str, to: &str, more: &[&str]) {
    let (from, to) = (format!("{name}.cred"), format!("{to}.cred"));
    node.run(&[&["grant", "narrow", &from, "-o", &to][..], more].concat());
}

/// Returns the options by which a command presents NAME.cred with the key of `holder`.
fn shown<'a>(credential: &'a str, key: &'a str) -> [&'a str; 4] {
    ["--credential", credential, "--identity", key]
}

#[test]
fn a_session_does_no_more_than_its_whole_credential_says() {
    let Some(flow) = module("flow") else { return };
    let flow = flow.display().to_string();
    let node = started("");
    let alice = shown("alice.cred", "alice.key");
    node.json(&[&["install", &flow, "--narrow", "expose=headers"][..], &alice].concat());
    // After the date of a check, nothing works.
    narrow(&node, "alice", "late", &["--datalog", "check if time($t), $t < 2025-01-01T00:00:00Z"]);
    for command in [&["list"][..], &["show", "flow"], &["stop", "flow"], &["remove", "flow"]] {
        let refused = node.refused(&[command, &shown("late.cred", "alice.key")].concat());
        assert!(refused.contains("a check fails"), "{command:?}: {refused}");
    }
    // A check for one module keeps off all others.
    narrow(&node, "alice", "other", &["--datalog", "check if claimed_name(\"count\")"]);
    let other = session(&node, "other", "alice");
    assert_eq!(other.get("/v1/modules").1["modules"], json!([]));
    for path in ["/v1/modules/flow", "/v1/modules/flow/records", "/v1/modules/flow/log", "/v1/accounting"] {
        let (code, problem) = other.get(path);
        assert_eq!(code, 403, "{path}: {problem}");
    }
    assert_eq!(other.delete("/v1/modules/flow").0, 403);
    // A narrower session neither reads the module of the wider one, nor changes it.
    narrow(&node, "alice", "narrow", &["--expose", "count"]);
    let narrow_session = session(&node, "narrow", "alice");
    assert_eq!(narrow_session.get("/v1/modules").1["modules"], json!([]));
    assert_eq!(narrow_session.get("/v1/modules/flow/records").0, 403);
    assert_eq!(narrow_session.get("/v1/accounting").0, 403);
    assert_eq!(narrow_session.put("/v1/modules/flow", &json!({ "narrow": [] })).0, 403);
    assert_eq!(narrow_session.post("/v1/modules/flow/stop", &json!({})).0, 403);
    // A module that is within its rights by its narrowing, it may change, but not give more.
    node.json(&[&["update", "flow", "--narrow", "expose=count"][..], &alice].concat());
    assert_eq!(narrow_session.get("/v1/modules/flow").0, 200);
    assert_eq!(narrow_session.get("/v1/modules/flow/records").0, 403, "rows of the wider instance");
    let (code, problem) = narrow_session.put("/v1/modules/flow", &json!({ "narrow": [] }));
    assert_eq!(code, 403, "{problem}");
    let module = narrow_session.get("/v1/modules/flow").1;
    assert_eq!(
        (&module["narrow"][0]["value"], &module["revision"]),
        (&json!("count"), &json!(2)),
        "{module}"
    );
    assert_eq!(narrow_session.put("/v1/modules/flow", &json!({ "revision": 2 })).0, 200);
    // So it is with a module that does not run, and after a restart.
    assert_eq!(narrow_session.post("/v1/modules/flow/stop", &json!({})).0, 200);
    node.json(&[&["update", "flow", "--narrow", "expose=headers"][..], &alice].concat());
    node.json(&[&["stop", "flow"][..], &alice].concat());
    let mut node = node;
    node.end();
    node.start();
    assert_eq!(session(&node, "narrow", "alice").get("/v1/modules/flow").0, 403);
    assert_eq!(session(&node, "alice", "alice").get("/v1/modules/flow").0, 200);
}

#[test]
fn one_to_whom_a_credential_was_handed_on_has_modules_of_its_own() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let node = started("");
    node.json(&[&["install", &count][..], &shown("alice.cred", "alice.key")].concat());
    let bob = node.run(&["key", "new", "bob.key"]);
    let by_alice = ["--identity", "alice.key"];
    narrow(&node, "alice", "bob", &[&["--to", "bob", "--holder", &bob][..], &by_alice].concat());
    narrow(&node, "alice", "unnamed", &[&["--holder", &bob][..], &by_alice].concat());
    // Alice under his name, with her own key.
    narrow(&node, "alice", "false", &["--to", "bob"]);
    node.json(&[&["install", &count][..], &shown("bob.cred", "bob.key")].concat());
    let mine = |credential: &str, holder: &str| {
        let modules = session(&node, credential, holder).get("/v1/modules").1["modules"].clone();
        modules
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["principal"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(mine("alice", "alice"), ["alice"]);
    assert_eq!(mine("unnamed", "bob"), [""; 0]);
    assert_eq!(mine("false", "alice"), [""; 0]);
    let of_bob = mine("bob", "bob");
    assert!(of_bob.len() == 1 && of_bob[0].starts_with("alice/bob#"), "{of_bob:?}");
    // The operator means it by that name.
    assert_eq!(node.json(&["show", "count", "--principal", &of_bob[0]])["principal"], of_bob[0]);
}

/// Reads the rows of `count` as alice, until the node ends the reply, and returns it.
fn follow(node: &Node) -> std::thread::JoinHandle<String> {
    let alice = session(node, "alice", "alice");
    alice.send("GET /v1/modules/count/records?follow=true HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n");
    std::thread::spawn(move || alice.rest())
}

#[test]
fn a_stream_ends_with_the_right_to_read_it() {
    let Some(count) = module("count") else { return };
    let node = started("");
    node.json(&[&["install", &count.display().to_string()][..], &shown("alice.cred", "alice.key")].concat());
    wait_for("rows", || node.json(&["show", "count", "--principal", "alice"])["spool"]["rows"] != 0);
    // A credential that ends. The module runs on under another one.
    node.mint("alice", &["--expires", "+15s"]);
    let ends = follow(&node);
    let rows = ends.join().unwrap();
    assert!(rows.starts_with("HTTP/1.1 200") && rows.contains("\"module\":\"count\""), "{rows}");
    assert_eq!(node.json(&["show", "count", "--principal", "alice"])["state"], "running");
    // A revocation of the session's credential.
    node.mint("alice", &["--expires", "+1h"]);
    let ends = follow(&node);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!ends.is_finished());
    let credential = std::fs::read_to_string(node.path("alice.cred")).unwrap();
    assert_eq!(node.request("POST", "/v1/revocations", Some(&json!({ "credential": credential }))).0, 204);
    ends.join().unwrap();
    assert_eq!(node.json(&["show", "count", "--principal", "alice"])["state"], "running");
    let log = node.run(&["audit", "show", "--policy", "policy.toml"]);
    assert!(log.contains("revoke"), "{log}");
}

#[test]
fn bodies_are_limited_together() {
    let node = started("[limits]\nrequest_bytes = \"1MiB\"\nbodies = \"2MiB\"\nrequest_time = \"20s\"\n");
    let post = |bytes: usize| {
        let connection = session(&node, "alice", "alice");
        let head = "POST /v1/modules HTTP/1.1\r\nhost: n\r\ncontent-type: application/json";
        connection.send(&format!("{head}\r\ncontent-length: {bytes}\r\n\r\n{{"));
        connection
    };
    // One part of a body is enough to hold its whole length.
    let first = post(700 << 10);
    std::thread::sleep(Duration::from_millis(200));
    let (code, problem) = post(700 << 10).receive();
    assert_eq!(code, 429, "{problem}");
    assert!(problem["cause"].as_str().unwrap().contains("no room for a body of"), "{problem}");
    // A shorter one has room, and so has the operator's.
    let short = post(3);
    short.send("1}");
    assert_eq!(short.receive().0, 400);
    let large = json!({ "wasm": base64(&vec![0; 600 << 10]) });
    assert_eq!(node.request("POST", "/v1/modules", Some(&large)).0, 422);
    // What is given up is free again.
    drop(first);
    wait_for("room", || post(700 << 10).is_silent());
}

#[test]
fn nothing_is_kept_of_modules_that_are_not_admitted() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let (count, flow) = (count.display().to_string(), flow.display().to_string());
    let node = started("");
    let files = |folder: &str| {
        let all = std::fs::read_dir(node.path(folder)).unwrap();
        let mut names: Vec<String> = all.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "key");
        names.sort();
        names
    };
    node.mint("carol", &["--calls", ""]);
    let refused = node.refused(&[&["install", &count][..], &shown("carol.cred", "carol.key")].concat());
    assert!(refused.contains("which is not granted"), "{refused}");
    assert_eq!((files("state/cache"), files("state/code")), (Vec::new(), Vec::new()));
    // What was admitted goes with its module.
    let alice = shown("alice.cred", "alice.key");
    node.json(&[&["install", &count][..], &alice].concat());
    let kept = (files("state/cache"), files("state/code"));
    assert!(kept.0.len() > 1 && kept.1.len() == 1, "{kept:?}");
    node.json(&[&["install", &flow][..], &alice].concat());
    node.json(&[&["update", "flow", &count][..], &alice].concat());
    assert_eq!((files("state/cache"), files("state/code")), kept, "the code of before");
    node.json(&[&["remove", "flow"][..], &alice].concat());
    assert_eq!((files("state/cache"), files("state/code")), kept, "another module has it");
    node.json(&[&["remove", "count"][..], &alice].concat());
    assert_eq!((files("state/cache"), files("state/code")), (Vec::new(), Vec::new()));
}

/// A resolution that does not divide a tick is refused only when the module is about to run.
#[test]
fn a_refused_install_leaves_no_row() {
    let Some(flow) = module("flow") else { return };
    let flow = flow.display().to_string();
    let node = started("");
    let alice = shown("alice.cred", "alice.key");
    let proposals = || -> i64 {
        let database = rusqlite::Connection::open(node.path("state/node.sqlite")).unwrap();
        database.query_row("SELECT count(*) FROM proposals", [], |row| row.get(0)).unwrap()
    };
    for name in ["one", "two"] {
        let install = ["install", &flow, "--name", name, "--narrow", "resolution=300ms"];
        let refused = node.refused(&[&install[..], &alice].concat());
        assert!(refused.contains("resolution"), "{refused}");
        assert_eq!(proposals(), 0);
    }
    node.json(&[&["install", &flow][..], &alice].concat());
    let update = ["update", "flow", "--narrow", "resolution=300ms"];
    let refused = node.refused(&[&update[..], &alice].concat());
    assert!(refused.contains("resolution"), "{refused}");
    assert_eq!(proposals(), 0);
}

#[test]
fn settings_count_as_what_a_module_takes() {
    let Some(port) = module("port") else { return };
    let port = port.display().to_string();
    let node = started("[limits]\nstorage_per_principal = \"1MiB\"\n");
    let alice = shown("alice.cred", "alice.key");
    std::fs::write(node.path("large"), "a".repeat(1_000_000)).unwrap();
    let large = format!("value=@{}", node.path("large").display());
    let refused = node.refused(&[&["install", &port, "--set", &large][..], &alice].concat());
    assert!(refused.contains("with its compiled code and its settings"), "{refused}");
}

#[test]
fn a_principal_stores_no_more_than_its_share() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let node = started("[limits]\nmodules = 8\nstorage_per_principal = \"1KiB\"\n");
    let alice = shown("alice.cred", "alice.key");
    let refused = node.refused(&[&["install", &count][..], &alice].concat());
    assert!(refused.contains("it may store 1024"), "{refused}");
    assert!(std::fs::read_dir(node.path("state/code")).unwrap().next().is_none());
    node.configure(&format!("{}[limits]\nmodules = 8\n", replay()));
    node.signal("HUP");
    wait_for("a reload", || node.said().contains("node: reloaded"));
    for name in ["one", "two"] {
        node.json(&[&["install", &count, "--name", name][..], &alice].concat());
    }
    let refused = node.refused(&[&["install", &count, "--name", "three"][..], &alice].concat());
    assert!(refused.contains("this principal has 2 modules already"), "{refused}");
    node.json(&["install", &count]);
}

#[test]
fn a_principal_has_its_share_of_connections() {
    let node = started("[limits]\nconnections = 8\n");
    let taken: Vec<Connection> = (0..2).map(|_| session(&node, "alice", "alice")).collect();
    let refused = node.refused(&[&["list"][..], &shown("alice.cred", "alice.key")].concat());
    assert!(refused.contains("this principal has 2 connections already"), "{refused}");
    // So has each holder to whom she hands on her credential.
    let bob = node.run(&["key", "new", "bob.key"]);
    narrow(&node, "alice", "bob", &["--to", "bob", "--holder", &bob, "--identity", "alice.key"]);
    assert!(node.refused(&[&["list"][..], &shown("bob.cred", "bob.key")].concat()).contains("2 connections"));
    node.mint("carol", &[]);
    session(&node, "carol", "carol");
    drop(taken);
    wait_for("a place", || {
        node.output(&[&["list"][..], &shown("alice.cred", "alice.key")].concat()).status.success()
    });
}

/// A client without the key of a credential of this node learns nothing of its policy. The log has it all.
#[test]
fn a_refused_session_learns_nothing_of_the_policy_that_the_log_has() {
    let mut node = started("");
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    let (hidden, privacy) =
        (node.run(&["key", "new", "second.key"]), node.run(&["key", "new", "privacy.key"]));
    let roles = policy.replace(
        "[roots]\n",
        &format!("[cosigners]\nwarden = \"{privacy}\"\n[roots]\nuniversity = \"{hidden}\"\n"),
    );
    let role = "select = \"\"\nexpose = \"none\"\ncalls = \"\"\ncode = \"any\"\n";
    let roles = format!(
        "{roles}[roles.signed]\ncosigned = [\"warden\"]\n{role}[roles.theirs]\nroots = [\"university\"]\n{role}"
    );
    std::fs::write(node.path("policy.toml"), roles).unwrap();
    node.signal("HUP");
    wait_for("the policy", || node.said().contains("reloaded"));
    let foreign = node.run(&["key", "new", "foreign.key"]);
    let holder = node.run(&["key", "show", "alice.key"]);
    let mint = |key: &str, role: &str, file: &str| {
        let all = ["grant", "mint", "--key", key, "--to", "mallory", "--code", "any", "--holder", &holder];
        node.run(&[&all[..], &["--role", role, "-o", file]].concat());
    };
    mint("foreign.key", "all", "foreign.cred");
    mint("root.key", "signed", "signed.cred");
    mint("root.key", "theirs", "theirs.cred");
    mint("root.key", "unknown", "unknown.cred");
    node.run(&["key", "new", "other.key"]);
    // The words that a client may learn with the key, and those that the log has.
    for (credential, told, logged) in [
        (
            "foreign.cred",
            "not signed by a root of this node",
            "any of this node's roots (operator, university)",
        ),
        ("signed.cred", "needs a second signature by warden", "the key ed25519/"),
        ("theirs.cred", "may not give the role", "the policy names university"),
        ("unknown.cred", "role \"unknown\" is not known", "which has all, signed, theirs"),
    ] {
        for holder in ["other.key", "alice.key"] {
            let refused = node.refused(&[&["list"][..], &shown(credential, holder)].concat());
            for word in ["university", "(operator", "warden", &foreign, &privacy, &hidden] {
                let is_own = word == "warden" && (credential, holder) == ("signed.cred", "alice.key");
                assert!(is_own || !refused.contains(word), "{credential}, {holder}: {word}: {refused}");
            }
            if holder == "alice.key" {
                assert!(refused.contains(told), "{credential}: {refused}");
            }
        }
        wait_for("the line of the log", || node.said().contains(logged));
    }
    // With a good credential all is well.
    assert!(node.output(&[&["list"][..], &shown("alice.cred", "alice.key")].concat()).status.success());
    node.end();
}

#[test]
fn faults_name_nothing_to_others() {
    let node = started("");
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    std::fs::write(node.path("policy.toml"), "secret words [").unwrap();
    let health = |connection: Option<&Connection>| match connection {
        None => node.request("GET", "/v1/health", None),
        Some(connection) => connection.get("/v1/health"),
    };
    wait_for("the fault", || health(None).0 == 503);
    assert!(health(None).1["reasons"][0].as_str().unwrap().contains("secret words"), "the operator's");
    let alice = session(&node, "alice", "alice");
    let (code, told) = health(Some(&alice));
    assert_eq!((code, &told), (503, &json!({ "ok": false, "reasons": [] })));
    std::fs::write(node.path("policy.toml"), policy).unwrap();
    wait_for("its end", || health(None).0 == 200);
    // A storage that cannot be written is no secret, but its place is.
    let folder = node.folder.path().display().to_string();
    let install = |to: &dyn Fn(&Value) -> (u16, Value)| {
        let count = std::fs::read(module("count")?).unwrap();
        Some(to(&json!({ "wasm": base64(&count) })))
    };
    std::fs::remove_dir_all(node.path("state/cache")).unwrap();
    std::fs::write(node.path("state/cache"), "no folder").unwrap();
    let Some((code, problem)) = install(&|body| node.request("POST", "/v1/modules", Some(body))) else {
        return;
    };
    assert!(code == 507 && problem.to_string().contains(&folder), "{problem}");
    let as_alice = |body: &Value| {
        let mut body = body.clone();
        body["answer"] = json!({
            "key": node.run(&["key", "show", "alice.key"]), "signature": base64(&[0; 64])
        });
        alice.post("/v1/modules", &body)
    };
    let (code, problem) = install(&as_alice).unwrap();
    assert!(code == 507 && !problem.to_string().contains(&folder), "{problem}");
}

/// A client that goes away while its module is compiled does not make room for another compilation.
#[test]
fn requests_whose_clients_have_gone_are_worked_on_one_after_the_other() {
    let Some(flow) = module("flow") else { return };
    let node = started("");
    let wasm = std::fs::read(flow).unwrap();
    let key = node.run(&["key", "show", "alice.key"]);
    // Each is other code, by a section that says nothing.
    let body = |n: u8| {
        let wasm = [&wasm[..], &[0, 3, 1, b'x', n]].concat();
        let answer = json!({ "key": key, "signature": base64(&[0; 64]) });
        json!({ "wasm": base64(&wasm), "name": format!("m{n}"), "answer": answer }).to_string()
    };
    for n in 0..16 {
        let alice = session(&node, "alice", "alice");
        let (head, body) =
            ("POST /v1/modules HTTP/1.1\r\nhost: n\r\ncontent-type: application/json", body(n));
        alice.send(&format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        drop(alice);
    }
    let children = || {
        let of_threads = std::fs::read_dir(format!("/proc/{}/task", node.pid())).unwrap();
        let all = of_threads.flatten().map(|task| std::fs::read_to_string(task.path().join("children")));
        all.flatten().map(|text| text.split_whitespace().count()).sum::<usize>()
    };
    let mut most = 0;
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        most = most.max(children());
    }
    assert!(most <= 1, "{most} children for one principal");
    // Another principal and the operator are not behind them.
    node.mint("bob", &[]);
    node.run(&[&["list"][..], &shown("bob.cred", "bob.key")].concat());
    assert_eq!(node.request("GET", "/v1/health", None).0, 200);
}

#[test]
fn requests_are_charged_before_they_are_read() {
    let node = started("[limits]\nrequests_per_second = 5\n");
    let alice = session(&node, "alice", "alice");
    let head = "POST /nowhere HTTP/1.1\r\nhost: n\r\ncontent-length: 0\r\n\r\n";
    alice.send(&head.repeat(100));
    let codes: Vec<u16> = (0..100).map(|_| alice.receive().0).collect();
    assert!(codes.iter().filter(|code| **code == 429).count() > 20, "{codes:?}");
    // The operator is not behind her.
    let socket = node.path("node.sock");
    let bytes = raw(&socket, b"GET /nowhere HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n").unwrap();
    assert_eq!(reply(&bytes).unwrap().0, 404);
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /v1/health HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
}

/// A credential that is revoked while an update waits for the instance before: the new one ends as well.
#[test]
fn a_revocation_reaches_what_an_update_begins() {
    runner();
    let mut node = Node::new(&replay());
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    let calls = "calls = \"records, messages, call, serve\"\ncall = \"s\"\nserve = \"s\"";
    let policy = policy.replace("calls = \"records, messages, state\"", calls);
    std::fs::write(node.path("policy.toml"), policy).unwrap();
    ["alice", "bob"].iter().for_each(|name| node.mint(name, &[]));
    node.start();
    // The caller has 256 outcomes to take at its end, each of which takes it a while.
    let (name, manifest, fields) = caller_parts(256);
    let done = r#"(func (export "flame_done") (param i32 i32) (result i64)"#;
    let slow = format!(
        "{done} (local $i i32) (loop $l (br_if $l (i32.lt_u
            (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 30000000))))"
    );
    let caller = (name, manifest, fields.replace(done, &slow));
    let [server, file] =
        [("server", server_parts("(i64.const 0)")), ("slow", caller)].map(|(name, parts)| {
            std::fs::write(node.path(&format!("{name}.wasm")), wasm(parts)).unwrap();
            node.path(&format!("{name}.wasm")).display().to_string()
        });
    node.json_of("bob", &["install", &server]);
    let as_alice = shown("alice.cred", "alice.key");
    node.json(&[&["install", &file, "--name", "slow"][..], &as_alice].concat());
    let shows = || node.json(&["show", "slow", "--principal", "alice"]);
    wait_for("calls", || shows()["account"]["calls"].as_u64() > Some(200));
    std::thread::scope(|scope| {
        let update = scope.spawn(|| {
            let out = node.output(&[&["update", "slow", &file][..], &as_alice].concat());
            (String::from_utf8_lossy(&out.stderr).into_owned(), Instant::now())
        });
        std::thread::sleep(Duration::from_millis(400));
        assert!(!update.is_finished(), "the instance before has work for a second or more: {}", shows());
        let credential = std::fs::read_to_string(node.path("alice.cred")).unwrap();
        assert_eq!(
            node.request("POST", "/v1/revocations", Some(&json!({ "credential": credential }))).0,
            204
        );
        let revoked = Instant::now();
        let (said, updated) = update.join().unwrap();
        assert!(updated < revoked + Duration::from_secs(4), "{:?} {said}", updated - revoked);
    });
    wait_for("the end", || shows()["state"] == "evicted");
    let log = node.run(&["audit", "show", "--policy", "policy.toml"]);
    assert_eq!(log.matches(" evict ").count(), 2, "{log}");
}
