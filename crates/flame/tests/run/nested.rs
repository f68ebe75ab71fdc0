//! Datagrams in random links and tunnels, made in Python (`nested.py`), are seen.

use super::cases::{flame, has_modules};
use crate::commands::text;
use crate::common;
use std::process::Command;
use tempfile::TempDir;

#[test]
fn datagrams_in_random_links_and_tunnels_are_seen() {
    if !has_modules() {
        return;
    }
    let script = common::root().join("crates/flame/tests/run/nested.py");
    for seed in 0..3 {
        let folder = TempDir::new().unwrap();
        let made = Command::new("python3").arg(&script).arg(folder.path()).arg(seed.to_string()).output();
        let Ok(made) = made else {
            eprintln!("skipped: python3 cannot be run");
            return;
        };
        assert!(made.status.success(), "{}", text(&made.stderr));
        let listed = text(&made.stdout);
        assert!(listed.lines().count() >= 12, "{listed}");
        for line in listed.lines() {
            let (name, ports) = line.split_once(' ').unwrap();
            let more = ["--format", "csv", "--table", "flow", "--columns", "src,dst,sport,dport,proto"];
            let out =
                flame(folder.path(), &[&["run", "flow", "-r", name, "--decapsulate"], &more[..]].concat());
            let mut found: Vec<_> = text(&out.stdout).lines().skip(1).map(str::to_owned).collect();
            let mut expected: Vec<_> =
                ports.split(' ').map(|port| format!("192.0.2.1,198.51.100.9,{port},53,17")).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "seed {seed}: {name}: {}", text(&out.stderr));
        }
    }
}
