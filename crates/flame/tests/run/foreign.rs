//! Tests of modules that use third-party crates (`tests/foreign`): they build, run, and find the known
//! contents of captures, and `flame check` reports for each the verdict in `expected.tsv`. A lost bound fails
//! the test, and so does a gained one.

use crate::common::{Pcap, for_each, modules_target, root, traces};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    name: String,
    package: String,
    version: String,
    /// `bounded`, or the reason why it is not.
    verdict: String,
    /// The numbers found in the recorded capture, and in [`made`].
    demo: u64,
    made: u64,
}

impl Line {
    fn read(line: &str) -> Self {
        let words: Vec<_> = line.split('\t').collect();
        let &[name, package, version, verdict, demo, made] = words.as_slice() else {
            panic!("expected.tsv has six columns: {line:?}")
        };
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{name}: no number: {text:?}"));
        Self {
            name: name.into(),
            package: package.into(),
            version: version.into(),
            verdict: verdict.into(),
            demo: number(demo),
            made: number(made),
        }
    }

    fn write(&self) -> String {
        let Self { name, package, version, verdict, demo, made } = self;
        format!("{name}\t{package}\t{version}\t{verdict}\t{demo}\t{made}")
    }
}

fn folder() -> PathBuf {
    root().join("tests/foreign")
}

fn kept() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("foreign")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the command under test: `FLAME`, or the command that cargo built.
fn flame(args: &[&str]) -> Output {
    let flame = std::env::var("FLAME").unwrap_or_else(|_| env!("CARGO_BIN_EXE_flame").to_owned());
    let out = Command::new(flame).args(args).env("CARGO_TARGET_DIR", modules_target()).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "flame {args:?}: {}", text(&out.stderr));
    out
}

/// Returns the path of the module's `.wasm`, built if its sources changed.
fn built(name: &str) -> String {
    let from = folder().join(name);
    flame(&["build", from.to_str().unwrap(), "--output", kept().to_str().unwrap()]);
    kept().join(format!("foreign-{name}.wasm")).to_str().unwrap().to_owned()
}

fn json(bytes: &[u8]) -> Vec<serde_json::Value> {
    text(bytes).lines().filter(|l| l.starts_with('{')).map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// Returns `bounded` if `flame check` reports a verified bound of `flame_batch`, and otherwise the `expected`
/// reason, since the loop that is reported first depends on the build.
fn verdict(wasm: &str, expected: &str) -> String {
    let lines = json(&flame(&["check", "--format", "json", wasm]).stdout);
    let batch = lines.iter().find(|l| l["entry"] == "flame_batch");
    let batch = batch.unwrap_or_else(|| panic!("{wasm}: no flame_batch: {lines:?}"));
    let why = batch["why"].as_str().unwrap_or("no reason");
    match batch["proved"] == true {
        true => "bounded".into(),
        false if expected == "bounded" => why.to_owned(),
        false => expected.to_owned(),
    }
}

/// Returns the number found by each module in a capture. No packet may be lost.
fn found(modules: &str, capture: &Path) -> BTreeMap<String, u64> {
    let capture = capture.to_str().unwrap();
    let out =
        flame(&["run", modules, "-r", capture, "--expose", "all", "--format", "json", "--stats", "json"]);
    for (name, account) in json(&out.stderr).last().expect("an account")["modules"].as_object().unwrap() {
        let whole =
            account["adds_up"] == true && account["offered"] == sum(account, &["processed", "filtered"]);
        assert!(whole, "{capture}: {name}: {account}");
    }
    let rows = json(&out.stdout).into_iter();
    rows.map(|row| (row["module"].as_str().unwrap().to_owned(), row["found"].as_u64().unwrap())).collect()
}

fn sum(account: &serde_json::Value, words: &[&str]) -> u64 {
    words.iter().map(|w| account[w].as_u64().unwrap()).sum()
}

/// Creates a capture of UDP packets with input for each module.
fn made() -> PathBuf {
    let dns = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
    let http = b"GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: x\r\n\r\n";
    // One literal, 24 times the byte before it, five literals.
    let lz4 = b"\x1fa\x01\0\x05\x50hello";
    let payloads: [(u16, &[u8]); 12] = [
        (53, dns),
        (80, http),
        (443, b"\x15\x03\x03\0\x02\x01\0"),
        (9000, br#"{"a": [1, 2.5e3, "x\u00e9"], "b": {"c": null, "d": true}}"#),
        (9000, br#"{"a": [1, 2"#),
        (9000, b"[\"a string of more than sixteen bytes, with \\\"escapes\\\" in it\"]"),
        (9001, b"aGVsbG8gd29ybGQ=\r\n"),
        (9002, lz4),
        (9003, b"\x08\x96\x01\x12\x07testing"),
        (9004, "grüße aus Zürich, und noch etwas mehr Text, der länger als 32 Bytes ist".as_bytes()),
        (9004, b"gr\xfc\xdfe"),
        (9005, &[0x5a; 1400]),
    ];
    let mut file = Pcap::default();
    for (i, (port, payload)) in payloads.iter().enumerate() {
        let udp = 8 + payload.len() as u16;
        let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        packet.extend((20 + udp).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, i as u8]);
        packet.extend(4000u16.to_be_bytes());
        packet.extend([port.to_be_bytes(), udp.to_be_bytes(), [0; 2]].concat());
        packet.extend(*payload);
        file.push((i as u64 + 1) * 1_000_000_000, &packet);
    }
    let path = kept().join("made.pcap");
    file.write(&path);
    path
}

/// Returns the locked version of a package, or none for the standard library.
fn locked(package: &str) -> String {
    let lock: toml::Table =
        toml::from_str(&std::fs::read_to_string(folder().join("Cargo.lock")).unwrap()).unwrap();
    let packages = lock["package"].as_array().unwrap();
    let found = packages.iter().find(|p| p["name"].as_str() == Some(package));
    found.map_or("-".into(), |p| p["version"].as_str().unwrap().to_owned())
}

#[test]
fn modules_of_foreign_code_do_what_the_table_says() {
    let table = std::fs::read_to_string(folder().join("expected.tsv")).unwrap();
    let expected: Vec<_> = table.lines().skip(1).map(Line::read).collect();
    let there: BTreeSet<_> = std::fs::read_dir(folder())
        .unwrap()
        .flatten()
        .filter(|e| e.path().join("module.toml").is_file())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    let named: BTreeSet<_> = expected.iter().map(|l| l.name.clone()).collect();
    assert_eq!(there, named, "folders of tests/foreign, and lines of its expected.tsv");

    let files = for_each(&expected, |line| built(&line.name));
    let modules = files.join(",");
    let demo = found(&modules, &root().join("demo/demo.pcap"));
    let in_made = found(&modules, &made());
    let lines: Vec<_> = expected.iter().zip(&files).collect();
    let verdicts = for_each(&lines, |(line, wasm)| verdict(wasm, &line.verdict));
    let mut wrong = Vec::new();
    for (line, verdict) in expected.iter().zip(verdicts) {
        let module = format!("foreign-{}", line.name);
        let is = Line {
            version: locked(&line.package),
            verdict,
            demo: demo[&module],
            made: in_made[&module],
            ..line.clone()
        };
        assert!(is.demo + is.made > 0, "{module} finds nothing");
        if is != *line {
            wrong.push(is.write());
        }
    }
    assert!(wrong.is_empty(), "expected.tsv is not as it is now, which is:\n{}", wrong.join("\n"));

    // The same work by two crates, or by two functions of one.
    for [one, other] in [
        ["crc", "crc-fast"],
        ["trie", "lpm"],
        ["regex", "regex-step"],
        ["utf8", "utf8-std"],
        ["json", "json-serde"],
        ["aho", "aho-dfa"],
    ] {
        let of = |name: &str| (demo[&format!("foreign-{name}")], in_made[&format!("foreign-{name}")]);
        assert_eq!(of(one), of(other), "{one} and {other}");
    }

    let Some(traces) = traces() else { return };
    for (capture, module) in [
        ("nDPI--bad-dns-traffic.pcap", "dns"),
        ("nDPI--tls_long_cert.pcap", "tls"),
        ("nDPI--http_auth.pcap", "httparse"),
        ("zeek--http_putty-upload.pcap", "memmem"),
    ] {
        let found = found(&modules, &traces.join("open/files").join(capture));
        assert!(found[&format!("foreign-{module}")] > 0, "{module} finds nothing in {capture}");
    }
}
