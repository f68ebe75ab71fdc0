//! The types of values, as the encoder has them.

use wasm_encoder::ValType;

/// Converts a type; the features allow numbers, vectors and function references.
pub(crate) fn value_type(ty: wasmparser::ValType) -> ValType {
    match ty {
        wasmparser::ValType::I32 => ValType::I32,
        wasmparser::ValType::I64 => ValType::I64,
        wasmparser::ValType::F32 => ValType::F32,
        wasmparser::ValType::F64 => ValType::F64,
        wasmparser::ValType::V128 => ValType::V128,
        wasmparser::ValType::Ref(_) => ValType::FUNCREF,
    }
}
