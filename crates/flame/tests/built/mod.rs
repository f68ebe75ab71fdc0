//! Modules that a test builds by `flame build`, and what they find.

#![allow(dead_code)] // Each test that includes it uses a part.

use crate::common::{Pcap, modules_target};
use flame_module::testing::Traffic;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn kept() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn flame(args: &[&str]) -> Output {
    flame_with(args, 0)
}

/// Runs the command, which ends with `status`.
pub fn flame_with(args: &[&str], status: i32) -> Output {
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    let out = flame.args(args).env("CARGO_TARGET_DIR", modules_target()).output().unwrap();
    assert_eq!(out.status.code(), Some(status), "flame {args:?}: {}", text(&out.stderr));
    out
}

pub fn build(folder: &Path) -> String {
    flame(&["build", folder.to_str().unwrap(), "--output", kept().to_str().unwrap()]);
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    kept().join(name + ".wasm").display().to_string()
}

/// Rows of one table.
pub fn rows(wasm: &str, capture: &Path, table: &str, more: &[&str]) -> Vec<Value> {
    rows_with((wasm, 0), capture, table, more)
}

/// Rows of one table of a module with which the command ends with `status`: 5 if rows are lost.
pub fn rows_with((wasm, status): (&str, i32), capture: &Path, table: &str, more: &[&str]) -> Vec<Value> {
    let usual = ["run", wasm, "-r", capture.to_str().unwrap(), "-q", "--format", "json", "--table", table];
    let out = flame_with(&[&usual[..], more].concat(), status);
    text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A capture file of microseconds (libpcap's first format).
pub fn pcap(traffic: &Traffic) -> Vec<u8> {
    let mut file = Pcap::default();
    for d in traffic.descriptors() {
        file.push_part(d.ts_ns, &traffic.memory()[d.addr as usize..][..d.cap_len as usize], d.wire_len);
    }
    file.bytes()
}
