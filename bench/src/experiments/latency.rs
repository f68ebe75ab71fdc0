//! The time of a load by the size of the memory that it is from: the measurements on which Patel's analysis
//! rests (Tables 3.1 and 5.1, Fig. 3.2), as `flame calibrate` makes them for ours.

use super::finding::{Finding, short};
use super::{Figure, Setting};
use crate::fixture::Error;
use flame_calibrate::Calibration;
use flame_plan::ModuleClass;
use flame_plot::{Scale, Shape};

/// The nanoseconds of a cycle of their processor, of 850 MHz.
const CYCLE_NS: f64 = 1.0 / 0.85;
/// Caches of theirs, and ours of the same size, with the nanoseconds of a read (Table 3.1).
const CACHES: [(&str, u64, f64); 2] =
    [("within 16 KB, their L1 cache", 16 << 10, 2.4), ("within 256 KB, their L2 cache", 256 << 10, 7.1)];
const MEMORY_NS: f64 = 174.3;
/// Sizes of the working set in KB with the cycles of an access (Table 5.1).
const ANALYSIS: [(u64, f64); 4] = [(16, 2.3), (64, 10.0), (512, 80.0), (8192, 200.0)];

/// Measures loads from working sets of all sizes.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let engine = flame_compile::Engines::new()?;
    let found = Calibration::measure(engine.of(ModuleClass::Bounded), &mut |_| {})?;
    let ns = |bytes: u64| found.latency_ps(bytes) as f64 / 1000.0;
    let last = found.latency.last().ok_or("no working set was measured")?;
    println!(
        "latency: nanoseconds of a load at random, by the size of the memory (Patel, Table 3.1, Fig. 3.2)"
    );
    for point in &found.latency {
        println!("{:>10} KB  {:8.2}", point.bytes >> 10, point.picoseconds as f64 / 1000.0);
    }
    let points: Vec<_> = found
        .latency
        .iter()
        .map(|l| ((l.bytes as f64).log2(), (l.picoseconds as f64).log10() - 3.0))
        .collect();
    Figure {
        name: "latency",
        title: "Time of a load by working set",
        notes: vec!["each load needs the result of the one before".to_owned()],
        x: ("log2 of bytes", Scale::FromZero),
        y: ("log10 of ns", Scale::FromZero),
        series: vec![("load".to_owned(), Shape::Line(points))],
    }
    .write(setting.folder)?;
    let mut findings = Vec::new();
    for (what, bytes, theirs) in CACHES {
        findings.push(Finding::less("Patel Table 3.1", &format!("a read {what}"), "ns", theirs, ns(bytes)));
    }
    let what = format!("a read from memory, ours at random from {} MB", last.bytes >> 20);
    findings.push(Finding::less("Patel Table 3.1", &what, "ns", MEMORY_NS, ns(last.bytes)));
    let [small, middle, large] = [16 << 10, 256 << 10, last.bytes].map(ns);
    findings.push(Finding::shape(
        "Patel Fig. 3.2",
        "an access takes longer the larger the working set is: 16 KB, 256 KB, all",
        "2.7, 11.8, 235 ns",
        [small, middle, large].map(short).join(", ") + " ns",
        small < middle && middle < large,
    ));
    for (kb, cycles) in ANALYSIS {
        findings.push(Finding::less(
            "Patel Table 5.1",
            &format!("an access in a working set of {kb} KB; theirs writes, ours reads"),
            "ns",
            cycles * CYCLE_NS,
            ns(kb << 10),
        ));
    }
    Ok(findings)
}
