//! The form of the timed loops.

use wasm_encoder::{Function, InstructionSink, ValType};

/// The arguments of every loop: the number of iterations, the start value, the operand, and the second
/// operand.
pub type Arguments = (i32, i64, i64, i64);

pub const ITERATIONS: u32 = 0;
const START: u32 = 1;
const Y: u32 = 2;
/// The second operand, an `i64`.
pub const Z: u32 = 3;
/// The operand, of the lanes' type.
pub const OPERAND: u32 = 4;
const LANES: u32 = 5;

/// The distance between the first values of two lanes. If they are addresses, it is a cache line.
pub const APART: i64 = 64;

/// Indices of functions before those of the loops.
pub const HOST: u32 = 0;
pub const CALLEE: u32 = 1;
pub const IMPORTS: u32 = 1;

/// Indices of the functions' types.
pub const LOOP_TYPE: u32 = 0;
pub const CALLEE_TYPE: u32 = 1;
pub const HOST_TYPE: u32 = 2;

/// The initial number of memory pages, which all loops but those of [`crate::latency`] use.
pub const PAGES: u64 = 4;

pub const EMPTY: &str = "empty";
pub const HOST_CALL: &str = "host-call";
/// The number of copies of the call in one iteration.
pub const HOST_CALLS: u32 = 16;

/// The position of an instruction in an iteration.
#[derive(Clone, Copy)]
pub struct Step {
    /// The number of the copy, from 0.
    pub copy: u32,
    /// The number of earlier copies in the same lane.
    pub round: u32,
    /// The index of the local that holds the lane's value, of the lanes' type.
    pub lane: u32,
}

/// Writes one instruction of an iteration, with its operands.
pub type Body = fn(&mut InstructionSink<'_>, Step);

/// A loop over values in lanes, each of which is a chain. Copies of the body are assigned to lanes in turn.
pub struct Shape {
    pub lane: ValType,
    pub lanes: u32,
    pub copies: u32,
    pub body: Body,
}

impl Shape {
    /// Returns the code of the loop.
    pub fn function(&self) -> Function {
        let mut function = Function::new([(1 + self.lanes, self.lane)]);
        let mut code = function.instructions();
        code.local_get(Y);
        into_lane(&mut code, self.lane);
        code.local_set(OPERAND);
        for lane in 0..self.lanes {
            code.local_get(START).i64_const(i64::from(lane) * APART).i64_add();
            into_lane(&mut code, self.lane);
            code.local_set(LANES + lane);
        }
        // A body leaves the loop with `br_if 1`.
        code.block(wasm_encoder::BlockType::Empty).loop_(wasm_encoder::BlockType::Empty);
        for copy in 0..self.copies {
            let step = Step { copy, round: copy / self.lanes, lane: LANES + copy % self.lanes };
            (self.body)(&mut code, step);
        }
        code.local_get(ITERATIONS).i32_const(1).i32_sub().local_tee(ITERATIONS).br_if(0).end().end();
        code.i64_const(0);
        for lane in 0..self.lanes {
            code.local_get(LANES + lane);
            from_lane(&mut code, self.lane);
            code.i64_xor();
        }
        code.end();
        function
    }
}

fn into_lane(code: &mut InstructionSink<'_>, lane: ValType) {
    match lane {
        ValType::I32 => code.i32_wrap_i64(),
        ValType::F64 => code.f64_reinterpret_i64(),
        ValType::V128 => code.i64x2_splat(),
        _ => code,
    };
}

fn from_lane(code: &mut InstructionSink<'_>, lane: ValType) {
    match lane {
        ValType::I32 => code.i64_extend_i32_u(),
        ValType::F64 => code.i64_reinterpret_f64(),
        ValType::V128 => code.i64x2_extract_lane(0),
        _ => code,
    };
}
