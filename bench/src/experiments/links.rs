//! Faster links, and sampling as the remedy: what Bunga and Wolf's Section V says without numbers.
//!
//! The processor time of a packet by `flame run` on one core is extrapolated to links by the mean size of
//! their packets. Where a core is too slow, it sustains a sample of one packet in N; the error of a sample is
//! measured by the same module over the whole capture and over the sample.

use super::finding::{Finding, short};
use super::{Figure, Setting};
use crate::fixture::Error;
use crate::generate::Random;
use flame_plot::{Scale, Shape};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Links in Gbit/s, and mean sizes of packets in bytes, with the 20 bytes that an Ethernet adds.
const LINKS: [f64; 5] = [1.0, 10.0, 40.0, 100.0, 400.0];
const SIZES: [(&str, f64); 3] = [("64 bytes", 84.0), ("mixed, 350 bytes", 370.0), ("1,500 bytes", 1520.0)];
const MODULES: [&str; 4] = ["count", "flow", "rtt", "ids"];
const SAMPLES: [u64; 4] = [2, 10, 100, 1000];

/// Returns the seconds of a run, and its output.
fn run_module(setting: &Setting<'_>, module: &str, trace: &Path) -> Result<(f64, String), Error> {
    let begin = Instant::now();
    let mut command = Command::new("taskset");
    let out = command.args(["-c", "0"]).arg(setting.flame).args(["run", module, "-r"]).arg(trace);
    let out = out.args(["--format", "json", "-q"]).output()?;
    match out.status.success() {
        true => Ok((begin.elapsed().as_secs_f64(), String::from_utf8(out.stdout)?)),
        false => Err(format!("{module}: {}", String::from_utf8_lossy(&out.stderr)).into()),
    }
}

/// Returns the nanoseconds of a packet in a module, from the times of a long and a short trace: the start
/// does not count.
fn nanoseconds(setting: &Setting<'_>, module: &str, traces: &[(usize, &Path); 2]) -> Result<f64, Error> {
    let rounds = if setting.quick { 1 } else { 3 };
    let mut best = [f64::INFINITY; 2];
    for _ in 0..rounds {
        for ((_, trace), best) in traces.iter().zip(&mut best) {
            *best = best.min(run_module(setting, module, trace)?.0);
        }
    }
    Ok(((best[1] - best[0]) * 1e9 / (traces[1].0 - traces[0].0) as f64).max(1.0))
}

/// Writes one packet in `n` of a capture in the format pcap, chosen at random.
fn sample(from: &Path, to: &Path, n: u64) -> Result<(), Error> {
    let bytes = std::fs::read(from)?;
    let (head, mut rest) = bytes.split_at_checked(24).ok_or("no capture")?;
    let (mut out, mut random) = (head.to_vec(), Random(n));
    while let Some(length) = rest.get(8..12) {
        let length = 16 + u32::from_le_bytes(length.try_into()?) as usize;
        let (packet, more) = rest.split_at_checked(length).ok_or("a packet is cut off")?;
        if random.below(n) == 0 {
            out.extend_from_slice(packet);
        }
        rest = more;
    }
    Ok(std::fs::write(to, out)?)
}

/// Results of `flow`: flows, and bytes by flow.
fn flows(said: &str) -> BTreeMap<String, f64> {
    let mut bytes = BTreeMap::new();
    for row in said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if row["table"] == "flow" {
            let key = ["src", "sport", "dst", "dport", "proto"].map(|name| row[name].to_string()).join(" ");
            let of = |name: &str| row[name].as_f64().unwrap_or(0.0);
            *bytes.entry(key).or_insert(0.0) += of("ip_bytes_fwd") + of("ip_bytes_rev");
        }
    }
    bytes
}

/// Returns the ten flows with the most bytes.
fn largest(of: &BTreeMap<String, f64>) -> Vec<(&String, f64)> {
    let mut all: Vec<_> = of.iter().map(|(key, bytes)| (key, *bytes)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(10);
    all
}

/// Measures cores and errors.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let item = "Bunga Section V";
    let long = if setting.quick { 20_000 } else { 2_000_000 };
    let (_small_folder, small) = crate::generated(long as u64 / 10)?;
    let (_folder, trace) = crate::generated(long as u64)?;
    let mut findings = Vec::new();
    println!("links: cores that a link needs, without the kernel's part (Bunga and Wolf, Section V)");
    println!(
        "{:8}  {:>9}  {:18}  {}",
        "module",
        "ns/packet",
        "packets",
        LINKS.map(|g| format!("{g:5.0}G")).join("  ")
    );
    let mut series = Vec::new();
    for module in MODULES {
        let ns = nanoseconds(setting, module, &[(long / 10, &small), (long, &trace)])?;
        let cores = |link: f64, size: f64| link * 1e9 / 8.0 / size * ns / 1e9;
        for (name, size) in SIZES {
            let row = LINKS.map(|link| format!("{:6.2}", cores(link, size))).join("  ");
            println!("{module:8}  {ns:9.0}  {name:18}  {row}");
        }
        let mixed = SIZES[1].1;
        series.push((module.to_owned(), Shape::Line(LINKS.map(|l| (l.log10(), cores(l, mixed))).to_vec())));
        let part = 1.0 / cores(100.0, mixed).max(1.0);
        let what =
            format!("`{module}`: cores for 100 Gbit/s of mixed packets; the sample that one core sustains");
        let ours = format!("{} cores; one packet in {:.0}", short(cores(100.0, mixed)), (1.0 / part).ceil());
        findings.push(Finding::other(item, &what, "several processors", ours, "the paper has no numbers"));
    }
    let whole = flows(&run_module(setting, "flow", &trace)?.1);
    let top = largest(&whole);
    println!("samples of `flow`: flows seen, and the bytes of the ten largest");
    let (folder, mut errors) = (tempfile::tempdir()?, Vec::new());
    for n in SAMPLES {
        let file = folder.path().join("sample.pcap");
        sample(&trace, &file, n)?;
        let some = flows(&run_module(setting, "flow", &file)?.1);
        let seen = 100.0 * some.len() as f64 / whole.len().max(1) as f64;
        let error = |(key, bytes): &(&String, f64)| {
            let estimate = some.get(*key).copied().unwrap_or(0.0) * n as f64;
            (estimate - bytes).abs() / bytes.max(1.0)
        };
        let error = 100.0 * top.iter().map(error).sum::<f64>() / top.len().max(1) as f64;
        let found =
            largest(&some).iter().filter(|(key, _)| top.iter().any(|(other, _)| other == key)).count();
        println!("1 in {n:4}  {seen:5.1} % of flows  {error:5.1} % off  {found} of the ten largest found");
        let what = format!("one packet in {n}: flows seen; error of the ten largest; of these found");
        let ours = format!("{seen:.1} %; {error:.1} %; {found}");
        findings.push(Finding::other(item, &what, "a partial view", ours, "the paper has no numbers"));
        errors.push(error);
    }
    let what = "the error grows with the part that is left out";
    findings.push(Finding::grows(item, what, "sampling costs accuracy", "%", &errors));
    Figure {
        name: "links",
        title: "Cores that a link needs, for packets of 350 bytes",
        notes: vec!["extrapolated from the time of a packet on one core".to_owned()],
        x: ("log10 of Gbit/s", Scale::Linear),
        y: ("cores", Scale::FromZero),
        series,
    }
    .write(setting.folder)?;
    Ok(findings)
}
