//! Memory that modules share by name: what readers see, what is refused to all, how long it lives, and
//! who is refused.

use crate::built::build;
use crate::click_threads::in_threads;
use crate::commands::{click, done, flame, node, policy, ran, text};
use crate::common::{install, options, pcap, request, tcp_packet, with_manifest};
use crate::daemon::{Node, replay};
use flame_abi::manifest::Shared;
use flame_plan::Plan;
use flame_run::Engines;
use flame_worker::{Run, RunError};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

const KIB: u32 = 1 << 10;

/// Returns the manifest of a module with these areas: name, size and access.
fn manifest(name: &str, areas: &[(&str, u32, &str)]) -> String {
    let areas: String = areas
        .iter()
        .map(|(name, bytes, access)| {
            format!("[[shared]]\nname = \"{name}\"\nbytes = {bytes}\naccess = \"{access}\"\n")
        })
        .collect();
    format!(
        "abi = 1\nname = \"{name}\"\nversion = \"1\"\ndescription = \"test\"\n{areas}\
         [[tables]]\nname = \"total\"\ncolumns = [{{ name = \"packets\", type = \"u64\" }}]\n"
    )
}

/// Returns a module that executes `batch` for each batch of `$n` packets, and reports `end` at its end.
fn wat(batch: &str, end: &str) -> String {
    format!(
        r#"(module (memory (export "memory") 1)
          (data (i32.const 0) "\08\00\00\00\00\00\00\00")
          (func (export "flame_batch") (param i32) (result i64) (local $n i64)
            (local.set $n (i64.load32_u offset=4 (local.get 0)))
            {batch} (i64.const 0))
          (func (export "flame_end") (param i64) (result i64)
            (i64.store (i32.const 8) {end}) (i64.const 0x1000000000)))"#
    )
}

fn wasm(text: &str, manifest: &str) -> Vec<u8> {
    with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())
}

/// The address of the n-th area.
fn area(n: usize) -> String {
    format!("(i32.const {})", Shared::address(n) as i32)
}

/// Adds the packets of a batch to a place.
fn adds(place: &str) -> String {
    format!("(i64.store {place} (i64.add (i64.load {place}) (local.get $n)))")
}

/// A folder with a capture of 2,000 packets, a module that counts them in the area `a`, and a module that
/// reports the count.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let packets = (0..2000).map(|i| tcp_packet(7, if i % 2 == 0 { 80 } else { 443 }));
    std::fs::write(folder.path().join("in.pcap"), pcap((5_000_u64..).zip(packets))).unwrap();
    module(folder.path(), "writes", &[("a", KIB, "write")], &wat(&adds(&area(0)), "(i64.const 0)"));
    module(folder.path(), "reads", &[("a", KIB, "read")], &wat("", &format!("(i64.load {})", area(0))));
    folder
}

fn module(folder: &Path, name: &str, areas: &[(&str, u32, &str)], text: &str) {
    std::fs::write(folder.join(format!("{name}.wasm")), wasm(text, &manifest(name, areas))).unwrap();
}

/// Returns the rows of a module in the order of their output.
fn rows(out: &str, module: &str) -> Vec<u64> {
    let rows = out.lines().filter(|l| l.starts_with('{'));
    let rows = rows.map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
    rows.filter(|r| r["module"] == module).map(|r| r["packets"].as_u64().unwrap()).collect()
}

const GRAPH: &str = "FromDump(in.pcap, STOP true) -> w :: Module(./writes.wasm) -> r :: Module(./reads.wasm)
    -> c :: Counter -> Discard";

#[test]
fn what_one_module_writes_another_reads_by_its_name() {
    let folder = folder();
    let folder = folder.path();
    let run = ["run", "./writes.wasm,./reads.wasm", "-r", "in.pcap", "-q", "--format", "json"];
    let first = done(folder, &run);
    assert_eq!((rows(&first, "reads"), done(folder, &run)), (vec![2000], first), "a replay is exact");
    assert_eq!(rows(&ran(folder, GRAPH, &[]).0, "reads"), [2000]);
    // Metered modules access the same memory.
    assert_eq!(rows(&ran(folder, GRAPH, &["--metered"]).0, "reads"), [2000]);
    // An area of another name, and one at another place in the manifest.
    let reads = |n| wat("", &format!("(i64.load {})", area(n)));
    module(folder, "other", &[("b", KIB, "read")], &reads(0));
    module(folder, "second", &[("b", 1, "write"), ("a", KIB, "read")], &reads(1));
    let graph = GRAPH.replace("-> c ::", "-> Module(./other.wasm) -> Module(./second.wasm) -> c ::");
    // Both `b` have different sizes, so `second` cannot have it.
    let out = click(folder, &graph, &[]);
    let err = text(&out.stderr);
    assert!(
        err.contains(
            "second and other share the memory \"b\", which has 1 bytes by the one and 1024 by the other"
        ),
        "{err}"
    );
    module(folder, "second", &[("b", KIB, "write"), ("a", KIB, "read")], &reads(1));
    let (out, _) = ran(folder, &graph, &[]);
    assert_eq!((rows(&out, "other"), rows(&out, "second")), (vec![0], vec![2000]));
    // Alone, it finds zeros.
    let alone = GRAPH.replace("w :: Module(./writes.wasm) -> ", "");
    assert_eq!(rows(&ran(folder, &alone, &[]).0, "reads"), [0]);
}

#[test]
fn a_module_in_c_writes_its_second_area() {
    let folder = folder();
    let folder = folder.path();
    let source = folder.join("in-c");
    done(folder, &["new", "in-c", "--lang", "c"]);
    let text = r#"#include "flame.h"
static uint64_t n;
FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  n += batch->count;
  for (int i = 0; i < 8; i++) flame_shared(1)[i] = (uint8_t)(n >> 8 * i);
  return flame_output(FLAME_DONE);
}
"#;
    std::fs::write(source.join("module.c"), text).unwrap();
    let areas = [("b", KIB, "write"), ("a", KIB, "write")];
    std::fs::write(source.join("module.toml"), manifest("in-c", &areas)).unwrap();
    let graph = GRAPH.replace("./writes.wasm", &build(&source));
    assert_eq!(rows(&ran(folder, &graph, &[]).0, "reads"), [2000]);
}

/// The module that traps is counted, and no other module notices.
#[test]
fn only_what_the_manifest_states_is_accessed() {
    let folder = folder();
    let folder = folder.path();
    let store = |place: &str| format!("(i64.store {place} (i64.const 7))");
    let load = |at: u32| format!("(drop (i64.load (i32.const {})))", at as i32);
    let at = |offset: u32| format!("(i32.const {})", (Shared::address(0) + offset) as i32);
    let bulk = "(memory.fill AREA (i32.const 1) (i32.const 8))".replace("AREA", &area(0));
    let copy = |to: u32, from: u32, bytes: u32| {
        let [to, from, bytes] = [to, from, bytes].map(|n| format!("(i32.const {})", n as i32));
        format!("(memory.copy {to} {from} {bytes})")
    };
    let end = Shared::address(0) + 64 * KIB;
    for (access, batch) in [
        ("read", store(&area(0))),
        ("read", store(&at(64 * KIB - 8))),
        ("read", load(Shared::address(0) + 64 * KIB - 7)),
        ("read", load(Shared::address(0) - 8)),
        // An area that it does not name.
        ("read", load(Shared::address(1))),
        ("write", store(&at(64 * KIB - 7))),
        ("write", store(&area(1))),
        // Of the window it writes areas only, and does not fill these by an instruction.
        ("write", store("(i32.const 0x80100000)")),
        ("write", store("(i32.const 0xf0200000)")),
        ("write", bulk),
        ("read", copy(Shared::address(0), 8, 8)),
        ("read", copy(8, end - 7, 8)),
        ("write", copy(end - 7, 8, 8)),
        ("write", copy(end - 100, 0, 101)),
        ("write", copy(end - 300, 0xffff_fff0, 17)),
        ("write", copy(0x8000_0000, Shared::address(0), 16)),
        ("write", copy(Shared::address(1), 0, 64)),
    ] {
        module(folder, "tries", &[("a", KIB, access)], &wat(&batch, "(i64.const 0)"));
        let graph = GRAPH.replace("-> r ::", "-> t :: Module(./tries.wasm) -> r ::");
        for more in [&[][..], &["--metered"]] {
            let handlers = ["-h", "t.gone", "-h", "t.faults", "-h", "c.count"];
            let (out, err) = ran(folder, &graph, &[&handlers[..], more].concat());
            let said = out.replace('\n', " ");
            assert!(said.contains("t.gone: true") && said.contains("c.count: 2000"), "{batch}: {out}");
            assert!(said.contains("t.faults: flame_batch: trap"), "{batch}: {out}");
            assert!(err.contains("module tries stopped"), "{batch}: {err}");
            assert_eq!(rows(&out, "reads"), [2000], "{batch}");
        }
    }
    // The last bytes of the pages are there, as is what is stated.
    let fits =
        store(&at(64 * KIB - 8)) + &load(end - 8) + &copy(end - 101, 0, 101) + &copy(8, end - 101, 101);
    module(folder, "tries", &[("a", KIB, "write")], &wat(&fits, "(i64.const 0)"));
    let graph = GRAPH.replace("-> r ::", "-> t :: Module(./tries.wasm) -> r ::");
    assert!(ran(folder, &graph, &["-h", "t.gone"]).0.contains("false"));
}

/// Copies of all lengths, from own memory, from another area and within one.
#[test]
fn areas_are_copied_to_by_an_instruction() {
    let folder = folder();
    let folder = folder.path();
    let (one, two) = (Shared::address(0), Shared::address(1));
    for bytes in [0, 1, 3, 4, 7, 8, 15, 16, 17, 63, 64, 65, 200, 512] {
        let mut batch = String::new();
        // Own memory from 0 on, so that a source of address 0 is among them.
        for n in 0..bytes {
            batch += &format!("(i32.store8 (i32.const {n}) (i32.const {}))", n * 7 + 3);
        }
        for (to, from) in [(one, 0), (two + 5, one), (two + 4096, two + 5)] {
            let [to, from] = [to, from].map(|n| format!("(i32.const {})", n as i32));
            batch += &format!("(memory.copy {to} {from} (i32.const {bytes}))");
        }
        for n in 0..bytes {
            batch += &format!(
                "(if (i32.ne (i32.load8_u (i32.const {})) (i32.const {})) (then unreachable))",
                (two + 4096 + n) as i32,
                (n * 7 + 3) & 255
            );
        }
        batch +=
            &format!("(if (i32.load8_u (i32.const {})) (then unreachable))", (two + 4096 + bytes) as i32);
        // The place of the output, which the test has written over.
        batch += "(i64.store (i32.const 0) (i64.const 8))";
        let areas = [("a", KIB, "write"), ("b", 8 * KIB, "write")];
        module(folder, "writes", &areas, &wat(&batch, "(local.get 0)"));
        for more in [&[][..], &["--metered"]] {
            let (out, err) = ran(folder, GRAPH, &[&["-h", "w.faults"], more].concat());
            assert!(!err.contains("stopped") && rows(&out, "writes").len() == 1, "{bytes}: {out}{err}");
        }
    }
}

/// The rows of modules that see each other do not depend on how the bytes of a capture arrive.
#[test]
fn a_replay_with_areas_is_exact() {
    let folder = folder();
    let folder = folder.path();
    // Sums up what the other module has counted, after each batch.
    let sums = format!(
        "(i64.store (i32.const 64) (i64.add (i64.load (i32.const 64)) \
         (i64.mul (local.get $n) (i64.load {}))))",
        area(0)
    );
    module(folder, "reads", &[("a", KIB, "read")], &wat(&sums, "(i64.load (i32.const 64))"));
    let modules = "./writes.wasm,./reads.wasm";
    let run = |capture| ["run", modules, "-q", "--format", "json", "-r", capture];
    let expected = rows(&done(folder, &run("in.pcap")), "reads");
    assert_eq!(expected.len(), 1);
    let capture = std::fs::read(folder.join("in.pcap")).unwrap();
    for (bytes, ms) in [(7001, 1), (300, 0), (50_000, 20)] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flame"));
        command.current_dir(folder).args(run("-"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        for part in capture.chunks(bytes) {
            input.write_all(part).unwrap();
            std::thread::sleep(Duration::from_millis(ms));
        }
        drop(input);
        let out = child.wait_with_output().unwrap();
        assert_eq!(rows(&text(&out.stdout), "reads"), expected, "{bytes} bytes at a time");
    }
    assert!(
        std::process::Command::new("gzip").arg("-k").arg(folder.join("in.pcap")).status().unwrap().success()
    );
    assert_eq!(rows(&done(folder, &run("in.pcap.gz")), "reads"), expected);
}

#[test]
fn an_area_outlives_the_instances_that_write_it() {
    let folder = folder();
    let folder = folder.path();
    // Traps when its own memory has counted 700 packets.
    let own = "(i32.const 64)";
    let batch = format!(
        "{} (if (i64.gt_u (i64.load {own}) (i64.const 700)) (then unreachable)) {}",
        adds(own),
        adds(&area(0))
    );
    module(folder, "writes", &[("a", KIB, "write")], &wat(&batch, "(i64.const 0)"));
    for (restarts, least, most) in [(0, 1, 700), (9, 701, 1999)] {
        let graph = GRAPH.replace("writes.wasm", &format!("writes.wasm, RESTART {restarts}"));
        let (out, err) = ran(folder, &graph, &["-h", "w.stats"]);
        let processed: u64 = out.lines().find_map(|l| l.strip_prefix("processed ")).unwrap().parse().unwrap();
        assert_eq!(rows(&out, "reads"), [processed], "{restarts}: {out}{err}");
        assert!((least..=most).contains(&processed), "{restarts}: {out}");
    }
}

#[test]
fn another_configuration_keeps_areas_of_the_same_name_and_size() {
    let folder = folder();
    let folder = folder.path();
    let graph = GRAPH.replace("STOP true", "STOP false")
        + "; Script(wait 1s, write hotconfig $(cat bad), wait 1s, write hotconfig $(cat next))";
    let next = "f2 :: FromDump(in.pcap, STOP true) -> w :: Module(./writes.wasm, RESTART 1)
        -> r :: Module(./reads.wasm, RESTART 1) -> Discard";
    let wasm_of = |name: &str, bytes: u32, access: &str, end: &str| {
        wasm(&wat("", end), &manifest(name, &[("a", bytes, access)]))
    };
    // A configuration that is refused changes nothing, whatever sizes it has.
    std::fs::write(folder.join("bad.wasm"), wasm_of("writes", 9 * KIB, "write", "(i64.const 0)")).unwrap();
    let bad = "Idle -> w :: Module(./bad.wasm) -> r :: Module(./reads.wasm, RESTART 1) -> Discard";
    std::fs::write(folder.join("bad"), bad).unwrap();
    std::fs::write(folder.join("next"), next).unwrap();
    let (out, err) = ran(folder, &graph, &["-R"]);
    assert!(err.contains("reads and writes share the memory"), "{err}");
    assert_eq!(rows(&out, "reads"), [2000, 4000], "{out}{err}");
    // Two sizes in one configuration: it names the modules of that one.
    let two = wasm_of("writes", 2 * KIB, "read", "(i64.const 0)");
    std::fs::write(folder.join("again.wasm"), two).unwrap();
    let bad = "Idle -> r :: Module(./reads.wasm, RESTART 1) -> w :: Module(./again.wasm) -> Discard";
    std::fs::write(folder.join("bad"), bad).unwrap();
    let (_, err) = ran(folder, &graph, &["-R"]);
    assert!(err.contains("writes and reads share the memory"), "{err}");
    // With another size it is another area.
    let reads = wasm_of("reads", 2 * KIB, "read", &format!("(i64.load {})", area(0)));
    std::fs::write(folder.join("again.wasm"), reads).unwrap();
    let other = "f2 :: FromDump(in.pcap, STOP true) -> r :: Module(./again.wasm) -> Discard";
    std::fs::write(folder.join("next"), other).unwrap();
    let (out, err) = ran(folder, &graph, &["-R"]);
    assert_eq!(rows(&out, "reads"), [2000, 0], "{out}{err}");
}

#[test]
fn areas_of_a_run_are_limited_together() {
    let folder = folder();
    let folder = folder.path();
    let areas = [("b", 16 << 20, "write"), ("c", 16 << 20, "read"), ("d", 16 << 20, "read")];
    module(folder, "many", &[&areas[..], &[("e", 16 << 20, "read")]].concat(), &wat("", "(i64.const 0)"));
    let said = "writes shares the memory \"a\": with it the shared areas have 67174400 bytes together, at most 67108864";
    let both = GRAPH.replace("w ::", "Module(./many.wasm) -> w ::");
    let out = click(folder, &both, &[]);
    assert!(text(&out.stderr).contains(said), "{}", text(&out.stderr));
    let out = flame(folder, &["run", "./many.wasm,./writes.wasm", "-r", "in.pcap"]);
    assert!(!out.status.success() && text(&out.stderr).contains(said), "{}", text(&out.stderr));
    done(folder, &["run", "./many.wasm", "-r", "in.pcap", "-q"]);
}

#[test]
fn runs_with_several_workers_and_nodes_have_no_areas() {
    let folder = folder();
    let folder = folder.path();
    let out = flame(folder, &["run", "./reads.wasm", "-r", "in.pcap", "--workers", "2"]);
    let err = text(&out.stderr);
    let said = "reads shares memory with other modules, which needs one worker, and this run has 2";
    assert!(!out.status.success() && err.contains(said), "{err}");
    // A node adds modules to a run in progress.
    let wasm = wasm(&wat("", "(i64.const 0)"), &manifest("reads", &[("a", KIB, "read")]));
    let plan = install(&wasm, &request()).unwrap();
    let empty = Plan::new(Vec::new(), 1, 0);
    let run = Run::new(&empty, &[], &Engines::new().unwrap(), options(Arc::default())).unwrap();
    let added = run.handle().add(&plan.into());
    assert!(matches!(added, Err(RunError::Shares(name)) if name == "reads"));
}

/// Modules that share memory take turns, so elements of two threads do not share any.
#[test]
fn areas_are_in_one_thread() {
    let folder = folder();
    let folder = folder.path();
    let graph = "FromDump(in.pcap, STOP true) -> t :: Tee -> w :: Module(./writes.wasm) -> Discard;
        t [1] -> q :: Queue(4000) -> r :: Module(./reads.wasm) -> u :: Unqueue -> Discard;";
    let refused = in_threads(folder, "2", &format!("{graph} StaticThreadSched(u 1)"), &[]);
    let said =
        "reads shares the memory \"a\" with a module of another thread: bind their elements to one thread";
    let err = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && err.contains(said), "{err}");
    let both = format!("{graph} StaticThreadSched(u 1, w 1)");
    assert_eq!(in_threads(folder, "2", &both, &[]).status.code(), Some(0));
}

/// A node refuses what it cannot run before it records an install, and a dry run comes to the same verdict.
#[test]
fn a_node_and_a_dry_run_refuse_areas_alike() {
    let folder = folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (module, capture) = (file("reads.wasm"), file("in.pcap"));
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    node.start();
    let credential = ["--credential", "alice.cred", "--identity", "alice.key"];
    let dry = ["--dry-run", &capture];
    for more in [&[][..], &dry, &credential, &[&credential[..], &dry].concat()] {
        let err = node.refused(&[&["install", &module], more].concat());
        assert!(err.contains("reads shares memory with other modules"), "{more:?}: {err}");
    }
    node.end();
    let log = std::fs::read_to_string(node.path("audit.log")).unwrap_or_default();
    assert!(!log.contains("\"install\""), "{log}");
}

#[test]
fn a_grant_names_what_is_shared() {
    let folder = folder();
    let folder = folder.path();
    let graph = GRAPH.replace(".wasm)", ".wasm, CREDENTIAL alice.cred)");
    let run = |more: &str| {
        policy(folder, &format!("expose = \"headers\"\n{more}"));
        let out = click(folder, &graph, &["--policy", "policy.toml"]);
        (rows(&text(&out.stdout), "reads"), text(&out.stderr))
    };
    node(folder, "expose = \"headers\"\ncalls = \"records\"");
    for (rights, said) in [
        ("calls = \"records\"", "writes uses share, which is not granted"),
        ("calls = \"records, share\"\nread = \"a\"", "nothing states the names of the shared areas"),
        (
            "calls = \"records, share\"\nread = \"b\"\nwrite = \"a\"",
            "reads may not read the shared area \"a\": policy",
        ),
    ] {
        let (rows, err) = run(rights);
        assert!(rows.is_empty() && err.contains(said), "{rights}: {err}");
    }
    let (rows, err) = run("calls = \"records, share\"\nread = \"a\"\nwrite = \"a, b\"");
    assert_eq!(rows, [2000], "{err}");
}
