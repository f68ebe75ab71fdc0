//! The set of Wasm features that modules may use; a test compares it with the engine's.

use crate::error::{ModuleError, Place};
use wasmparser::WasmFeatures;

/// Core Wasm 2.0 without `externref`: the output of LLVM for C and Rust.
pub const FEATURES: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::SIMD)
    .union(WasmFeatures::FLOATS);

/// The names and remedies of features that users are likely to meet. The name is also searched for in the
/// validator's message, which does not always contain the feature.
const KNOWN: &[(WasmFeatures, &str, &str)] = &[
    (WasmFeatures::THREADS, "threads", "build without -pthread, atomics and shared memory"),
    (WasmFeatures::SHARED_EVERYTHING_THREADS, "shared-everything-threads", "build without shared types"),
    (WasmFeatures::RELAXED_SIMD, "relaxed SIMD", "build with -mno-relaxed-simd"),
    (WasmFeatures::TAIL_CALL, "tail calls", "build with -mno-tail-call"),
    (WasmFeatures::MULTI_MEMORY, "multi-memory", "use one memory"),
    (WasmFeatures::EXCEPTIONS, "exceptions", "build with -fno-exceptions, or panic = \"abort\""),
    (WasmFeatures::LEGACY_EXCEPTIONS, "legacy exceptions", "build with -fno-exceptions"),
    (WasmFeatures::MEMORY64, "memory64", "build for wasm32"),
    (WasmFeatures::EXTENDED_CONST, "extended constant expressions", "build with -mno-extended-const"),
    (WasmFeatures::FUNCTION_REFERENCES, "function references", "use plain function pointers"),
    (WasmFeatures::GC_TYPES, "garbage-collected types", "use linear memory, and no externref"),
    (WasmFeatures::GC, "gc", "use linear memory"),
    (WasmFeatures::STACK_SWITCHING, "stack switching", "build without it"),
    (WasmFeatures::WIDE_ARITHMETIC, "wide arithmetic", "build with -mno-wide-arithmetic"),
    (WasmFeatures::CUSTOM_PAGE_SIZES, "custom page sizes", "use pages of 64 KiB"),
    (WasmFeatures::MEMORY_CONTROL, "memory control", "build without memory.discard"),
    (WasmFeatures::COMPONENT_MODEL, "the component model", COMPONENT),
];

const COMPONENT: &str = "build a core module: target wasm32-unknown-unknown, no `wasm-tools component`";

/// Returns the error for a message of the validator.
pub fn refused(error: &wasmparser::Error, place: Place) -> ModuleError {
    let message = error.message();
    let missing = error.missing_wasm_feature();
    let known = KNOWN.iter().find(|(feature, name, _)| match missing {
        Some(missing) => missing.intersects(*feature),
        // The messages with another wording.
        None if *feature == WasmFeatures::MULTI_MEMORY => message == "multiple memories",
        None => message.starts_with(name) && message.contains("not enabled"),
    });
    let reason = crate::error::printable(message.lines().next().unwrap_or_default());
    match known {
        Some((_, feature, remedy)) => ModuleError::Feature { feature, reason, remedy, place },
        None if missing.is_some() || message.contains("not enabled") => ModuleError::Feature {
            feature: "a later feature of Wasm",
            reason,
            remedy: "build for core Wasm 2.0 (mutable globals, sign extension, bulk memory, SIMD)",
            place,
        },
        None => ModuleError::Malformed { reason, place },
    }
}

/// Returns the error for a component.
pub fn component() -> ModuleError {
    let place = Place { section: "module", function: None, offset: 4 };
    let reason = "the header is that of a component".to_owned();
    ModuleError::Feature { feature: "the component model", reason, remedy: COMPONENT, place }
}
