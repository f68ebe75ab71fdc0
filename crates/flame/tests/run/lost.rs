//! Tests of rows that no output receives: none is lost without a line that names it, and an exit status.

use crate::common::{MANIFEST, with_manifest};
use crate::feed::{self, capture};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Reports 100,000 rows at its end.
const MANY: &str = r#"(module (memory (export "memory") 40)
    (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
    (func (export "flame_end") (param i64) (result i64) (local $at i32)
        (loop $rows
            (i64.store (local.get $at) (i64.const 8))
            (i64.store offset=8 (local.get $at) (i64.const 1))
            (local.set $at (i32.add (local.get $at) (i32.const 16)))
            (br_if $rows (i32.lt_u (local.get $at) (i32.const 1600000))))
        (i64.shl (i64.const 1600000) (i64.const 32))))"#;

/// States at its end that it dropped 7 rows, of the table TABLE less one, or of several if it is 0.
const DROPS: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\08\00\00\00\fe\ff\TABLE\00\07\00\00\00\00\00\00\00")
    (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
    (func (export "flame_end") (param i64) (result i64) (i64.const 0x1000000000)))"#;

fn module(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(format!("{name}.wasm"));
    let manifest = MANIFEST.replace("hostile", name);
    std::fs::write(&path, with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())).unwrap();
    path
}

fn run(folder: &Path, module: &Path, more: &[&str]) -> Output {
    capture(&folder.join("c.pcap"), 10);
    Command::new(env!("CARGO_BIN_EXE_flame"))
        .arg("run")
        .arg(module)
        .args(["-r", "c.pcap", "--format", "json"])
        .args(more)
        .env("FLAME_CACHE", folder.join("cache"))
        .current_dir(folder)
        .output()
        .unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Returns the number in the line that names `place`.
fn lost(said: &str, place: &str) -> usize {
    let line =
        said.lines().find(|line| line.contains(" lost: ")).unwrap_or_else(|| panic!("no line: {said}"));
    let number = line.strip_prefix(&format!("flame: {place}: ")).unwrap_or_else(|| panic!("{line}"));
    number.split(' ').next().unwrap().replace(',', "").parse().unwrap()
}

#[test]
fn rows_beyond_a_limit_are_named_and_change_the_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let many = module(folder.path(), "many", MANY);
    for more in [&[][..], &["-q"], &["--workers", "2"], &["--stats", "json"]] {
        let out = run(folder.path(), &many, more);
        assert_eq!(out.status.code(), Some(5), "{more:?}: {}", said(&out));
        let written = String::from_utf8_lossy(&out.stdout).lines().count();
        let workers = if more.contains(&"--workers") { 2 } else { 1 };
        assert_eq!(written + lost(&said(&out), "many.t"), workers * 100_000, "{more:?}");
        assert!(written > 60_000 && said(&out).contains("--interval"), "{more:?}: {}", said(&out));
    }
}

#[test]
fn rows_that_a_module_dropped_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (table, place) in [("01", "drops.t"), ("00", "module drops")] {
        let drops = module(folder.path(), "drops", &DROPS.replace("TABLE", table));
        let out = run(folder.path(), &drops, &["-q"]);
        assert_eq!((out.status.code(), lost(&said(&out), place)), (Some(5), 7), "{}", said(&out));
    }
    // A table that does not exist is a fault of the output.
    let drops = module(folder.path(), "drops", &DROPS.replace("TABLE", "02"));
    assert_eq!(run(folder.path(), &drops, &[]).status.code(), Some(4));
}

#[test]
fn a_run_that_loses_nothing_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let each = feed::each(folder.path());
    let out = run(folder.path(), &each, &["-q"]);
    assert_eq!((out.status.code(), said(&out)), (Some(0), String::new()));
}
