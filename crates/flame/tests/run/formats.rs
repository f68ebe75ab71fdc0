//! Tests of the formats by which flows join other tools, and of outputs that hold one table.

use crate::commands::{done, flame, text};
use crate::common;
use serde_json::Value;
use std::path::Path;

fn demo() -> String {
    common::root().join("demo/demo.pcap").canonicalize().unwrap().display().to_string()
}

fn has_modules() -> bool {
    common::module("flow").is_some() && common::module("rtt").is_some()
}

fn json(folder: &Path, more: &[&str]) -> Vec<Value> {
    let demo = demo();
    let run = ["run", "flow", "-r", &demo, "-q"];
    let out = done(folder, &[&run[..], more].concat());
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn flows_have_what_joins_them_to_other_tools() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rows = json(folder.path(), &["--format", "json", "--table", "flow"]);
    for row in &rows {
        let n = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert_eq!(n("duration_ns"), n("last_ns") - n("first_ns"));
        let name = row["proto_name"].as_str().unwrap();
        match n("proto") {
            6 => assert_eq!(name, "TCP"),
            17 => assert_eq!(name, "UDP"),
            1 => assert_eq!(name, "ICMP"),
            58 => assert_eq!(name, "IPv6-ICMP"),
            _ => assert!(!name.is_empty()),
        }
        for (letters, number) in [("flags_fwd", "tcp_flags_fwd"), ("flags_rev", "tcp_flags_rev")] {
            let letters = row[letters].as_str().unwrap();
            let bits = letters.chars().fold(0, |bits, c| bits << 1 | u64::from(c != '.'));
            let (found, length) = (row[number].as_u64(), letters.len());
            assert_eq!((found, length), if n("proto") == 6 { (Some(bits), 8) } else { (None, 0) }, "{row}");
        }
        for (column, protocols) in [("sport", &[6, 17, 132][..]), ("icmp_type", &[1, 58])] {
            assert_eq!(row[column].is_u64(), protocols.contains(&n("proto")), "{row}");
            assert!(row[column].is_u64() || row[column].is_null(), "{row}");
        }
        assert!(row["community_id"].as_str().unwrap().starts_with("1:"), "{row}");
        for side in ["fwd", "rev"] {
            let (all, ip) = (n(&format!("bytes_{side}")), n(&format!("ip_bytes_{side}")));
            let header = 14 * n(&format!("packets_{side}"));
            assert!(ip + header <= all && ip + 3 * header >= all, "{row}");
        }
    }
    let mut ids: Vec<_> = rows.iter().map(|row| row["community_id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() * 2 > rows.len(), "flows have ids of their own");
}

/// Reads a file as zeek-cut does: by its own header.
fn zeek(text: &str) -> Vec<Vec<(String, String)>> {
    let fields = |name: &str| -> Vec<String> {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}\n{text}"));
        line.trim_start_matches('\t').split('\t').map(str::to_owned).collect()
    };
    assert!(text.starts_with("#separator \\x09\n"), "{text}");
    assert_eq!(fields("#unset_field"), ["-"]);
    assert_eq!(fields("#path"), ["conn"]);
    let (names, types) = (fields("#fields"), fields("#types"));
    assert_eq!(names.len(), types.len());
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let cells: Vec<_> = line.split('\t').map(str::to_owned).collect();
        assert_eq!(cells.len(), names.len(), "{line}");
        names.iter().cloned().zip(cells).collect()
    })
    .collect()
}

#[test]
fn conn_logs_of_zeek_have_the_same_flows_in_both_forms() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let demo = demo();
    let flows = json(folder.path(), &["--format", "json", "--table", "flow"]);
    let text = done(folder.path(), &["run", "flow", "-r", &demo, "-q", "--format", "zeek"]);
    assert!(text.lines().last().unwrap().starts_with("#close\t"), "{text}");
    let (columns, objects) = (zeek(&text), json(folder.path(), &["--format", "zeek-json"]));
    assert_eq!((columns.len(), objects.len()), (flows.len(), flows.len()));
    let mut states = std::collections::BTreeMap::new();
    for ((row, object), flow) in columns.iter().zip(&objects).zip(&flows) {
        let cell = |name: &str| &row.iter().find(|(n, _)| n == name).unwrap().1;
        assert_eq!(
            (cell("id.orig_h").as_str(), &object["id.orig_h"]),
            (flow["src"].as_str().unwrap(), &flow["src"])
        );
        assert_eq!(object["id.resp_h"], flow["dst"]);
        assert_eq!(cell("orig_pkts").parse::<u64>().unwrap(), flow["packets_fwd"].as_u64().unwrap());
        assert_eq!(object["resp_ip_bytes"], flow["ip_bytes_rev"]);
        assert_eq!(cell("community_id"), flow["community_id"].as_str().unwrap());
        let seconds = flow["first_ns"].as_u64().unwrap() as f64 / 1e9;
        assert!((object["ts"].as_f64().unwrap() - seconds).abs() < 1e-5, "{object}");
        if flow["proto"] == 6 || flow["proto"] == 17 {
            assert_eq!(object["id.resp_p"], flow["dport"]);
        } else if flow["proto"] == 1 || flow["proto"] == 58 {
            assert_eq!((&object["id.orig_p"], &object["proto"]), (&flow["icmp_type"], &"icmp".into()));
        }
        assert_eq!(cell("service"), "-");
        assert!(object.get("service").is_none(), "an unset field is missing in JSON");
        *states.entry(cell("conn_state").clone()).or_insert(0) += 1;
    }
    assert!(states.contains_key("SF"), "{states:?}");
}

#[test]
fn ecs_has_the_same_flows() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let flows = json(folder.path(), &["--format", "json", "--table", "flow"]);
    let events = json(folder.path(), &["--format", "ecs"]);
    assert_eq!(events.len(), flows.len());
    for (event, flow) in events.iter().zip(&flows) {
        assert_eq!((&event["source"]["ip"], &event["destination"]["ip"]), (&flow["src"], &flow["dst"]));
        assert_eq!(event["event"]["duration"], flow["duration_ns"]);
        assert_eq!(event["network"]["community_id"], flow["community_id"]);
        assert_eq!(event["source"]["bytes"], flow["bytes_fwd"]);
        let has_port = event["source"].get("port").is_some();
        assert_eq!(has_port, [6, 17, 132].contains(&flow["proto"].as_u64().unwrap()), "{event}");
        let time = event["@timestamp"].as_str().unwrap();
        assert!(time.len() == "2026-01-31T12:00:00.123456789Z".len() && time.ends_with('Z'), "{time}");
    }
}

#[test]
fn formats_of_flows_are_rotated_by_size() {
    if !has_modules() {
        return;
    }
    for format in ["zeek", "zeek-json", "ecs"] {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str, more: &[&str]| {
            let arguments = ["run", "flow", "-r", &demo(), "-q", "--format", format, "-o", name];
            done(
                folder.path(),
                &[
                    &arguments[..],
                    &["--batch", "1", "--interval", "10ms", "--set", "flow.idle_timeout=20ms"],
                    more,
                ]
                .concat(),
            );
        };
        run("all.log", &[]);
        run("part.log", &["--rotate", "2kB"]);
        let rows = |prefix: &str| {
            let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
            let name = |file: &Path| file.file_name().unwrap().to_string_lossy().into_owned();
            let files: Vec<_> = files.filter(|file| name(file).starts_with(prefix)).collect();
            let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
            let rows = texts.map(|text| text.lines().filter(|line| !line.starts_with('#')).count());
            (files.len(), rows.sum::<usize>())
        };
        let ((_, all), (files, parts)) = (rows("all"), rows("part"));
        assert!(all > 50 && all == parts && files > 3, "{format}: {all} rows, {parts} in {files} files");
    }
}

#[test]
fn formats_of_flows_need_flows() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for format in ["zeek", "zeek-json", "ecs"] {
        let out = flame(folder.path(), &["run", "rtt", "-r", &demo(), "--format", format]);
        assert_eq!(out.status.code(), Some(1));
        let said = format!("{format} holds flows, and none of these modules gives any");
        assert!(text(&out.stderr).contains(&said), "{}", text(&out.stderr));
    }
}

#[test]
fn an_output_of_one_table_has_the_main_one_and_names_the_others() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let demo = demo();
    let run = |more: &[&str]| {
        flame(folder.path(), &[&["run", "flow", "-r", &demo, "--stats", "none"][..], more].concat())
    };
    let out = run(&["--format", "csv"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).starts_with("proto,src,sport,"), "{}", text(&out.stdout));
    let said = text(&out.stderr);
    assert!(said.contains("only flow.flow is written; left out: flow.state"), "{said}");
    assert_eq!(text(&run(&["--format", "csv", "-q"]).stderr), "");
    assert_eq!(text(&run(&["--format", "csv", "--table", "flow"]).stderr), "", "a choice needs no note");
    let out = run(&["--format", "csv", "--table", "state"]);
    assert_eq!(
        (text(&out.stdout).trim(), text(&out.stderr).as_str()),
        ("worker,peak,evicted,unreadable", "")
    );
    for file in ["one.csv", "one.parquet"] {
        let out = run(&["--format", file.split('.').next_back().unwrap(), "-o", file]);
        assert!(
            out.status.success() && text(&out.stderr).contains("left out: flow.state"),
            "{}",
            text(&out.stderr)
        );
        assert!(folder.path().join(file).metadata().unwrap().len() > 500, "{file}");
    }
    let out = run(&["--format", "csv", "-o", "folder"]);
    assert_eq!(text(&out.stderr), "");
    assert!(folder.path().join("folder/flow.state.csv").is_file());
    // Two modules have no main table of both.
    let out = flame(folder.path(), &["run", "flow,rtt", "-r", &demo, "--format", "csv"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("choose one with --table"), "{}", text(&out.stderr));
}

/// The name of a file decides its format, and a file of a table has all rows.
#[test]
fn a_file_has_the_format_of_its_name_and_every_row() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let fixed = ["run", "rtt", "-r", &demo(), "-q", "--table", "sample"];
        flame(folder.path(), &[&fixed[..], more].concat())
    };
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    for (name, format) in
        [("a.csv", "csv"), ("a.json", "json"), ("a.jsonl", "json"), ("a.parquet", "parquet")]
    {
        let (named, stated) = (run(&["-o", name]), run(&["-o", "stated", "--format", format]));
        assert!(named.status.success() && stated.status.success(), "{}", text(&named.stderr));
        let stated = match folder.path().join("stated").is_dir() {
            true => read(&format!("stated/rtt.sample.{format}")),
            false => read("stated"),
        };
        assert_eq!(read(name), stated, "{name}");
        let _ = std::fs::remove_file(folder.path().join("stated"));
        let _ = std::fs::remove_dir_all(folder.path().join("stated"));
    }
    let rows = text(&read("a.json")).lines().count();
    assert!(rows > 100, "{rows} rows");
    assert!(run(&["-o", "a.txt"]).status.success());
    let table = text(&read("a.txt"));
    assert!(!table.contains(" more ("), "a cut table");
    assert_eq!(table.lines().filter(|line| line.contains(" ms") || line.contains(" µs")).count(), rows);
    let shown = text(&run(&[]).stdout);
    assert!(shown.contains(&format!("… and {} more", rows - 40)), "{shown}");

    for (name, format) in [("b.parquet", "table"), ("b.csv", "json"), ("b.json", "parquet")] {
        let out = run(&["-o", name, "--format", format]);
        assert!(
            !out.status.success() && text(&out.stderr).contains("leave --format out"),
            "{}",
            text(&out.stderr)
        );
        assert!(!folder.path().join(name).exists(), "{name}");
    }
}
