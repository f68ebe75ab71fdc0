//! The latency of memory by working set, measured as in lmbench's `lat_mem_rd`: loads visit all lines once in
//! random order, each from the address that the one before returned.

use crate::classes::{COPIES, chase};
use crate::cycle::{LINE, write_cycle};
use crate::timer::{Timer, ps, whole};
use crate::{CalibrateError, Latency, machine};
use wasmtime::{Engine, Module};

const SMALLEST: usize = 4 << 10;
const LARGEST: usize = 256 << 20;

/// Maximum number of loads before timing starts. Smaller sets are visited once.
const WARM: usize = 1 << 20;
const REPETITIONS: u32 = 20;
const REPETITION_PS: f64 = 5e8;
const MIN_LOADS: f64 = 4096.0;

pub fn measure(
    engine: &Engine,
    module: &Module,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Latency>, CalibrateError> {
    // The remaining memory is left to other programs.
    let most = machine::memory_bytes().map_or(LARGEST as u64, |bytes| bytes / 4);
    let mut curve = Vec::new();
    let mut bytes = SMALLEST;
    while bytes <= LARGEST && (curve.is_empty() || bytes as u64 <= most) {
        progress(&format!("loads from {}", machine::size(bytes as u64)));
        // Each size has a new instance, because huge pages are given to memory that has not been touched.
        let mut timer = Timer::new(engine, module)?;
        let Some(memory) = timer.memory(bytes) else { break };
        write_cycle(memory);
        curve.push(Latency { bytes: bytes as u64, picoseconds: load_ps(&mut timer, bytes)? });
        bytes *= 2;
    }
    if curve.is_empty() {
        let reason = format!("no memory of {SMALLEST} bytes");
        return Err(CalibrateError::Engine { what: "starting", reason });
    }
    Ok(curve)
}

fn load_ps(timer: &mut Timer, bytes: usize) -> Result<u64, CalibrateError> {
    let function = timer.function(&chase())?;
    let loads = f64::from(COPIES);
    let warm = (bytes / LINE).min(WARM).div_ceil(COPIES as usize).max(1) as i32;
    let (taken, mut at) = timer.time(&function, (warm, 0, 0, 0))?;
    let guess = (ps(taken) / (f64::from(warm) * loads)).max(1.0);
    let iterations = ((REPETITION_PS / guess).max(MIN_LOADS) / loads) as i32;
    let mut least = f64::INFINITY;
    for _ in 0..REPETITIONS {
        // Continues at the last address: the next lines are those that were not read for longest.
        let (taken, end) = timer.time(&function, (iterations, at, 0, 0))?;
        at = end;
        least = least.min(ps(taken) / (f64::from(iterations) * loads));
    }
    Ok(whole(least))
}
