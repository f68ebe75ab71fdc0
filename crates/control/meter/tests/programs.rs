//! A C program compiled by clang: same results, and a charge above Wasmtime's.

use crate::common::compare;
use std::path::Path;
use std::process::Command;
use wasmtime::Val;

/// Returns `None` if clang cannot build Wasm.
fn build(level: &str) -> Option<Vec<u8>> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/mix.c");
    let out = std::env::temp_dir().join(format!("flame-meter-{}-{level}.wasm", std::process::id()));
    let status = Command::new("clang")
        .args(["--target=wasm32", "-nostdlib", "-mbulk-memory", "-Wl,--no-entry"])
        .args([&format!("-{level}"), "-o"])
        .args([&out, &source])
        .status();
    let wasm = std::fs::read(&out).ok();
    std::fs::remove_file(&out).ok();
    if !status.is_ok_and(|s| s.success()) {
        println!("skipped: clang with wasm-ld is not installed");
        return None;
    }
    wasm
}

const PROGRAMS: [&str; 6] = ["search", "walk", "sum", "flows", "dispatch", "recurse"];

#[test]
fn compiled_programs_compute_the_same() {
    for level in ["O0", "O2"] {
        let Some(wasm) = build(level) else { return };
        for name in PROGRAMS {
            // Memory is still zero: the tables matter here.
            let (spent, charged, outcome) = compare(&wasm, name, &[Val::I32(1)]);
            assert!(outcome.results.is_ok() && charged >= spent, "{name} -{level}: {charged} for {spent}");
            println!("{name} -{level}: charged {:.2} of what Wasmtime counts", charged as f64 / spent as f64);
        }
    }
}
