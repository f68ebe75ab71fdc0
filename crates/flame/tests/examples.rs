//! The SDK's examples build as they stand, are bounded where they say so, and find what is there; and what a module
//! writes all comes out, however much it is.

mod common;

use common::root;
use flame_module::testing::Traffic;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const EXAMPLES: [&str; 5] = ["dns", "handshakes", "lengths", "scans", "talkers"];

fn kept() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn flame(args: &[&str]) -> Output {
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    // A target folder of its own: this cargo must not wait for the one that runs the test.
    let out = flame.args(args).env("CARGO_TARGET_DIR", kept().join("target")).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "flame {args:?}: {}", text(&out.stderr));
    out
}

fn build(folder: &Path) -> String {
    flame(&["build", folder.to_str().unwrap(), "--output", kept().to_str().unwrap()]);
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    kept().join(name + ".wasm").display().to_string()
}

/// Rows of one table.
fn rows(wasm: &str, capture: &Path, table: &str, more: &[&str]) -> Vec<Value> {
    let usual = ["run", wasm, "-r", capture.to_str().unwrap(), "-q", "--format", "json", "--table", table];
    let out = flame(&[&usual[..], more].concat());
    text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sum(rows: &[Value], column: &str) -> u64 {
    rows.iter().map(|row| row[column].as_u64().unwrap()).sum()
}

#[test]
fn the_five_examples_find_what_is_there() {
    let folder = root().join("sdk/rust/examples");
    let there: BTreeSet<_> = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(there.iter().eq(EXAMPLES.iter()), "{there:?}");
    let demo = root().join("demo/demo.pcap");
    let built = EXAMPLES.map(|name| build(&folder.join(name)));
    let [dns, handshakes, lengths, scans, talkers] = built.each_ref();
    // What `count` finds in the recorded capture.
    assert_eq!(sum(&rows(lengths, &demo, "length", &[]), "packets"), 1244);
    assert_eq!(sum(&rows(lengths, &demo, "length", &["--interval", "100ms"]), "packets"), 1244);
    let bytes = sum(&rows(talkers, &demo, "host", &["--set", "talkers.least=0"]), "bytes");
    assert!(bytes > 925_000 && bytes < 925_946, "all but what is not IP: {bytes}");
    let found = rows(scans, &demo, "scan", &["--set", "scans.ports=2"]);
    assert_eq!((found.len(), found[0]["src"].as_str()), (1, Some("10.9.0.1")));
    let found = rows(handshakes, &demo, "answer", &[]);
    // The recorded link delays each way by 10 ms.
    let delayed = |row: &Value| (20_000_000..25_000_000).contains(&row["time_ns"].as_u64().unwrap());
    assert!(found.len() >= 20 && found.iter().all(delayed), "{found:?}");

    let found = rows(dns, &demo, "question", &["--expose", "payload:256"]);
    let asked: Vec<_> =
        found.iter().map(|row| (row["name"].as_str().unwrap(), row["type"].as_u64().unwrap())).collect();
    assert_eq!(asked, [("demo.test", 1), ("demo.test", 28), ("demo.test", 1)]);

    // Tables of fixed size are why.
    for wasm in [handshakes, lengths, scans, talkers] {
        let out = flame(&["check", wasm, "--format", "json"]);
        let last: Value = serde_json::from_str(text(&out.stdout).lines().last().unwrap()).unwrap();
        assert_eq!(last["bounded"], true, "{wasm}: {last}");
    }
}

/// A capture file of microseconds (libpcap's first format).
fn pcap(traffic: &Traffic) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    for d in traffic.descriptors() {
        let bytes = &traffic.memory()[d.addr as usize..][..d.cap_len as usize];
        for word in [0, (d.ts_ns / 1000) as u32, d.cap_len, d.wire_len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(bytes);
    }
    file
}

/// Writes as an author would who never heard of output areas: 2 MB from a batch, 24 MB at a tick, 48 MB at the end,
/// and more messages than a host takes from one call.
const MANY: &str = r#"
use flame_module::{Batch, Init, Module, Out, Progress, Slow};
flame_module::manifest!();

pub struct Many {
    ticked: bool,
    rows: std::iter::Peekable<std::iter::Map<std::ops::Range<u64>, fn(u64) -> End>>,
}

impl Module for Many {
    fn new(_: &Init) -> Self {
        let row: fn(u64) -> End = |n| End { n, twice: 2 * n };
        Self { ticked: false, rows: (0..2_000_000).map(row).peekable() }
    }
    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            for n in 0..500 {
                out.write(&Packet { ts_ns: packet.ts_ns, n });
            }
        }
    }
    fn tick(&mut self, _: u64, out: &mut Out) -> Progress {
        if !std::mem::replace(&mut self.ticked, true) {
            (0..100_000u64).for_each(|n| out.message(&n.to_le_bytes()));
            (0..400_000).for_each(|n| { out.write(&Tick { n }); });
        }
        Progress::Done
    }
    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.write_all(&mut self.rows)
    }
}

pub struct Merge(u64);

impl Slow for Merge {
    fn new(_: &Init) -> Self {
        Self(0)
    }
    fn message(&mut self, _: &[u8], _: &mut Out) {
        self.0 += 1;
    }
    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.write(&Messages { n: self.0 });
        Progress::Done
    }
}

flame_module::export!(Many, slow = Merge);
"#;

const TABLES: &str = r#"
[limits]
packet_budget = 100_000_000
call_budget = 10_000_000_000
[[tables]]
name = "packet"
columns = [{ name = "ts_ns", type = "time" }, { name = "n", type = "u64" }]
[[tables]]
name = "tick"
columns = [{ name = "n", type = "u64" }]
[[tables]]
name = "end"
columns = [{ name = "n", type = "u64" }, { name = "twice", type = "u64" }]
[[tables]]
name = "messages"
columns = [{ name = "n", type = "u64" }]
"#;

#[test]
fn rows_are_never_lost_however_many_they_are() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("many");
    flame(&["new", folder.to_str().unwrap()]);
    std::fs::write(folder.join("src/lib.rs"), MANY).unwrap();
    let manifest = std::fs::read_to_string(folder.join("module.toml")).unwrap();
    let (head, _) = manifest.split_once("[parameters.port]").unwrap();
    std::fs::write(folder.join("module.toml"), head.to_owned() + TABLES).unwrap();
    let wasm = build(&folder);
    // 600 packets over three seconds.
    let mut traffic = Traffic::default();
    for n in 0..600 {
        traffic.udp("10.0.0.1:1", "10.0.0.2:2").at(n * 5_000_000);
    }
    let capture = temporary.path().join("many.pcap");
    std::fs::write(&capture, pcap(&traffic)).unwrap();
    let csv = temporary.path().join("csv");
    let run = ["run", &wasm, "-r", capture.to_str().unwrap(), "--format", "csv", "--account", "json", "-q"];
    let out = flame(&[&run[..], &["-o", csv.to_str().unwrap()]].concat());
    let account: Value = serde_json::from_str(&text(&out.stderr)).unwrap();
    let lines = |table: &str| {
        let text = std::fs::read_to_string(csv.join(format!("many.{table}.csv"))).unwrap();
        (text.lines().count() - 1, text.lines().last().unwrap_or("").to_owned())
    };
    assert_eq!(lines("packet").0, 300_000);
    assert_eq!(lines("tick"), (400_000, "399999".to_owned()));
    assert_eq!(lines("end"), (2_000_000, "1999999,3999998".to_owned()));
    assert_eq!(lines("messages"), (1, "100000".to_owned()));
    assert_eq!(account["modules"]["many"]["records_lost"], 0, "{account}");
}
