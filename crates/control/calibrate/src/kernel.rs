//! The timed loops, as one Wasm module.
//!
//! All values are computed from parameters and returned, so the compiler cannot omit anything.

use crate::CalibrateError;
use crate::classes::RECIPES;
use crate::shape::{
    CALLEE, CALLEE_TYPE, EMPTY, HOST, HOST_CALL, HOST_CALLS, HOST_TYPE, IMPORTS, LOOP_TYPE, PAGES, Shape,
    Step,
};
use wasm_encoder::{
    CodeSection, ConstExpr, ElementSection, Elements, EntityType, ExportKind, ExportSection, Function,
    FunctionSection, ImportSection, InstructionSink, MemorySection, MemoryType, Module, RefType,
    TableSection, TableType, TypeSection, ValType,
};

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
