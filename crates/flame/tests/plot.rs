//! Tests of `--plot`, as people use it. `FLAME_PYTHON` names a Python with DuckDB.

mod common;

use common::root;
use std::process::{Command, Output};

fn flame(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flame")).args(args).current_dir(root()).output().unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn pictures_of_a_run_and_of_two_side_by_side() {
    if common::module("rtt").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (records, one, two) = (path("rtt.json"), path("one.svg"), path("two.png"));
    let run = ["run", "rtt", "-r", "demo/demo.pcap", "-q", "--format", "json", "-o"];
    let out = flame(&[&run[..], &[&records, "--plot", &one]].concat());
    assert!(out.status.success(), "{}", said(&out));
    let svg = std::fs::read_to_string(&one).unwrap();
    assert!(svg.contains("22 connections"), "as many as README has: {svg}");
    let out = flame(&[&run[..], &["/dev/null", "--plot", &two, "--compare", &records]].concat());
    assert!(out.status.success(), "{}", said(&out));
    assert!(std::fs::read(&two).unwrap().starts_with(b"\x89PNG"));

    let out =
        flame(&["run", "count,rtt", "-r", "demo/demo.pcap", "-q", "--interval", "100ms", "--plot", "term"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{}", said(&out));
    // The records come first, then the pictures in the order of the charts' registry.
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("rtt.histogram") < at("Round-trip times of TCP handshakes"));
    assert!(at("count.interval") < at("Packets over time"));
}

/// The statistics in a picture are those that DuckDB computes from the records.
#[test]
fn statistics_are_those_of_duckdb() {
    let Some(python) = std::env::var_os("FLAME_PYTHON").filter(|_| common::module("rtt").is_some()) else {
        println!("skipped: FLAME_PYTHON names no interpreter with duckdb");
        return;
    };
    let mut captures = vec![root().join("demo/demo.pcap")];
    if let Some(traces) = common::traces() {
        let files = std::fs::read_dir(traces.join("open/files")).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|f| f.metadata().is_ok_and(|m| m.len() < 20_000_000)).collect();
        files.sort();
        captures.extend(files.into_iter().step_by(12));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut pictures = Vec::new();
    for (n, capture) in captures.iter().enumerate() {
        let [records, svg] = ["records", "svg"].map(|name| folder.path().join(format!("{n}.{name}")));
        let [records, svg] = [records, svg].map(|path| path.to_str().unwrap().to_owned());
        let capture = capture.to_str().unwrap();
        let out = flame(&[
            "run", "rtt", "-r", capture, "-q", "--format", "parquet", "-o", &records, "--plot", &svg,
        ]);
        // Some captures are damaged on purpose, or not decoded.
        let Ok(picture) = std::fs::read_to_string(&svg) else { continue };
        assert!(matches!(out.status.code(), Some(0 | 3)), "{capture}: {}", said(&out));
        pictures.push((capture, records + "/rtt.handshake.parquet", picture));
    }
    let script = "import duckdb, sys\nfor file in sys.argv[1:]: print(*duckdb.sql(f\"SELECT median(rtt_ns), \
                  quantile_cont(rtt_ns, 0.99), count(*) FROM '{file}'\").fetchall()[0])";
    let mut python = Command::new(&python);
    let out = python.args(["-c", script]).args(pictures.iter().map(|(_, file, _)| file)).output().unwrap();
    let found = String::from_utf8(out.stdout.clone()).unwrap();
    assert_eq!(found.lines().count(), pictures.len(), "{}", said(&out));
    for (line, (capture, _, picture)) in found.lines().zip(&pictures) {
        let numbers: Vec<f64> = line.split(' ').map(|n| n.parse().unwrap_or(f64::NAN)).collect();
        let [median, most, count] = numbers[..] else { panic!("{capture}: {line}") };
        let [median, most] = [median, most].map(|ns| flame_record::human::duration(ns.round() as i64));
        let connections = flame_record::human::grouped(count as u64);
        let expected = format!("{connections} connections, median {median}, 99 % up to {most}");
        assert!(picture.contains(&expected), "{capture}: {expected}\n{picture}");
    }
    assert!(!pictures.is_empty());
}

#[test]
fn what_cannot_be_drawn_is_refused_before_the_run() {
    if common::module("http").is_none() {
        return;
    }
    let cases: &[(&[&str], &str)] = &[
        (&["http", "--plot", "x.svg"], "nothing to draw from http"),
        (&["rtt", "--plot", "x.jpg"], "ends in .svg or .png"),
        (&["rtt", "--plot", "term", "--format", "json"], "add -o FILE"),
        (&["rtt", "--compare", "x.json"], "--plot"),
        (&["rtt", "--plot", "x.svg", "--compare", "nowhere.json"], "nowhere.json: No such file"),
        (&["rtt", "--plot", "x.svg", "--compare", "README.md"], "README:1: "),
    ];
    for (args, expected) in cases {
        let out = flame(&[&["run", "-r", "demo/demo.pcap"], *args].concat());
        assert!(!out.status.success() && said(&out).contains(expected), "{args:?}: {}", said(&out));
    }
    assert!(!root().join("x.svg").exists());
}
