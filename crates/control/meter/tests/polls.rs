//! Functions without counters poll in each loop and wherever else time may pass, and compute the same as
//! before.

use crate::common::{Run, engine};
use flame_meter::{Metering, rewrite, rewrite_polled};
use flame_verify::cost::DIVERGING;
use std::cell::RefCell;
use std::collections::BTreeSet;
use wasmparser::{Operator, Parser, Payload};
use wasmtime::Val;

/// A memory large enough to contain the polling page, which these tests use instead of a window.
const MEMORY: &str = "(memory 32784 32786)";

const CONSTRUCTS: &[(&str, &str)] = &[
    (
        "tight loops, left in every way",
        crate::common::EXITS,
    ),
    (
        "loop with parameters and several results, left by return",
        "(func $two (param i32) (result i32 i64 f32)
          (i32.const 0) (i64.const 5)
          (loop $l (param i32 i64) (result i32 i64)
            (i64.const 2) (i64.mul)
            (if (i32.gt_s (local.get 0) (i32.const 15)) (then (return (i32.const 1) (i64.const 2) (f32.const 3))))
            (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))
          (f32.const 1.5))
        (func (export \"f\") (param i32) (result i32) (local $r i32)
          (loop $l
            (call $two (i32.add (i32.const 1) (local.get 0))) (drop) (i32.wrap_i64) (i32.add) (local.get $r) (i32.add) (local.set $r)
            (br_if $l (i32.gt_s (local.tee 0 (i32.sub (local.get 0) (i32.const 1))) (i32.const 0))))
          (local.get $r))",
    ),
    (
        "recursion, marks and hints",
        "(func $fib (param i32) (result i32)
          (if (result i32) (i32.lt_s (local.get 0) (i32.const 2)) (then (local.get 0))
            (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1)))
                           (call $fib (i32.sub (local.get 0) (i32.const 2)))))))
         (func (export \"f\") (param i32) (result i32) (local i32 i64)
           (loop $l (local.set 1 (i32.add (local.get 1) (call $fib (i32.rem_u (local.get 0) (i32.const 9)))))
             (br_if $l (i32.gt_s (local.tee 0 (i32.sub (local.get 0) (i32.const 1))) (i32.const 0))))
           (local.get 1))",
    ),
    (
        "bulk memory and tables",
        "(data $d \"0123456789abcdefghijklmnop\") (table $t 8 funcref) (elem $e func $g) (func $g)
         (func (export \"f\") (param i32) (result i32)
          (memory.init $d (i32.const 64) (i32.const 2) (i32.const 20))
          (loop $l
            (memory.fill (i32.const 200) (local.get 0) (i32.const 33))
            (memory.fill (i32.const 300) (local.get 0) (i32.mul (local.get 0) (i32.const 9000)))
            (memory.copy (i32.mul (local.get 0) (i32.const 7)) (i32.const 60) (i32.const 50))
            (memory.copy (i32.const 301) (i32.const 300) (i32.mul (local.get 0) (i32.const 9000)))
            (table.fill $t (i32.const 0) (ref.func $g) (i32.const 4))
            (table.copy $t $t (i32.const 2) (i32.const 0) (i32.const 4))
            (br_if $l (i32.gt_s (local.tee 0 (i32.sub (local.get 0) (i32.const 1))) (i32.const 0))))
          (table.init $t $e (i32.const 1) (i32.const 0) (i32.const 1))
          (i32.add (table.grow $t (ref.null func) (i32.const 2))
            (i32.add (i32.load (i32.const 203)) (i32.mul (memory.grow (i32.const 1)) (i32.const 3)))))",
    ),
];

fn module(text: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {MEMORY} {text})")).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn functions() -> BTreeSet<u32> {
    (0..100).collect()
}

#[test]
fn polls_change_nothing_that_is_computed() {
    let all = functions();
    for (what, text) in CONSTRUCTS {
        let wasm = module(text);
        for (count, counted) in
            [(Metering::Nothing, false), (Metering::Except(&all), false), (Metering::All, true)]
        {
            let polled = rewrite_polled(&wasm, count).unwrap();
            assert_eq!(
                polled == rewrite(&wasm, count).unwrap(),
                counted,
                "{what}: only what does not count polls"
            );
            for arg in [0, 1, 2, 3, 5, 8, 11, 20] {
                let expected = Run::new(&engine(false), &wasm).call("f", &[Val::I32(arg)]);
                let mut run = Run::new(&engine(false), &polled);
                run.set("flame:fuel", crate::common::PLENTY);
                assert_eq!(run.call("f", &[Val::I32(arg)]), expected, "{what}: f({arg})");
            }
        }
    }
}

/// Returns the functions that are called directly, in a module without imports.
fn called(wasm: &[u8]) -> BTreeSet<u32> {
    let mut called = BTreeSet::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let Payload::CodeSectionEntry(body) = payload.unwrap() else { continue };
        for operator in body.get_operators_reader().unwrap() {
            if let Operator::Call { function_index } = operator.unwrap() {
                called.insert(function_index);
            }
        }
    }
    called
}

/// Returns the number of functions.
fn functions_of(wasm: &[u8]) -> u32 {
    let payloads = Parser::new(0).parse_all(wasm).map(Result::unwrap);
    payloads.filter(|payload| matches!(payload, Payload::CodeSectionEntry(_))).count() as u32
}

/// Checks that between two polls there is no back edge, and nothing whose time depends on an operand.
#[test]
fn each_function_loop_and_long_instruction_polls() {
    let (mut loops, mut added) = (0, 0);
    for (what, text) in CONSTRUCTS {
        let own = functions_of(&module(text));
        let polled = rewrite_polled(&module(text), Metering::Nothing).unwrap();
        let called = called(&polled);
        let bodies = Parser::new(0).parse_all(&polled).filter_map(|payload| match payload.unwrap() {
            Payload::CodeSectionEntry(body) => Some(body),
            _ => None,
        });
        for (function, body) in (0_u32..).zip(bodies) {
            let code: Vec<Operator<'_>> =
                body.get_operators_reader().unwrap().into_iter().map(Result::unwrap).collect();
            let used = RefCell::new(BTreeSet::new());
            // Returns where a poll ends: its load, whose result is dropped, relative to a value unknown to
            // the module.
            let load = |at: usize| {
                let Some(
                    [
                        Operator::LocalGet { .. } | Operator::LocalTee { .. },
                        Operator::I32Load { memarg },
                        Operator::Drop,
                    ],
                ) = code.get(at..at + 3)
                else {
                    return false;
                };
                assert!(used.borrow_mut().insert(memarg.offset), "{what}: {:#x} again", memarg.offset);
                true
            };
            // A function that is called directly may be inlined: it takes a new offset. Others read one.
            let takes_place = matches!(
                code.get(..7),
                Some([
                    Operator::GlobalGet { global_index },
                    Operator::I32Const { value: 4 },
                    Operator::I32Add,
                    Operator::I32Const { .. },
                    Operator::I32And,
                    Operator::LocalTee { .. },
                    Operator::GlobalSet { global_index: moved },
                ]) if global_index == moved
            );
            // In added functions each poll takes a new offset.
            let takes_offset = |at: usize| {
                matches!(
                    code.get(at..at + 9),
                    Some([
                        Operator::GlobalGet { .. },
                        Operator::I32Const { value: 4 },
                        Operator::I32Add,
                        Operator::I32Const { .. },
                        Operator::I32And,
                        Operator::GlobalSet { .. },
                        Operator::GlobalGet { .. },
                        Operator::I32Load { .. },
                        Operator::Drop,
                    ])
                )
            };
            if !load(if takes_place { 7 } else { 1 }) {
                // Small functions have no loops, and the function that copies has two for the last bytes.
                let unpolled = code.iter().enumerate().filter(|(i, operator)| {
                    matches!(operator, Operator::Loop { .. }) && !takes_offset(i + 1) && !load(i + 1)
                });
                let unpolled: Vec<_> = unpolled.collect();
                let ends = unpolled.iter().map(|(i, _)| &code[*i..i + 20]);
                let is_last = |body: &[Operator<'_>]| {
                    let end = body.iter().position(|o| matches!(o, Operator::Br { relative_depth: 0 }));
                    let accesses = body
                        .iter()
                        .take(end.unwrap_or(0))
                        .filter(|o| matches!(o, Operator::I32Store8 { .. } | Operator::V128Store { .. }));
                    accesses.count() == 1
                };
                assert!(ends.clone().count() <= 2 && ends.clone().all(is_last), "{what}: {code:?}");
                added += usize::from(code.iter().enumerate().any(|(i, _)| takes_offset(i)));
                continue;
            }
            assert!(matches!(code[0], Operator::GlobalGet { .. }), "{what}: {code:?}");
            assert_eq!(takes_place, called.contains(&function), "{what}: function {function}");
            for (i, operator) in code.iter().enumerate().skip(1) {
                let is_short = matches!(code[i - 1], Operator::If { .. });
                let at = match operator {
                    Operator::Loop { .. } => i + 1,
                    Operator::MemoryFill { .. } if is_short => i - 8,
                    Operator::MemoryFill { .. }
                    | Operator::MemoryInit { .. }
                    | Operator::MemoryGrow { .. }
                    | Operator::TableFill { .. }
                    | Operator::TableCopy { .. }
                    | Operator::TableInit { .. }
                    | Operator::TableGrow { .. } => i - 3,
                    // The function for what is long follows the instruction for what is short.
                    Operator::Call { function_index }
                        if *function_index >= own && !matches!(code[i - 1], Operator::Else) =>
                    {
                        i - 3
                    }
                    _ => continue,
                };
                loops += usize::from(matches!(operator, Operator::Loop { .. }));
                assert!(load(at), "{what}: {operator:?}");
            }
        }
    }
    assert!(loops >= 5, "{loops}");
    assert_eq!(added, 2, "long copies and fills");
}

#[test]
fn without_a_memory_there_is_nothing_to_poll() {
    let wasm = wat::parse_str("(module (func (export \"f\") (loop (br 0))))").unwrap();
    assert_eq!(rewrite_polled(&wasm, Metering::Nothing), rewrite(&wasm, Metering::Nothing));
}

/// A function that diverges, and all that it calls, has so much fuel, whatever the call and its packets have.
#[test]
fn what_diverges_has_little_fuel() {
    let next = "(local.tee 0 (i32.add (local.get 0) (i32.const 1)))";
    for body in [
        "(loop $l (br $l))".to_owned(),
        "(loop $l (call $other (i32.const 7)) (br $l))".to_owned(),
        "(loop $l (call $spin (i32.const 7)) (br $l))".to_owned(),
        format!("(loop $l (br_if $l (i32.ne {next} (i32.const 0))))"),
        format!("(loop $l (call $packet {next}) (br $l))"),
        format!("(loop $l (call $marks {next}) (br $l))"),
    ] {
        let text = format!(
            "(module (import \"flame\" \"packet\" (func $packet (param i32))) {MEMORY}
             (func $spin (param i32) {body})
             (func $other (param i32) (loop $l (br $l)))
             (func $marks (param i32) (call $packet (local.get 0)))
             (func (export \"f\") (param i32) (call $spin (i32.const -1))))"
        );
        let wasm = wat::parse_str(text).unwrap();
        let (uncounted, diverging) = (BTreeSet::from([4]), BTreeSet::from([1, 2]));
        let count = Metering::Verified { uncounted: &uncounted, diverging: &diverging };
        for wasm in [rewrite(&wasm, count).unwrap(), rewrite_polled(&wasm, count).unwrap()] {
            let mut run = Run::new(&engine(true), &wasm);
            for (name, value) in
                [("fuel", i64::MAX), ("packet_budget", i64::MAX), ("count", 1 << 30), ("packet", -1)]
            {
                run.set(&format!("flame:{name}"), value);
            }
            // Each unit is an instruction of the module or one of at most 40 that count it.
            run.store.set_fuel(40 * DIVERGING).unwrap();
            let result = run.call("f", &[Val::I32(0)]).results;
            assert!(result.unwrap_err().contains("unreachable"), "{body}");
            assert_eq!(run.get("flame:packet_budget"), -1);
        }
    }
}
