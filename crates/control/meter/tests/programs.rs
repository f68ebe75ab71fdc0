//! A C program compiled by clang: same results, a charge above Wasmtime's, and the cost of counting.

mod common;

use common::{PLENTY, Run, compare, engine};
use flame_meter::{Count, rewrite};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
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

/// Prints a table; run with `--ignored --nocapture` on a quiet machine. The times are those of machine code
/// optimized by Cranelift, so the test's own profile does not matter.
#[test]
#[ignore = "a measurement"]
fn what_counting_costs() {
    let Some(wasm) = build("O2") else { return };
    let engine = engine(false);
    let mut runs: Vec<Run> = [false, true]
        .map(|meter| {
            Run::new(
                &engine,
                &rewrite(&wasm, if meter { Count::All } else { Count::Nothing }).expect("rewrites"),
            )
        })
        .into();
    for run in &mut runs {
        run.set("flame:fuel", PLENTY);
        run.i32("setup", &[1]).expect("runs");
    }
    for name in PROGRAMS {
        let mut best = [f64::MAX; 2];
        // Interleaved, so that a busy machine slows both; the best of many runs is the undisturbed one.
        for _ in 0..25 {
            for (run, best) in runs.iter_mut().zip(&mut best) {
                run.set("flame:fuel", PLENTY);
                let function =
                    run.instance.get_typed_func::<i32, i32>(&mut run.store, name).expect("exported");
                let start = Instant::now();
                function.call(&mut run.store, 4).expect("runs");
                *best = best.min(start.elapsed().as_secs_f64());
            }
        }
        println!(
            "{name:10} {:8.3} ms {:8.3} ms  ratio {:.3}",
            best[0] * 1e3,
            best[1] * 1e3,
            best[1] / best[0]
        );
    }
}
