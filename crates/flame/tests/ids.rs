//! Tests of `flame run ids`, as people use it.

mod common;

use common::root;
use std::process::{Command, Output};

fn flame(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flame")).args(args).current_dir(root()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the shipped rules that do not count. Counts may be split over workers.
fn rules_without_rates(folder: &std::path::Path) -> String {
    let all = std::fs::read_to_string(root().join("modules/ids/rules/flame.rules")).unwrap();
    let rated = |line: &&str| line.contains("threshold:") || line.contains("detection_filter:");
    let some: Vec<&str> = all.lines().filter(|l| !rated(l)).collect();
    let path = folder.join("some.rules");
    std::fs::write(&path, some.join("\n")).unwrap();
    format!("ids.rules=@{}", path.display())
}

#[test]
fn two_workers_alert_as_one() {
    if common::module("ids").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = rules_without_rates(folder.path());
    let mut captures = vec![root().join("demo/demo.pcap")];
    if let Some(traces) = common::traces() {
        let mut all: Vec<_> =
            std::fs::read_dir(traces.join("open/files")).unwrap().flatten().map(|e| e.path()).collect();
        all.sort();
        captures.extend(all.into_iter().step_by(60));
    }
    let mut alerts = 0;
    for capture in captures.iter().map(|c| c.to_str().unwrap()) {
        let of = |workers: &str| {
            let out = flame(&[
                "run",
                "ids",
                "-r",
                capture,
                "--expose",
                "all",
                "-q",
                "--workers",
                workers,
                "--set",
                &rules,
                "--table",
                "alert",
                "--format",
                "json",
            ]);
            let mut lines: Vec<_> = text(&out.stdout).lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let one = of("1");
        assert_eq!(one, of("2"), "{capture}");
        alerts += one.len();
    }
    assert!(alerts > 0);
}

#[test]
fn a_wrong_rule_is_refused_at_its_place_and_what_is_beyond_us_listed() {
    if common::module("ids").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.rules");
    let setting = format!("ids.rules=@{}", path.display());
    let run = |rules: &str, more: &[&str]| {
        std::fs::write(&path, rules).unwrap();
        flame(&[&["run", "ids", "-r", "demo/demo.pcap", "--set", &setting, "--format"], more].concat())
    };
    let out = run("# mine\nalert tcp any any -> any any (content:abc; sid:1;)\n", &["json"]);
    assert_eq!(out.status.code(), Some(4));
    assert!(
        text(&out.stderr).contains("line 2, column 39: expected a text in double quotes"),
        "{}",
        text(&out.stderr)
    );

    let rules = "alert tcp any any -> any 80 (flags:S; sid:1;)\nalert tcp any any -> any any (byte_jump:4,0; sid:2;)\n";
    // The default view shows headers, which is less than the module requests.
    let out = run(rules, &["json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("note: ids"), "{}", text(&out.stderr));
    let rows: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |table: &str| rows.iter().filter(|r| r["table"] == table).collect::<Vec<_>>();
    assert!(of("alert").len() > 5 && of("alert").iter().all(|r| r["sid"] == 1 && r["dport"] == 80));
    assert_eq!((&of("unsupported")[0]["sid"], &of("unsupported")[0]["line"]), (&2.into(), &2.into()));
    assert!(of("state")[0]["without_payload"].as_u64() > Some(100));

    let out = run(rules, &["eve", "-q"]);
    let events: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(events.len(), of("alert").len());
    assert!(events.iter().all(|e| e["event_type"] == "alert" && e["dest_port"] == 80 && e["proto"] == "TCP"));
}
