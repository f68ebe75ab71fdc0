//! Tests of `flame run ids`, as people use it.

#[path = "../../../../modules/ids/tests/shapes/mod.rs"]
mod shapes;

use crate::common::{self, root};
use std::process::{Command, Output};

fn flame(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flame")).args(args).current_dir(root()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the shipped rules that do not count, whose counts may be split over workers, and one that alerts
/// on the capture of the demonstration.
fn rules_without_rates(folder: &std::path::Path) -> String {
    let all = std::fs::read_to_string(root().join("modules/ids/rules/flame.rules")).unwrap();
    let rated = |line: &&str| line.contains("threshold:") || line.contains("detection_filter:");
    let mut some: Vec<&str> = all.lines().filter(|l| !rated(l)).collect();
    some.push("alert tcp any any -> any any (msg:\"request\"; content:\"GET \"; sid:9000001;)");
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
            // With several workers, none knows the number of a packet.
            let without_number = |line: &str| {
                let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
                let number = row.as_object_mut().unwrap().remove("packet").unwrap();
                assert_eq!(number == 0, workers == "2", "{line}");
                row.to_string()
            };
            let mut lines: Vec<_> = text(&out.stdout).lines().map(without_number).collect();
            lines.sort();
            lines
        };
        let one = of("1");
        assert_eq!(one, of("2"), "{capture}");
        alerts += one.len();
    }
    assert!(alerts > 0);
}

/// Writes `files` into a folder and returns `--set` and its value for each of them, and the folder.
fn rules_of(files: &[(&str, &str)]) -> (Vec<String>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = Vec::new();
    for (name, rules) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, rules).unwrap();
        arguments.extend(["--set".to_owned(), format!("ids.rules=@{}", path.display())]);
    }
    (arguments, folder)
}

fn run(rules: &[String], more: &[&str]) -> Output {
    let rules = rules.iter().map(String::as_str);
    flame(
        &["run", "ids", "-r", "demo/demo.pcap"]
            .into_iter()
            .chain(rules)
            .chain(more.iter().copied())
            .collect::<Vec<_>>(),
    )
}

const GOOD: &str = "alert tcp any any -> any 80 (flags:S; metadata:tag a; sid:1;)\n";
const MIXED: &str = "# mine\nalert tcp any any -> any any (content:abc; sid:2;)\nalert http any any -> any any \
                     (http.uri; content:\"a\"; sid:3;)\nalert tcp $HOME any -> any 80 (sid:4;)\n";

#[test]
fn one_rule_never_stops_another_and_the_summary_is_there_in_every_format() {
    if common::module("ids").is_none() {
        return;
    }
    let (rules, folder) = rules_of(&[("a.rules", GOOD), ("b.rules", MIXED)]);
    let summary = "flame: ids: 1 of 4 rules run; by reason: 1 malformed, 1 protocol http (needs streams), \
                   1 undefined variable HOME\n";
    // The default view shows headers, which is less than the module requests.
    let out = run(&rules, &["--format", "json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("note: ids"), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains(summary), "{}", text(&out.stderr));
    let rows: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |table: &str| rows.iter().filter(|r| r["table"] == table).collect::<Vec<_>>();
    assert!(of("alert").len() > 5 && of("alert").iter().all(|r| r["sid"] == 1 && r["dport"] == 80));
    assert!(of("state")[0]["without_payload"].as_u64() > Some(100));
    let unsupported = of("unsupported");
    let places: Vec<_> =
        unsupported.iter().map(|r| (r["line"].as_u64().unwrap(), r["sid"].as_u64().unwrap())).collect();
    assert_eq!(places, [(2, 2), (3, 3), (4, 4)]);
    let file = folder.path().join("b.rules").display().to_string();
    assert!(unsupported.iter().all(|r| r["file"] == file.as_str()), "{unsupported:?}");
    assert!(
        unsupported[0]["reason"].as_str().unwrap().starts_with("column 39: expected a text in double quotes")
    );
    assert_eq!(unsupported[2]["reason"], "variable HOME is not defined");

    for format in ["eve", "table"] {
        let out = run(&rules, &["--format", format, "--table", "alert"]);
        assert!(text(&out.stderr).contains(summary), "{format}: {}", text(&out.stderr));
    }
    assert_eq!(of("notice").len(), 1);
    // A person reads the summary once; a table in a file has it.
    let out = run(&rules, &[]);
    assert!(text(&out.stderr).contains(summary) && text(&out.stdout).contains("ids.unsupported"));
    assert!(!text(&out.stdout).contains("1 of 4 rules run"), "{}", text(&out.stdout));
    let file = folder.path().join("table.txt");
    run(&rules, &["-o", file.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&file).unwrap().contains("1 of 4 rules run"));
    let out = run(&rules, &["--format", "eve", "-q"]);
    assert_eq!(text(&out.stderr), "");
    let events: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(events.len(), of("alert").len());
    assert!(events.iter().all(|e| e["event_type"] == "alert" && e["dest_port"] == 80 && e["proto"] == "TCP"));
    assert!(
        events.iter().all(|e| e["alert"]["metadata"]["tag"][0] == "a" && e["pcap_cnt"].as_u64() > Some(0))
    );

    let out = run(&rules, &["--format", "json", "--set", "ids.strict=true"]);
    assert_eq!(out.status.code(), Some(4));
    let refused = "parameter strict: ";
    assert!(text(&out.stderr).contains(refused), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("line 2: column 39"), "{}", text(&out.stderr));
    let out = run(&rules, &["--format", "json", "--set", "ids.dialect=suricate"]);
    let error = text(&out.stderr);
    assert_eq!(out.status.code(), Some(4));
    assert!(error.contains("parameter dialect: \"suricate\": expected suricata or snort"), "{error}");
    assert!(!error.contains("panic") && !error.contains("  0: "), "{error}");
}

#[test]
fn rules_are_checked_without_a_capture() {
    let (_, folder) = rules_of(&[("a.rules", GOOD), ("b.rules", MIXED), ("vars", "HOME = 10.0.0.0/8")]);
    let path = folder.path().display().to_string();
    let check = |more: &[&str]| flame(&[&["ids", "check", &path], more].concat());
    let out = check(&[]);
    assert_eq!(out.status.code(), Some(0));
    let lines = text(&out.stdout);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(
        lines.contains(&format!("{path}/b.rules, line 4: sid 4: variable HOME is not defined")),
        "{lines}"
    );
    assert!(text(&out.stderr).contains("flame: ids: 1 of 4 rules run; by reason: 1 malformed"));
    let plain = format!("{path}/rules.txt");
    std::fs::write(&plain, MIXED).unwrap();
    let lines = text(&flame(&["ids", "check", &plain]).stdout);
    assert!(lines.lines().all(|line| line.starts_with(&format!("{plain}, line "))), "{lines}");
    let vars = format!("{path}/vars");
    let out = check(&["--vars", &vars, "--json", "--strict"]);
    assert_eq!(out.status.code(), Some(1));
    let rows: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[1]["sid"], &rows[1]["kind"]), (&3.into(), &"protocol http (needs streams)".into()));
    assert!(text(&out.stderr).contains("2 of 4 rules run"), "{}", text(&out.stderr));
}

#[test]
fn thirty_thousand_rules_load_and_run_within_the_default_limits() {
    if common::module("ids").is_none() {
        return;
    }
    let (mut rules, folder) = rules_of(&[("all.rules", &shapes::rules(30_000, 0))]);
    let vars = folder.path().join("vars");
    std::fs::write(&vars, shapes::VARS).unwrap();
    rules.extend(["--set".to_owned(), format!("ids.vars=@{}", vars.display())]);
    let out = run(&rules, &["--expose", "all", "--memory", "256", "--table", "state", "--format", "json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("flame: ids: 30,000 of 30,000 rules run\n"), "{}", text(&out.stderr));
    let state: serde_json::Value = serde_json::from_str(text(&out.stdout).trim()).unwrap();
    assert_eq!((state["rules"].as_u64(), state["given_up"].as_u64()), (Some(30_000), Some(0)));
    assert!(state["packets"].as_u64() > Some(1000));
}

#[test]
fn a_file_that_is_too_large_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.rules");
    std::fs::File::create(&path).unwrap().set_len(200 << 20).unwrap();
    let out = flame(&["ids", "check", path.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("huge.rules: more than fits"), "{}", text(&out.stderr));
}

#[test]
fn a_hundred_megabytes_of_lines_are_counted_and_listed_to_a_bound() {
    if common::module("ids").is_none() {
        return;
    }
    let lines = 100 * (1 << 20) / 16;
    let (rules, _folder) = rules_of(&[("long.rules", &"alert tcp any x\n".repeat(lines))]);
    let out = run(&rules, &["--format", "json", "--table", "state"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let state: serde_json::Value = serde_json::from_str(text(&out.stdout).trim()).unwrap();
    assert_eq!(state["unsupported"].as_u64(), Some(lines as u64));
    assert_eq!(state["unlisted"].as_u64(), Some(lines as u64 - 32_768));
}
