//! Rows of a link and of the file that was captured from it are the same: values and borders of intervals.

use crate::commands::text;
use crate::common;
use crate::network::{Net, ipv4};
use serde_json::{Map, Value};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The modules whose rows are compared.
const MODULES: [&str; 4] = ["count", "flow", "tcp", "talkers"];

type Row = Map<String, Value>;

/// Returns frames of a few connections and datagrams.
fn frames() -> Vec<Vec<u8>> {
    let tcp = |from: u16, to: u16, flags: u8| {
        let mut frame = ipv4(&[], 6, (from % 200, from), (to % 200, to), 74);
        (frame[46], frame[47]) = (0x50, flags);
        frame
    };
    let connection = |n: u16| [tcp(n, 80, 2), tcp(80, n, 0x12), tcp(n, 80, 0x10), tcp(n, 80, 0x11)];
    let datagrams = (0..20).map(|n| ipv4(&[], 17, (n, 1000 + n), (3, 53), 90 + usize::from(n)));
    (1001..1011).flat_map(connection).chain(datagrams).collect()
}

fn rows(path: &str) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the end of a row's interval, if it is one of an interval.
fn end(row: &Row) -> Option<u64> {
    row.get("end_ns").and_then(Value::as_u64)
}

fn sorted(rows: impl Iterator<Item = Row>) -> Vec<String> {
    let mut all: Vec<_> = rows.map(|row| Value::Object(row).to_string()).collect();
    all.sort();
    all
}

/// The link is observed before the first packet and after the last one, where its rows state silence.
#[test]
fn rows_of_a_link_and_of_its_file_are_the_same() {
    let modules: Option<Vec<_>> = MODULES.iter().map(|name| common::module(name)).collect();
    let (Some(modules), Some(net)) = (modules, Net::new()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |(name, bytes): (&&str, &Vec<u8>)| {
        let path = path(&format!("{name}.wasm"));
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let modules: Vec<_> = MODULES.iter().zip(&modules).map(write).collect();
    let (modules, capture, live) = (modules.join(","), path("link.pcapng"), path("live.json"));
    let link = net.capture(&[&modules, "--interval", "1s", "-w", &capture, "-o", &live], 1);
    // Whole intervals without packets lie between those with some.
    for pause in [1100, 3100, 0, 1300] {
        std::thread::sleep(Duration::from_millis(pause));
        net.send(&frames(), 1);
    }
    std::thread::sleep(Duration::from_millis(1500));
    let out = link.interrupt();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let live = rows(&live);
    for workers in ["1", "2"] {
        let file = path("file.json");
        let out = Command::new(env!("CARGO_BIN_EXE_flame"))
            .args(["run", &modules, "-r", &capture, "--interval", "1s", "-o", &file, "--workers", workers])
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        compare(live.clone(), rows(&file));
        std::fs::remove_file(Path::new(&file)).unwrap();
    }
}

fn compare(live: Vec<Row>, file: Vec<Row>) {
    let ends = || file.iter().filter_map(end);
    let (first, last) = (ends().min().unwrap(), ends().max().unwrap());
    assert!(ends().all(|end| end % 1_000_000_000 == 0) && last - first >= 5_000_000_000, "{file:?}");
    let (within, beside): (Vec<_>, Vec<_>) =
        live.into_iter().partition(|row| end(row).is_none_or(|end| (first..=last).contains(&end)));
    let is_silent = |row: &Row| row["packets"] == 0;
    assert!(!beside.is_empty() && beside.iter().all(is_silent), "{beside:?}");
    assert!(file.iter().any(|row| end(row).is_some() && is_silent(row)), "no interval is without packets");
    let (within, file) = (sorted(within.into_iter()), sorted(file.into_iter()));
    let differs = |rows: &[String], other: &[String]| -> Vec<String> {
        rows.iter().filter(|row| !other.contains(row)).cloned().collect()
    };
    assert_eq!(differs(&within, &file), differs(&file, &within));
    assert_eq!(within, file);
}
