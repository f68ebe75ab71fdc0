//! The packets that a session receives by the period of its processor time and the number of blocks that it
//! reserved, beside another session that always has work: the experiment of RCANE's Figure 13.
//!
//! The session has 10 % of a processor in each period, and needs about 7 %. Packets come in bursts. The node
//! sets a period of 10 ms; the others are set here, by the same call of the kernel.

use super::finding::Finding;
use super::{Figure, Setting};
use crate::fixture::Error;
use crate::made::{busy, spin};
use crate::node::{Node, bursts};
use flame_confine::{Slice, give_time};
use flame_plot::{Scale, Shape};
use serde_json::json;
use std::time::{Duration, Instant};

const PERIODS_MS: [u64; 6] = [1, 2, 5, 10, 20, 50];
const BLOCKS: [u64; 4] = [1, 2, 3, 4];
/// The packets of a burst, which fill four blocks, and the time between two of them in milliseconds.
const BURST: (u32, u32) = (4096, 50);
/// The parts of a processor of the session and of the busy one, in percent.
const SHARES: [u64; 2] = [10, 40];
/// The part of its share that the session needs.
const NEED: f64 = 0.7;

const CONFIG: &str = "[sources.tap]\nfile = \"bursts.pcap\"\nrepeat = true\n\
    [isolation]\nscheduler = \"deadline\"\n[capacity]\ncpu = \"400%\"\n";

/// Returns the packets that come in a second.
fn per_second() -> f64 {
    f64::from(BURST.0) * 1000.0 / f64::from(BURST.1)
}

/// Returns the steps of a module whose packets take the session's need.
fn steps() -> Result<u32, Error> {
    const SAMPLE: u32 = 10_000;
    let wanted = SHARES[0] as f64 / 100.0 * NEED / per_second() * 1e9;
    Ok((wanted * f64::from(SAMPLE) / super::nanoseconds_of_spin(SAMPLE)?) as u32)
}

/// Measures the received parts.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let time = if setting.quick { Duration::from_millis(200) } else { Duration::from_secs(2) };
    let node = Node::start(setting.flame, CONFIG, &[("bursts.pcap", &bursts(BURST.0, BURST.1))])?;
    let wasm = spin("receiver", steps()?)?;
    let holders = [node.principal("receiver", &[])?, node.principal("busy", &[])?];
    let reserve = |percent: u64, blocks: u64| Some(json!({ "cpu_ppm": percent * 10_000, "blocks": blocks }));
    node.session(&holders[1])?.install("busy", &busy()?, reserve(SHARES[1], 0))?;
    println!("buffering: packets that a session receives, in percent (RCANE, Fig. 13)");
    println!("blocks  {}", PERIODS_MS.map(|ms| format!("{ms:3} ms")).join("  "));
    let (mut series, mut received) = (Vec::new(), Vec::new());
    for blocks in BLOCKS {
        node.session(&holders[0])?.install("receiver", &wasm, reserve(SHARES[0], blocks))?;
        let pid = node.process("receiver", "receiver")?;
        let mut points = Vec::new();
        for period_ms in PERIODS_MS {
            let period_ns = period_ms * 1_000_000;
            give_time(pid, Slice { slice_ns: period_ns * SHARES[0] / 100, period_ns })?;
            let look = || -> Result<(Instant, f64), Error> {
                let account = &node.show("receiver", "receiver")?["account"];
                Ok((Instant::now(), account["processed"].as_f64().unwrap_or(0.0)))
            };
            // The first bursts are of the other period.
            std::thread::sleep(time / 4);
            let (begin, before) = look()?;
            std::thread::sleep(time);
            let (end, after) = look()?;
            let received = (after - before) / (end - begin).as_secs_f64();
            points.push((period_ms as f64, 100.0 * received / per_second()));
        }
        println!(
            "{blocks:6}  {}",
            points.iter().map(|(_, part)| format!("{part:6.1}")).collect::<Vec<_>>().join("  ")
        );
        received.extend(points.first().map(|(_, part)| *part));
        series.push((format!("{blocks} blocks"), Shape::Line(points)));
        // The node closes a connection that is idle.
        node.session(&holders[0])?.request("DELETE", "/v1/modules/receiver", None)?;
    }
    Figure {
        name: "buffering",
        title: "Packets that a session receives, by period and reserved blocks",
        notes: vec![format!(
            "{} % of a processor, of which it needs {:.0} %; bursts of {} packets each {} ms",
            SHARES[0],
            SHARES[0] as f64 * NEED,
            BURST.0,
            BURST.1
        )],
        x: ("period [ms]", Scale::FromZero),
        y: ("received packets [%]", Scale::FromZero),
        series,
    }
    .write(setting.folder)?;
    let what = "more buffering receives more: from the least to the most blocks, at the first period";
    Ok(vec![Finding::grows("SANE Fig. 13", what, "grows with buffering, to all", "%", &received)])
}
