//! Tests of workers that are ahead of others on a capture: what they report waits for its second of packet
//! time, and takes no more memory than it may.

use crate::commands::{done, node};
use crate::common::{self, pcap, tcp_packet, with_manifest};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MANIFEST: &str =
    "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n[needs]\nexpose = \"none\"\n";

/// Writes a capture of one flow with a packet in each of `seconds` seconds, and a module.
fn write(folder: &Path, seconds: u64, manifest: &str, text: &str) {
    let packets = (0..seconds).map(|n| (1_700_000_000_000 + n * 1000, tcp_packet(7, 80)));
    std::fs::write(folder.join("c.pcap"), pcap(packets)).unwrap();
    let wasm = with_manifest(wat::parse_str(text).unwrap(), format!("{MANIFEST}{manifest}").as_bytes());
    std::fs::write(folder.join("m.wasm"), wasm).unwrap();
}

/// A row for each packet, and so for each second, is far from a quota of ten. One worker has all of them, and
/// the other is behind, because it computes at each tick.
#[test]
fn a_quota_counts_a_row_in_its_own_second() {
    const ROWS: &str = r#"(module (memory (export "memory") 1)
      (global $has (mut i32) (i32.const 0))
      (data (i32.const 0) "\08\00\00\00\00\00\00\00")
      (func (export "flame_batch") (param i32) (result i64) (global.set $has (i32.const 1))
        (i64.const 0x1000000000))
      (func (export "flame_tick") (param i64) (result i64) (local $n i32)
        (if (i32.eqz (global.get $has)) (then
          (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1)))
            (i32.const 300000))))))
        (i64.const 0)))"#;
    const TABLE: &str = "[[tables]]\nname = \"t\"\ncolumns = [{ name = \"x\", type = \"u64\" }]\n";
    for workers in ["1", "2", "3"] {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), "expose = \"all\"\ncalls = \"records\"\nrecords_per_second = 10");
        write(folder.path(), 1000, TABLE, ROWS);
        let run = ["run", "./m.wasm", "-r", "c.pcap", "-q", "--format", "json", "--workers", workers];
        let under = ["--policy", "policy.toml", "--credential", "alice.cred"];
        let rows = done(folder.path(), &[&run[..], &under].concat());
        assert_eq!(rows.lines().count(), 1000, "{workers} workers");
    }
}

/// A gigabyte of messages from one worker, while the other computes at each tick.
#[test]
fn messages_of_a_worker_that_is_ahead_take_limited_memory() {
    const BOMB: &str = r#"(module (memory (export "memory") 300)
      (global $has (mut i32) (i32.const 0))
      (func (export "flame_init") (param i32 i32) (result i64) (local $i i32)
        (loop $l
          (i64.store (i32.mul (local.get $i) (i32.const 65008)) (i64.const 0x0000ffff0000fde8))
          (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 255))))
        (i64.const 0))
      (func (export "flame_batch") (param i32) (result i64) (global.set $has (i32.const 1))
        (i64.const 0x00fcf21000000000))
      (func (export "flame_message") (param i32 i32) (result i64) (global.set $has (i32.const 1))
        (i64.const 0))
      (func (export "flame_tick") (param i64) (result i64) (local $n i32)
        (if (i32.eqz (global.get $has)) (then
          (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1)))
            (i32.const 60000000))))))
        (i64.const 0)))"#;
    const LIMITS: &str = "[limits]\npacket_budget = 100_000_000\ncall_budget = 1_000_000_000\n";
    const SECONDS: u64 = 64;
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), SECONDS, LIMITS, BOMB);
    let peak = |workers: &str| {
        let run = ["run", "./m.wasm", "-r", "c.pcap", "-q", "--workers", workers];
        let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
        command.args(run).current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0_u64;
        while child.try_wait().unwrap().is_none() {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
            peak = peak.max(line.and_then(|kb| kb.trim().parse().ok()).unwrap_or(0) / 1024);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(child.wait().unwrap().success());
        peak
    };
    let (one, two) = (peak("1"), peak("2"));
    // 64 MiB may wait for each worker, and 16 outputs of 16 MiB in the queue; all would be 1 GiB.
    assert!(two < one + 512, "{two} MiB with two workers, {one} with one");
}

/// A module that computes for 0.1 s at each tick, of which each has a row. An instance of which `BUSY` is 1
/// computes only if it has had no batch, and one of which it is 0 only if it has had one.
const SLOW: &str = r#"(module (memory (export "memory") 1) MESSAGE
  (global $has (mut i32) (i32.const 0))
  (data (i32.const 0) "\08\00\00\00\00\00\00\00")
  (func (export "flame_batch") (param i32) (result i64) (global.set $has (i32.const 1)) (i64.const 0))
  (func (export "flame_tick") (param i64) (result i64) (local $n i32)
    (if (i32.ne (global.get $has) (i32.const BUSY)) (then
      (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1)))
        (i32.const 200000000))))))
    (i64.const 0x1000000000)))"#;
const TABLE: &str = "[[tables]]\nname = \"t\"\ncolumns = [{ name = \"x\", type = \"u64\" }]\n\
    [limits]\ncall_budget = 4_000_000_000\n";
const SECONDS: u64 = 1000;

/// A run that was interrupted.
struct Interrupted {
    rows: usize,
    said: String,
    stats: Value,
    status: Option<i32>,
    /// The time from the interrupt to the end.
    took: Duration,
}

/// Runs modules on the capture, and interrupts them after some time.
fn interrupted_after(time: Duration, folder: &Path, modules: &str, more: &[&str]) -> Interrupted {
    common::runner();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
    command.args(["run", modules, "-r", "c.pcap", "--format", "json", "--stats", "json"]).args(more);
    command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A machine with other work may not have begun the run by then.
    for time in [1, 2, 4, 8].map(|factor| factor * time) {
        let child = command.spawn().unwrap();
        std::thread::sleep(time);
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        let since = Instant::now();
        let out = child.wait_with_output().unwrap();
        let (rows, said) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
        let stats = said.find("{\"").map(|at| serde_json::from_str::<Value>(&said[at..]).unwrap());
        let Some(stats) = stats else {
            assert_eq!(out.status.code(), Some(130), "{said}");
            continue;
        };
        if stats["packets"] != 0 {
            let (rows, status) = (rows.lines().count(), out.status.code());
            return Interrupted { rows, said, stats, status, took: since.elapsed() };
        }
    }
    panic!("the run does not begin");
}

/// Runs modules on the capture, and interrupts them after a second. Returns the rows, what was said and the
/// statistics, with the status.
fn interrupted(folder: &Path, modules: &str, more: &[&str]) -> (usize, String, Value, Option<i32>) {
    let Interrupted { rows, said, stats, status, .. } =
        interrupted_after(Duration::from_secs(1), folder, modules, more);
    (rows, said, stats, status)
}

/// One worker has all packets, and if there are two, the other computes at each of a thousand ticks. After
/// Ctrl-C, most of them are left out, and every packet is accounted for.
#[test]
fn a_worker_with_slow_ticks_ends_soon_after_an_interrupt() {
    const MESSAGE: &str = r#"(func (export "flame_message") (param i32 i32) (result i64) (i64.const 0))"#;
    let folder = tempfile::tempdir().unwrap();
    let all = [
        ("2", "", &[][..]),
        ("2", "", &["--isolate"]),
        ("1", "", &[]),
        ("1", "", &["--isolate"]),
        // The slow instance ticks.
        ("1", MESSAGE, &[]),
        ("1", MESSAGE, &["--isolate"]),
        ("2", MESSAGE, &[]),
    ];
    for (workers, message, more) in all {
        // The instance that is slow is the one without packets, or the only one.
        let busy = if workers == "2" || !message.is_empty() { "1" } else { "0" };
        write(folder.path(), SECONDS, TABLE, &SLOW.replace("MESSAGE", message).replace("BUSY", busy));
        let more = [&["--workers", workers][..], more].concat();
        let (rows, said, of, _) = interrupted(folder.path(), "./m.wasm", &more);
        assert!((1..SECONDS * 3 / 2).contains(&(rows as u64)), "{message} {more:?}: {rows} ticks: {said}");
        let module = &of["modules"]["m"];
        assert_eq!((&of["packets"], &module["adds_up"]), (&SECONDS.into(), &true.into()), "{said}");
        // Nor is it cut off for the ticks that were left.
        assert_eq!(module["faults"], 0, "{said}");
    }
}

/// A worker waits for one after the other. Each has its time from the stop on, and is not ended for the time
/// of others.
#[test]
fn eight_processes_with_slow_ticks_end_together() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), SECONDS, TABLE, "(module (memory (export \"memory\") 1))");
    let names: Vec<String> = (0..8).map(|n| format!("s{n}")).collect();
    for name in &names {
        let text = SLOW.replace("MESSAGE", "").replace("BUSY", "0");
        let manifest = format!("{MANIFEST}{TABLE}").replace("name = \"m\"", &format!("name = \"{name}\""));
        let wasm = with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes());
        std::fs::write(folder.path().join(format!("{name}.wasm")), wasm).unwrap();
    }
    let modules = names.iter().map(|name| format!("./{name}.wasm")).collect::<Vec<_>>().join(",");
    let (_, said, of, status) = interrupted(folder.path(), &modules, &["--isolate"]);
    assert_eq!(status, Some(0), "{said}");
    for name in names {
        let module = &of["modules"][&name];
        assert_eq!((&module["faults"], &module["processed"]), (&0.into(), &SECONDS.into()), "{said}");
    }
}

/// Each message takes 0.1 s, and one worker has sent a thousand of them by its end. They are left out at a
/// stop, counted, and no fault.
#[test]
fn messages_that_wait_at_a_stop_are_left_out_and_counted() {
    const TEXT: &str = r#"(module (memory (export "memory") 1)
      (func (export "flame_batch") (param $b i32) (result i64) (local $i i32)
        (loop $next
          (i64.store (i32.shl (local.get $i) (i32.const 3)) (i64.const 0x0000ffff00000000))
          (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1)))
            (i32.load offset=4 (local.get $b)))))
        (i64.shl (i64.extend_i32_u (local.get $i)) (i64.const 35)))
      (func (export "flame_message") (param i32 i32) (result i64) (local $n i32)
        (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1)))
          (i32.const 200000000))))
        (i64.const 0)))"#;
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), SECONDS, "[limits]\ncall_budget = 4_000_000_000\n", TEXT);
    for more in [&["--workers", "1"][..], &["--workers", "2"], &["--isolate"]] {
        let (_, said, of, status) = interrupted(folder.path(), "./m.wasm", more);
        let module = &of["modules"]["m"];
        assert_eq!((&module["faults"], status), (&0.into(), Some(5)), "{more:?}: {said}");
        let lost = module["messages_lost"].as_u64().unwrap();
        assert!((1..SECONDS).contains(&lost) && said.contains("messages lost"), "{more:?}: {said}");
    }
}

/// Each batch takes 0.1 s within its budget. Those that wait are left out at a stop, and none is a fault.
#[test]
fn batches_that_wait_at_a_stop_are_left_out_and_counted() {
    const TEXT: &str = r#"(module (memory (export "memory") 1)
      (func (export "flame_batch") (param i32) (result i64) (local $n i32)
        (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1)))
          (i32.const 200000000))))
        (i64.const 0)))"#;
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), SECONDS, "[limits]\npacket_budget = 4_000_000_000\n", TEXT);
    for more in [&["--workers", "1"][..], &["--workers", "2"], &["--isolate"]] {
        let more = [&["--packet-budget", "4000000000"], more].concat();
        let (_, said, of, status) = interrupted(folder.path(), "./m.wasm", &more);
        let module = &of["modules"]["m"];
        assert_eq!((&module["faults"], &module["adds_up"]), (&0.into(), &true.into()), "{more:?}: {said}");
        let shed = module["shed"]["stopped"].as_u64().unwrap_or(0);
        assert!(shed > 0 && status == Some(0), "{more:?}: {said}");
    }
}

/// A slow instance in a process has the time for what was read before the stop, too, whose init takes
/// more than a second after it.
#[test]
fn an_init_of_a_slow_instance_outlasts_an_interrupt() {
    const TEXT: &str = r#"(module (memory (export "memory") 1)
      (func (export "flame_init") (param i32 i32) (result i64) (local $n i64)
        (loop $l (br_if $l (i64.lt_u (local.tee $n (i64.add (local.get $n) (i64.const 1)))
          (i64.const 3500000000))))
        (i64.const 0))
      (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
      (func (export "flame_message") (param i32 i32) (result i64) (i64.const 0)))"#;
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), SECONDS, "[limits]\ncall_budget = 40_000_000_000\n", TEXT);
    let (time, more) = (Duration::from_millis(300), ["--packet-budget", "1000000000", "--isolate"]);
    let Interrupted { said, stats, took, .. } = interrupted_after(time, folder.path(), "./m.wasm", &more);
    let module = &stats["modules"]["m"];
    // A machine with other work may not reach the end in three seconds and one more.
    let is_over = took >= Duration::from_secs(4);
    assert!(module["faults"] == 0 || is_over, "{took:?}: {said}");
    assert_eq!(module["adds_up"], true, "{said}");
}
