//! Tests of bad input to a node: each is refused with an error that names its cause, and disturbs no other
//! client.

use crate::daemon::{self, Connection, Node, base64, module, raw, replay, reply};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const LIMITS: &str = "[limits]\nrequest_bytes = \"1MiB\"\nrequest_time = \"2s\"\nconnections = 20\n";

fn started() -> Node {
    let mut node = Node::new(&format!("{}{LIMITS}", replay()));
    node.start();
    node
}

fn code_of((status, problem): (u16, Value)) -> (u16, String) {
    for part in ["cause", "remedy"] {
        let said = problem[part].as_str().unwrap_or_default();
        assert!(!said.is_empty(), "{status} has no {part}: {problem}");
    }
    (status, problem["code"].as_str().unwrap().to_owned())
}

#[test]
fn every_refusal_names_cause_and_remedy() {
    let node = started();
    let module = json!({ "wasm": base64(b"no module") });
    let many = vec![json!({ "field": "expose", "value": "count" }); 33];
    for (method, path, body, expected) in [
        ("GET", "/", None, (404, "not_found")),
        ("GET", "/v2/modules", None, (404, "not_found")),
        ("PATCH", "/v1/modules", None, (405, "method")),
        ("GET", "/v1/modules/none", None, (404, "not_found")),
        ("GET", "/v1/modules/%FF", None, (400, "invalid")),
        ("GET", "/v1/modules/none/records?cursor=1", None, (404, "not_found")),
        ("GET", "/v1/modules/none?revision=x", None, (400, "invalid")),
        ("GET", "/v1/modules/none?colour=red", None, (400, "invalid")),
        ("DELETE", "/v1/modules/none", None, (404, "not_found")),
        ("POST", "/v1/modules", Some(json!([])), (400, "invalid")),
        ("POST", "/v1/modules", Some(json!({ "wasm": "%%%" })), (400, "invalid")),
        ("POST", "/v1/modules", Some(json!({ "wasm": "", "colour": 1 })), (400, "invalid")),
        ("POST", "/v1/modules", Some(module), (422, "refused")),
        ("POST", "/v1/modules", Some(json!({ "wasm": "", "source": "none" })), (404, "not_found")),
        ("POST", "/v1/modules", Some(json!({ "wasm": "", "name": "../x" })), (400, "invalid")),
        ("POST", "/v1/modules", Some(json!({ "wasm": "", "narrow": many })), (400, "invalid")),
        ("PUT", "/v1/modules/none", Some(json!({ "narrow": many })), (400, "invalid")),
        ("PUT", "/v1/modules/none", Some(json!({})), (404, "not_found")),
        ("POST", "/v1/session/challenge", Some(json!({ "credential": "x" })), (400, "invalid")),
        ("POST", "/v1/session", Some(json!({ "key": "k", "signature": "" })), (401, "unauthenticated")),
        ("POST", "/v1/revocations", Some(json!({})), (400, "invalid")),
    ] {
        let found = code_of(node.request(method, path, body.as_ref()));
        assert_eq!(found, (expected.0, expected.1.to_owned()), "{method} {path} {body:?}");
    }
    let socket = node.path("node.sock");
    let post = "POST /v1/modules HTTP/1.1\r\nhost: n\r\nconnection: close\r\n";
    // Not declared as JSON; longer than it may be, by its own words and by its chunks.
    let plain = raw(&socket, format!("{post}content-length: 2\r\n\r\n{{}}").as_bytes()).unwrap();
    assert_eq!(code_of(reply(&plain).unwrap()), (415, "media_type".to_owned()));
    let json = format!("{post}content-type: application/json\r\n");
    let long = raw(&socket, format!("{json}content-length: 99999999999\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(code_of(reply(&long).unwrap()), (413, "too_large".to_owned()));
    let chunk = format!("40000\r\n{}\r\n", " ".repeat(0x40000));
    let chunked = format!("{json}transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk.repeat(5));
    assert_eq!(
        code_of(reply(&raw(&socket, chunked.as_bytes()).unwrap()).unwrap()),
        (413, "too_large".to_owned())
    );
    // No HTTP at all, and a head without an end.
    assert!(
        daemon::text(&raw(&socket, b"\x16\x03\x01\x02\x00\r\n\r\n").unwrap()).starts_with("HTTP/1.1 400")
    );
    let endless = format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(1 << 20));
    let refused = raw(&socket, endless.as_bytes());
    assert!(refused.is_err() || daemon::text(&refused.unwrap()).starts_with("HTTP/1.1 4"));
    assert_eq!(node.request("GET", "/v1/health", None).0, 200);
}

#[test]
fn slow_and_half_open_clients_are_closed_and_keep_nobody_out() {
    let node = started();
    let socket = node.path("node.sock");
    // A body that never arrives is answered after its time.
    let start = Instant::now();
    let head =
        "POST /v1/modules HTTP/1.1\r\nhost: n\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let slow = raw(&socket, format!("{head}content-length: 100\r\n\r\n{{").as_bytes()).unwrap();
    assert_eq!(code_of(reply(&slow).unwrap()), (408, "timeout".to_owned()));
    assert!(start.elapsed() >= Duration::from_secs(2));
    // Connections without a request, and with a part of one, hold all places, once the one before has left
    // its own.
    std::thread::sleep(Duration::from_millis(500));
    let mut idle: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for stream in idle.iter_mut().step_by(2) {
        stream.write_all(b"GET /v1/health HT").unwrap();
    }
    let told = daemon::wait_for("a refusal", || {
        let answer = node.try_request("GET", "/v1/health", None).ok();
        answer.filter(|(code, _)| *code == 429).map(|(_, told)| told)
    });
    assert!(told["cause"].as_str().unwrap().contains("no connection is left"), "{told}");
    // They are closed, and others have their places.
    for mut stream in idle {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("closed by the node");
    }
    assert_eq!(node.request("GET", "/v1/health", None).0, 200);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let node = started();
    let connection = Connection::open(&node.path("node.sock"));
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: n\r\n\r\n");
    connection.send(&[get("/v1/health"), get("/nowhere"), get("/v1/sources"), get("/v1/modules")].concat());
    let codes: Vec<u16> = (0..4).map(|_| connection.receive().0).collect();
    assert_eq!(codes, [200, 404, 200, 200]);
}

#[test]
fn of_two_clients_that_change_one_module_one_wins_and_the_other_is_told() {
    let Some(count) = module("count") else { return };
    let node = started();
    let install = json!({ "wasm": base64(&std::fs::read(&count).unwrap()) });
    let both = |request: &(dyn Fn() -> (u16, Value) + Sync)| {
        let mut codes = std::thread::scope(|scope| {
            let (a, b) = (scope.spawn(request), scope.spawn(request));
            [a.join().unwrap(), b.join().unwrap()].map(|(code, reply)| {
                assert!(code < 300 || !reply["remedy"].as_str().unwrap().is_empty());
                code
            })
        });
        codes.sort_unstable();
        codes
    };
    assert_eq!(both(&|| node.request("POST", "/v1/modules", Some(&install))), [201, 409]);
    for revision in 1..20 {
        let update = json!({ "revision": revision });
        assert_eq!(both(&|| node.request("PUT", "/v1/modules/count", Some(&update))), [200, 409]);
        assert_eq!(node.request("GET", "/v1/modules/count", None).1["revision"], revision + 1);
    }
    let codes = both(&|| node.request("DELETE", "/v1/modules/count", None));
    assert!([[200, 404], [200, 409]].contains(&codes), "{codes:?}");
    assert_eq!(node.request("GET", "/v1/modules", None).1["modules"], json!([]));
}

#[test]
fn a_principal_has_a_rate_and_takes_none_of_the_operators() {
    let mut node = Node::new(&format!("{}[limits]\nrequests_per_second = 5\n", replay()));
    node.mint("alice", &[]);
    node.start();
    // Every request counts, whether or not its path and method exist.
    for paths in [["GET /v1/modules"; 2], ["GET /nowhere", "PATCH /v1/modules"]] {
        let alice = daemon::session(&node, "alice", "alice");
        let all: Vec<_> = paths
            .iter()
            .cycle()
            .take(200)
            .map(|path| format!("{path} HTTP/1.1\r\nhost: n\r\n\r\n"))
            .collect();
        alice.send(&all.concat());
        let refused: Vec<_> = (0..200).map(|_| alice.receive()).filter(|(code, _)| *code == 429).collect();
        assert!(refused.len() > 20, "{paths:?}: {}", refused.len());
        assert!(refused[0].1["cause"].as_str().unwrap().contains("more than 5 requests in a second"));
    }
    for _ in 0..50 {
        assert_eq!(node.request("GET", "/v1/modules", None).0, 200);
    }
}

/// A client that does not read its records is left behind; the node continues.
#[test]
fn a_slow_reader_blocks_nobody() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&format!("{}[limits]\nspool = \"64KiB\"\n", replay().replace("100ms", "1ms")));
    node.start();
    node.json(&["install", &count.display().to_string()]);
    let mut slow = UnixStream::connect(node.path("node.sock")).unwrap();
    slow.write_all(b"GET /v1/modules/count/records?follow=true HTTP/1.1\r\nhost: n\r\n\r\n").unwrap();
    let dropped = |node: &Node| node.json(&["show", "count"])["spool"]["dropped"].as_u64().unwrap();
    daemon::wait_for("a full spool", || dropped(&node) > 100);
    let shown = node.json(&["show", "count"]);
    assert!(shown["spool"]["bytes"].as_u64().unwrap() <= 64 << 10, "{shown}");
    assert_eq!(shown["account"]["shed"], json!({}), "{shown}");
    // One who begins at the first row learns how many were dropped.
    let epoch = shown["spool"]["first"].as_str().unwrap().split('.').next().unwrap().to_owned();
    let late = node.output(&["records", "count", "--format", "json", "--cursor", &format!("{epoch}.0")]);
    let said = daemon::text(&late.stderr);
    let lost: u64 = said.split("flame: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(lost > 100 && said.contains("rows were dropped by the node before they were read"), "{said}");
    drop(slow);
    node.end();
}
