//! The loops of Rust that have a bound: `iterators/iterators.rs` is compiled as by `flame build`,
//! and `iterators/expected` lists its functions. A lost bound fails the test, and so does a gained one.
//! `FLAME_WRITE_EXPECTED=1` writes the list.

use flame_bounds::analyse_exports;
use std::path::Path;
use std::process::Command;

#[test]
fn loops_over_ranges_slices_and_iterators_have_the_listed_bounds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/iterators");
    let wasm = Path::new(env!("CARGO_TARGET_TMPDIR")).join("iterators.wasm");
    let out = Command::new("rustc")
        .args(["--edition", "2024", "--target", "wasm32-unknown-unknown", "--crate-type", "cdylib"])
        .args(["-C", "opt-level=3", "-C", "panic=abort", "-C", "target-feature=+simd128"])
        .args(["-C", "llvm-args=-disable-lsr", "-o"])
        .arg(&wasm)
        .arg(folder.join("iterators.rs"))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let analysis = analyse_exports(&std::fs::read(&wasm).unwrap()).unwrap();
    let mut found = String::new();
    for entry in &analysis.entries {
        let verdict = entry.why.as_ref().map_or("bounded".to_owned(), |why| why.reason.to_string());
        found += &format!("{}: {verdict}\n", entry.name);
    }
    let place = folder.join("expected");
    if std::env::var_os("FLAME_WRITE_EXPECTED").is_some() {
        std::fs::write(&place, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&place).unwrap();
    assert!(found == expected, "expected\n{expected}but found\n{found}");
}
