//! The timed loops, as one Wasm module.
//!
//! All values are computed from parameters and returned, so the compiler cannot omit anything.

use crate::CalibrateError;
use crate::classes::RECIPES;
use wasm_encoder::{
    CodeSection, ConstExpr, ElementSection, Elements, EntityType, ExportKind, ExportSection, Function,
    FunctionSection, ImportSection, InstructionSink, MemorySection, MemoryType, Module, RefType,
    TableSection, TableType, TypeSection, ValType,
};

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
const IMPORTS: u32 = 1;

/// Indices of the functions' types.
const LOOP_TYPE: u32 = 0;
pub const CALLEE_TYPE: u32 = 1;
const HOST_TYPE: u32 = 2;

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
    fn function(&self) -> Function {
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

/// Returns its argument plus one. It is recursive and has a long part that never runs, so that it is not
/// inlined.
fn callee() -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    code.local_get(0).i64_eqz().if_(wasm_encoder::BlockType::Empty);
    for _ in 0..1000 {
        code.local_get(0).local_get(0).i64_mul().i64_const(1).i64_add().local_set(0);
    }
    code.local_get(0).call(CALLEE).local_set(0).end();
    code.local_get(0).i64_const(1).i64_add().end();
    function
}

fn host_call(code: &mut InstructionSink<'_>, step: Step) {
    code.local_get(step.lane).i32_wrap_i64().call(HOST);
}

fn wasm() -> Vec<u8> {
    use ValType::{I32, I64};
    let mut loops: Vec<(String, Shape)> = vec![
        (EMPTY.to_owned(), Shape { lane: I64, lanes: 1, copies: 0, body: |_, _| {} }),
        (HOST_CALL.to_owned(), Shape { lane: I64, lanes: 1, copies: HOST_CALLS, body: host_call }),
    ];
    loops.extend(RECIPES.iter().flat_map(|recipe| recipe.loops()));

    let mut types = TypeSection::new();
    types.ty().function([I32, I64, I64, I64], [I64]);
    types.ty().function([I64], [I64]);
    types.ty().function([I32], []);
    let mut imports = ImportSection::new();
    imports.import("host", "call", EntityType::Function(HOST_TYPE));
    let mut functions = FunctionSection::new();
    functions.function(CALLEE_TYPE);
    let mut tables = TableSection::new();
    tables.table(TableType {
        element_type: RefType::FUNCREF,
        minimum: 1,
        maximum: None,
        table64: false,
        shared: false,
    });
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: PAGES,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut elements = ElementSection::new();
    elements.active(None, &ConstExpr::i32_const(0), Elements::Functions([CALLEE][..].into()));
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    // An exported table may be changed from outside, so calls through it stay indirect.
    exports.export("table", ExportKind::Table, 0);
    let mut code = CodeSection::new();
    code.function(&callee());
    for (index, (name, shape)) in (IMPORTS + 1..).zip(&loops) {
        functions.function(LOOP_TYPE);
        exports.export(name, ExportKind::Func, index);
        code.function(&shape.function());
    }
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&tables).section(&memories);
    module.section(&exports).section(&elements).section(&code);
    module.finish()
}

/// Returns the compiled module with all loops.
pub fn compile(engine: &wasmtime::Engine) -> Result<wasmtime::Module, CalibrateError> {
    wasmtime::Module::new(engine, wasm())
        .map_err(|e| CalibrateError::Engine { what: "compiling", reason: format!("{e:#}") })
}
