//! Loads from the polling page ([`flame_abi::layout::POLL`]).

use flame_abi::layout::{POLL, POLL_BYTES};
use wasm_encoder::{InstructionSink, MemArg};

/// The number of offsets on the polling page for functions, and for the polls of each: half a page for
/// either.
pub(crate) const PLACES: u32 = POLL_BYTES / 8;

/// Puts the address after that in the global `places` on the stack.
pub(crate) fn next(code: &mut InstructionSink<'_>, places: u32) {
    let last = POLL + 4 * (PLACES - 1);
    code.global_get(places).i32_const(4).i32_add().i32_const(last as i32).i32_and();
}

/// Loads from the address on the stack.
pub(crate) fn load(code: &mut InstructionSink<'_>, offset: u64) {
    code.i32_load(MemArg { offset, align: 2, memory_index: 0 }).drop();
}

/// Polls at an address of its own, which no other poll has at the time.
pub(crate) fn apart(code: &mut InstructionSink<'_>, places: u32) {
    next(code, places);
    code.global_set(places).global_get(places);
    load(code, 0);
}
