//! Tests of a scan of a million flows: the state of modules stays within its limits, and dropped entries are
//! counted.
//!
//! `FLAME_SCAN=10000000 cargo test --release -p flame --test all scan::` uses ten million.

use crate::common;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};

const MODULES: &str = "count,flow,rtt,worm,ids,trajectory,lrd";

/// Writes a packet that begins a flow from a new host: a SYN, or a segment with a worm in it.
fn packet(n: u32, record: &mut Vec<u8>) {
    let payload: &[u8] = if n.is_multiple_of(2) { b"" } else { b"GET /scripts/root.exe?/c+dir HTTP/1.0\r\n" };
    let (total, flags) = (40 + payload.len(), if payload.is_empty() { 2 } else { 0x18 });
    record.clear();
    for word in [1_700_000_000 + n / 100_000, n % 100_000 * 10, 14 + total as u32, 14 + total as u32] {
        record.extend(word.to_le_bytes());
    }
    record.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    record.extend([0x45, 0, 0, total as u8, n as u8, (n >> 8) as u8, 0x40, 0, 64, 6, 0, 0]);
    record.extend(
        [[10 + (n >> 24) as u8, (n >> 16) as u8, (n >> 8) as u8, n as u8], [192, 0, 2, n as u8]].concat(),
    );
    record.extend([((n >> 3) as u16 | 1024).to_be_bytes(), 80u16.to_be_bytes()].concat());
    record.extend([&n.to_be_bytes()[..], &[0, 0, 0, 0, 0x50, flags, 4, 0, 0, 0, 0, 0], payload].concat());
}

/// Returns the maximum resident memory in KiB over a scan of `flows` flows, and the modules' tables `state`.
fn scan(flows: u32) -> (u64, Vec<Value>) {
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    flame.args(["run", MODULES, "-r", "-", "--expose", "all", "--table", "state", "--format", "json", "-q"]);
    flame.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = flame.spawn().unwrap();
    let mut input = std::io::BufWriter::with_capacity(1 << 20, child.stdin.take().unwrap());
    let status = format!("/proc/{}/status", child.id());
    let (mut record, mut most) = (Vec::new(), 0);
    let mut look = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        most = line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0).max(most);
    };
    input.write_all(&common::Pcap::default().bytes()).unwrap();
    for n in 0..flows {
        packet(n, &mut record);
        input.write_all(&record).unwrap();
        if n % 10_000 == 0 {
            look();
        }
    }
    drop(input);
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    (most, text.lines().map(|l| serde_json::from_str(l).unwrap()).collect())
}

#[test]
fn a_scan_takes_no_more_than_there_is_and_is_counted() {
    for module in MODULES.split(',') {
        if common::module(module).is_none() {
            return;
        }
    }
    let all: u32 = std::env::var("FLAME_SCAN").map_or(1_000_000, |n| n.parse().unwrap());
    let (few, _) = scan(400_000);
    let (most, states) = scan(all);
    println!("{} MiB at 400,000 flows, {} MiB at {all}", few >> 10, most >> 10);
    // All tables are full long before 400,000 flows.
    assert!(most < few + few / 10, "{few} KiB at 400,000 flows, {most} KiB at {all}");
    let count = |module: &str, column: &str| {
        let row = states.iter().find(|row| row["module"] == module).unwrap();
        row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))
    };
    let all = u64::from(all);
    // Kept and dropped entries add up to all flows.
    assert_eq!(count("flow", "evicted"), all - 262_144, "flow");
    assert!(count("rtt", "evicted_handshakes") >= all / 2 - 32_768, "rtt");
    assert_eq!(count("worm", "dropped_infections"), all / 2 - 65_536, "worm");
    assert!(count("ids", "evicted_connections") >= all / 2 - 65_536, "ids");
    assert_eq!(count("ids", "packets"), all, "ids");
}
