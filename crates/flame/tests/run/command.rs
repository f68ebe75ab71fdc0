//! Tests of the command as people use it: exit statuses, errors, formats, and the examples of
//! docs/modules.md.

use crate::common::{self, modules_target, root};
use flame_abi::manifest::{Manifest, ParameterType};
use std::path::Path;
use std::process::{Command, Output};

fn flame(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flame")).args(args).current_dir(root()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn has_modules() -> bool {
    common::module("count").is_some()
}

#[test]
fn the_recorded_capture_counts_what_tcpdump_counts() {
    if !has_modules() {
        return;
    }
    let out = flame(&["run", "count", "-r", "demo/demo.pcap", "--format", "json", "--stats", "json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let row: serde_json::Value = serde_json::from_str(text(&out.stdout).lines().next().unwrap()).unwrap();
    let account: serde_json::Value = serde_json::from_str(&text(&out.stderr)).unwrap();
    assert_eq!(account["modules"]["count"]["adds_up"], true);
    for (column, filter) in [("packets", ""), ("ipv6", "ip6 or (vlan and ip6)"), ("tcp_syn", "")] {
        if column == "tcp_syn" {
            assert_eq!(row[column], 24);
            continue;
        }
        let Ok(tcpdump) =
            Command::new("tcpdump").args(["-nr", "demo/demo.pcap", filter]).current_dir(root()).output()
        else {
            eprintln!("skipped: no tcpdump");
            return;
        };
        assert_eq!(row[column], text(&tcpdump.stdout).lines().count(), "{column}");
    }
}

#[test]
fn statuses_and_errors_tell_what_to_do() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.pcap");
    let whole = std::fs::read(root().join("demo/demo.pcap")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let cut = cut.to_str().unwrap();
    let demo = "demo/demo.pcap";
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "count", "-r", cut], 3, "damaged at byte"),
        (&["run", "count", "-r", "nowhere.pcap"], 1, "nowhere.pcap: No such file"),
        (&["run", "count", "-r", "README.md"], 1, "not a capture file"),
        (&["run", "counts", "-r", demo], 1, "no module \"counts\""),
        (&["run", "count", "-r", demo, "tcp", "porrt", "80"], 1, "porrt"),
        (&["run", "count", "-r", demo, "--set", "count.x=1"], 1, "no parameter \"x\""),
        (&["run", "port", "-r", demo, "--set", "port.port=70000"], 1, "0 to 65535"),
        (&["run", "port", "-r", demo, "--transform", "ip=prefix"], 1, "--key FILE"),
        (&["run", "port", "-r", demo, "--transform", "colour=zero"], 1, "expected mac, ip or port"),
        (&["run", "count", "-r", demo, "--interval", "soon"], 1, "expected a number"),
        (&["run", "count", "-r", demo, "--format", "parquet"], 1, "-o"),
        (&["run", "count", "-i", "nosuch0"], 1, "nosuch0"),
        (&["run", "count"], 2, "--read"),
    ];
    for (args, status, expected) in cases {
        let out = flame(args);
        let error = text(&out.stderr);
        assert_eq!(out.status.code(), Some(*status), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: expected {expected:?} in: {error}");
    }
}

#[test]
fn a_parameter_can_be_a_files_text() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let port = folder.path().join("port");
    std::fs::write(&port, "443").unwrap();
    let set = |value: &str| {
        flame(&["run", "port", "-r", "demo/demo.pcap", "-q", "--format", "json", "--set", value])
    };
    let of_file = set(&format!("port.port=@{}", port.display()));
    assert_eq!(of_file.stdout, set("port.port=443").stdout, "{}", text(&of_file.stderr));
    assert_ne!(of_file.stdout, set("port.port=80").stdout);
    std::fs::write(&port, [b'4', 0xff]).unwrap();
    for (value, said) in [
        ("port.port=@nowhere".to_owned(), "nowhere: No such file"),
        (format!("port.port=@{}", port.display()), "byte 1 is not UTF-8"),
        ("port.port=@@nowhere".to_owned(), "@nowhere"),
    ] {
        let out = set(&value);
        assert_eq!(out.status.code(), Some(1));
        assert!(text(&out.stderr).contains(said), "{}", text(&out.stderr));
    }
}

#[test]
fn logs_of_two_monitors_join() {
    if common::module("trajectory").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (folder.path().join("here.json"), folder.path().join("there.json"));
    let view = ["--expose", "payload:64", "--set", "trajectory.sampling=0.2"];
    let (out, demo) = (here.to_str().unwrap(), "demo/demo.pcap");
    let run = ["run", "trajectory", "-r", demo, "-q", "--format", "json", "-o", out];
    assert_eq!(flame(&[&run[..], &view].concat()).status.code(), Some(0));
    // The other monitor misses every tenth log, and sees the others 5 ms later.
    let (mut logs, mut late) = (0, String::new());
    for line in std::fs::read_to_string(&here).unwrap().lines() {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        if record["table"] == "log" {
            logs += 1;
            record["ts_ns"] = (record["ts_ns"].as_u64().unwrap() + 5_000_000).into();
            if logs % 10 == 0 {
                continue;
            }
        }
        late += &format!("{record}\n");
    }
    std::fs::write(&there, late).unwrap();
    let out = flame(&["join", "--format", "json", &format!("a={out}"), &format!("b={}", there.display())]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let first: serde_json::Value = serde_json::from_str(text(&out.stdout).lines().next().unwrap()).unwrap();
    assert_eq!((&first["table"], &first["path"]), (&"path".into(), &"a > b".into()));
    assert_eq!((&first["mean_ns"], &first["max_ns"]), (&5_000_000.into(), &5_000_000.into()));
    let number = |name: &str| first[name].as_u64().unwrap();
    assert!(number("packets") > 150 && number("lost") > 15, "{first}");
    std::fs::write(&there, "{\n").unwrap();
    let out = flame(&["join", out_path(&here), out_path(&there)]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("there.json, line 1"), "{}", text(&out.stderr));
}

fn out_path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn views_select_and_change_what_modules_see() {
    if !has_modules() {
        return;
    }
    let rows = |args: &[&str]| {
        let all = [&["run", "flow", "-q", "--format", "json", "-r", "demo/demo.pcap"], args].concat();
        let out = flame(&all);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        text(&out.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(rows(&["tcp", "port", "443"]).iter().all(|r| r.contains("\"dport\":443")));
    let hidden = rows(&["--transform", "ip=zero"]);
    assert!(!hidden.is_empty() && hidden.iter().all(|r| !r.contains("10.9.0.") && !r.contains("fd00:9")));
    let (one, two) = (rows(&[]), rows(&["--workers", "2"]));
    let sorted = |mut rows: Vec<String>| {
        rows.sort();
        rows
    };
    assert_eq!(sorted(one), sorted(two));
}

/// Runs every shell block of docs/modules.md, in order, in an empty folder.
#[test]
fn docs_modules_works_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_flame")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let page = std::fs::read_to_string(root().join("docs/modules.md")).unwrap();
    let mut ran = 0;
    for block in page.split("```sh\n").skip(1).map(|b| b.split("```").next().unwrap()) {
        let out = Command::new("bash")
            .args(["-euc", block])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("CARGO_TARGET_DIR", modules_target())
            .env("CAPTURE", root().join("demo/demo.pcap").canonicalize().unwrap())
            .output()
            .unwrap();
        assert!(out.status.success(), "{block}\n{}\n{}", text(&out.stdout), text(&out.stderr));
        if block.contains("--lang") {
            // Port 443 in the recorded capture: from the packets' first bytes to the record.
            assert!(text(&out.stdout).contains("\"packets\":"), "{}", text(&out.stdout));
        }
        ran += 1;
    }
    assert!(ran >= 4, "{ran} blocks");
}

#[test]
fn check_tells_what_a_module_costs_at_most() {
    if !has_modules() {
        return;
    }
    // A user's cache can hold the record of a violation, and a calibration.
    let cache = tempfile::tempdir().unwrap();
    let flame = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
        command.args(args).env("FLAME_CACHE", cache.path()).current_dir(root()).output().unwrap()
    };
    let json = |module: &str| -> Vec<serde_json::Value> {
        let out = flame(&["check", module, "--format", "json", "--explain"]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        text(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    };
    // The batches of these standard modules need no counter, and must remain so.
    let names =
        ["count", "port", "flow", "lrd", "rtt", "rtt-c", "trajectory", "worm", "tcp", "talkers", "scan"];
    for module in names {
        let rows = json(module);
        let batch = rows.iter().find(|r| r["entry"] == "flame_batch").unwrap();
        assert_eq!(batch["proved"], true, "{module}: {batch}");
        let last = rows.last().unwrap();
        assert_eq!(last["bounded"], true, "{module}: {last}");
        assert!(rows.iter().any(|r| r["step"].is_string()), "{module}: the worst-case path");
    }
    assert_eq!(json("worm").iter().find(|r| r["entry"] == "flame_batch").unwrap()["class"], "E6");
    assert_eq!(json("ids").last().unwrap()["bounded"], false);
    let rows = json("ids");
    assert!(rows.iter().any(|r| r["entry"] == "flame_batch" && r["why"].is_string()));
    assert!(rows.iter().any(|r| r["trip_count"] == "counted"));
    assert!(json("flow").iter().any(|r| r["trip_count"] == "each packet"));
    let cases: [(&[&str], i32, &str); 4] = [
        (&["check", "count", "--limit", "100000"], 0, ""),
        (&["check", "count", "--limit", "10"], 1, "instructions, more than 10"),
        (&["check", "ids", "--limit", "10"], 1, "flame_batch has no bound"),
        (&["check", "./README.md"], 1, "README.md"),
    ];
    for (arguments, status, said) in cases {
        let out = flame(arguments);
        assert_eq!(out.status.code(), Some(status), "{arguments:?}");
        assert!(text(&out.stderr).contains(said), "{}", text(&out.stderr));
    }
}

/// A module whose packets take `(LENGTH)` iterations, and which asks for `expose` and `budget`.
fn looping(folder: &Path, length: &str, expose: &str, budget: u64) -> String {
    let wat = format!(
        r#"(module (import "flame" "packet" (func $packet (param i32))) (memory (export "memory") 1)
          (func (export "flame_batch") (param $b i32) (result i64) (local $i i32) (local $n i32) (local $d i32)
            (local.set $d (i32.load (local.get $b)))
            (block $done (loop $next
              (br_if $done (i32.ge_u (local.get $i) (i32.load offset=4 (local.get $b))))
              (call $packet (local.get $i))
              (local.set $n {length})
              (block $read (loop $byte
                (br_if $read (i32.eqz (local.get $n)))
                (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br $byte)))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (local.set $d (i32.add (local.get $d) (i32.const 32)))
              (br $next)))
            (i64.const 0)))"#
    );
    let manifest = format!(
        "abi = 1\nname = \"looping\"\nversion = \"1\"\ndescription = \"test\"\n[needs]\nexpose = \"{expose}\"\n\
         [limits]\npacket_budget = {budget}\n"
    );
    let path = folder.join("looping.wasm");
    std::fs::write(&path, common::with_manifest(wat::parse_str(wat).unwrap(), manifest.as_bytes())).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The options of a check and of a run.
type Options<'a> = (&'a [&'a str], &'a [&'a str]);

/// The same options, the same verdict, whatever the manifest asks for.
#[test]
fn a_check_comes_to_the_verdict_of_a_run_with_its_options() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = "(i32.load offset=20 (local.get $d))";
    let (few, many) = ("(i32.const 2000)", "(i32.const 20000000)");
    let most = ["--packet-budget", "1000000000"];
    let cases: [(_, _, _, Options<'_>, bool); 8] = [
        (bytes, "all", 100_000, (&[], &["--expose", "all"]), false),
        (bytes, "all", 100_000, (&["--expose", "headers"], &[]), true),
        (bytes, "all", 100_000, (&["--snaplen", "1000"], &["--expose", "all", "-s", "1000"]), true),
        (bytes, "headers", 100_000, (&[], &["--expose", "all"]), true),
        (few, "headers", 1_000_000, (&[], &[]), true),
        (few, "headers", 1_000_000, (&["--packet-budget", "10000"], &["--packet-budget", "10000"]), false),
        (many, "headers", 1_000_000_000, (&[], &[]), false),
        // Nothing could interrupt a batch of such packets.
        (many, "headers", 1_000_000_000, (&most, &most), false),
    ];
    for (length, expose, budget, (of_check, of_run), is_bounded) in cases {
        let module = looping(folder.path(), length, expose, budget);
        let out = flame(&[&["check", &module][..], of_check].concat());
        let checked = text(&out.stdout);
        let word = if is_bounded { "bounded" } else { "metered" };
        assert!(checked.contains(&format!("\nverdict        {word}: ")), "{of_check:?}: {checked}");
        let out = flame(&[&["run", &module, "-r", "demo/demo.pcap", "-v"][..], of_run].concat());
        let class = if is_bounded { "class=Bounded" } else { "class=Metered" };
        assert!(text(&out.stderr).contains(class), "{of_run:?}: {}", text(&out.stderr));
    }
}

/// No value that a manifest permits needs more memory than it asks for.
#[test]
fn standard_modules_start_with_their_largest_parameters() {
    if !has_modules() {
        return;
    }
    let mut tried = 0;
    let names = ["flow", "port", "ids", "lrd", "rtt", "rtt-c", "trajectory", "worm"];
    for module in names.into_iter().chain(["dns", "tls", "http", "tcp", "talkers", "scan"]) {
        let manifest = std::fs::read(root().join(format!("modules/{module}/module.toml"))).unwrap();
        let manifest = Manifest::parse(&manifest).unwrap();
        let numbers = manifest.parameters.iter().filter(|(_, p)| p.kind == ParameterType::Integer);
        let largest = numbers.filter_map(|(name, p)| Some((name, p.max?)));
        let settings: Vec<_> = largest.map(|(name, max)| format!("{module}.{name}={max}")).collect();
        tried += settings.len();
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        let out = flame(
            &["run", module, "-r", "demo/demo.pcap", "-q", "--stats", "none"]
                .into_iter()
                .chain(settings)
                .collect::<Vec<_>>(),
        );
        assert_eq!(out.status.code(), Some(0), "{module}: {}", text(&out.stderr));
    }
    assert!(tried > 8, "{tried}");
}

#[test]
fn a_pace_decides_what_is_bounded_and_errors_say_what_is_missing() {
    if !has_modules() {
        return;
    }
    let verdict = |arguments: &[&str]| {
        let out = flame(&[&["check", "flow", "--format", "json"], arguments].concat());
        let last: serde_json::Value =
            serde_json::from_str(text(&out.stdout).lines().last().unwrap()).unwrap();
        (out.status.code().unwrap(), last["bounded"] == true, last["why"].as_str().unwrap().to_owned())
    };
    let measured = flame(&["calibrate", "--format", "json"]);
    assert_eq!(measured.status.code(), Some(0), "{}", text(&measured.stderr));
    let measured: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    assert!(measured["calibration"]["latency"].as_array().unwrap().len() > 5, "{measured}");
    // No machine needs a second for a packet, and each needs more than a picosecond.
    let (status, bounded, why) = verdict(&["--packet-time", "1s"]);
    assert_eq!((status, bounded), (0, true), "{why}");
    assert!(why.contains("acceptable (1000 ms × 17.0)"), "{why}");
    let (status, bounded, why) =
        verdict(&["--cpu-share", "0.000001", "--link-speed", "100G", "--inflation", "1"]);
    assert_eq!((status, bounded), (1, false), "{why}");
    assert!(why.contains("are acceptable (0.0 ns × 1.0)"), "{why}");
    for (arguments, said) in [
        (&["check", "flow", "--cpu-share", "0.5"][..], "--cpu-share needs --link-speed"),
        (&["check", "flow", "--cpu-share", "2", "--link-speed", "1G"], "at most 1"),
        (&["check", "flow", "--cpu-share", "1", "--link-speed", "fast"], "expected bits per second"),
        (&["check", "flow", "--packet-time", "0s"], "longer than 0"),
        (&["check", "flow", "--packet-time", "1us", "--inflation", "0.5"], "at least 1"),
    ] {
        let out = flame(arguments);
        assert_eq!(out.status.code(), Some(1), "{arguments:?}");
        assert!(text(&out.stderr).contains(said), "{}", text(&out.stderr));
    }
}

#[test]
fn bounded_and_metered_give_the_same_records() {
    if !has_modules() {
        return;
    }
    let demo = root().join("demo/demo.pcap").display().to_string();
    for module in ["count", "port", "flow", "rtt", "trajectory", "worm", "lrd", "tcp", "talkers"] {
        let run = |more: &[&str]| {
            let usual =
                ["run", module, "-r", &demo, "--expose", "all", "--format", "json", "--interval", "1s"];
            let out = flame(&[&usual[..], more].concat());
            assert_eq!(out.status.code(), Some(0), "{module}: {}", text(&out.stderr));
            text(&out.stdout).to_owned()
        };
        let bounded = run(&[]);
        assert!(!bounded.is_empty(), "{module}");
        assert_eq!(bounded, run(&["--metered"]), "{module}");
        assert_eq!(bounded, run(&["--packet-time", "1s"]), "{module}");
    }
}

/// Runs the commands of README and of docs/output.md that need no interface, on the recorded capture.
#[test]
fn documented_commands_work_as_written() {
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "07".repeat(32)).unwrap();
    let (demo, key) = (root().join("demo/demo.pcap").canonicalize().unwrap(), key.display().to_string());
    let lines: Vec<String> = [("README.md", "## Use"), ("docs/output.md", "## More commands")]
        .into_iter()
        .flat_map(|(page, title)| {
            let page = std::fs::read_to_string(root().join(page)).unwrap();
            let section = page.split(title).nth(1).unwrap().split("\n|").next().unwrap();
            section.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    let bin = Path::new(env!("CARGO_BIN_EXE_flame")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut ran = 0;
    for line in lines.iter().filter(|l| l.starts_with("flame run") && l.contains("-r FILE")) {
        // Each placeholder is a separate word.
        let command = line.split("  ").next().unwrap();
        let command = command.replace("FILE", &demo.display().to_string()).replace("KEY", &key);
        let mut bash = Command::new("bash");
        bash.args(["-euc", &command]).current_dir(folder.path()).env("PATH", &path);
        let out = bash.output().unwrap();
        assert!(out.status.success(), "{line}\n{}", text(&out.stderr));
        ran += 1;
    }
    assert_eq!(ran, 10, "lines");
    assert!(folder.path().join("flows.parquet").is_file());
}

/// Returns the words of a line, without times, and with `#` in place of each number.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_unit = ["ns", "µs", "ms"].contains(&word);
        if is_unit && words.last().is_some_and(|last| last == "#") {
            words.pop();
        } else {
            let is_number = word.chars().all(|c| c.is_ascii_digit());
            words.push(if is_number { "#".to_owned() } else { word.to_owned() });
        }
    }
    words
}

/// Numbers depend on the compiler, so only the words of the example in docs/bounds.md are compared.
#[test]
fn the_example_of_a_check_has_the_words_of_its_output() {
    if !has_modules() {
        return;
    }
    let page = std::fs::read_to_string(root().join("docs/bounds.md")).unwrap();
    let example = page.split("$ flame check flow\n").nth(1).unwrap().split("```").next().unwrap();
    let out = flame(&["check", "flow"]);
    let printed = text(&out.stdout);
    let mut lines = printed.lines().map(words);
    for line in example.lines().filter(|line| !line.is_empty() && *line != "…") {
        let wanted = words(line.trim_end_matches('…'));
        let is_cut = line.ends_with('…');
        let found = lines.any(|got| if is_cut { got.starts_with(&wanted) } else { got == wanted });
        assert!(found, "{line}\n{printed}");
    }
}
