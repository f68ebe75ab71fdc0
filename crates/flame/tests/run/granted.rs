//! Tests of everything that leaves a grant besides records, and of its amounts: whole commands, modules in
//! text.

use crate::commands::{self, done, flame, text};
use crate::common::{pcap, tcp_packet, with_manifest};
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// Writes a capture of packets at these times, in milliseconds.
fn capture(path: &Path, times: impl IntoIterator<Item = u64>) {
    std::fs::write(path, pcap(times.into_iter().map(|ms| (ms, tcp_packet(7, 80))))).unwrap();
}

/// Creates a node with one role that shows all, and Alice's credential for it.
fn node(fields: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    commands::node(folder.path(), &format!("expose = \"all\"\n{fields}"));
    folder
}

const UNDER: [&str; 4] = ["--policy", "policy.toml", "--credential", "alice.cred"];

fn manifest(tables: &str) -> String {
    format!(
        "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n[needs]\nexpose = \"all\"\n{tables}"
    )
}

const TABLE: &str = "[[tables]]\nname = \"t\"\ncolumns = [{ name = \"x\", type = \"u64\" }]\n";

/// Copies its input to every possible output, then traps in a function whose name reveals something.
const TELLS: &str = r#"(module (memory (export "memory") 1)
  (global (export "flame_panic_text") i32 (i32.const 2048))
  (data (i32.const 2048) "the payload is XSECRETX")
  (data (i32.const 1024) "\08\00\00\00\fe\ff\00\00\39\30\00\00\00\00\00\00")
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0x1000000400))
  (func $deeper (result i64) (unreachable))
  (func $XSECRETX (export "flame_end") (param i64) (result i64) (call $deeper)))"#;

#[test]
fn nothing_of_a_modules_making_leaves_but_records() {
    let node = node("calls = \"\"");
    capture(&node.path().join("c.pcap"), [1_700_000_000_000; 3]);
    let wasm = with_manifest(wat::parse_str(TELLS).unwrap(), manifest("").as_bytes());
    std::fs::write(node.path().join("m.wasm"), wasm).unwrap();
    let run = ["run", "./m.wasm", "-r", "c.pcap", "--stats", "json", "--format", "json"];
    let own = text(&flame(node.path(), &run).stderr);
    assert!(own.matches("XSECRETX").count() == 2 && own.contains("\"records_lost\":12345"), "{own}");
    let granted = flame(node.path(), &[&run[..], &UNDER].concat());
    let said = text(&granted.stderr);
    assert_eq!(granted.status.code(), Some(4));
    assert!(!said.contains("XSECRETX") && !said.contains("12345") && !said.contains("deeper"), "{said}");
    let told = "flame_end: trap: wasm trap: wasm `unreachable` instruction executed, in function ";
    let place = said.split_once(told).and_then(|(_, rest)| rest.lines().next());
    assert!(place.is_some_and(|p| p.parse::<u32>().is_ok()), "{said}");
    let account: Value = serde_json::from_str(&said[said.find("{\"").unwrap()..]).unwrap();
    assert_eq!(
        (&account["modules"]["m"]["records_lost"], &account["modules"]["m"]["faults"]),
        (&0.into(), &1.into())
    );
    // The log has the fault and the end, without a word of the payload.
    let log = done(node.path(), &["audit", "show", "--policy", "policy.toml"]);
    let events = log.lines().filter_map(|l| l.split_whitespace().nth(1)).filter(|event| *event != "begin");
    assert_eq!(events.collect::<Vec<_>>(), ["install", "fault", "end"], "{log}");
    assert!(!log.contains("XSECRETX") && log.contains("--stats json"), "{log}");
}

#[test]
fn a_name_of_megabytes_is_cut_before_anything_is_made_of_it() {
    let folder = tempfile::tempdir().unwrap();
    capture(&folder.path().join("c.pcap"), [1_700_000_000_000]);
    let mut wasm = wat::parse_str(
        "(module (memory (export \"memory\") 1)
          (func (export \"flame_batch\") (param i32) (result i64)
            (if (i32.gt_u (global.get 0) (i32.const 50)) (then (unreachable)))
            (global.set 0 (i32.add (global.get 0) (i32.const 1)))
            (i64.add (call 0 (local.get 0)) (i64.const 1)))
          (global (mut i32) (i32.const 0)))",
    )
    .unwrap();
    let (mut names, mut functions) = (wasm_encoder::NameSection::new(), wasm_encoder::NameMap::new());
    functions.append(0, &"N".repeat(15 << 20));
    names.functions(&functions);
    use wasm_encoder::Section;
    names.append_to(&mut wasm);
    std::fs::write(folder.path().join("m.wasm"), with_manifest(wasm, manifest("").as_bytes())).unwrap();
    let out = flame(folder.path(), &["run", "./m.wasm", "-r", "c.pcap"]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(4), "{}", said.len());
    assert!(said.contains(&"N".repeat(200)) && !said.contains(&"N".repeat(201)), "{:.3000}", said);
    assert!(said.len() < 20_000, "{} bytes", said.len());
}

/// Emits a thousand records in each call of `flame_batch`, and as many again at the end.
const FLOODS: &str = r#"(module (memory (export "memory") 4)
  (func $fill (result i64) (local $i i32)
    (loop $l
      (i64.store (i32.shl (local.get $i) (i32.const 4)) (i64.const 8))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $l (i32.lt_u (local.get $i) (i32.const 1000))))
    (i64.const 0x3e8000000000))
  (func (export "flame_batch") (param i32) (result i64) (call $fill))
  (func (export "flame_end") (param i64) (result i64) (call $fill)))"#;

#[test]
fn rates_belong_to_the_credential_whatever_the_installs_workers_and_runs() {
    let node = node("calls = \"records\"\nrecords_per_second = 100");
    let begun = Instant::now();
    let wasm = with_manifest(wat::parse_str(FLOODS).unwrap(), manifest(TABLE).as_bytes());
    for name in ["m", "n", "o"] {
        std::fs::write(node.path().join(format!("{name}.wasm")), &wasm).unwrap();
    }
    // Three seconds of packet time, and a jump of years.
    let seconds = [0, 1000, 2000, 2001, 90_000_000_000].map(|ms| 1_700_000_000_000 + ms);
    capture(&node.path().join("c.pcap"), seconds);
    let run = |modules: &str, more: &[&str]| {
        let run = ["run", modules, "-r", "c.pcap", "-q", "--format", "json"];
        done(node.path(), &[&run[..], &UNDER, more].concat()).lines().count()
    };
    assert!(
        done(node.path(), &["run", "./m.wasm", "-r", "c.pcap", "-q", "--format", "json"]).lines().count()
            >= 2000
    );
    // The quota of one second to begin with, and of each second with a tick.
    let first = run("./m.wasm,./n.wasm,./o.wasm", &["--workers", "2", "--restart", "9"]);
    assert!((100..=500).contains(&first), "{first}");
    // The narrowed and handed-on credential shares the quotas.
    done(node.path(), &["grant", "narrow", "alice.cred", "--to", "bob", "-o", "bob.cred"]);
    let mut all = first;
    for credential in ["alice.cred", "bob.cred", "alice.cred", "bob.cred"] {
        let under = ["--policy", "policy.toml", "--credential", credential];
        let again = ["run", "./m.wasm,./n.wasm", "-r", "c.pcap", "-q", "--format", "json"];
        all += done(node.path(), &[&again[..], &under].concat()).lines().count();
    }
    let most = 500.0 + 100.0 * begun.elapsed().as_secs_f64();
    assert!((all as f64) < most, "{all} records, {most} granted");
    // The state must be authentic, and without it nothing runs.
    let state =
        std::fs::read_dir(node.path().join("audit.log.quotas")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&state, "{}").unwrap();
    let out = flame(node.path(), &[&["run", "./m.wasm", "-r", "c.pcap"][..], &UNDER].concat());
    assert!(text(&out.stderr).contains("changed, damaged"), "{}", text(&out.stderr));
}

/// Writes a row with the time of each tick, and at its end one with the time between two, as it was told.
const TICKS: &str = r#"(module (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\00\00\00\00")
  (func $row (param i64) (result i64) (i64.store (i32.const 8) (local.get 0)) (i64.const 0x1000000000))
  (func (export "flame_init") (param $at i32) (param i32) (result i64)
    (i64.store (i32.const 64) (i64.load offset=16 (local.get $at)))
    (i64.const 0))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
  (func (export "flame_tick") (param i64) (result i64) (call $row (local.get 0)))
  (func (export "flame_end") (param i64) (result i64) (call $row (i64.load (i32.const 64)))))"#;

#[test]
fn a_grant_states_how_often_a_module_ticks_if_it_does() {
    const SECOND: u64 = 1_000_000_000;
    let wasm = with_manifest(wat::parse_str(TICKS).unwrap(), manifest(TABLE).as_bytes());
    let run = |fields: &str, narrowed: &[&str], interval: &str| {
        let node = node(&format!("calls = \"records\"\n{fields}"));
        std::fs::write(node.path().join("m.wasm"), &wasm).unwrap();
        capture(&node.path().join("c.pcap"), (0..45).map(|n| 1_700_000_000_500 + n * 1000));
        let narrow = [&["grant", "narrow", "alice.cred"][..], narrowed, &["-o", "bob.cred"]].concat();
        done(node.path(), &narrow);
        let run = ["run", "./m.wasm", "-r", "c.pcap", "-q", "--format", "json", "--interval", interval];
        let under = ["--policy", "policy.toml", "--credential", "bob.cred"];
        let rows = done(node.path(), &[&run[..], &under].concat());
        let times =
            rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["x"].as_u64().unwrap());
        times.collect::<Vec<_>>()
    };
    let every = |seconds: u64| {
        let first = 1_700_000_000_u64.next_multiple_of(seconds);
        let first = if first == 1_700_000_000 { first + seconds } else { first };
        let ticks = (first..=1_700_000_044).step_by(seconds as usize).map(|s| s * SECOND);
        ticks.chain([seconds * SECOND]).collect::<Vec<_>>()
    };
    assert_eq!(run("", &[], "1s"), every(1));
    assert_eq!(run("ticks = \"10s\"", &[], "1s"), every(10));
    // Ticks fall on multiples of what each of policy, credential and interval states.
    assert_eq!(run("ticks = \"4s\"", &["--ticks", "6s"], "1s"), every(12));
    assert_eq!(run("ticks = \"4s\"", &[], "3s"), every(12));
    assert_eq!(run("ticks = \"1s\"", &["--ticks", "10s", "--resolution", "4s"], "1s"), every(20));
    // `none` in any block means no ticks. Numbers without a sign have no larger one.
    for (field, narrowed) in
        [("none", &[][..]), ("10s", &["--ticks", "none"][..]), ("none", &["--ticks", "1s"][..])]
    {
        assert_eq!(run(&format!("ticks = {field:?}"), narrowed, "1s"), [u64::MAX]);
    }
}

#[test]
fn memory_is_of_all_instances_together() {
    let node = node("calls = \"records\"\nmemory = \"1MiB\"");
    capture(&node.path().join("c.pcap"), [1_700_000_000_000]);
    let half = TELLS.replace("1)\n", "9)\n").replace("(unreachable)", "(i64.const 0)");
    let wasm = with_manifest(wat::parse_str(half).unwrap(), manifest("").as_bytes());
    for name in ["m", "n"] {
        std::fs::write(node.path().join(format!("{name}.wasm")), &wasm).unwrap();
    }
    let run = |modules: &str| flame(node.path(), &[&["run", modules, "-r", "c.pcap"][..], &UNDER].concat());
    assert!(run("./m.wasm").status.success(), "{}", text(&run("./m.wasm").stderr));
    let both = run("./m.wasm,./n.wasm");
    assert!(text(&both.stderr).contains("instantiation: could not be started"), "{}", text(&both.stderr));
}

/// No grant is involved: one packet once caused 975 MB of JSON.
#[test]
fn one_packet_does_not_fill_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    capture(&folder.path().join("c.pcap"), [1_700_000_000_000]);
    let more = FLOODS.replace("(i64.const 0x3e8000000000)", "(i64.const 0x3e8080000000)");
    let batch = "(func (export \"flame_batch\") (param i32) (result i64) (call $fill))";
    let more = more.replace(batch, "(func (export \"flame_batch\") (param i32) (result i64) (i64.const 0))");
    let wasm = with_manifest(wat::parse_str(more).unwrap(), manifest(TABLE).as_bytes());
    std::fs::write(folder.path().join("m.wasm"), wasm).unwrap();
    let out =
        flame(folder.path(), &["run", "./m.wasm", "-r", "c.pcap", "--format", "json", "--stats", "json"]);
    assert!(out.stdout.len() < 8 << 20, "{} bytes", out.stdout.len());
    let said = text(&out.stderr);
    let account: Value = serde_json::from_str(&said[said.find("{\"").unwrap()..]).unwrap();
    assert_eq!(account["modules"]["m"]["records"], 65_536 + 64);
    assert!(account["modules"]["m"]["withheld"].as_u64() > Some(1_000_000), "{said}");
}

/// One packet once filled a disk through `-w`, and packets without bytes were not counted at all.
#[test]
fn packets_do_not_fill_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    capture(&folder.path().join("c.pcap"), [1_700_000_000_000]);
    // In each of 256 areas a frame of 64 kB, or of as few bytes as there can be.
    for (bytes, frames, most) in [(65_000, 256, 70 << 20), (0, 1_500_000, 70 << 20)] {
        let text = format!(
            r#"(module (memory (export "memory") 600)
              (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
              (func (export "flame_end") (param i64) (result i64) (local $i i32) (local $at i32)
                (loop $l
                  (i64.store (local.get $at) (i64.const {head}))
                  (i32.store8 offset=20 (local.get $at) (i32.const 1))
                  (local.set $at (i32.add (local.get $at) (i32.const {size})))
                  (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {at_once}))))
                (local.set $i (i32.add (global.get $calls) (i32.const 1)))
                (global.set $calls (local.get $i))
                (i64.or (i64.const {output})
                  (select (i64.const 0x80000000) (i64.const 0) (i32.lt_u (local.get $i) (i32.const {calls})))))
              (global $calls (mut i32) (i32.const 0)))"#,
            head = 0xfffd_0000_0000_u64 | (bytes + 16),
            size = bytes + 24,
            at_once = (16 << 20) / (bytes + 24),
            output = ((16 << 20) / (bytes + 24) * (bytes + 24)) << 32,
            calls = 8,
        );
        let manifest = manifest("packets = true\n[limits]\ncall_budget = 2_000_000_000\n");
        let manifest = manifest.replace("[needs]\nexpose = \"all\"\n", "");
        let wasm = with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes());
        std::fs::write(folder.path().join("m.wasm"), wasm).unwrap();
        let out = flame(
            folder.path(),
            &["run", "./m.wasm", "-r", "c.pcap", "-w", "out.pcapng", "--stats", "json", "--format", "json"],
        );
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let account: Value = serde_json::from_str(&said[said.find("{\"").unwrap()..]).unwrap();
        let of = |what: &str| account["modules"]["m"][what].as_u64().unwrap();
        assert!(of("withheld") > 0 && of("written") + of("withheld") > frames, "{said}");
        let size = folder.path().join("out.pcapng").metadata().unwrap().len();
        assert!((60 << 20..most).contains(&size), "{size}");
    }
}

#[test]
fn a_list_of_revocations_that_is_gone_revokes_no_less() {
    let node = node("calls = \"\"");
    capture(&node.path().join("c.pcap"), [1_700_000_000_000]);
    let wasm = with_manifest(
        wat::parse_str(TELLS.replace("(unreachable)", "(i64.const 0)")).unwrap(),
        manifest("").as_bytes(),
    );
    std::fs::write(node.path().join("m.wasm"), wasm).unwrap();
    let run = [&["run", "./m.wasm", "-r", "c.pcap"][..], &UNDER].concat();
    done(node.path(), &run);
    done(node.path(), &["grant", "revoke", "alice.cred", "--policy", "policy.toml"]);
    std::fs::remove_file(node.path().join("revoked")).unwrap();
    let out = flame(node.path(), &run);
    assert!(text(&out.stderr).contains("it is not there: put back the list"), "{}", text(&out.stderr));
}
