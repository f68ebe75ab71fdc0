//! Elements of modules: a module that sends each packet on, in place of the native element `Null`, and in the
//! path of the IP router. Packets are made and counted in memory, on one core.

use crate::click::{FRAME, ROUTER};
use crate::graph::Graph;
use crate::made::module;
use crate::mapped;
use crate::row::{Row, Target, median};
use flame_abi::MAX_BATCH;
use std::io;
use std::path::Path;

const GROUP: &str = "elements: packets of 100 bytes in memory, one core";
/// The number of elements in a chain, so that one of them stands out against the noise.
const CHAIN: usize = 4;
/// The number of packets that come together.
const BURST: u32 = 64;

/// Sends each packet on from output 0, as modules of the SDKs do.
const NULL: &str = r#"(module
  (import "flame" "packet" (func $packet (param i32)))
  (memory (export "memory") 1)
  (func (export "flame_push") (param $input i32) (param $batch i32) (result i64)
    (local $i i32) (local $at i32) (local $count i32)
    (local.set $count (i32.load offset=4 (local.get $batch)))
    (local.set $at (i32.const 1024))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $i) (local.get $count)))
      (call $packet (local.get $i))
      (i64.store (local.get $at) (i64.const 0x0000fffb00000004))
      (i32.store offset=8 (local.get $at) (local.get $i))
      (local.set $at (i32.add (local.get $at) (i32.const 12)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (i64.or (i64.const 1024)
      (i64.shl (i64.extend_i32_u (i32.sub (local.get $at) (i32.const 1024))) (i64.const 32)))))"#;

/// It looks at nothing of packets, like the native one.
const MANIFEST: &str = "abi = 1\nname = \"null\"\nversion = \"1\"\ndescription = \"sends each packet on\"\n\
    [needs]\nexpose = \"count\"\n[ports]\n";

/// Writes the module to a folder, and returns its path.
pub fn null(folder: &Path) -> io::Result<String> {
    let wasm = module(NULL, MANIFEST).map_err(|e| io::Error::other(e.to_string()))?;
    let file = folder.join("null.wasm");
    std::fs::write(&file, wasm)?;
    Ok(file.display().to_string())
}

pub fn rows(flame: &Path, modules: &Path, rounds: usize) -> io::Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let module = format!("Module({})", null(folder.path())?);
    let packets = if rounds > 3 { 4_000_000 } else { 100_000 };
    let chain = |element: &str| [element; CHAIN].join(" -> ");
    let routed = |element: &str| format!("{element} -> {ROUTER} q -> Unqueue(64)");
    let ecn = format!("Module({}, EXPOSE all)", modules.join("ecn.wasm").display());
    let full = MAX_BATCH as u32;
    let (here, dynamic) = (&[][..], &["--isolate", "--metered"][..]);
    let paths = [
        (here, BURST, chain("Null")),
        (here, BURST, chain(&module)),
        (here, full, chain("Null")),
        (here, full, chain(&module)),
        (here, BURST, routed("Null")),
        (here, BURST, routed(&module)),
        (dynamic, BURST, routed(&module)),
        (here, BURST, routed(&ecn)),
        (dynamic, BURST, routed(&ecn)),
    ];
    let mut times = [const { Vec::new() }; 9];
    for round in 0..=rounds.min(5) {
        for ((options, burst, path), times) in paths.iter().zip(&mut times) {
            let graph = Graph { flame, options, data: FRAME, length: 100, burst: *burst };
            let packets = if options.is_empty() { packets } else { packets / 4 };
            let ns = graph.nanoseconds(path, packets)?;
            // The first round compiles the module.
            if round > 0 {
                times.push(ns);
            }
        }
    }
    let pairs = |a: usize, b: usize| times[a].iter().zip(&times[b]).map(|(a, b)| (*a, *b));
    let beyond = |native: usize| {
        let each = |(module, native)| (module - native) / CHAIN as f64;
        median(pairs(native + 1, native).map(each).collect()).max(0.01)
    };
    let (beyond, beyond_full) = (beyond(0), beyond(2));
    let router = median(pairs(4, 5).map(|(native, module)| native / module).collect());
    let dynamic =
        |hybrid: usize| median(pairs(hybrid + 1, hybrid).map(|(apart, here)| apart / here).collect());
    let (dynamic_router, dynamic_ecn) = (dynamic(5), dynamic(7));
    let [native, module, native_full, module_full, hardwired, hybrid, apart, ecn, ecn_apart] =
        times.map(median);
    let mut rows = vec![
        Row::ratio(
            GROUP,
            "null module beyond a native one",
            beyond,
            format!("ns for each packet of {BURST}; {module:.0} and {native:.0} with {CHAIN} of each"),
        )
        .unit("ns")
        .target(Target::AtMost(10.0)),
        Row::ratio(
            GROUP,
            "the same in full batches",
            beyond_full,
            format!("ns for each packet of {MAX_BATCH}; {module_full:.0} and {native_full:.0}"),
        )
        .unit("ns"),
        Row::ratio(
            GROUP,
            "router with a null module / without",
            router,
            format!("packets for the same time; {hybrid:.0} and {hardwired:.0} ns for each"),
        ),
        Row::ratio(
            GROUP,
            "router with a null module: hybrid / dynamic",
            dynamic_router,
            format!("packets for the same time; {hybrid:.0} and {apart:.0} ns for each"),
        )
        .target(Target::AtLeast(2.0)),
        Row::ratio(
            GROUP,
            "router with `ecn`: hybrid / dynamic",
            dynamic_ecn,
            format!("packets for the same time; {ecn:.0} and {ecn_apart:.0} ns for each"),
        )
        .target(Target::AtLeast(1.4)),
    ];
    rows.extend(mapped::rows(GROUP, rounds)?);
    Ok(rows)
}
