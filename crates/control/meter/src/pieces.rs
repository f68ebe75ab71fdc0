//! The functions that do in pieces what a bulk memory instruction would do at once. Nothing interrupts an
//! instruction: one of 250 MiB takes seconds where the kernel has to provide the pages.
//!
//! The code that calls them has charged for the length. Each function finds out first whether an access is
//! out of bounds, and leaves that to the whole instruction, which traps before it writes anything. Memory and
//! segments cannot change between two pieces, because only the module's own instructions change them.

use crate::poll;
use flame_verify::cost::{BULK, BULK_SHIFT};
use wasm_encoder::{BlockType, Encode, InstructionSink, ValType};
use wasmparser::Operator;

/// The largest number of bytes that one instruction processes.
pub(crate) const PIECE: u32 = 64 << 10;

/// The value of a constant directly before an instruction.
#[derive(Default)]
pub(crate) struct Constant(Option<u32>);

impl Constant {
    /// Processes the next instruction; returns the value of its last operand, if the instruction before is a
    /// constant.
    pub(crate) fn before(&mut self, operator: &Operator<'_>) -> Option<u32> {
        let next = match operator {
            Operator::I32Const { value } => Some(*value as u32),
            _ => None,
        };
        std::mem::replace(&mut self.0, next)
    }
}

/// Returns whether an instruction may process more than one piece.
pub(crate) fn is_long(length: Option<u32>) -> bool {
    length.is_none_or(|length| length > PIECE)
}

/// The parameters of all functions here; the second one is the value of a fill.
pub(crate) const DST: u32 = 0;
pub(crate) const SRC: u32 = 1;
pub(crate) const N: u32 = 2;

/// Returns `(dst, value, n)`: a `memory.fill`. `fuel` is the global to charge, if any; `long` is the function
/// for more than [`PIECE`] bytes.
pub(crate) fn fill(fuel: Option<u32>, long: u32) -> Vec<u8> {
    let mut out = locals(&[(u32::from(fuel.is_some()), ValType::I64)]);
    let mut code = InstructionSink::new(&mut out);
    if let Some(fuel) = fuel {
        charge(&mut code, N, 3, fuel);
    }
    leave_long(&mut code, long);
    code.local_get(DST).local_get(SRC).local_get(N).memory_fill(0).end();
    out
}

/// Returns `(dst, value, n)`: a `memory.fill` of more than [`PIECE`] bytes. `short` fills fewer; `places` is
/// the global for polls, if any.
pub(crate) fn long_fill(short: u32, places: Option<u32>) -> Vec<u8> {
    let mut out = locals(&[]);
    let mut code = InstructionSink::new(&mut out);
    code.local_get(DST);
    is_in_memory(&mut code);
    code.i32_eqz().if_(BlockType::Empty);
    code.local_get(DST).local_get(SRC).local_get(N).memory_fill(0).end();
    begin(&mut code, places);
    code.local_get(DST).local_get(SRC).i32_const(PIECE as i32).call(short);
    advance(&mut code, &[DST]);
    code.end();
    code.local_get(DST).local_get(SRC).local_get(N).call(short).end();
    out
}

/// Returns `(dst, src, n)`: a `memory.init` of more than [`PIECE`] bytes, from a segment of `bytes` bytes. If
/// the segment was dropped, the first piece traps.
pub(crate) fn long_init(segment: u32, bytes: u32, places: Option<u32>) -> Vec<u8> {
    let mut out = locals(&[]);
    let mut code = InstructionSink::new(&mut out);
    code.local_get(DST);
    is_in_memory(&mut code);
    code.local_get(SRC).i64_extend_i32_u().local_get(N).i64_extend_i32_u().i64_add();
    code.i64_const(bytes.into()).i64_le_u().i32_and();
    code.if_(BlockType::Empty);
    begin(&mut code, places);
    code.local_get(DST).local_get(SRC).i32_const(PIECE as i32).memory_init(0, segment);
    advance(&mut code, &[DST, SRC]);
    code.end().end();
    code.local_get(DST).local_get(SRC).local_get(N).memory_init(0, segment).end();
    out
}

/// Returns `(dst, src, n)`: a `memory.copy` of more than [`PIECE`] bytes within own memory, in the direction
/// that an overlap requires. `short` copies fewer.
pub(crate) fn long_copy(short: u32, places: Option<u32>) -> Vec<u8> {
    let mut out = locals(&[]);
    let mut code = InstructionSink::new(&mut out);
    code.local_get(DST).local_get(SRC);
    code.local_get(DST).local_get(SRC).i32_gt_u().select();
    is_in_memory(&mut code);
    code.i32_eqz().if_(BlockType::Empty);
    code.local_get(DST).local_get(SRC).local_get(N).memory_copy(0, 0).end();

    code.local_get(DST).local_get(SRC).i32_gt_u().if_(BlockType::Empty);
    begin(&mut code, places);
    code.local_get(N).i32_const(PIECE as i32).i32_sub().local_set(N);
    for start in [DST, SRC] {
        code.local_get(start).local_get(N).i32_add();
    }
    code.i32_const(PIECE as i32).call(short);
    code.local_get(N).i32_const(PIECE as i32).i32_gt_u().br_if(0).end();
    code.else_();
    begin(&mut code, places);
    code.local_get(DST).local_get(SRC).i32_const(PIECE as i32).call(short);
    advance(&mut code, &[DST, SRC]);
    code.end().end();
    code.local_get(DST).local_get(SRC).local_get(N).call(short).end();
    out
}

/// Leaves more than one piece to `long`, in one of the functions here.
///
/// It has to be a call, and `long` has to call the function in return: the compiler copies functions into
/// their callers, but not those that call each other. So only this branch is added to what is short.
pub(crate) fn leave_long(code: &mut InstructionSink<'_>, long: u32) {
    code.local_get(N).i32_const(PIECE as i32).i32_gt_u().if_(BlockType::Empty);
    code.local_get(DST).local_get(SRC).local_get(N).call(long).return_().end();
}

/// Replaces the address on the stack by whether N bytes from it on are in memory.
fn is_in_memory(code: &mut InstructionSink<'_>) {
    code.i64_extend_i32_u().local_get(N).i64_extend_i32_u().i64_add();
    code.memory_size(0).i64_extend_i32_u().i64_const(16).i64_shl().i64_le_u();
}

/// Begins a loop over pieces.
fn begin(code: &mut InstructionSink<'_>, places: Option<u32>) {
    code.loop_(BlockType::Empty);
    if let Some(places) = places {
        poll::apart(code, places);
    }
}

/// Moves on by one piece, and continues with the loop if more than one is left.
fn advance(code: &mut InstructionSink<'_>, starts: &[u32]) {
    for start in starts {
        code.local_get(*start).i32_const(PIECE as i32).i32_add().local_set(*start);
    }
    code.local_get(N).i32_const(PIECE as i32).i32_sub().local_tee(N);
    code.i32_const(PIECE as i32).i32_gt_u().br_if(0);
}

/// Returns `(n) -> n`: it charges for a bulk memory instruction of n bytes.
pub(crate) fn charge_length(fuel: u32) -> Vec<u8> {
    let mut out = locals(&[(1, ValType::I64)]);
    let mut code = InstructionSink::new(&mut out);
    charge(&mut code, 0, 1, fuel);
    code.local_get(0).end();
    out
}

/// Charges for the length in local `n`, with local `temporary`.
pub(crate) fn charge(code: &mut InstructionSink<'_>, n: u32, temporary: u32, fuel: u32) {
    code.global_get(fuel).local_get(n).i64_extend_i32_u().i64_const(BULK_SHIFT.into()).i64_shr_u();
    code.i64_const(BULK as i64).i64_add().i64_sub().local_tee(temporary).global_set(fuel);
    code.local_get(temporary).i64_const(0).i64_lt_s();
    code.if_(BlockType::Empty).unreachable().end();
}

/// Begins a body, with locals beside its parameters.
pub(crate) fn locals(groups: &[(u32, ValType)]) -> Vec<u8> {
    let mut out = Vec::new();
    (groups.len() as u32).encode(&mut out);
    for (count, ty) in groups {
        count.encode(&mut out);
        ty.encode(&mut out);
    }
    out
}
