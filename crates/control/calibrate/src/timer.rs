//! A timer for loops, with its own instance.

use crate::shape::{Arguments, EMPTY};
use crate::{CalibrateError, MAX_PS};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wasmtime::{Caller, Engine, Func, Instance, Memory, Module, Store, TypedFunc};

/// The approximate duration of a repetition: far more than a clock's resolution, less than a scheduler's time
/// slice.
const REPETITION: Duration = Duration::from_micros(400);
/// The number of repetitions, of which the shortest counts.
const REPETITIONS: u32 = 15;
const MAX_ITERATIONS: i32 = 1 << 26;

pub struct Timer {
    store: Store<()>,
    instance: Instance,
    memory: Memory,
    /// The least time of an iteration so far, by loop, in picoseconds.
    least: BTreeMap<String, f64>,
}

impl Timer {
    pub fn new(engine: &Engine, module: &Module) -> Result<Self, CalibrateError> {
        let mut store = Store::new(engine, ());
        let host = Func::wrap(&mut store, |_: Caller<'_, ()>, _: i32| {});
        let instance = Instance::new(&mut store, module, &[host.into()]).map_err(failed("starting"))?;
        let memory = instance.get_memory(&mut store, "memory").ok_or_else(|| CalibrateError::Engine {
            what: "starting",
            reason: "the generated module has no memory".to_owned(),
        })?;
        Ok(Self { store, instance, memory, least: BTreeMap::new() })
    }

    /// Returns the time of an iteration in picoseconds, less the time of an empty loop. It is the minimum of
    /// this call and those before.
    pub fn net_ps(&mut self, name: &str, arguments: (i64, i64, i64)) -> Result<f64, CalibrateError> {
        let empty = match self.least.get(EMPTY) {
            Some(known) => *known,
            None => self.iteration_ps(EMPTY, (0, 0, 0))?,
        };
        Ok((self.iteration_ps(name, arguments)? - empty).max(0.0))
    }

    /// Returns the time of an iteration in picoseconds. It is the minimum of this call and those before.
    pub fn iteration_ps(&mut self, name: &str, (x, y, z): (i64, i64, i64)) -> Result<f64, CalibrateError> {
        let function = self.function(name)?;
        let mut iterations = 16;
        while iterations < MAX_ITERATIONS && self.time(&function, (iterations, x, y, z))?.0 < REPETITION {
            iterations *= 2;
        }
        let mut least = Duration::MAX;
        for _ in 0..REPETITIONS {
            least = least.min(self.time(&function, (iterations, x, y, z))?.0);
        }
        let known = self.least.entry(name.to_owned()).or_insert(f64::INFINITY);
        *known = known.min(ps(least) / f64::from(iterations));
        Ok(*known)
    }

    /// Returns the least time of a single iteration in picoseconds, for work that cannot be repeated often.
    pub fn once_ps(&mut self, name: &str) -> Result<f64, CalibrateError> {
        let function = self.function(name)?;
        let mut least = Duration::MAX;
        for _ in 0..REPETITIONS {
            least = least.min(self.time(&function, (1, 0, 0, 0))?.0);
        }
        Ok(ps(least))
    }

    /// Returns the time of a call of an export from the host, in picoseconds.
    pub fn dispatch_ps(&mut self) -> Result<f64, CalibrateError> {
        const CALLS: u32 = 4096;
        let function = self.function(EMPTY)?;
        let mut least = Duration::MAX;
        for _ in 0..REPETITIONS {
            let start = Instant::now();
            for i in 0..CALLS {
                let result = function.call(&mut self.store, (1, i64::from(i), 0, 0));
                std::hint::black_box(result.map_err(failed("running"))?);
            }
            least = least.min(start.elapsed());
        }
        Ok(ps(least) / f64::from(CALLS))
    }

    /// Returns the duration of a call and its result.
    pub fn time(
        &mut self,
        function: &TypedFunc<Arguments, i64>,
        arguments: Arguments,
    ) -> Result<(Duration, i64), CalibrateError> {
        let start = Instant::now();
        let result = function.call(&mut self.store, arguments);
        let taken = start.elapsed();
        Ok((taken, result.map_err(failed("running"))?))
    }

    pub fn function(&mut self, name: &str) -> Result<TypedFunc<Arguments, i64>, CalibrateError> {
        self.instance.get_typed_func(&mut self.store, name).map_err(failed("starting"))
    }

    /// Returns the memory, grown to `bytes` at least, or `None` if it cannot grow so far.
    pub fn memory(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let missing = bytes.saturating_sub(self.memory.data_size(&self.store));
        self.memory.grow(&mut self.store, missing.div_ceil(1 << 16) as u64).ok()?;
        self.memory.data_mut(&mut self.store).get_mut(..bytes)
    }
}

fn failed(what: &'static str) -> impl Fn(wasmtime::Error) -> CalibrateError {
    move |e| CalibrateError::Engine { what, reason: format!("{e:#}") }
}

/// Converts a duration to picoseconds.
pub fn ps(time: Duration) -> f64 {
    time.as_secs_f64() * 1e12
}

/// Rounds a cost as files store it: at least 1, and [`MAX_PS`] at most.
pub fn whole(ps: f64) -> u64 {
    (ps.round() as u64).clamp(1, MAX_PS)
}
