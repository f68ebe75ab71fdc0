//! The cost of modules and of their protection: the experiment of FLAME's Fig. 6. Theirs are cycles of a
//! Pentium III at 1 GHz, one of which is a nanosecond.

use super::Setting;
use super::finding::{Finding, short};
use crate::fixture::Error;
use crate::modules::Bench;

/// A module: its cycles by gcc, and what Cyclone with protection, optimized by hand, adds in percent.
const THEIRS: [(&str, &str, f64, f64); 4] = [
    ("trajectory", "trajectory sampling", 381.0, 12.8),
    ("rtt", "round trips", 183.0, 15.3),
    ("worm", "worm detection", 24.0, 83.3),
    ("lrd", "long-range dependence", 143.0, 9.0),
];

/// Measures the modules.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let (packets, rounds) = if setting.quick { (20_000, 1) } else { (500_000, 5) };
    let (_folder, trace) = crate::generated(packets)?;
    let engine = flame_run::Engines::new()?;
    let bench = Bench { engine: &engine, trace: &trace, folder: setting.modules, rounds };
    println!("protection: of calls alone over native code (FLAME, Fig. 6)");
    let mut findings = Vec::new();
    for (module, what, cycles, percent) in THEIRS {
        let measured = bench.calls(module)?;
        let added = 100.0 * (measured.shipped - 1.0);
        println!("{module:12}  {added:6.1} %  {:.2} / {:.2} ns a packet", measured.ns[2], measured.ns[0]);
        let what = format!("{what} (`{module}`): what protection adds");
        let ours = format!("{} %", short(added));
        // What takes less time in the sandbox than without it is compiled otherwise.
        findings.push(if added < 0.0 {
            let cause = "its native code is slower here than the sandbox's, so it is no measure";
            Finding::other("FLAME Fig. 6", &what, &format!("{} %", short(percent)), ours, cause)
        } else {
            // A ratio to 0 says nothing, and what was not measured is no number.
            Finding::less("FLAME Fig. 6", &what, "%", percent, if added < 0.1 { 0.1 } else { added })
        });
        let what = format!("`{module}` in native code");
        findings.push(Finding::less("FLAME Fig. 6", &what, "ns for a packet", cycles, measured.ns[0]));
    }
    Ok(findings)
}
