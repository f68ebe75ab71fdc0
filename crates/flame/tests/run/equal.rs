//! Tests that modules that exist in Rust and in C emit the same records.

use crate::common;
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

/// Returns a TCP segment of `flow`, or one of its answers, with `payload` bytes.
fn segment(flow: u16, is_answer: bool, (seq, ack): (u32, u32), flags: u8, payload: usize) -> Vec<u8> {
    let mut p = common::tcp_packet(flow, 80);
    p.truncate(54 + payload);
    p[17] = 40 + payload as u8;
    p[38..42].copy_from_slice(&seq.to_be_bytes());
    p[42..46].copy_from_slice(&ack.to_be_bytes());
    p[47] = flags;
    if is_answer {
        let (addresses, ports) = p[26..38].split_at_mut(8);
        addresses.rotate_left(4);
        ports.rotate_left(2);
    }
    p
}

/// Writes a capture of packets with their times in milliseconds.
fn capture(folder: &std::path::Path, packets: Vec<(u64, Vec<u8>)>) -> PathBuf {
    let path = folder.join("in.pcap");
    std::fs::write(&path, common::pcap(packets)).unwrap();
    path
}

const SYN: u8 = 2;
const ACK: u8 = 16;

/// A connection is forgotten after five minutes, also if a late packet of it comes then.
#[test]
fn a_late_packet_revives_no_entry() {
    if common::module("rtt-c").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let packets = vec![
        (1_000_000, segment(1, false, (0, 1), ACK, 20)),
        (1_301_000, segment(1, false, (1000, 1), ACK, 20)),
        (1_299_900, segment(1, true, (1, 20), ACK, 0)),
        (1_301_050, segment(1, true, (1, 1020), ACK, 0)),
    ];
    let path = capture(folder.path(), packets);
    for module in ["rtt", "rtt-c"] {
        let samples: Vec<_> = records(module, &path, "1", &[]);
        let samples: Vec<_> = samples.iter().filter(|row| row.contains("\"rtt_ns\"")).collect();
        assert!(samples.len() == 1 && samples[0].contains("\"rtt_ns\":50000000"), "{module}: {samples:?}");
    }
}

/// Handshakes an hour ahead are those of a wrong clock, and take no place for an hour.
#[test]
fn entries_of_a_wrong_clock_make_room() {
    if common::module("rtt-c").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut packets: Vec<_> =
        (0..16).map(|n| (7_200_000 + n, segment(n as u16, false, (1, 0), SYN, 0))).collect();
    for n in 0..100 {
        for flow in [1000 + 2 * n, 1001 + 2 * n] {
            let (at, of) = (3_600_000 + u64::from(n), |is_answer, numbers, flags| {
                segment(flow, is_answer, numbers, flags, 0)
            });
            packets.push((at, of(false, (1, 0), SYN)));
            packets.push((at, of(true, (7, 2), SYN | ACK)));
        }
        for flow in [1000 + 2 * n, 1001 + 2 * n] {
            packets.push((3_600_000 + u64::from(n), segment(flow, false, (2, 8), ACK, 0)));
        }
    }
    let path = capture(folder.path(), packets);
    for module in ["rtt", "rtt-c"] {
        let rows = records(module, &path, "1", &["max_handshakes=8"]);
        let state = rows.iter().find(|row| row.contains("\"evicted_handshakes\"")).unwrap();
        assert!(state.contains("\"handshakes\":200,"), "{module}: {state}");
    }
}
