//! Tests of renewals: a module counts in the meters of its new credential, and not in those of the old one.

mod daemon;
mod wasm;

use daemon::{Node, replay, wait_for};
use wasm::with_manifest;

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
