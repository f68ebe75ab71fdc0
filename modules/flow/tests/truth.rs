//! Conversations in real captures: as many as another program finds. Where they differ,
//! docs/truth-flow.md explains why.

use flame_flow::Flow;
use flame_module::testing::{Native, Parameters};
use std::collections::BTreeSet;

fn parameters() -> Parameters {
    let second = 1_000_000_000;
    Parameters::default()
        .integer("max_flows", 1 << 18)
        .integer("idle_timeout", 60 * second)
        .integer("active_timeout", 1800 * second)
        .integer("linger", 5 * second)
        .integer("late", 10 * second)
        .integer("tags", 0)
}

#[test]
fn distinct_conversations_agree() {
    let Some(folder) = flame_testing::traces() else { return };
    let mut exceptions = exceptions();
    let mut different = Vec::new();
    for (file, expected) in flame_testing::truth(&folder, ["tcp_flows", "udp_flows"]) {
        let mut native = Native::<Flow>::new(&parameters(), 0);
        let mut packets = [0u64; 2];
        let opened = flame_testing::blocks(folder.join("files").join(&file), |descriptors, memory| {
            native.packets(descriptors, memory);
            let ip = descriptors.iter().filter(|d| d.is_ip());
            packets[0] += ip.clone().count() as u64;
            native.tick(descriptors.iter().map(|d| d.ts_ns).max().unwrap_or(0));
        });
        if !opened {
            continue;
        }
        native.end(0);
        assert_eq!(native.lost, 0, "{file}");
        let mut distinct = [BTreeSet::new(), BTreeSet::new()];
        for row in &native.rows {
            if row.table == 1 {
                packets[1] += row.integer(20, 8);
                continue;
            }
            packets[1] += row.integer(55, 8) + row.integer(63, 8);
            if row.bytes[108] != 0 {
                continue;
            }
            let (a, b) = (row.bytes[1..20].to_vec(), row.bytes[20..39].to_vec());
            let pair = if a < b { (a, b) } else { (b, a) };
            match row.bytes[0] {
                6 => distinct[0].insert(pair),
                17 => distinct[1].insert(pair),
                _ => false,
            };
        }
        assert_eq!(packets[0], packets[1], "{file}: every IP packet is in one record");
        let ours = distinct.map(|d| d.len());
        let theirs = expected.map(|n| n.parse().unwrap_or(usize::MAX));
        let found = exceptions.iter().position(|(name, _)| *name == file);
        let exception = found.map(|at| exceptions.swap_remove(at).1);
        if ours != exception.unwrap_or(theirs) || exception == Some(theirs) {
            different
                .push(format!("{file}: TCP, UDP {ours:?}, expected {theirs:?}, exception {exception:?}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert!(exceptions.is_empty(), "not captures: {exceptions:?}");
}

/// Captures of docs/truth-flow.md with our TCP and UDP conversations.
fn exceptions() -> Vec<(String, [usize; 2])> {
    let text = include_str!("../../../docs/truth-flow.md");
    let lines = text.lines().filter(|l| l.starts_with("| `"));
    lines
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let number = |at: usize| cells[at].parse().expect("a number");
            (cells[1].trim_matches('`').to_owned(), [number(2), number(3)])
        })
        .collect()
}
