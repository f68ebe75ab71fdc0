//! The cost of instructions and memory on this machine, measured by running small generated functions.
//!
//! They are compiled by the engine that runs modules, so a cost includes everything that the engine adds:
//! checks, canonical NaNs, frames.
//!
//! ```text
//! kernel (Wasm of a loop) → timer (time of an iteration) → classes, latency → Calibration ⇄ file
//! ```
#![forbid(unsafe_code)]

mod classes;
mod cycle;
mod file;
mod kernel;
mod latency;
mod machine;
mod shape;
mod timer;

pub use file::{file_name, load_calibration, load_or_measure};

use flame_bounds::{Class, Costs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use wasmtime::Engine;

/// The maximum of any cost, in picoseconds: one millisecond.
pub const MAX_PS: u64 = 1_000_000_000;

/// The reason why there is no calibration.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    #[error("calibration: {what}: {reason} (a bug: please report it with the model of the processor)")]
    Engine { what: &'static str, reason: String },
    #[error("calibration {path}: {error} (choose another folder with FLAME_CACHE)")]
    File { path: String, error: io::Error },
    #[error("calibration {path}: {reason} (remove the file: the machine is then measured anew)")]
    Content { path: String, reason: String },
}

/// The costs of one machine under one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The model of the processor.
    pub cpu: String,
    /// The engine that compiles and runs modules. Costs measured under different engines are not comparable.
    pub engine: String,
    /// The cost of every class, by [`Class::name`].
    pub classes: BTreeMap<String, Chain>,
    /// The latency curve by working set, ascending, never empty.
    pub latency: Vec<Latency>,
    /// The time of a module's call to the host, in picoseconds.
    pub host_call_ps: u64,
    /// The time of the host's call to a module, in picoseconds.
    pub dispatch_ps: u64,
}

/// The cost of one instruction of a class, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// The latency: the cost if each instruction needs the result of the one before. It is never less than
    /// the throughput cost.
    pub dependent_ps: u64,
    /// The throughput cost: of independent instructions, several of which run in parallel.
    pub independent_ps: u64,
}

/// A point of the latency curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// The size in bytes of the memory that is read at random.
    pub bytes: u64,
    /// The time in picoseconds of a load that needs the result of the one before.
    pub picoseconds: u64,
}

impl Calibration {
    /// Measures this machine, which takes some seconds. `progress` receives the name of the next measurement.
    ///
    /// Each cost is the minimum of several repetitions, because other work on the machine only adds to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine cannot compile or run the code that is measured, or if there is no
    /// memory for the smallest working set.
    pub fn measure(engine: &Engine, progress: &mut dyn FnMut(&str)) -> Result<Self, CalibrateError> {
        let module = kernel::compile(engine)?;
        let costs = classes::measure(engine, &module, progress)?;
        Ok(Self {
            cpu: machine::cpu(),
            engine: machine::engine(engine),
            classes: costs.classes,
            latency: latency::measure(engine, &module, progress)?,
            host_call_ps: costs.host_call_ps,
            dispatch_ps: costs.dispatch_ps,
        })
    }

    /// Returns the costs by which the analyser estimates times, for a module that may own `memory` bytes.
    pub fn costs(&self, memory: u64) -> Costs {
        // Instructions mostly wait for loads, some of which depend on the one before. The cost of a load is
        // therefore the geometric mean of latency and throughput cost.
        let of = |class: Class| {
            let chain = self.class(class);
            match class {
                Class::Load => (chain.dependent_ps as f64 * chain.independent_ps as f64).sqrt() as u64,
                _ => chain.independent_ps,
            }
        };
        let latency = self.latency.iter().map(|l| (l.bytes, self.latency_ps(l.bytes))).collect();
        Costs { classes: Class::ALL.map(of), latency, memory, dispatch: self.dispatch_ps }
    }

    /// Returns the cost of an instruction of a class.
    pub fn class(&self, class: Class) -> Chain {
        self.classes.get(class.name()).copied().unwrap_or_default()
    }

    /// Returns the time in picoseconds of a load at random from a working set. It never decreases with the
    /// size. Between measured sizes, it is linear in the logarithm of the size.
    pub fn latency_ps(&self, working_set_bytes: u64) -> u64 {
        // Measured values may dip by noise.
        let mut highest = 0;
        let rising = self.latency.iter().map(|l| {
            highest = l.picoseconds.max(highest);
            Latency { bytes: l.bytes, picoseconds: highest }
        });
        let mut below: Option<Latency> = None;
        for point in rising {
            if working_set_bytes <= point.bytes {
                return below.map_or(point.picoseconds, |b| between(b, point, working_set_bytes));
            }
            below = Some(point);
        }
        below.map_or(0, |last| last.picoseconds)
    }
}

fn between(low: Latency, high: Latency, bytes: u64) -> u64 {
    let log = |n: u64| (n.max(1) as f64).log2();
    let part = (log(bytes) - log(low.bytes)) / (log(high.bytes) - log(low.bytes));
    let rise = high.picoseconds.saturating_sub(low.picoseconds);
    // If two sizes are so large that their logarithms are equal, the quotient is not a number.
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 1.0 };
    low.picoseconds + ((rise as f64 * part) as u64).min(rise)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, u64)]) -> Calibration {
        Calibration {
            cpu: String::new(),
            engine: String::new(),
            classes: BTreeMap::new(),
            latency: points.iter().map(|&(bytes, picoseconds)| Latency { bytes, picoseconds }).collect(),
            host_call_ps: 0,
            dispatch_ps: 0,
        }
    }

    #[test]
    fn latency_is_read_off_the_curve() {
        let c = curve(&[(4096, 1000), (16384, 3000), (65536, 2000), (262144, 9000)]);
        for (bytes, expected) in [
            (0, 1000),
            (4096, 1000),
            (8192, 2000),
            (16384, 3000),
            (32768, 3000), // The dip is noise.
            (65536, 3000),
            (131072, 6000),
            (262144, 9000),
            (u64::MAX, 9000),
        ] {
            assert_eq!(c.latency_ps(bytes), expected, "{bytes}");
        }
        assert_eq!(curve(&[]).latency_ps(1), 0);
        assert_eq!(curve(&[(u64::MAX - 1, 1), (u64::MAX, 5)]).latency_ps(u64::MAX), 5);
    }
}
