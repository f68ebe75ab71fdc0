//! Modules of live graphs whose calls are long, beside another source of their thread.

use crate::commands::{flame, text};
use crate::common::with_manifest;
use crate::forwards::handler;
use std::path::Path;

/// A loop of some 20 ms, within the budget of a call.
const LONG: &str = "(local.set $i (i32.const 15000000)) (local.set $x (i64.const 7))
    (loop $l
      (local.set $x (i64.add (i64.mul (local.get $x) (i64.const 6364136223846793005)) (i64.const 1)))
      (br_if $l (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (i64.store (i32.const 8) (local.get $x))";

/// Writes a module with these functions. `LONG` stands for the loop, which needs the locals `$i` and `$x`.
fn module(folder: &Path, functions: &str) {
    let wat = format!("(module (memory (export \"memory\") 1) {})", functions.replace("LONG", LONG));
    let manifest = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n";
    let wasm = with_manifest(wat::parse_str(wat).unwrap(), manifest.as_bytes());
    std::fs::write(folder.join("m.wasm"), wasm).unwrap();
}

/// Runs 3 s with a source of 1,000 packets a second beside the module. Returns the packets of that source,
/// and what the module's element states.
fn beside(folder: &Path, arguments: &str) -> (u64, String) {
    let graph = format!(
        "RatedSource(RATE 1000) -> n :: Counter -> Discard;
         RatedSource(RATE 1000) -> m :: Module(./m.wasm, LIVE true, {arguments}) -> c :: Counter -> Discard;
         Script(wait 3s, stop)"
    );
    let handlers = ["-h", "n.count", "-h", "c.count", "-h", "m.stats"];
    let out = flame(folder, &[&["click"], &handlers[..], &["-e", &graph]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    let all = text(&out.stdout) + &text(&out.stderr);
    (handler(&all, "n.count").trim().parse().unwrap(), all)
}

/// Returns the number after a name.
fn number(all: &str, name: &str) -> u64 {
    let line = handler(all, "m.stats");
    let mut words = line.split_whitespace();
    words.find(|word| *word == name).and_then(|_| words.next()).map_or(0, |n| n.parse().unwrap())
}

/// A module with long ticks.
const TICKS: &str = "(func (export \"flame_tick\") (param i64) (result i64) (local $i i32) (local $x i64)
        LONG (i64.const 0))
    (func (export \"flame_batch\") (param i32) (result i64) (i64.const 0))";

/// Regression: of 6,000 packets of the other source, 249 were left.
#[test]
fn others_have_their_time_beside_long_ticks() {
    let folder = tempfile::tempdir().unwrap();
    module(folder.path(), TICKS);
    let (others, all) = beside(folder.path(), "INTERVAL 10ms");
    println!("{others} of 3000: {all}");
    assert!(others > 1500, "{others} of 3000: {all}");
    // Its packets pass, and many of them do not reach it: its ticks take more time than there is.
    let (offered, shed) = (number(&all, "offered"), number(&all, "shed"));
    assert!(offered > 1500 && shed > offered / 4, "{all}");
}

#[test]
fn a_limit_is_charged_with_ticks() {
    let folder = tempfile::tempdir().unwrap();
    module(folder.path(), TICKS);
    let (_, all) = beside(folder.path(), "INTERVAL 10ms, LIMIT 10us");
    assert!(all.contains("evicted: all calls took") && all.contains("LIMIT allows 10000 ns"), "{all}");
}

#[test]
fn others_have_their_time_beside_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let init = "(func (export \"flame_init\") (param i32 i32) (result i64) (local $i i32) (local $x i64)
            LONG (i64.const 0))
        (func (export \"flame_batch\") (param i32) (result i64) unreachable)";
    module(folder.path(), init);
    let (others, all) = beside(folder.path(), "RESTART 1000000");
    println!("{others} of 3000: {all}");
    assert!(others > 2000, "{others} of 3000: {all}");
    let faults = number(&all, "faults");
    assert!((2..20).contains(&faults), "each rest is longer than the one before: {all}");
}
