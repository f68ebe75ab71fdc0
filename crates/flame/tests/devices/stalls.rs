//! Modules that take more than they were granted cost others nothing on a live link: the kernel drops none of
//! the packets that `count` beside them counts, the run ends soon after Ctrl-C, and each is ended or loses
//! packets with its cause. `make walls` tries each of them in each way (FLAME_WALLS).

use crate::daemon::Node;
use crate::network::{Capture, Net, ipv4, wait_for};
use crate::{common, wasm};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const TABLE: &str =
    "[[tables]]\nname = \"t\"\ndescription = \"d\"\ncolumns = [{ name = \"a\", type = \"u8\" }]\n";
const BUDGET: &str = "[limits]\npacket_budget = 100000000\n";
const BATCH: &str = "(func (export \"flame_batch\") (param i32) (result i64) (i64.const 0))";

/// Rows of one byte, 17 MiB after every batch and every rest.
fn flood() -> String {
    let init = "(func (export \"flame_init\") (param i32 i32) (result i64) (local $i i32)
        (loop $next
            (i32.store (local.get $i) (i32.const 1))
            (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 9)))
                (i32.const 17825790))))
        (i64.const 0))";
    format!(
        "{init} (func (export \"flame_batch\") (param i32) (result i64) (i64.const 0x10ffffb00000000))
        (func (export \"flame_rest\") (result i64) (i64.const 0x10ffffb00000000))"
    )
}

/// The same in rows of 65,000 bytes of text, of which all characters have two bytes.
const TEXTS: &str = "(func (export \"flame_init\") (param i32 i32) (result i64) (local $i i32)
        (loop $next
            (i32.store (local.get $i) (i32.const 0xa9c3a9c3))
            (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 4)))
                (i32.const 17825792))))
        (local.set $i (i32.const 0))
        (loop $row
            (i64.store (local.get $i) (i64.const 65002))
            (i32.store16 offset=8 (local.get $i) (i32.const 65000))
            (br_if $row (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 65010)))
                (i32.const 17812740))))
        (i64.const 0))
    (func (export \"flame_batch\") (param i32) (result i64) (i64.const 0x10fcd0400000000))";

/// A loop over the captured length for each packet.
const LENGTHS: &str = "(func (export \"flame_batch\") (param $b i32) (result i64)
    (local $d i32) (local $left i32) (local $j i32) (local $k i32)
    (local.set $d (i32.load (local.get $b)))
    (local.set $left (i32.load offset=4 (local.get $b)))
    (block $done (loop $packets
        (br_if $done (i32.eqz (local.get $left)))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (local.set $j (i32.const 0))
        (block $skip (loop $bytes
            (br_if $skip (i32.ge_u (local.get $j) (i32.load offset=20 (local.get $d))))
            (local.set $k (i32.const 0))
            (loop $each
                (br_if $each (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1)))
                    (i32.const 25))))
            (local.set $j (i32.add (local.get $j) (i32.const 1)))
            (br $bytes)))
        (br $packets)))
    (i64.const 0))";

/// Code that a function shares which diverges: of two branches, each call takes one.
fn shared() -> String {
    let branch = "(local.set $x (i32.add (local.get $x) (i32.const 3)))".repeat(90);
    format!(
        "(func $f (param $x i32) (result i32) (local $i i32)
            (loop $next
                (if (i32.and (local.get $i) (local.get $x)) (then {branch}) (else {branch}))
                (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1)))
                    (i32.const 2400))))
            (local.get $x))
        (func $die (drop (call $f (i32.const 1))) unreachable)
        (func (export \"flame_batch\") (param $b i32) (result i64)
            (if (i32.eq (call $f (i32.load (i32.const 16))) (i32.const 77)) (then (call $die)))
            (i64.const 0))"
    )
}

/// Dependent accesses all over 128 MiB, which take some half a second.
fn chase(before: &str) -> String {
    format!(
        "(local $i i32) (local $x i64) (local $a i32)
        {before}
        (local.set $x (i64.load (i32.const 0x8000000)))
        (loop $next
            (local.set $a (i32.and (i32.const 0x7fffff8)
                (i32.wrap_i64 (i64.shr_u (local.get $x) (i64.const 33)))))
            (local.set $x (i64.add (i64.load (local.get $a))
                (i64.mul (i64.add (local.get $x) (i64.const 0x1234567)) (i64.const 6364136223846793005))))
            (i64.store (local.get $a) (local.get $x))
            (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1)))
                (i32.const 3500000))))
        (i64.store (i32.const 0x8000000) (local.get $x))
        (i64.const 0)"
    )
}

/// Writes a module. It has another hash for each `number`, so that no other run has judged it before.
fn file(folder: &Path, (name, functions, more): &Wall, number: usize) -> PathBuf {
    // The import comes first.
    let import = match functions.contains("call $cold") {
        true => "(import \"flame\" \"cold\" (func $cold))",
        false => "",
    };
    let text = format!("(module {import} (memory (export \"memory\") 3840) {functions})");
    let place = folder.display();
    let manifest =
        format!("abi = 1\nname = \"{name}\"\nversion = \"1\"\ndescription = \"{place} {number}\"\n{more}");
    let path = folder.join(format!("{name}.wasm"));
    std::fs::write(&path, wasm::with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())).unwrap();
    path
}

/// The name of a module, its functions and the end of its manifest.
type Wall = (&'static str, String, String);

fn walls() -> [Wall; 8] {
    let all = |name, functions: &str, more: &str| (name, functions.to_owned(), more.to_owned());
    // A value with the bit that asks for the rest.
    let asks = "(func (export \"flame_batch\") (param i32) (result i64) (i64.const 0x40000000))";
    let [tick, init, cold, rest] = [
        ("tick", BATCH, "flame_tick\") (param i64)", ""),
        ("init", BATCH, "flame_init\") (param i32 i32)", ""),
        ("cold", "", "flame_batch\") (param i32)", "(call $cold)"),
        ("rest", asks, "flame_rest\")", "(call $cold)"),
    ]
    .map(|(name, batch, head, before)| {
        all(name, &format!("{batch} (func (export \"{head} (result i64) {})", chase(before)), BUDGET)
    });
    [
        all("flood", &flood(), TABLE),
        all("text", TEXTS, &TABLE.replace("u8", "text")),
        cold,
        rest,
        tick,
        init,
        all("lengths", LENGTHS, &format!("[needs]\nexpose = \"all\"\n{BUDGET}")),
        all("shared", &shared(), ""),
    ]
}

fn frames(count: usize, length: usize) -> Vec<Vec<u8>> {
    vec![ipv4(&[], 17, (1, 9), (2, 53), length); count]
}

/// Captures packets until the sender has ended, while `meanwhile` has its turn. Returns the account, what the
/// command said, and its rows.
fn captured(
    net: &Net,
    arguments: &[&str],
    meanwhile: impl Fn(&Capture, &mut dyn FnMut()),
) -> (Value, String, String) {
    let capture = net.capture(arguments, 1);
    let mut sender = net.bursts(&frames(PACKETS, 1400));
    meanwhile(&capture, &mut || wait_for("the sender", || sender.try_wait().unwrap().is_some()));
    let begun = Instant::now();
    let out = capture.interrupt();
    let (said, took) = (String::from_utf8_lossy(&out.stderr).into_owned(), begun.elapsed());
    assert!(took < Duration::from_secs(8), "{arguments:?}: {took:?} after Ctrl-C: {said}");
    let account = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{said}"));
    (serde_json::from_str(account).unwrap(), said, String::from_utf8_lossy(&out.stdout).into_owned())
}

/// More than the kernel's buffer holds.
const PACKETS: usize = 60_000;

#[test]
fn a_module_that_takes_too_much_costs_others_no_packet() {
    let Some(_) = common::module("count") else { return };
    let _turn = crate::turn();
    let Some(net) = Net::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    // The kernel drops packets of a command that stands still.
    let (account, said, _) = captured(&net, &["count"], |capture, sent| {
        capture.signal("STOP");
        sent();
        capture.signal("CONT");
    });
    assert!(account["kernel_drops"].as_u64() > Some(PACKETS as u64 / 10), "{said}");
    let limited = ["--cpu-share", "0.5", "--link-speed", "100M"];
    let ways = [&limited[..], &[], &["--metered"]];
    let usual = [
        ("flood", ways[0], "evicted: took more than"),
        ("flood", ways[1], ""),
        ("text", ways[0], "evicted: took more than"),
        ("cold", ways[0], "flame_batch: took too long: it ran for more than 50 ms"),
        ("rest", ways[0], "flame_rest: took too long: it ran for more than 50 ms"),
        ("tick", ways[0], ""),
        ("tick", ways[2], ""),
        ("init", ways[0], ""),
        ("lengths", ways[0], "lengths is metered"),
    ];
    let walls = walls();
    let all = walls.iter().flat_map(|(name, ..)| ways.map(|way| (*name, way, "")));
    let (cases, priorities): (Vec<_>, &[bool]) = match std::env::var_os("FLAME_WALLS") {
        Some(_) => (all.collect(), &[false, true]),
        None => (usual.to_vec(), &[false]),
    };
    for (number, (name, way, cause)) in cases.into_iter().enumerate() {
        for has_priority in priorities {
            let wall = walls.iter().find(|(of, ..)| *of == name).unwrap();
            let file = file(folder.path(), wall, 2 * number + usize::from(*has_priority));
            let (modules, low) = (format!("count,{}", file.display()), format!("{name}=1"));
            let priority = ["--priority", "count=9", "--priority", &low];
            let priority = if *has_priority { &priority[..] } else { &[] };
            let arguments = [&[&modules[..], "--format", "json"], way, priority].concat();
            let (account, said, rows) = captured(&net, &arguments, |_, sent| sent());
            let module = &account["modules"][name];
            eprintln!("{name} {way:?} {priority:?}: {} processed", module["processed"]);
            assert_eq!(account["kernel_drops"], 0, "{arguments:?}: {said}");
            assert_eq!(account["modules"]["count"]["processed"], PACKETS, "{arguments:?}: {said}");
            let row = format!("\"packets\":{PACKETS}");
            assert!(rows.lines().any(|line| line.contains(&row)), "a row of count is missing: {said}");
            let found = (&module["offered"], &module["adds_up"]);
            assert_eq!(found, (&PACKETS.into(), &true.into()), "{arguments:?}: {said}");
            assert!(said.contains(cause), "{arguments:?}: {said}");
        }
    }
}

/// The time within which is repaid what was used beyond a share, 100 ms at most.
const REPAID: Duration = Duration::from_secs(10);

/// Each has a hundredth of a processor by a credential of its own. One call may pass that, up to the time
/// after which it is cut off, and the module waits until it is repaid.
#[test]
fn under_a_quota_no_module_uses_more() {
    let _turn = crate::turn();
    for place in ["inline", "process"] {
        let Some(net) = Net::new() else { return };
        let tap = "[sources.tap]\ninterface = \"rx0\"\ninterval = \"100ms\"\n";
        let mut node = Node::new(&format!("{tap}[isolation]\nplace = \"{place}\"\n")).within(&net.namespace);
        let walls = walls();
        walls.iter().for_each(|(name, ..)| node.mint(name, &["--cpu", "10ms/1s"]));
        node.start();
        let begun = Instant::now();
        for (number, wall) in walls.iter().enumerate() {
            node.json_of(wall.0, &["install", file(node.folder.path(), wall, number).to_str().unwrap()]);
        }
        let mut sender = net.bursts(&frames(4 * PACKETS, 100));
        wait_for("the sender", || sender.try_wait().unwrap().is_some());
        for (name, ..) in &walls {
            // These make one call that is longer. The kernel's work for its memory does not end it. Others
            // have at most a slice more, which a busy machine makes longer.
            let call = Duration::from_millis(match *name {
                "cold" | "rest" => 900,
                "tick" | "init" => 3000,
                _ => 5,
            });
            let until = Instant::now() + REPAID;
            let shown = loop {
                let shown = node.json(&["show", name, "--principal", name]);
                let used = Duration::from_nanos(shown["usage"]["cpu_ns"].as_u64().unwrap());
                // The meter is full at the beginning.
                let granted = (begun.elapsed() + Duration::from_secs(1)) / 100;
                eprintln!("{place} {name}: {used:?} of {granted:?}, {}", shown["state"]);
                if used <= granted * 11 / 10 + call {
                    break shown;
                }
                assert!(Instant::now() < until, "{place} {name}: {used:?} of {granted:?}: {shown}");
                std::thread::sleep(Duration::from_millis(200));
            };
            assert!(!["cold", "rest"].contains(name) || shown["state"] == "failed", "{place}: {shown}");
        }
        node.end();
    }
}
