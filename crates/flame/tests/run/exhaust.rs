//! Tests of small modules that cost an analyser or a compiler far more than their size suggests. Each is
//! refused with a reason or finished within limits, by the child processes' own account of time and memory.

use crate::common::{MANIFEST, for_each, install_by, request, with_manifest};
use flame_compile::{Compiler, Usage, Worker};
use std::time::Duration;
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, ExportKind, ExportSection, Function, FunctionSection, GlobalSection,
    GlobalType, InstructionSink, MemorySection, MemoryType, Module, TypeSection, ValType,
};

/// Types of functions in [`module`]: that of `flame_batch`, none to none, i32 to i32.
const BATCH: u32 = 0;
const NONE: u32 = 1;
const ONE: u32 = 2;

/// The names of modules that are large, and nothing else.
const ORDINARY: [&str; 2] = ["4,000 ordinary functions", "1,000 ordinary functions"];

fn function(locals: u32, code: impl FnOnce(&mut InstructionSink<'_>)) -> Function {
    let mut f = Function::new([(locals, ValType::I32)]);
    let mut i = f.instructions();
    code(&mut i);
    i.end();
    f
}

/// Returns a module whose first function is `flame_batch`.
fn module(globals: u32, functions: &[(u32, Function)]) -> Vec<u8> {
    let (mut types, mut memories, mut exports) =
        (TypeSection::new(), MemorySection::new(), ExportSection::new());
    types.ty().function([ValType::I32], [ValType::I64]);
    types.ty().function([], []);
    types.ty().function([ValType::I32], [ValType::I32]);
    let (mut declared, mut code, mut all) =
        (FunctionSection::new(), CodeSection::new(), GlobalSection::new());
    for (ty, function) in functions {
        declared.function(*ty);
        code.function(function);
    }
    let ty = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
    (0..globals).for_each(|_| {
        all.global(ty, &ConstExpr::i32_const(0));
    });
    let maximum = None;
    memories.memory(MemoryType { minimum: 1, maximum, memory64: false, shared: false, page_size_log2: None });
    exports.export("memory", ExportKind::Memory, 0).export("flame_batch", ExportKind::Func, 0);
    let mut module = Module::new();
    module.section(&types).section(&declared).section(&memories).section(&all).section(&exports);
    module.section(&code);
    with_manifest(module.finish(), MANIFEST.as_bytes())
}

/// Returns a module with `n` calls in one function.
fn calls(n: u32) -> Vec<u8> {
    let batch = function(0, |i| {
        (0..n).for_each(|_| {
            i.call(1);
        });
        i.i64_const(0);
    });
    module(0, &[(BATCH, batch), (NONE, function(0, |_| {}))])
}

/// Returns a module with calls of a function that sets many globals.
fn globals(n: u32) -> Vec<u8> {
    let batch = function(0, |i| {
        (0..1000).for_each(|_| {
            i.call(1);
        });
        i.i64_const(0);
    });
    let sets = function(0, |i| {
        (0..n / 4).for_each(|g| {
            i.i32_const(1).global_set(g);
        });
    });
    module(n, &[(BATCH, batch), (NONE, sets)])
}

/// Returns a module whose functions each call the next.
fn chain(n: u32) -> Vec<u8> {
    let mut functions = vec![(
        BATCH,
        function(0, |i| {
            i.local_get(0).call(1).i64_extend_i32_u();
        }),
    )];
    functions.extend((2..=n).map(|next| {
        (
            ONE,
            function(0, |i| {
                i.local_get(0).i32_const(1).i32_add().call(next);
            }),
        )
    }));
    functions.push((
        ONE,
        function(0, |i| {
            i.local_get(0);
        }),
    ));
    module(0, &functions)
}

/// Returns a module of `br_table`s with `labels` labels each.
fn tables(n: u32, labels: u32) -> Vec<u8> {
    let targets: Vec<u32> = (0..labels).map(|l| l % 2).collect();
    let batch = function(0, |i| {
        (0..=n).for_each(|_| {
            i.block(BlockType::Empty);
        });
        (0..n).for_each(|_| {
            i.local_get(0).br_table(targets.iter().copied(), 0).end();
        });
        i.end().i64_const(0);
    });
    module(0, &[(BATCH, batch)])
}

/// Returns a module of branches that join, each with other values in locals.
fn joins(ifs: u32, locals: u32) -> Vec<u8> {
    let batch = function(locals, |i| {
        for n in 0..ifs {
            i.local_get(0).if_(BlockType::Empty);
            i.local_get(1 + n % locals).i32_const(1).i32_add().local_set(1 + n * 7 % locals).else_();
            i.local_get(1 + n % locals).local_get(1 + n * 3 % locals).i32_mul().local_set(1 + n * 7 % locals);
            i.end();
        }
        i.i64_const(0);
    });
    module(0, &[(BATCH, batch)])
}

/// Returns a module of nested loops, each with an exit.
fn loops(depth: u32) -> Vec<u8> {
    let batch = function(20, |i| {
        for _ in 0..depth {
            i.block(BlockType::Empty).loop_(BlockType::Empty).local_get(0).br_if(1);
        }
        for n in 1..=20 {
            i.local_get(n).i32_const(1).i32_add().local_set(n);
        }
        for _ in 0..depth {
            i.br(0).end().end();
        }
        i.i64_const(0);
    });
    module(0, &[(BATCH, batch)])
}

/// Installs the module with confined children, and returns the refusal, if there is one, and the resources
/// used.
fn installed(wasm: &[u8]) -> (Option<String>, Usage) {
    let worker = Worker::new(env!("CARGO_BIN_EXE_flame"));
    let compiler = Compiler::new(worker.clone(), None);
    let refused = install_by(&compiler, wasm, &request()).err().map(|e| e.to_string());
    (refused, worker.usage())
}

/// Returns ordinary code, of the size of [`flame_bounds`]' own test of large modules.
fn ordinary(functions: u32) -> Vec<u8> {
    let mut all = vec![(
        BATCH,
        function(0, |i| {
            i.i32_const(0).call(1).i64_extend_i32_u();
        }),
    )];
    for n in 1..=functions {
        let body = function(12, |i| {
            for round in 0..12 {
                let (a, b) = (1 + round % 12, 1 + (round * 5 + 3) % 12);
                i.local_get(0).i32_const(round as i32).i32_eq().if_(BlockType::Empty);
                i.local_get(a).i32_const(77 + round as i32).i32_mul().local_get(b).i32_xor().local_set(a);
                i.end().local_get(b).local_get(0).i32_add().local_set(b);
            }
            if n % 4 > 0 && n > 1 {
                i.local_get(3).call(n - 1).local_set(4);
            }
            i.local_get(4);
        });
        all.push((ONE, body));
    }
    module(3, &all)
}

/// A child's memory is never less than this program's, of which the kernel starts it. So these tests have a
/// program with little memory.
#[test]
fn what_would_exhaust_is_refused_by_name_or_done() {
    let _turn = crate::turn();
    let place = "function 0 at offset";
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        // They take longest, as they may.
        (ORDINARY[0], ordinary(4_000), &[]),
        (ORDINARY[1], ordinary(1_000), &[]),
        ("220 KB of calls", calls(110_000), &[]),
        (
            "twice the calls that a function may have",
            calls(300_000),
            &[place, "instructions in one function"],
        ),
        ("54 KB with 10,000 globals", globals(10_000), &["10000 globals", "at most 1000"]),
        ("as many globals as there may be", globals(1_000), &[]),
        ("160 KB of functions that call the next", chain(16_000), &[]),
        ("a chain of ordinary length", chain(60), &[]),
        ("846 KB of br_table", tables(999, 850), &[place, "labels of br_table in one function"]),
        ("a large switch", tables(3, 10_000), &[]),
        ("5 KB of joins", joins(200, 20), &[]),
        ("50 KB of joins", joins(2_000, 400), &[]),
        ("loops in loops", loops(120), &[]),
        ("150,000 ifs over 4,000 locals", joins(150_000, 4_000), &[place, "locals times blocks"]),
        ("a tenth of it", joins(15_000, 4_000), &[place, "locals times blocks"]),
    ];
    for ((name, wasm, expected), (refused, used)) in
        cases.iter().zip(for_each(cases, |(_, wasm, _)| installed(wasm)))
    {
        println!("{name}, {} bytes: {used:?}, {refused:?}", wasm.len());
        match &refused {
            None => assert!(expected.is_empty(), "{name}: {expected:?} expected"),
            Some(reason) => {
                assert!(!expected.is_empty(), "{name}: {reason}");
                expected.iter().for_each(|word| assert!(reason.contains(word), "{name}: {word}: {reason}"));
            }
        }
        if ORDINARY.contains(name) {
            continue;
        }
        // An idle machine takes a quarter of the time.
        assert!(used.cpu < Duration::from_secs(8), "{name}: {used:?}");
        assert!(used.memory < 1 << 30, "{name}: {used:?}");
    }
}
