//! Tests of bounded next to metered modules on a live link: a slow module is interrupted and delays no other,
//! and a module that keeps exceeding its time limit is evicted, with a reason.

use crate::common::{self, with_manifest};
use crate::network::{Net, ipv4};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Returns a module whose loop takes its trip count from memory in each batch, so that no bound can be found.
fn hog(iterations: u32, folder: &Path) -> PathBuf {
    let text = format!(
        r#"(module (memory (export "memory") 1) (data (i32.const 16) "{}")
            (func (export "flame_batch") (param i32) (result i64) (local $i i32)
                (local.set $i (i32.load (i32.const 16)))
                (loop $again
                    (i32.store (i32.const 32) (local.get $i))
                    (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
                (i64.const 0)))"#,
        iterations.to_le_bytes().map(|b| format!("\\{b:02x}")).concat()
    );
    let manifest = "abi = 1\nname = \"hog\"\nversion = \"1\"\ndescription = \"busy\"\n[needs]\nexpose = \"none\"\n\
                    [limits]\npacket_budget = 100000000\n";
    let path = folder.join("hog.wasm");
    std::fs::write(&path, with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())).unwrap();
    path
}

fn account(out: &Output) -> Value {
    let text = String::from_utf8_lossy(&out.stderr);
    let start = text.find('{').unwrap_or_else(|| panic!("no account in {text}"));
    serde_json::from_str(&text[start..]).unwrap()
}

#[test]
fn a_module_that_takes_long_holds_up_no_other() {
    let Some(net) = common::module("count").and_then(|_| Net::new()) else { return };
    let folder = tempfile::tempdir().unwrap();
    // About 10 ms per batch, within the budget of a batch of one packet, is longer than permitted for the
    // packets that arrive within a second.
    let hog = hog(8_000_000, folder.path());
    let capture = net.capture(&[&format!("{},count", hog.display()), "--format", "json"], 1);
    let frames = vec![ipv4(&[], 17, (1, 1), (2, 53), 1500); 1000];
    net.send(&frames, 60);
    let out = capture.interrupt();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let account = account(&out);
    assert_eq!(account["kernel_drops"], 0, "{account}");
    assert_eq!(account["modules"]["count"]["processed"], 60_000, "{account}");
    let hog = &account["modules"]["hog"];
    assert!(hog["processed"].as_u64().unwrap() > 0 && hog["adds_up"] == true, "{account}");
    assert!(hog["shed"]["overrun"].as_u64().unwrap() > 1000, "what it had no time for is counted: {account}");
}

#[test]
fn a_module_that_keeps_breaking_its_pace_is_removed_with_its_times() {
    let Some(net) = common::module("count").and_then(|_| Net::new()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let hog = hog(600_000, folder.path());
    // A module is not judged by its first 256 batches. Here, each batch is one packet.
    let pace = ["--packet-time", "1us", "--max-overruns", "100", "--batch", "1", "--format", "json"];
    let capture = net.capture(&[&[&*format!("{},count", hog.display())], &pace[..]].concat(), 1);
    net.send(&vec![ipv4(&[], 17, (1, 1), (2, 53), 100); 400], 1);
    let out = capture.interrupt();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(4), "{said}");
    assert!(said.contains("hog is metered: its batches have no bound"), "{said}");
    assert!(
        said.contains("evicted: took more than 1000 ns a packet in ") && said.contains("99 % up to"),
        "{said}"
    );
    let account = account(&out);
    assert!(account["modules"]["hog"]["shed"]["evicted"].as_u64().is_some(), "{account}");
    let count = &account["modules"]["count"];
    assert_eq!(count["processed"], count["offered"], "the other goes on: {account}");
}
