//! Tests that modules that exist in Rust and in C emit the same records.

mod common;

use std::path::PathBuf;
use std::process::Command;

/// Returns records as text, without the module's name.
fn records(module: &str, capture: &std::path::Path, workers: &str, set: &[&str]) -> Vec<String> {
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    flame.args(["run", module, "-q", "--format", "json", "--workers", workers, "-r"]).arg(capture);
    for setting in set {
        flame.args(["--set", &format!("{module}.{setting}")]);
    }
    let out = flame.output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).replace(&format!("\"module\":\"{module}\""), "");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn rust_and_c_give_the_same_records() {
    let pairs: [(&str, &str, &[&[&str]]); 2] = [
        ("count", "count-c", &[&[]]),
        (
            "rtt",
            "rtt-c",
            &[
                &[],
                &["samples=false"],
                &["handshake_timeout=1s", "max_handshakes=8", "max_connections=8", "require_synack=true"],
            ],
        ),
    ];
    if common::module("rtt-c").is_none() {
        return;
    }
    let mut captures = vec![common::root().join("demo/demo.pcap")];
    if let Some(traces) = common::traces() {
        let mut all: Vec<PathBuf> =
            std::fs::read_dir(traces.join("open/files")).unwrap().flatten().map(|e| e.path()).collect();
        all.sort();
        // Every thirtieth capture. The test `truth` runs the C modules over all captures, with default
        // parameters.
        captures.extend(all.into_iter().step_by(30).filter(|p| whole(p)));
    }
    for (rust, c, settings) in pairs {
        for capture in &captures {
            for (set, workers) in settings.iter().flat_map(|s| [(s, "1"), (s, "2")]) {
                let of_rust = records(rust, capture, workers, set);
                assert_eq!(of_rust, records(c, capture, workers, set), "{}: {set:?}", capture.display());
            }
        }
    }
}

/// Returns whether a capture is read without an error.
fn whole(capture: &std::path::Path) -> bool {
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    let out = flame.args(["run", "count", "-q", "--format", "json", "-r"]).arg(capture).output().unwrap();
    out.status.code() == Some(0)
}
