//! The settings of Wasmtime on which the compiler and the runtime of modules must agree.
//!
//! [`config`] has all settings that Wasmtime compares when it loads machine code. The compiler
//! (`flame-compile`) adds settings of code generation, the runtime (`flame-run`) the placement of memories.
//! Neither changes a setting from here.
#![forbid(unsafe_code)]

use flame_plan::ModuleClass;
use wasmtime::{Config, Engine, Inlining, WasmBacktraceDetails, WasmFeatures};

/// The native stack of one call in bytes. A call that needs more traps.
pub const STACK_BYTES: usize = 512 << 10;

/// The address space reserved for a linear memory, in bytes. With 4 GiB, 32-bit addresses need no checks.
const RESERVATION: u64 = 4 << 30;
/// The size of the guard after a linear memory in bytes, which catches the offsets of instructions.
const GUARD: u64 = 32 << 20;

/// Returns the features of Wasm that modules may use: core Wasm 2.0 without `externref`, as LLVM emits it for
/// C and Rust. All others are off, even those that Wasmtime enables by default.
pub fn features() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::SIMD
        | WasmFeatures::FLOATS
}

/// Returns the configuration for modules of `class`. Metered modules are interruptible by epochs.
pub fn config(class: ModuleClass) -> Config {
    let mut config = Config::new();
    config.wasm_features(WasmFeatures::all(), false);
    config.wasm_features(features(), true);
    config
        // The compiler of the module has inlined what pays. Doing it again takes twice the time and, since
        // all functions are kept for it, ten times the memory (`ids`), and makes no module faster.
        .compiler_inlining(Inlining::No)
        .epoch_interruption(class == ModuleClass::Metered)
        .memory_reservation(RESERVATION)
        .memory_guard_size(GUARD)
        .memory_reservation_for_growth(0)
        .memory_may_move(false)
        .guard_before_linear_memory(false)
        .memory_init_cow(false)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(2 * STACK_BYTES)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable);
    config
}

/// Enables Wasmtime's own count of executed instructions, against which bounds are tested. Bytes moved by
/// bulk instructions are not counted.
pub fn count_instructions(config: &mut Config) {
    let mut costs = wasmtime::OperatorCost::new();
    costs.variable.memory_copy_per_byte = 0;
    costs.variable.memory_fill_per_byte = 0;
    costs.variable.memory_init_per_byte = 0;
    config.consume_fuel(true).operator_cost(costs);
}

/// An engine for each class of modules.
#[derive(Clone)]
pub struct Engines {
    bounded: Engine,
    metered: Engine,
}

impl Engines {
    /// Creates the engines from [`config`], to which `add` adds what one side needs.
    ///
    /// # Errors
    ///
    /// Returns an error if Wasmtime does not support the machine.
    pub fn new(add: impl Fn(&mut Config)) -> Result<Self, wasmtime::Error> {
        Self::of_configs(|class| {
            let mut config = config(class);
            add(&mut config);
            config
        })
    }

    /// Creates engines that [count](count_instructions) the executed instructions of bounded modules.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Engines::new`].
    pub fn counting(add: impl Fn(&mut Config)) -> Result<Self, wasmtime::Error> {
        Self::of_configs(|class| {
            let mut config = config(class);
            add(&mut config);
            if class == ModuleClass::Bounded {
                count_instructions(&mut config);
            }
            config
        })
    }

    fn of_configs(config: impl Fn(ModuleClass) -> Config) -> Result<Self, wasmtime::Error> {
        let engine = |class| Engine::new(&config(class));
        Ok(Self { bounded: engine(ModuleClass::Bounded)?, metered: engine(ModuleClass::Metered)? })
    }

    /// Returns the engine for modules of a class.
    pub fn of(&self, class: ModuleClass) -> &Engine {
        match class {
            ModuleClass::Bounded => &self.bounded,
            ModuleClass::Metered => &self.metered,
        }
    }
}
