//! What instructions cost here, as the analyser wants it.

use crate::command::Error;
use crate::places;
use flame_bounds::{Class, Costs};
use flame_calibrate::Calibration;
use flame_plan::ModuleClass;
use flame_run::Engines;

/// Of the machine, if it was measured before, for a module that may own so many bytes.
pub fn known(engines: &Engines, memory: u64) -> Option<Costs> {
    let engine = engines.of(ModuleClass::Bounded);
    flame_calibrate::known(engine, &places::cache()).map(|c| costs(&c, memory))
}

/// Of this machine, which is measured if it was not before.
pub fn here(engines: &Engines, quiet: bool) -> Result<Costs, Error> {
    let mut told = quiet;
    let mut tell = |_: &str| {
        if !std::mem::replace(&mut told, true) {
            eprintln!("flame: measuring this machine, once (flame calibrate)");
        }
    };
    let engine = engines.of(ModuleClass::Bounded);
    let (calibration, _) = flame_calibrate::load_or_measure(engine, &places::cache(), false, &mut tell)?;
    Ok(costs(&calibration, u64::MAX))
}

fn costs(calibration: &Calibration, memory: u64) -> Costs {
    // Neither does each instruction wait for the one before, nor none: the mean of both, as factors.
    let of = |class: &Class| {
        let chain = calibration.class(*class);
        ((chain.dependent_ps as f64 * chain.independent_ps as f64).sqrt()) as u64
    };
    let mut classes = [0; Class::ALL.len()];
    for (cost, class) in classes.iter_mut().zip(&Class::ALL) {
        *cost = of(class);
    }
    let latency = calibration.latency.iter().map(|l| (l.bytes, calibration.latency_ps(l.bytes))).collect();
    Costs { classes, latency, memory, dispatch: calibration.dispatch_ps }
}
