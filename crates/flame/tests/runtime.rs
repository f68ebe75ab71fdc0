//! A process that was built without a compiler runs a module from a plan that was sent to it.

mod common;

use common::{COUNT, install, request, root, with_manifest};
use flame_plan::Plan;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[test]
fn a_plan_runs_in_a_process_without_compiler() {
    // Next to this workspace's own results, and apart from them: other features, and no wait for this cargo.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let target = target.join("runtime");
    let manifest = root().join("tests/runtime/Cargo.toml");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(manifest)
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let wasm = with_manifest(wat::parse_str(COUNT).unwrap(), common::MANIFEST.as_bytes());
    let plan = Plan::new(vec![install(&wasm, &request()).unwrap()], 1, 0);
    let run = |plan: &[u8]| {
        let mut child = Command::new(target.join("release/flame-runtime-test"))
            .arg("200")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(plan).unwrap();
        child.wait_with_output().unwrap()
    };
    let sent = postcard::to_stdvec(&plan).unwrap();
    let out = run(&sent);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // One frame: 8 bytes of table 0, the number of packets.
    assert_eq!(out.stdout, [&[8, 0, 0, 0, 0, 0, 0, 0][..], &200u64.to_le_bytes()].concat());
    let cut = run(&sent[..sent.len() / 2]);
    assert!(!cut.status.success() && !String::from_utf8_lossy(&cut.stderr).contains("panicked"));
}
