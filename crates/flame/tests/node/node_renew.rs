//! Tests of renewals: a module counts in the meters of its new credential, and not in those of the old one.

use crate::daemon::{self, Node, module, replay, wait_for};
use crate::wasm::with_manifest;
use rusqlite::Connection;
use std::time::Duration;

/// Requests a page with each batch. Under pressure it reports its pages and the free bytes, if they changed.
const GROWS: &str = r#"(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\10\00\00\00\00\00\00\00")
  (func (export "flame_batch") (param i32) (result i64) (drop (memory.grow (i32.const 1))) (i64.const 0))
  (func (export "flame_pressure") (param i64) (result i64)
    (if (i64.eq (i64.load (i32.const 16)) (local.get 0)) (then (return (i64.const 0))))
    (i64.store32 (i32.const 8) (i64.extend_i32_u (memory.size)))
    (i64.store (i32.const 16) (local.get 0))
    (i64.const 0x1800000000)))"#;

/// A module that was refused memory gets it once more is reserved.
#[test]
fn a_renewal_that_reserves_more_memory_gives_it() {
    for place in ["inline", "process"] {
        let mut node = Node::new(&format!("{}[isolation]\nplace = \"{place}\"\n", replay()));
        let columns = r#"columns = [{ name = "pages", type = "u64" }, { name = "free", type = "u64" }]"#;
        let manifest = format!(
            "abi = 1\nname = \"grows\"\nversion = \"1\"\ndescription = \"test\"\n[[tables]]\nname = \"t\"\n{columns}\n"
        );
        let wasm = with_manifest(wat::parse_str(GROWS).unwrap(), manifest.as_bytes());
        std::fs::write(node.path("grows.wasm"), wasm).unwrap();
        node.mint("alice", &["--memory", "16MiB"]);
        node.start();
        let who = ["--credential", "alice.cred", "--identity", "alice.key"];
        let with = |words: &[&str]| node.json(&[words, &who].concat());
        let rows = || -> Vec<(u64, u64)> {
            let out = node.run(&[&["records", "grows", "--format", "json", "-q"][..], &who].concat());
            let row = |line: &str| {
                let row: serde_json::Value = serde_json::from_str(line).unwrap();
                (row["pages"].as_u64().unwrap(), row["free"].as_u64().unwrap() >> 16)
            };
            out.lines().map(row).collect()
        };
        with(&["install", "./grows.wasm", "--reserve", "memory=2MiB"]);
        let small = [(29, 3), (30, 2), (31, 1), (32, 0)];
        wait_for("its limit", || rows().contains(&(32, 0)));
        assert_eq!(rows(), small, "{place}");
        with(&["renew", "grows", "--reserve", "memory=4MiB"]);
        wait_for("the new limit", || rows().contains(&(64, 0)));
        let large = (57..=64).map(|pages| (pages, 64 - pages));
        let expected: Vec<_> = small.into_iter().chain(large).collect();
        // A refusal may be reported when there is already more.
        let found: Vec<_> =
            rows().into_iter().filter(|(pages, free)| pages + free == 64 || *pages <= 32).collect();
        let late = |row: &&(u64, u64)| !expected.contains(row);
        assert!(found.iter().filter(late).count() <= 1, "{place}: {found:?}");
        assert_eq!(found.iter().filter(|row| expected.contains(row)).count(), 12, "{place}: {found:?}");
        node.end();
    }
}

/// Owns twenty pages.
const PAGES: &str = r#"(module
  (memory (export "memory") 20)
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0)))"#;

#[test]
fn a_renewed_module_frees_the_quota_of_its_old_credential() {
    // A process counts its memory itself: a renewal that has no room for it is not refused there
    // (docs/node.md).
    let mut node = Node::new(&format!("{}[isolation]\nplace = \"inline\"\n", replay()));
    let manifest = "abi = 1\nname = \"pages\"\nversion = \"1\"\ndescription = \"test\"\n";
    let wasm = with_manifest(wat::parse_str(PAGES).unwrap(), manifest.as_bytes());
    std::fs::write(node.path("pages.wasm"), wasm).unwrap();
    // Twenty pages fit once, and not twice.
    node.mint("alice", &["--memory", "2MiB"]);
    for extension in ["cred", "key"] {
        std::fs::copy(node.path(&format!("alice.{extension}")), node.path(&format!("old.{extension}")))
            .unwrap();
    }
    node.mint("alice", &["--memory", "2MiB", "--expires", "+1h"]);
    node.start();
    let old = ["--credential", "old.cred", "--identity", "old.key"];
    let new = ["--credential", "alice.cred", "--identity", "alice.key"];
    let with = |words: &[&str], who: &[&str; 4]| node.json(&[words, who].concat());
    let processed = |name: &str| with(&["show", name], &old)["account"]["processed"].as_u64().unwrap();
    with(&["install", "./pages.wasm", "--name", "first"], &old);
    wait_for("packets", || processed("first") > 0);
    with(&["install", "./pages.wasm", "--name", "second"], &old);
    let log = |name: &str| node.run(&["logs", name, "--principal", "alice"]);
    wait_for("its fault", || log("second").contains("could not be started"));
    assert_eq!(processed("second"), 0);
    with(&["renew", "first"], &new);
    // The memory of the first now counts for the new credential, which has no room for another.
    with(&["update", "second"], &old);
    wait_for("packets of the second", || processed("second") > 0);
    let before = processed("first");
    wait_for("packets of the first", || processed("first") > before);
    with(&["install", "./pages.wasm", "--name", "third"], &new);
    wait_for("its fault", || log("third").contains("could not be started"));
    let refused = node.refused(&[&["renew", "second"][..], &new].concat());
    assert!(
        refused.contains("bytes of memory, which the meters of the new credential do not allow"),
        "{refused}"
    );
    assert!(processed("second") > 0, "it runs on");
    with(&["remove", "first"], &new);
    with(&["renew", "second"], &new);
    assert!(log("second").contains("renewed"));
    node.end();
}

/// Keeps the node from writing to its storage for a while, in which what it does meanwhile is seen.
struct Held(Connection);

impl Held {
    fn new(node: &Node) -> Self {
        let database = Connection::open(node.path("state/node.sqlite")).unwrap();
        database.busy_timeout(Duration::from_secs(5)).unwrap();
        database.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self(database)
    }

    fn release(self) {
        self.0.execute_batch("ROLLBACK").unwrap();
    }
}

/// The time after which a change that waits for the storage has come to it, on a usual machine. On a slower
/// one, the tests below see less.
const UNTIL_HELD: Duration = Duration::from_secs(1);

/// Other requests do not wait for a renewal or an update whose row waits for the disk.
#[test]
fn others_do_not_wait_for_the_row_of_a_change() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    node.start();
    let who = ["--credential", "alice.cred", "--identity", "alice.key"];
    node.json(&[&["install", &count][..], &who].concat());
    let reader = Connection::open(node.path("state/node.sqlite")).unwrap();
    let of = |what: &str| reader.query_row::<u64, _, _>(what, [], |row| row.get(0)).unwrap();
    let revision = || of("SELECT max(revision) FROM modules");
    // A renewal is stored once, an update after it was proposed. It may be stored before it is held up.
    let (mut renewed, mut updated) = (0, 0);
    while renewed + updated < 2 {
        let before = revision();
        let change = if renewed == 0 { "renew" } else { "update" };
        let mut held = (renewed == 0).then(|| Held::new(&node));
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| node.output(&[&[change, "count"][..], &who].concat()));
            if held.is_none() {
                wait_for("its proposal", || {
                    of("SELECT count(*) FROM proposals") > 0 || changing.is_finished()
                });
                held = Some(Held::new(&node));
            }
            std::thread::sleep(UNTIL_HELD);
            if revision() == before {
                // All modules are read.
                assert_eq!(node.request("GET", "/v1/modules", None).0, 200);
                assert!(!changing.is_finished(), "{change}: the answer came after its end");
                (renewed, updated) = (1, renewed);
            }
            held.take().into_iter().for_each(Held::release);
            let out = changing.join().unwrap();
            assert!(out.status.success(), "{change}: {}", daemon::text(&out.stderr));
        });
    }
    node.end();
}

/// The review does not know the new credential until the renewal is stored.
#[test]
fn a_credential_that_is_revoked_during_its_renewal_renews_nothing() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    for extension in ["cred", "key"] {
        std::fs::copy(node.path(&format!("alice.{extension}")), node.path(&format!("old.{extension}")))
            .unwrap();
    }
    node.mint("alice", &["--expires", "+1h"]);
    node.start();
    let old = ["--credential", "old.cred", "--identity", "old.key"];
    let new = ["--credential", "alice.cred", "--identity", "alice.key"];
    node.json(&[&["install", &count][..], &old].concat());
    let held = Held::new(&node);
    std::thread::scope(|scope| {
        let renewing = scope.spawn(|| node.output(&[&["renew", "count"][..], &new].concat()));
        std::thread::sleep(UNTIL_HELD);
        node.run(&["grant", "revoke", "alice.cred", "--policy", "policy.toml"]);
        // The policy is read again, and the module is what it was.
        std::thread::sleep(UNTIL_HELD);
        held.release();
        let out = renewing.join().unwrap();
        let said = daemon::text(&out.stderr);
        assert!(!out.status.success(), "it was renewed: {}", daemon::text(&out.stdout));
        assert!(
            said.contains("lost its grant before the change") || said.contains("was not stored"),
            "{said}"
        );
    });
    node.end();
}
