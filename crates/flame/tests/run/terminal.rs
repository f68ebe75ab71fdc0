//! Tests of tables: they fit their width, keep every address whole, and have one header for all ticks.

use crate::commands::{done, flame, text};
use crate::common;
use std::path::Path;
use std::process::{Command, Stdio};

fn demo() -> String {
    common::root().join("demo/demo.pcap").canonicalize().unwrap().display().to_string()
}

fn has_modules() -> bool {
    common::module("flow").is_some() && common::module("count").is_some()
}

fn widest(text: &str) -> usize {
    text.lines()
        .filter(|line| !["flow.", "…", "left out: "].iter().any(|start| line.starts_with(start)))
        .map(|l| l.chars().count())
        .max()
        .unwrap()
}

/// Returns the addresses of the first flows, as JSON has them.
fn addresses(folder: &Path) -> Vec<String> {
    let rows = done(folder, &["run", "flow", "-r", &demo(), "-q", "--format", "json", "--table", "flow"]);
    let row = |line: &str| -> serde_json::Value { serde_json::from_str(line).unwrap() };
    rows.lines().take(40).map(|line| row(line)["src"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn tables_fit_every_width_and_break_no_address() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (demo, addresses) = (demo(), addresses(folder.path()));
    assert!(addresses.iter().any(|a| a.contains(':')), "the capture has IPv6");
    for width in ["20", "80", "120", "200", "500"] {
        let run = ["run", "flow", "-r", &demo, "-q", "--table", "flow", "--width", width];
        let table = done(folder.path(), &run);
        for address in &addresses {
            assert!(table.contains(address.as_str()), "{width}: {address}\n{table}");
        }
        // The vertical form is as wide as its values.
        let limit = width.parse::<usize>().unwrap().max(70);
        assert!(widest(&table) <= limit, "{width}\n{table}");
        let is_vertical = table.lines().any(|line| line.starts_with("duration  "));
        let width = width.parse::<u32>().unwrap();
        assert_eq!(is_vertical, width < 80, "{width}\n{table}");
        assert_eq!(table.contains("\nleft out: "), (80..300).contains(&width), "{width}\n{table}");
    }
    // Columns that were named are not left out.
    let named =
        ["run", "flow", "-r", &demo, "-q", "--columns", "src,first,last,community_id", "--width", "90"];
    assert!(done(folder.path(), &named).contains("community_id  "));
    let vertical = done(folder.path(), &["run", "flow", "-r", &demo, "-q", "--table", "flow", "--vertical"]);
    assert!(vertical.lines().any(|line| line.starts_with("src  ")), "{vertical}");
}

#[test]
fn columns_has_a_width_for_pipes_and_zero_is_none() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let demo = demo();
    let with = |columns: Option<&str>, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
        command
            .args(["run", "flow", "-r", &demo, "-q", "--table", "flow"])
            .args(more)
            .current_dir(folder.path());
        match columns {
            Some(columns) => command.env("COLUMNS", columns),
            None => command.env_remove("COLUMNS"),
        };
        text(&command.env("FLAME_CACHE", folder.path().join("cache")).output().unwrap().stdout)
    };
    let unlimited = with(None, &[]);
    assert!(widest(&unlimited) > 200, "a pipe has no width\n{unlimited}");
    for none in ["0", "", "wide"] {
        assert_eq!(with(Some(none), &[]), unlimited, "{none:?}");
    }
    assert!(widest(&with(Some("90"), &[])) <= 90);
    assert_eq!(with(Some("90"), &["--width", "0"]), unlimited);
    assert_eq!(with(None, &["--columns", "90"]), with(Some("90"), &[]));
    let file = folder.path().join("out.txt");
    with(Some("90"), &["-o", file.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), unlimited, "a file has no width");
}

#[test]
fn columns_are_chosen_in_every_format() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let demo = demo();
    let run = |more: &[&str]| done(folder.path(), &[&["run", "flow", "-r", &demo, "-q"][..], more].concat());
    let csv = run(&["--columns", "src,dst,duration,app", "--format", "csv"]);
    assert_eq!(csv.lines().next(), Some("src,dst,duration_ns,app"));
    assert!(csv.lines().any(|line| line.ends_with(",https")), "{csv}");
    let json = run(&["--columns", "proto_name", "--format", "json"]);
    assert!(
        json.lines().all(|line| line.starts_with(r#"{"module":"flow","table":"flow","proto_name":""#)),
        "{json}"
    );
    let table = run(&["--columns", "src,bytes_fwd", "--width", "60"]);
    assert!(widest(&table) <= 60 && table.contains("bytes_fwd") && !table.contains("dport"), "{table}");
    let added = run(&["--columns", "+app", "--format", "csv"]);
    assert!(added.lines().next().unwrap().ends_with("community_id,app"), "{added}");
    for (args, said) in [
        (["--columns", "colour"], "no table has this column; here are"),
        (["--columns", "src,,"], "no table has this column"),
    ] {
        let out = flame(folder.path(), &[&["run", "flow", "-r", &demo][..], &args].concat());
        assert_eq!(out.status.code(), Some(1));
        assert!(text(&out.stderr).contains(said), "{}", text(&out.stderr));
    }
    let out = flame(folder.path(), &["run", "flow", "-r", &demo, "--columns", "src", "--format", "zeek"]);
    assert!(text(&out.stderr).contains("zeek has columns of its own"), "{}", text(&out.stderr));
}

#[test]
fn intervals_have_one_header() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = ["run", "count", "-r", &demo(), "-q", "--interval", "1s", "--width", "0"];
    let table = done(folder.path(), &run);
    // The total at the end is a table of its own, below all intervals.
    let (intervals, total) = table.split_once("\n\ncount.count").unwrap_or_else(|| panic!("{table}"));
    assert_eq!(
        (table.matches("count.interval").count(), intervals.matches("UTC").count()),
        (1, 2),
        "{table}"
    );
    let rows = intervals.lines().filter(|line| line.trim_start().starts_with("20")).count();
    assert!(rows >= 5 && !intervals.lines().any(str::is_empty), "{table}");
    assert!(total.contains("1,244"), "{table}");
}

/// A real terminal, whose size tmux sets.
#[test]
fn a_real_terminal_is_asked_for_its_width() {
    let has_tmux = Command::new("tmux").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !has_modules() || has_tmux.is_err() {
        eprintln!("skipped: no tmux, or no modules");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("tmux");
    let tmux = |arguments: &[&str]| {
        let mut command = Command::new("tmux");
        command.args(["-S", socket.to_str().unwrap(), "-f", "/dev/null"]).args(arguments);
        text(&command.env_remove("TMUX").output().unwrap().stdout)
    };
    let modules = std::env::var("FLAME_MODULES").unwrap_or_default();
    let command = format!(
        "unset COLUMNS; FLAME_MODULES={modules} FLAME_CACHE={} {} run count -r {} -q; echo done; sleep 60",
        folder.path().join("cache").display(),
        env!("CARGO_BIN_EXE_flame"),
        demo()
    );
    tmux(&["new-session", "-d", "-x", "70", "-y", "60", &command]);
    let shown = crate::common::eventually("the end of the command", || {
        Some(tmux(&["capture-pane", "-p", "-J"])).filter(|shown| shown.contains("done"))
    });
    tmux(&["kill-server"]);
    // Lines that the terminal wrapped are joined here, so a line that was too long would show.
    assert!(shown.lines().skip(1).all(|line| line.chars().count() <= 70), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("packets  ")), "one line for each value\n{shown}");
}
