//! Two modules of one session, or of two: after some seconds, one of them takes much memory and goes through
//! all of it at each batch, as a collector of garbage would. The other's packets, and its time for one: the
//! experiment of RCANE's Figure 16.

use super::finding::Finding;
use super::{Figure, Setting};
use crate::fixture::Error;
use crate::made::{module, spin};
use crate::node::{Node, bursts};
use flame_plot::{Scale, Shape};
use std::time::{Duration, Instant};

const CONFIG: &str = "[sources.tap]\nfile = \"bursts.pcap\"\nrepeat = true\n";
/// The packets of a burst, and the time between two of them in milliseconds.
const BURST: (u32, u32) = (100, 2);
/// The pages that it takes, 48 MiB.
const PAGES: u32 = 768;
const WINDOW: Duration = Duration::from_millis(250);

/// Returns the module that grows after this many packets.
fn growing(after: u32) -> Result<Vec<u8>, Error> {
    let text = format!(
        r#"(module (memory (export "memory") 1)
            (global $seen (mut i32) (i32.const 0))
            (func (export "flame_batch") (param $batch i32) (result i64) (local $at i32) (local $end i32)
                (global.set $seen (i32.add (global.get $seen) (i32.load offset=4 (local.get $batch))))
                (if (i32.gt_u (global.get $seen) (i32.const {after})) (then
                    (if (i32.lt_u (memory.size) (i32.const {PAGES}))
                        (then (drop (memory.grow (i32.const 16)))))
                    (local.set $end (i32.mul (memory.size) (i32.const 65536)))
                    (loop $all
                        (i32.store (local.get $at) (i32.add (i32.load (local.get $at)) (i32.const 1)))
                        (br_if $all (i32.lt_u
                            (local.tee $at (i32.add (local.get $at) (i32.const 64))) (local.get $end))))))
                (i64.const 0)))"#
    );
    let manifest = "abi = 1\nname = \"growing\"\nversion = \"1\"\ndescription = \"\"\n[needs]\n\
        expose = \"none\"\n[limits]\npacket_budget = 100000000\n";
    module(&text, manifest)
}

/// A window.
#[derive(Clone, Copy)]
struct Window {
    /// Its end in seconds.
    end: f64,
    /// Its length in seconds.
    passed: f64,
    /// The packets that the other module processed in it.
    processed: f64,
    /// The processor time of that module in nanoseconds.
    used: f64,
}

/// Returns the packets that come in a second.
fn per_second() -> f64 {
    f64::from(BURST.0) * 1000.0 / f64::from(BURST.1)
}

/// Returns the part of the packets that the other module processed in some windows in percent, and its
/// nanoseconds for one.
fn summary(windows: impl Iterator<Item = Window>) -> (f64, f64) {
    let (mut passed, mut processed, mut used) = (0.0, 0.0, 0.0);
    for window in windows {
        passed += window.passed;
        processed += window.processed;
        used += window.used;
    }
    (100.0 * processed / passed / per_second(), used / processed)
}

/// Lets both modules run, of the principals `whose`, until a time of which the first half is without growth.
fn measure(setting: &Setting<'_>, whose: [&str; 2], time: Duration) -> Result<Vec<Window>, Error> {
    let node = Node::start(setting.flame, CONFIG, &[("bursts.pcap", &bursts(BURST.0, BURST.1))])?;
    let after = (time.as_secs_f64() / 2.0 * per_second()) as u32;
    let modules = [("growing", growing(after)?), ("other", spin("other", 200)?)];
    for ((name, wasm), principal) in modules.iter().zip(whose) {
        let holder = node.principal(principal, &[])?;
        node.session(&holder)?.install(name, wasm, None)?;
    }
    let begin = Instant::now();
    let look = || -> Result<[f64; 3], Error> {
        let shown = node.show("other", whose[1])?;
        let of = |table: &str, name: &str| shown[table][name].as_f64().unwrap_or(0.0);
        Ok([begin.elapsed().as_secs_f64(), of("account", "processed"), of("usage", "cpu_ns")])
    };
    let (mut windows, mut before) = (Vec::new(), look()?);
    while begin.elapsed() < time {
        std::thread::sleep(WINDOW);
        let now = look()?;
        let [passed, processed, used] = [0, 1, 2].map(|n| now[n] - before[n]);
        windows.push(Window { end: now[0], passed, processed, used });
        before = now;
    }
    Ok(windows)
}

/// Measures both cases.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let time = Duration::from_secs(if setting.quick { 2 } else { 8 });
    println!("heaps: a module beside one that takes memory, before and while it does (RCANE, Fig. 16)");
    println!("{:13}  {:>18}  {:>18}", "", "received packets", "time for a packet");
    let (mut series, mut findings) = (Vec::new(), Vec::new());
    for (name, whose) in [("one session", ["a", "a"]), ("two sessions", ["a", "b"])] {
        let windows = measure(setting, whose, time)?;
        let half = time.as_secs_f64() / 2.0;
        let of = |from: f64, until: f64| {
            summary(windows.iter().copied().filter(|w| w.end - w.passed >= from && w.end <= until))
        };
        // Without the start.
        let ((before, time_before), (during, time_during)) = (of(0.5, half), of(half, f64::INFINITY));
        println!("{name:13}  {before:5.1} % -> {during:5.1} %  {time_before:5.0} -> {time_during:7.0} ns");
        if whose[0] != whose[1] {
            let ours = format!("{:.2} times the time for a packet before", time_during / time_before);
            let what = "a module in another session is not disturbed while one takes 48 MiB";
            let holds = time_during < 2.0 * time_before;
            findings.push(Finding::shape("SANE Fig. 16", what, "not disturbed", ours, holds));
        }
        let part = |w: &Window| (w.end, summary(std::iter::once(*w)).0);
        series.push((name.to_owned(), Shape::Line(windows.iter().map(part).collect())));
    }
    Figure {
        name: "heaps",
        title: "Packets that a module receives while another takes memory",
        notes: vec![format!("the other one begins after {:.0} s", time.as_secs_f64() / 2.0)],
        x: ("time [s]", Scale::FromZero),
        y: ("received packets [%]", Scale::FromZero),
        series,
    }
    .write(setting.folder)?;
    Ok(findings)
}
