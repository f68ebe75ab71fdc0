//! The cost of instructions on this machine, as the analyser takes it.

use crate::console::complain;
use crate::error::Error;
use crate::paths;
use flame_bounds::Costs;
use flame_calibrate::{CalibrateError, Calibration};
use flame_compile::Engines;
use flame_plan::ModuleClass;

/// Returns the cached costs of this machine, if it was calibrated before, for a module that may own `memory`
/// bytes.
pub fn load_calibration(engines: &Engines, memory: u64) -> Option<Costs> {
    let engine = engines.of(ModuleClass::Bounded);
    flame_calibrate::load_calibration(engine, &paths::cache()).map(|c| c.costs(memory))
}

/// Returns the costs of this machine, which is calibrated if no result is cached.
pub fn load_or_calibrate(engines: &Engines, quiet: bool) -> Result<Costs, Error> {
    let mut is_announced = quiet;
    let mut announce = |_: &str| {
        if !std::mem::replace(&mut is_announced, true) {
            complain!("flame: measuring this machine, once (flame calibrate)");
        }
    };
    let engine = engines.of(ModuleClass::Bounded);
    let calibration = match flame_calibrate::load_or_measure(engine, &paths::cache(), false, &mut announce) {
        Ok((calibration, _)) => calibration,
        // Without a folder for results, the machine is measured each time.
        Err(CalibrateError::File { .. }) => Calibration::measure(engine, &mut announce)?,
        Err(e) => return Err(e.into()),
    };
    Ok(calibration.costs(u64::MAX))
}
