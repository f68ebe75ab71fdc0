//! Settings of Wasmtime on which the compiler and the runtime of modules must agree.
//!
//! [`config`] holds all that is checked when machine code is loaded. The compiler adds how code is generated
//! (`flame-compile`), the runtime adds where memories lie (`flame-run`); neither changes what is set here.
#![forbid(unsafe_code)]

use flame_plan::ModuleClass;
use wasmtime::{Config, Inlining, WasmBacktraceDetails, WasmFeatures};

/// Native stack of one call in bytes. A call that needs more traps.
pub const STACK_BYTES: usize = 512 << 10;

/// Linear memory spans 4 GiB of address space, so 32-bit addresses need no checks; the guard after it catches
/// what an instruction's offset adds.
const RESERVATION: u64 = 4 << 30;
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
        .compiler_inlining(Inlining::Yes)
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

/// Adds Wasmtime's own count of executed instructions, against which bounds are tested. The bytes that bulk
/// instructions move are not counted.
pub fn count_instructions(config: &mut Config) {
    let mut costs = wasmtime::OperatorCost::new();
    costs.variable.memory_copy_per_byte = 0;
    costs.variable.memory_fill_per_byte = 0;
    costs.variable.memory_init_per_byte = 0;
    config.consume_fuel(true).operator_cost(costs);
}
