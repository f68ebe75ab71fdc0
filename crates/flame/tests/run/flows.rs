//! Compares the records of `flow` with a reference in Python (`flows.py`) over public captures.

use crate::commands::done;
use crate::common;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Captures whose records differ, and why.
const DIFFERENT: [(&str, &str); 4] = [
    (
        "suricata-verify--ipv6-evasion_ipv6-covert-dstopts_covert_send6.pcap",
        "options of 1,304 bytes: the ICMP header is beyond the headers that a view shows",
    ),
    (
        "suricata-verify--ipv6-evasion_ipv6-malformed-fragments-11_frag-11.pcap",
        "about a hundred extension headers, of which sixteen are followed",
    ),
    (
        "suricata-verify--ipv6-evasion_ipv6-malformed-fragments-12_frag-12.pcap",
        "about a hundred extension headers, of which sixteen are followed",
    ),
    ("zeek--ipv6-mobility-dst-opts.pcap", "options that extend beyond the datagram"),
];

#[test]
fn records_are_those_of_a_reference() {
    let (Some(traces), Some(_)) = (common::traces(), common::module("flow")) else { return };
    let mut captures: Vec<PathBuf> =
        std::fs::read_dir(traces.join("open/files")).unwrap().flatten().map(|e| e.path()).collect();
    captures.retain(|path| path.extension().is_some_and(|e| e == "pcap"));
    captures.sort();
    let is_different = |path: &Path| DIFFERENT.iter().any(|(name, _)| path.ends_with(name));
    let all: Vec<PathBuf> = captures
        .into_iter()
        .enumerate()
        .filter(|(n, path)| n % 5 == 0 || is_different(path))
        .map(|(_, path)| path)
        .collect();
    let Some(expected) = reference(&all) else { return };
    assert!(expected.len() > all.len() / 2, "{} of {} captures were read", expected.len(), all.len());
    let (mut different, mut records) = (Vec::new(), 0);
    for (path, expected) in &expected {
        let found = ours(path);
        records += found.len();
        let name = path.file_name().unwrap().display().to_string();
        if (found != *expected) != is_different(path) {
            let first = found.iter().zip(expected).find(|(a, b)| a != b);
            different.push(format!("{name}: {} records for {}: {first:?}", found.len(), expected.len()));
        }
    }
    assert!(records > 500, "{records}");
    assert!(different.is_empty(), "{} captures:\n{}", different.len(), different.join("\n"));
}

/// Returns the records of the captures that the reference reads, in order.
fn reference(captures: &[PathBuf]) -> Option<BTreeMap<PathBuf, Vec<String>>> {
    let script = common::root().join("crates/flame/tests/run/flows.py");
    let out = match Command::new("python3").arg(script).args(captures).output() {
        Ok(out) => out,
        Err(e) => {
            eprintln!("skipped: python3: {e}");
            return None;
        }
    };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut records = BTreeMap::new();
    let mut current = None;
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        if let Some(path) = line.strip_prefix("# ") {
            current = Some(records.entry(PathBuf::from(path)).or_insert_with(Vec::new));
        } else if !line.starts_with("? ")
            && let Some(records) = &mut current
        {
            records.push(line.to_owned());
        }
    }
    Some(records)
}

const COLUMNS: [&str; 17] = [
    "proto",
    "src",
    "dst",
    "sport",
    "dport",
    "icmp_type",
    "icmp_code",
    "packets_fwd",
    "packets_rev",
    "ip_bytes_fwd",
    "ip_bytes_rev",
    "bytes_fwd",
    "bytes_rev",
    "tcp_flags_fwd",
    "tcp_flags_rev",
    "first_ns",
    "last_ns",
];

fn ours(capture: &Path) -> Vec<String> {
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    let out = flame.args(["run", "flow", "--format", "json", "-q", "-r"]).arg(capture).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let cell = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut records: Vec<String> = rows
        .filter(|row| row["table"] == "flow")
        .map(|row| COLUMNS.map(|column| cell(&row[column])).join(" "))
        .collect();
    records.sort();
    records
}

/// A table that is too narrow for all columns keeps who, when, how much and by which protocol: at 120 columns
/// with addresses of IPv6, whose times are in seconds, at 80 columns the hosts, ports and bytes.
#[test]
fn a_narrow_table_keeps_time_and_protocol() {
    if common::module("flow").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let demo = common::root().join("demo/demo.pcap").display().to_string();
    let table = |width: &str, filter: &str| {
        let text = done(folder.path(), &["run", "flow", "-r", &demo, "-q", "--width", width, filter]);
        let lines: Vec<String> = text.lines().skip(1).take(5).map(str::to_owned).collect();
        assert!(lines.iter().all(|line| line.chars().count() <= width.parse().unwrap()), "{text}");
        (lines[0].split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" "), lines[4].clone())
    };
    let (head, row) = table("120", "ip");
    assert_eq!(head, "src sport dst dport first packets_fwd bytes_fwd bytes_rev proto_name");
    assert!(row.contains("2026-11-21 01:03:58.942951") && row.ends_with("UDP"), "{row}");
    let (head, row) = table("120", "ip or ip6");
    assert_eq!(head, "src sport dst dport first bytes_fwd bytes_rev proto_name");
    assert!(row.contains("2026-11-21 01:03:58 ") && row.ends_with("IPv6-ICMP"), "{row}");
    assert_eq!(table("80", "ip or ip6").0, "src sport dst dport bytes_fwd");
}
