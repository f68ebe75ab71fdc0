//! Overload of a worker on a veth pair: one light module of high priority and three costly ones of low
//! priority, at the load that they sustain and at twice that load, with and without the control.
//!
//! Useful work is the number of packets that each module processed, weighted by what it takes for one, in
//! the time from the first packet to the end of the run. The worker runs on one core and the sender on
//! another. A run is long enough to fill the kernel's ring, which holds some seconds of the load.

use crate::made::spin;
use crate::net::{FRAME, Receiver, send, within_namespace};
use crate::row::{Row, Target};
use std::io;
use std::path::Path;
use std::time::Instant;

const GROUP: &str = "overload: one worker at twice the load that it sustains";
/// The steps of the modules for a packet: the one of high priority, and three others.
const STEPS: [(&str, u32); 4] = [("top", 500), ("low", 16_000), ("lower", 16_000), ("lowest", 16_000)];

pub fn rows(flame: &Path, rounds: usize) -> Vec<Row> {
    within_namespace("overload", &["tx0 rx0"], |namespace| measure(namespace, flame, rounds))
}

/// The outcome of one run.
struct Outcome {
    /// Steps of useful work per second.
    work: f64,
    /// Packets per second that all modules took, if none was shed.
    rate: f64,
    /// The part of the sent packets that the module of high priority did not process.
    lost: f64,
    kernel_drops: u64,
}

fn measure(namespace: &str, flame: &Path, rounds: usize) -> io::Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    for (name, steps) in STEPS {
        let wasm = spin(name, steps).map_err(|e| io::Error::other(e.to_string()))?;
        std::fs::write(folder.path().join(format!("{name}.wasm")), wasm)?;
    }
    let files: Vec<_> = STEPS.iter().map(|(name, _)| folder.path().join(format!("{name}.wasm"))).collect();
    let files: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
    let flame = flame.display().to_string();
    let run = |overload: &str, rate: f64, seconds: f64| -> io::Result<Outcome> {
        let priorities = "top=9,low=3,lower=2,lowest=1";
        let words = ["run", &files.join(","), "-i", "rx0", "--stats", "json", "--overload", overload];
        let words = [&[&*flame][..], &words, &["--priority", priorities]].concat();
        let receiver = Receiver::start(namespace, "0", &words)?;
        let start = Instant::now();
        let sent = send(namespace, "1", FRAME, (rate * seconds) as u64, rate)?.packets;
        let out = receiver.end()?;
        let passed = start.elapsed().as_secs_f64();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        let account = text.lines().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let account = account.ok_or_else(|| io::Error::other(format!("no account in {text}")))?;
        let processed = |name: &str| account["modules"][name]["processed"].as_f64().unwrap_or(0.0);
        Ok(Outcome {
            work: STEPS.iter().map(|(name, steps)| processed(name) * f64::from(*steps)).sum::<f64>() / passed,
            rate: processed("lowest") / passed,
            lost: 1.0 - processed("top") / sent,
            kernel_drops: account["kernel_drops"].as_u64().unwrap_or(0),
        })
    };
    let seconds = if rounds > 3 { 30.0 } else { 3.0 };
    // Far more than is sustained. The first run compiles the modules, and does not count.
    run("off", 1_000.0, 0.5)?;
    let full = run("off", 60_000.0, seconds / 3.0)?;
    let sustained = full.rate;
    let peak = run("off", sustained, seconds / 3.0)?.work.max(full.work);
    let mut rows = Vec::new();
    for (overload, name) in [("50%", "with the control"), ("off", "without it")] {
        let double = run(overload, 2.0 * sustained, seconds)?;
        let detail = format!(
            "{:.0} packets a second, {:.0} are sustained; kernel drops {}",
            2.0 * sustained,
            sustained,
            double.kernel_drops
        );
        let is_on = overload != "off";
        let target = |target| is_on.then_some(target);
        rows.push(Row {
            target: target(Target::AtLeast(0.95)),
            ..Row::ratio(GROUP, format!("useful work / peak, {name}"), double.work / peak, detail.clone())
        });
        rows.push(Row {
            target: target(Target::AtMost(0.0)),
            ..Row::ratio(GROUP, format!("loss of the highest priority, {name}"), double.lost, detail)
        });
    }
    Ok(rows)
}
