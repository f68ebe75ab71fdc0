//! Tests of what a node keeps of a module: a session has no row, line or number of it that was made under
//! rights beyond its own, whichever rights the module has now.

use crate::daemon::{Connection, Node, replay, session, wait_for};
use crate::wasm::with_manifest;
use serde_json::Value;

/// Reports with each batch: a row, and a text. It asks for all bytes.
const TELLS: &str = r#"(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\04\00\00\00\fc\ff\00\00text")
  (data (i32.const 12) "\08\00\00\00\00\00\00\00\01\00\00\00\00\00\00\00")
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0x1c00000000)))"#;

const TELLS_MANIFEST: &str = "abi = 1\nname = \"tells\"\nversion = \"1\"\ndescription = \"d\"\nlog = true\n\
    [needs]\nexpose = \"all\"\n[[tables]]\nname = \"t\"\ncolumns = [{ name = \"n\", type = \"u64\" }]\n";

const ALICE: [&str; 4] = ["--credential", "alice.cred", "--identity", "alice.key"];

/// Starts a node on which the root has given Alice a credential, and another that shows headers only.
fn started() -> Node {
    // Connections look often.
    let mut node = Node::new(&format!("{}[limits]\nrequests_per_second = 10000\n", replay()));
    let policy = std::fs::read_to_string(node.path("policy.toml")).unwrap();
    std::fs::write(node.path("policy.toml"), policy.replace("messages, state", "messages, log")).unwrap();
    let config = std::fs::read_to_string(node.path("node.toml")).unwrap();
    std::fs::write(node.path("node.toml"), config.replacen('\n', "\naccounting = \"1s\"\n", 1)).unwrap();
    node.mint("alice", &["--expose", "headers"]);
    std::fs::rename(node.path("alice.cred"), node.path("narrow.cred")).unwrap();
    node.mint("alice", &[]);
    let wasm = with_manifest(wat::parse_str(TELLS).unwrap(), TELLS_MANIFEST.as_bytes());
    std::fs::write(node.path("tells.wasm"), wasm).unwrap();
    node.start();
    node
}

fn narrow(node: &Node) -> Connection {
    session(node, "narrow", "alice")
}

/// Reads rows on a connection of its own, which ends with them. Returns the status and the rest.
fn read(node: &Node, credential: &str, path: &str) -> (String, String) {
    let session = session(node, credential, "alice");
    session.send(&format!("GET {path} HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n"));
    let all = session.rest();
    (all.split(' ').nth(1).unwrap_or_default().to_owned(), all)
}

/// Returns the texts of a log.
fn lines(of: &Connection, name: &str) -> Vec<String> {
    let (code, lines) = of.get(&format!("/v1/modules/{name}/log"));
    assert_eq!(code, 200, "{lines}");
    lines.as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

fn texts(of: &Connection) -> usize {
    lines(of, "tells").iter().filter(|text| *text == "text").count()
}

/// The packets that were offered to the module.
fn offered(of: &Connection) -> u64 {
    of.get("/v1/modules/tells").1["account"]["offered"].as_u64().unwrap()
}

#[test]
fn lines_and_numbers_of_wider_instances_are_not_those_of_a_narrower_session() {
    let node = started();
    let (alice, narrow) = (session(&node, "alice", "alice"), narrow(&node));
    node.json(&[&["install", "./tells.wasm"][..], &ALICE].concat());
    wait_for("texts", || texts(&alice) > 2 && offered(&alice) > 1000);
    assert_eq!(narrow.get("/v1/modules/tells/log").0, 403);
    node.json(&[&["update", "tells", "--narrow", "expose=headers"][..], &ALICE].concat());
    // It may act on the module, and see what came since.
    assert!(offered(&narrow) < 1000, "{}", narrow.get("/v1/modules/tells").1);
    let said = lines(&narrow, "tells");
    assert!(!said.iter().any(|line| line.contains("the instance before")), "{said:?}");
    assert_eq!(narrow.get("/v1/modules/tells/records").0, 403, "rows of the wider instance");
    wait_for("texts of its own", || texts(&narrow) > 0);
    // The wider one has all of them.
    assert!(texts(&alice) > texts(&narrow));
    assert!(lines(&alice, "tells").iter().any(|line| line.contains("the instance before")));
    // What was removed has been the wider one's as well.
    node.json(&[&["update", "tells", "--narrow", "expose=all"][..], &ALICE].concat());
    let accounting = |credential| read(&node, credential, "/v1/accounting");
    wait_for("a row of the accounting", || accounting("alice").1.contains("tells"));
    assert_eq!(accounting("narrow").0, "403");
    node.json(&[&["remove", "tells"][..], &ALICE].concat());
    assert_eq!(accounting("narrow").0, "403", "rows of the module that was removed");
    assert!(accounting("alice").1.contains("tells"));
}

/// The new instance of an update runs before the update is complete, whether or not it succeeds.
#[test]
fn what_an_update_begins_is_under_its_rights_from_the_first_row_on() {
    let node = started();
    let narrow = narrow(&node);
    node.json(&[&["install", "./tells.wasm", "--narrow", "expose=headers"][..], &ALICE].concat());
    let rows = || node.json(&["show", "tells", "--principal", "alice"])["spool"]["rows"].as_u64().unwrap();
    let status = || read(&node, "narrow", "/v1/modules/tells/records").0;
    wait_for("rows", || rows() > 0);
    assert_eq!(status(), "200");
    let database = rusqlite::Connection::open(node.path("state/node.sqlite")).unwrap();
    let proposals = || {
        let count = database.query_row("SELECT count(*) FROM proposals", [], |row| row.get::<_, u64>(0));
        count.unwrap()
    };
    // Its row is refused a while after its proposal.
    database
        .execute_batch("CREATE TRIGGER refuse BEFORE INSERT ON modules BEGIN SELECT RAISE(ABORT, 'no'); END;")
        .unwrap();
    let held = rusqlite::Connection::open(node.path("state/node.sqlite")).unwrap();
    let wider = ["update", "tells", "--narrow", "expose=all"];
    std::thread::scope(|scope| {
        let update = scope.spawn(|| node.output(&[&wider[..], &ALICE].concat()));
        wait_for("the proposal", || proposals() > 0 || update.is_finished());
        held.execute_batch("BEGIN IMMEDIATE").unwrap();
        let before = rows();
        wait_for("rows of the new instance", || rows() > before + 2 || update.is_finished());
        let now = status();
        assert!(update.is_finished() || now == "403", "while the row waits: {now}");
        held.execute_batch("ROLLBACK").unwrap();
        assert!(!update.join().unwrap().status.success(), "its row is refused");
    });
    // The module is what it was, and its spool has rows of the wider instance.
    let module: Value = narrow.get("/v1/modules/tells").1;
    assert_eq!((&module["revision"], &module["narrow"][0]["value"]), (&1.into(), &"headers".into()));
    assert_eq!(status(), "403");
}
