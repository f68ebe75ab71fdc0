//! The costs of analysing modules of the largest size: time almost linear in their size, and memory within
//! limits.

use flame_bounds::analyse_exports;
use std::time::{Duration, Instant};
use wasm_encoder::{
    BlockType, CodeSection, ExportKind, ExportSection, Function, FunctionSection, MemArg, MemorySection,
    MemoryType, Module, TypeSection, ValType,
};

/// Returns functions that call the one before twice, with nested loops, a table of labels, and memory in
/// between.
fn module(bytes: usize) -> Vec<u8> {
    let at = |offset| MemArg { offset, align: 2, memory_index: 0 };
    let (mut functions, mut code, mut number) = (FunctionSection::new(), CodeSection::new(), 0);
    while code.byte_len() < bytes {
        let mut f = Function::new([(6, ValType::I32)]);
        let mut i = f.instructions();
        for round in 0..6 {
            i.local_get(0).i32_const(1023).i32_and().local_set(4);
            i.block(BlockType::Empty).loop_(BlockType::Empty);
            i.local_get(1).local_get(4).i32_ge_u().br_if(1);
            i.block(BlockType::Empty).block(BlockType::Empty).block(BlockType::Empty);
            i.local_get(1).i32_const(3).i32_and().br_table([0, 1], 2).end();
            i.local_get(2).local_get(1).i32_load(at(round)).i32_add().local_set(2).end();
            i.i32_const(16).local_get(2).i32_store(at(4)).end();
            i.i32_const(0).local_set(3).loop_(BlockType::Empty);
            i.local_get(3).i32_const(4).i32_add().local_tee(3).i32_const(64).i32_ne().br_if(0).end();
            i.local_get(1).i32_const(1).i32_add().local_set(1).br(0).end().end();
            i.i32_const(0).local_set(1);
        }
        for back in [1, 2] {
            if let Some(callee) = u32::checked_sub(number, back).filter(|_| number % 64 >= back) {
                i.local_get(2).call(callee).local_set(2);
            }
        }
        i.local_get(2).end();
        functions.function(0);
        code.function(&f);
        number += 1;
    }
    let (mut types, mut memories, mut exports) =
        (TypeSection::new(), MemorySection::new(), ExportSection::new());
    types.ty().function([ValType::I32], [ValType::I32]);
    let maximum = None;
    memories.memory(MemoryType { minimum: 1, maximum, memory64: false, shared: false, page_size_log2: None });
    exports.export("f", ExportKind::Func, number - 1);
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&memories).section(&exports).section(&code);
    module.finish()
}

/// Returns the peak memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10
}

#[test]
fn time_grows_with_size_and_memory_stays_within_two_gibibytes() {
    let time = |bytes: usize| {
        let wasm = module(bytes);
        let start = Instant::now();
        let analysis = analyse_exports(&wasm).unwrap();
        assert_eq!(analysis.entries.len(), 1);
        start.elapsed().max(Duration::from_millis(1))
    };
    let small = time(1 << 20);
    let large = time(10 << 20);
    let ratio = large.as_secs_f64() / small.as_secs_f64();
    println!("1 MiB {small:?}, 10 MiB {large:?}: {ratio:.1} times; {} MiB at most", peak() >> 20);
    assert!(ratio < 25.0, "ten times as large takes {ratio:.1} times as long");
    assert!(peak() <= 2 << 30, "{} bytes of memory", peak());
}
