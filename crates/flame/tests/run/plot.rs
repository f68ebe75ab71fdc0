//! Tests of `--plot`, as people use it. `FLAME_PYTHON` names a Python with DuckDB.

use crate::common::{self, root};
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

#[test]
fn what_cannot_be_drawn_is_refused_before_the_run() {
    if common::module("port").is_none() {
        return;
    }
    let cases: &[(&[&str], &str)] = &[
        (&["port", "--plot", "x.svg"], "nothing to draw from port"),
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
