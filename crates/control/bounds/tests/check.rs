//! Rejected modules, and that each error states the fault, its place and a remedy.

use flame_bounds::{ModuleError, Rules, check};
use flame_meter::{Metering, rewrite};
use std::time::{Duration, Instant};

const MANIFEST: &str = "(@custom \"flame.manifest\" \"abi = 1\")";
const MEMORY: &str = "(memory (export \"memory\") 2 16)";
const BATCH: &str = "(func $b (export \"flame_batch\") (param i32) (result i64) (i64.const 0))";

fn module(parts: &[&str]) -> Vec<u8> {
    wat::parse_str(format!("(module {})", parts.join("\n"))).expect("is Wasm text")
}

fn refusal(wasm: &[u8]) -> String {
    check(wasm, &Rules::default()).expect_err("is refused").to_string()
}

#[test]
fn a_whole_module_passes() {
    let wasm = module(&[
        "(import \"flame\" \"packet\" (func (param i32)))",
        MANIFEST,
        MEMORY,
        BATCH,
        "(func (export \"flame_tick\") (param i64) (result i64) (i64.const 0))",
        "(func (export \"flame_pressure\") (param i64) (result i64) (i64.const 0))",
        "(global (export \"flame_panic_text\") i32 (i32.const 16))",
    ]);
    let checked = check(&wasm, &Rules::default()).unwrap();
    assert_eq!(checked.manifest, b"abi = 1");
    assert_eq!((checked.memory_min, checked.memory_max), (2 << 16, Some(16 << 16)));
    let exports = checked.exports;
    assert!(
        exports.tick
            && exports.pressure
            && exports.panic_text
            && !exports.init
            && !exports.end
            && !exports.message
    );
    assert!(checked.marks_packets);
    assert!(rewrite(&wasm, Metering::All).is_ok());
}

#[test]
fn each_fault_is_named_with_its_place_and_remedy() {
    let body = |code: &str| format!("(table 1 funcref) (elem $e funcref) (func $deep {code})");
    let cases: &[(&[&str], &[&str])] = &[
        (&[MEMORY, BATCH], &["flame.manifest", "flame build"]),
        (&[MANIFEST, MANIFEST, MEMORY, BATCH], &["second", "flame.manifest", "offset"]),
        (&[MANIFEST, BATCH], &["\"memory\" is missing"]),
        (&[MANIFEST, MEMORY], &["\"flame_batch\" is missing", "(param i32) (result i64)", "export it"]),
        (
            &[MANIFEST, MEMORY, "(func (export \"flame_bacth\"))"],
            &["\"flame_batch\" is missing", "did you mean", "flame_bacth"],
        ),
        (
            &[MANIFEST, MEMORY, "(func (export \"flame_batch\") (param i64) (result i64) (i64.const 0))"],
            &[
                "\"flame_batch\" is (func (param i64) (result i64))",
                "expected (func (param i32) (result i64))",
            ],
        ),
        (&[MANIFEST, MEMORY, "(global (export \"flame_batch\") i32 (i32.const 0))"], &["is a global"]),
        (
            &[MANIFEST, MEMORY, BATCH, "(func (export \"flame_pressure\"))"],
            &["\"flame_pressure\" is (func)", "expected (func (param i64) (result i64))"],
        ),
        (
            &[MANIFEST, MEMORY, BATCH, "(global (export \"flame_panic_text\") (mut i32) (i32.const 0))"],
            &["mutable global", "immutable global of type i32"],
        ),
        (
            &["(import \"env\" \"malloc\" (func (param i32)))", MANIFEST, MEMORY, BATCH],
            &["import section", "\"env\" \"malloc\"", "\"flame\" \"packet\""],
        ),
        (
            &["(import \"flame\" \"packet\" (func (param i64)))", MANIFEST, MEMORY, BATCH],
            &["(func (param i64))", "expected (func (param i32))"],
        ),
        (
            &["(import \"env\" \"memory\" (memory 1))", MANIFEST, BATCH],
            &["imports the memory", "--import-memory"],
        ),
        (&["(import \"env\" \"t\" (table 1 funcref))", MANIFEST, MEMORY, BATCH], &["imports the table"]),
        (&["(import \"env\" \"g\" (global i32))", MANIFEST, MEMORY, BATCH], &["imports the global"]),
        (&[MANIFEST, MEMORY, BATCH, "(func $s) (start $s)"], &["start function", "flame_init"]),
        (
            &[MANIFEST, MEMORY, BATCH, "(global (export \"flame:fuel\") i32 (i32.const 0))"],
            &["reserved", "rename"],
        ),
        (
            &[MANIFEST, MEMORY, BATCH, "(func (export \"_initialize\"))"],
            &["_initialize", "flame_init", "start files", "export section"],
        ),
        (
            &[MANIFEST, BATCH, "(memory (export \"memory\") 20000)"],
            &["bytes of memory at the start", "1073741824"],
        ),
        (&[MANIFEST, MEMORY, BATCH, "(table 70000 funcref)"], &["70000 table elements, at most 65536"]),
        (&[MANIFEST, MEMORY, BATCH, "(table 1 externref)"], &["externref"]),
        (
            &[MANIFEST, MEMORY, BATCH, &body("(table.set 0 (i32.const 0) (ref.null func))")],
            &["table.set", "\"deep\""],
        ),
        (
            &[MANIFEST, MEMORY, BATCH, &body("(drop (table.grow 0 (ref.null func) (i32.const 1)))")],
            &["table.grow", "code section"],
        ),
        (
            &[MANIFEST, MEMORY, BATCH, &body("(table.fill 0 (i32.const 0) (ref.null func) (i32.const 1))")],
            &["table.fill"],
        ),
        (
            &[MANIFEST, MEMORY, BATCH, &body("(table.copy (i32.const 0) (i32.const 0) (i32.const 1))")],
            &["table.copy"],
        ),
        (
            &[MANIFEST, MEMORY, BATCH, &body("(table.init $e (i32.const 0) (i32.const 0) (i32.const 0))")],
            &["table.init"],
        ),
        (&[MANIFEST, MEMORY, BATCH, &body("(elem.drop $e)")], &["elem.drop"]),
        (
            &[MANIFEST, MEMORY, BATCH, "(func $x (local i32) (local.set 0 (i64.const 1)))"],
            &["not valid", "\"x\"", "offset"],
        ),
        (
            &[MANIFEST, MEMORY, BATCH, "(func $x (drop (i32.atomic.load (i32.const 0))))"],
            &["threads", "-pthread"],
        ),
        (&[MANIFEST, MEMORY, BATCH, "(func $x (return_call $x))"], &["tail calls"]),
        (&[MANIFEST, MEMORY, BATCH, "(tag)"], &["exceptions", "-fno-exceptions"]),
        (&[MANIFEST, BATCH, "(memory (export \"memory\") i64 1)"], &["memory64", "wasm32"]),
        (&[MANIFEST, MEMORY, BATCH, "(memory 1)"], &["multi-memory"]),
        (&[MANIFEST, BATCH, "(memory (export \"memory\") 1 2 shared)"], &["threads"]),
        (&[MANIFEST, MEMORY, BATCH, "(type (struct))"], &["may not"]),
        (&[MANIFEST, MEMORY, BATCH, "(func $x (drop (ref.null extern)))"], &["may not"]),
        (
            &[
                MANIFEST,
                MEMORY,
                BATCH,
                "(func (param v128 v128 v128) (result v128)
                   (i8x16.relaxed_laneselect (local.get 0) (local.get 1) (local.get 2)))",
            ],
            &["relaxed SIMD"],
        ),
    ];
    for (parts, expected) in cases {
        let text = refusal(&module(parts));
        for word in *expected {
            assert!(text.contains(word), "expected {word:?} in: {text}");
        }
    }
    assert!(refusal(b"\0asm\x0d\0\x01\0").contains("component"));
    assert!(refusal(b"\x7fELF").contains("not valid Wasm"));
    assert!(refusal(b"\0asm\x01\0\0\0\x01").contains("not valid Wasm"));
}

#[test]
fn size_limits() {
    let rules = Rules { module_bytes: 8, ..Rules::default() };
    let wasm = module(&[MANIFEST, MEMORY, BATCH]);
    assert!(matches!(check(&wasm, &rules), Err(ModuleError::Limit { what: "bytes", limit: 8, .. })));
    let limits: &[(&str, Rules)] = &[
        ("types", Rules { types: 0, ..Rules::default() }),
        ("functions", Rules { functions: 0, ..Rules::default() }),
        ("exports", Rules { exports: 1, ..Rules::default() }),
        ("parameters", Rules { params: 0, ..Rules::default() }),
        ("results", Rules { results: 0, ..Rules::default() }),
        ("custom sections", Rules { custom_sections: 1, ..Rules::default() }),
        ("globals", Rules { globals: 0, ..Rules::default() }),
        ("data segments", Rules { segments: 0, ..Rules::default() }),
        ("bytes of data", Rules { data_bytes: 2, ..Rules::default() }),
        ("locals in one function", Rules { locals: 3, ..Rules::default() }),
        ("locals in all functions", Rules { total_locals: 3, ..Rules::default() }),
        ("blocks in blocks", Rules { nesting: 1, ..Rules::default() }),
        ("instructions in one function", Rules { instructions: 11, ..Rules::default() }),
        ("instructions in all functions", Rules { total_instructions: 13, ..Rules::default() }),
        ("labels of br_table in one function", Rules { table_labels: 2, ..Rules::default() }),
        ("labels of br_table in all functions", Rules { total_table_labels: 2, ..Rules::default() }),
        (
            "locals times blocks and branches in one function",
            Rules { locals_by_joins: 15, ..Rules::default() },
        ),
        (
            "globals times blocks, branches and calls in all functions",
            Rules { globals_by_joins: 4, ..Rules::default() },
        ),
    ];
    let wasm = module(&[
        MANIFEST,
        MEMORY,
        BATCH,
        "(global i32 (i32.const 0)) (data \"abc\") \
         (func $work (local i32 i32 i64 i64) (block (block (br_table 0 0 1 (i32.const 0))) (br_if 0 (i32.const 1)) \
         (drop (i32.const 1)) (call $work)))",
    ]);
    assert!(check(&wasm, &Rules::default()).is_ok());
    for (expected, rules) in limits {
        match check(&wasm, rules) {
            Err(ModuleError::Limit { what, .. }) => assert_eq!(what, *expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

/// Text that would disturb a terminal never gets into an error.
#[test]
fn names_are_made_printable() {
    let long = "x".repeat(10_000);
    let text =
        refusal(&module(&[&format!("(import \"\\1b[2J\" \"{long}\" (func))"), MANIFEST, MEMORY, BATCH]));
    assert!(!text.contains('\x1b') && text.len() < 700, "{text}");
}

/// Returns a module around one function's code, written byte by byte.
fn raw(code: &[u8]) -> Vec<u8> {
    use wasm_encoder::*;
    let mut module = Module::new();
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32], [ValType::I64]);
    let mut functions = FunctionSection::new();
    functions.function(0);
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 1,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0).export("flame_batch", ExportKind::Func, 0);
    let mut codes = CodeSection::new();
    let mut body = vec![0];
    body.extend_from_slice(code);
    body.extend_from_slice(&[0x42, 0, 0x0b]);
    codes.raw(&body);
    module.section(&types).section(&functions).section(&memories).section(&exports).section(&codes);
    module.section(&CustomSection { name: "flame.manifest".into(), data: b"abi = 1".into() });
    module.finish()
}

/// A generator of code of a given size.
type Shape = Box<dyn Fn(usize) -> Vec<u8>>;

/// Nesting, counts and sizes at the limit: an answer, whatever it is, in time that grows linearly with the
/// bytes.
#[test]
fn hostile_shapes_are_answered_in_linear_time() {
    let nest = |open: &[u8], n: usize| [open.repeat(n), vec![0x0b; n]].concat();
    let chain = |unit: &[u8], n: usize| unit.repeat(n);
    let br_table = |n: usize| {
        let mut code = vec![0x20, 0, 0x0e];
        wasm_encoder::Encode::encode(&(n as u32), &mut code);
        // Labels inside a loop, so that the rewriter must keep them all.
        code.extend(vec![0; n + 1]);
        [&[0x03, 0x40][..], &code, &[0x0b]].concat()
    };
    let shapes: Vec<(&str, Shape)> = vec![
        ("nested blocks", Box::new(move |n| nest(&[0x02, 0x40], n))),
        ("nested loops", Box::new(move |n| nest(&[0x03, 0x40], n))),
        ("nested ifs", Box::new(move |n| nest(&[0x41, 0, 0x04, 0x40], n))),
        ("blocks in a row", Box::new(move |n| chain(&[0x02, 0x40, 0x0b], n))),
        ("loops in a row", Box::new(move |n| chain(&[0x03, 0x40, 0x0b], n))),
        ("calls", Box::new(move |n| chain(&[0x41, 0, 0x10, 0, 0x1a], n))),
        ("br_table", Box::new(br_table)),
    ];
    for (what, shape) in shapes {
        let mut times = Vec::new();
        // Below the limits on nesting, on one function's instructions and on its labels.
        let most = if what.contains("nested") { 10_000 } else { 60_000 };
        for n in [most / 10, most] {
            let wasm = raw(&shape(n));
            let start = Instant::now();
            let checked = check(&wasm, &Rules::default());
            let rewritten = rewrite(&wasm, Metering::All);
            times.push(start.elapsed());
            if n < most {
                assert!(checked.is_ok() && rewritten.is_ok(), "{what}: {checked:?}");
            }
        }
        println!("{what}: {times:?}");
        // Ten times the size; quadratic growth would be a hundred. Small times are noise.
        assert!(times[1] < times[0] * 40 + Duration::from_secs(1), "{what}: {times:?}");
    }
}

/// A chain of functions, each calling the next twice: the weight doubles at each, to far beyond 64 bits.
#[test]
fn doubling_call_chains_do_not_overflow() {
    for small in [true, false] {
        let export = |i: usize| if small || i == 0 { String::new() } else { format!("(export \"e{i}\")") };
        let mut text: String = (0..200)
            .map(|i| format!("(func $f{i} {} (call $f{}) (call $f{}))", export(i), i + 1, i + 1))
            .collect();
        text.push_str(
            "(func $f200) (func (export \"flame_batch\") (param i32) (result i64) (call $f0) (i64.const 0))",
        );
        let wasm = module(&[MANIFEST, MEMORY, &text]);
        assert!(check(&wasm, &Rules::default()).is_ok());
        assert!(rewrite(&wasm, Metering::All).is_ok());
    }
}

/// Every prefix, and every byte changed, of a module with all sections.
#[test]
fn damaged_modules_never_panic() {
    let wasm = module(&[
        "(type (func (param i32) (result i32))) (import \"flame\" \"packet\" (func $p (param i32)))",
        MANIFEST,
        MEMORY,
        BATCH,
        "(table 2 funcref) (elem (i32.const 0) $f $f) (global (mut i32) (i32.const 0)) (data $d \"abc\")",
        "(func $f (param i32) (result i32) (local i64 i32)
           (call $p (i32.const 0)) (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1))
           (loop (br_if 0 (local.get 0)) (br_table 0 1 0 (i32.const 5) (local.get 0)))
           (call_indirect (param i32) (result i32) (i32.const 0) (i32.const 0)))",
    ]);
    assert!(check(&wasm, &Rules::default()).is_err() || rewrite(&wasm, Metering::All).is_ok());
    let each = |bytes: &[u8]| {
        let _ = check(bytes, &Rules::default());
        let _ = rewrite(bytes, Metering::All);
    };
    for end in 0..wasm.len() {
        each(&wasm[..end]);
    }
    for at in 0..wasm.len() {
        for flip in [0x01, 0x02, 0x08, 0x40, 0x80, 0xff] {
            let mut damaged = wasm.clone();
            damaged[at] ^= flip;
            each(&damaged);
        }
    }
}
