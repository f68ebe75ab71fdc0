//! Wasmtime's configuration, for each class of modules: what compiles and what runs must agree on it.

use crate::memory::WindowMemory;
use crate::watch::Watchdog;
use flame_plan::ModuleClass;
use std::sync::Arc;
use wasmtime::{Config, Engine, Inlining, OperatorCost, OptLevel, WasmBacktraceDetails, WasmFeatures};

/// Native stack of one call in bytes. A call that needs more traps.
pub const STACK_BYTES: usize = 512 << 10;

/// Linear memory spans 4 GiB of address space, so 32-bit addresses need no checks; the guard behind
/// it catches what an instruction's offset adds.
const RESERVATION: u64 = 4 << 30;
const GUARD: u64 = 32 << 20;

/// Core Wasm 2.0: what LLVM emits for C and Rust. Nothing else, not even what Wasmtime has on.
fn features() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::SIMD
        | WasmFeatures::FLOATS
}

/// An engine for each class, and the watchdog over what runs without counters.
#[derive(Clone)]
pub struct Engines {
    bounded: Engine,
    metered: Engine,
    watchdog: Watchdog,
}

impl Engines {
    /// Engines for this machine. Fails only if Wasmtime does not support the machine.
    pub fn new() -> Result<Self, wasmtime::Error> {
        Ok(Self {
            bounded: Engine::new(&config())?,
            metered: Engine::new(config().epoch_interruption(true))?,
            watchdog: Watchdog::new(),
        })
    }

    /// The same, with Wasmtime's own count of executed instructions in bounded modules
    /// ([`crate::Instance::executed`]): to hold bounds against.
    pub fn counting() -> Result<Self, wasmtime::Error> {
        // Instructions, not the bytes that they move.
        let mut costs = OperatorCost::new();
        costs.variable.memory_copy_per_byte = 0;
        costs.variable.memory_fill_per_byte = 0;
        costs.variable.memory_init_per_byte = 0;
        let mut counting = config();
        counting.consume_fuel(true).operator_cost(costs);
        Ok(Self { bounded: Engine::new(&counting)?, ..Self::new()? })
    }

    pub fn of(&self, class: ModuleClass) -> &Engine {
        match class {
            ModuleClass::Bounded => &self.bounded,
            ModuleClass::Metered => &self.metered,
        }
    }

    pub fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// Ends the slice of every metered call that is running.
    pub fn end_slice(&self) {
        self.metered.increment_epoch();
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.wasm_features(WasmFeatures::all(), false);
    config.wasm_features(features(), true);
    config
        .cranelift_opt_level(OptLevel::Speed)
        // Results are the same on every machine: one NaN.
        .cranelift_nan_canonicalization(true)
        .compiler_inlining(Inlining::Yes)
        .memory_reservation(RESERVATION)
        .memory_guard_size(GUARD)
        .memory_reservation_for_growth(0)
        .memory_may_move(false)
        .guard_before_linear_memory(false)
        .memory_init_cow(false)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(2 * STACK_BYTES)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .with_host_memory(Arc::new(WindowMemory));
    config
}
