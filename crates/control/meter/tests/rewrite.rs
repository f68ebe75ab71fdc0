//! One construct at a time: same results, charges that cover the work, and a cut-off where required.

use crate::common::{PLENTY, Run, compare, engine, metered};
use flame_meter::{Metering, ModuleError, rewrite};
use wasmtime::Val;

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("is Wasm text")
}

/// Calls `f` with each argument: results are the same, and the charge covers Wasmtime's count.
fn same(text: &str, args: &[i32]) {
    let wasm = wat(text);
    for arg in args {
        let (spent, charged, outcome) = compare(&wasm, "f", &[Val::I32(*arg)]);
        // Wasmtime adds 1 for entering the function from the host. After a trap in the middle of a function,
        // its own count is ahead or behind.
        assert!(
            outcome.results.is_err() || charged + 1 >= spent,
            "f({arg}): {charged} charged, {spent} spent"
        );
    }
}

const CONSTRUCTS: &[(&str, &str)] = &[
    ("straight line", "(func (export \"f\") (param i32) (result i32) (i32.add (local.get 0) (i32.const 3)))"),
    (
        "loop",
        "(func (export \"f\") (param i32) (result i32) (local i32)
          (loop $l (local.set 1 (i32.add (local.get 1) (local.get 0)))
            (br_if $l (i32.gt_s (local.tee 0 (i32.sub (local.get 0) (i32.const 1))) (i32.const 0))))
          (local.get 1))",
    ),
    (
        "nested loops",
        "(func (export \"f\") (param i32) (result i32) (local i32 i32)
          (loop $o (local.set 1 (i32.const 7))
            (loop $i (local.set 2 (i32.add (local.get 2) (i32.const 3)))
              (br_if $i (local.tee 1 (i32.sub (local.get 1) (i32.const 1)))))
            (br_if $o (i32.gt_s (local.tee 0 (i32.sub (local.get 0) (i32.const 1))) (i32.const 0))))
          (local.get 2))",
    ),
    (
        "return and branches to the function from inside a loop, operands below",
        "(func (export \"f\") (param i32) (result i32)
          (i32.const 100)
          (loop $l (result i32)
            (if (i32.eq (local.get 0) (i32.const 3)) (then (return (i32.const 33))))
            (br_if 1 (i32.const 44) (i32.eq (local.get 0) (i32.const 4))) (drop)
            (drop (block $x (result i32) (block $y (result i32)
              (br_table $x $y 3 $y (i32.const 55) (local.get 0)))))
            (local.set 0 (i32.sub (local.get 0) (i32.const 1)))
            (br_if $l (i32.ge_s (local.get 0) (i32.const 0)))
            (i32.const 9))
          (i32.add))",
    ),
    (
        "br_table over loops and the function",
        "(func (export \"f\") (param i32) (result i32) (local i32)
          (block $out (loop $a (loop $b (block $c
            (local.set 1 (i32.add (local.get 1) (i32.const 1)))
            (br_if $out (i32.gt_u (local.get 1) (i32.const 40)))
            (br_table $c $b $a $out $c (i32.rem_u (i32.mul (local.get 1) (local.get 0)) (i32.const 5))))
            (br_if $b (i32.lt_u (local.get 1) (i32.const 20))))
            (br_if $a (i32.lt_u (local.get 1) (i32.const 30)))))
          (local.get 1))",
    ),
    (
        "loop with parameters and several results",
        "(func $two (param i32) (result i32 i64 f32)
          (i32.const 0) (i64.const 5)
          (loop $l (param i32 i64) (result i32 i64)
            (i64.const 2) (i64.mul)
            (if (i32.gt_s (local.get 0) (i32.const 15)) (then (return (i32.const 1) (i64.const 2) (f32.const 3))))
            (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))
          (f32.const 1.5))
        (func (export \"f\") (param i32) (result i32 i64 f32) (call $two (i32.add (i32.const 1) (local.get 0))))",
    ),
    (
        "recursion",
        "(func $fib (export \"f\") (param i32) (result i32)
          (if (result i32) (i32.lt_s (local.get 0) (i32.const 2)) (then (local.get 0))
            (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1)))
                           (call $fib (i32.sub (local.get 0) (i32.const 2)))))))",
    ),
    (
        "small callees, also of small ones, in a loop",
        "(func $a (param i32) (result i32) (i32.mul (local.get 0) (local.get 0)))
         (func $b (param i32) (result i32) (i32.add (call $a (local.get 0)) (call $a (i32.const 3))))
         (func (export \"f\") (param i32) (result i32) (local i32)
          (loop $l (local.set 1 (i32.add (local.get 1) (call $b (local.get 0))))
            (br_if $l (i32.gt_s (local.tee 0 (i32.sub (local.get 0) (i32.const 1))) (i32.const 0))))
          (local.get 1))",
    ),
    (
        "indirect calls from a loop, one of them to a function with a loop, one to a trap",
        "(type $t (func (param i32) (result i32))) (table 4 funcref) (elem (i32.const 0) $a $b $c)
         (func $a (type $t) (i32.add (local.get 0) (i32.const 1)))
         (func $b (type $t) (local i32)
           (loop $l (br_if $l (i32.lt_s (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 9))))
           (i32.add (local.get 0) (local.get 1)))
         (func $c (type $t) (call $b (call $b (local.get 0))))
         (func (export \"f\") (param i32) (result i32) (local i32)
          (loop $l (local.set 1 (call_indirect (type $t) (local.get 1) (i32.rem_u (local.get 0) (i32.const 4))))
            (br_if $l (i32.gt_s (local.tee 0 (i32.sub (local.get 0) (i32.const 1))) (i32.const 0))))
          (local.get 1))",
    ),
    (
        "bulk memory",
        "(memory (export \"memory\") 1 3) (data $d \"0123456789abcdefghijklmnop\")
         (func (export \"f\") (param i32) (result i32) (local i32)
          (memory.init $d (i32.const 64) (i32.const 2) (i32.const 20))
          (loop $l
            (memory.fill (i32.const 200) (local.get 0) (i32.const 33))
            (memory.copy (i32.mul (local.get 0) (i32.const 7)) (i32.const 60) (i32.const 50))
            (memory.copy (i32.const 210) (i32.const 200) (local.get 0))
            (br_if $l (i32.gt_s (local.tee 0 (i32.sub (local.get 0) (i32.const 1))) (i32.const 0))))
          (data.drop $d)
          (drop (memory.grow (i32.const 1)))
          (i32.add (i32.mul (memory.grow (i32.const 9)) (i32.const 1000)) (memory.size)))",
    ),
    (
        "unreachable code behind return and branches",
        "(func (export \"f\") (param i32) (result i32)
          (loop $l (result i32)
            (br_if $l (i32.gt_s (local.tee 0 (i32.sub (local.get 0) (i32.const 1))) (i32.const 0)))
            (return (i32.const 5)) (br $l) (loop (br 0)) (unreachable)))",
    ),
    (
        "tight loop with every way out: its end, outer blocks, the function, return, tables",
        crate::common::EXITS,
    ),
    (
        "references and SIMD",
        "(table 1 funcref) (elem declare func $g) (func $g)
         (func (export \"f\") (param i32) (result i32)
          (loop $l (br_if $l (local.tee 0 (i32.shr_u (local.get 0) (i32.const 1)))))
          (i32.add (ref.is_null (select (result funcref) (ref.func $g) (table.get 0 (i32.const 0)) (local.get 0)))
            (i32x4.extract_lane 2 (i32x4.splat (i32.const 8)))))",
    ),
];

#[test]
fn each_construct_computes_the_same_and_is_charged() {
    for (what, text) in CONSTRUCTS {
        println!("{what}");
        same(&format!("(module {text})"), &[0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 20]);
    }
}

#[test]
fn without_counting_it_computes_the_same_too() {
    for (what, text) in CONSTRUCTS {
        let wasm = wat(&format!("(module {text})"));
        let plain = rewrite(&wasm, Metering::Nothing).unwrap();
        let engine = engine(false);
        for arg in [0, 1, 5, 20] {
            let expected = Run::new(&engine, &wasm).call("f", &[Val::I32(arg)]);
            let mut run = Run::new(&engine, &plain);
            assert_eq!(run.call("f", &[Val::I32(arg)]), expected, "{what}");
            assert_eq!(run.get("flame:fuel"), 0, "{what}");
        }
    }
}

/// Every budget below the charge causes a cut-off with negative fuel, and no other budget does.
#[test]
fn the_cut_off_is_exact_and_repeatable() {
    for (what, text) in CONSTRUCTS {
        let wasm = wat(&format!("(module {text})"));
        let (_, charged, expected) = compare(&wasm, "f", &[Val::I32(5)]);
        if expected.results.is_err() {
            continue;
        }
        let engine = engine(false);
        let rewritten = metered(&wasm);
        for fuel in [0, 1, charged / 3, charged - 1, charged, charged + 1] {
            let outcomes: Vec<_> = (0..2)
                .map(|_| {
                    let mut run = Run::new(&engine, &rewritten);
                    run.set("flame:fuel", fuel as i64);
                    let outcome = run.call("f", &[Val::I32(5)]);
                    (outcome, run.get("flame:fuel"))
                })
                .collect();
            assert_eq!(outcomes[0], outcomes[1], "{what}");
            let (outcome, left) = &outcomes[0];
            if fuel < charged {
                let trap = outcome.results.as_ref().unwrap_err();
                assert!(
                    trap.contains("unreachable") && *left < 0,
                    "{what}: {fuel} of {charged}: {trap}, {left} left"
                );
            } else {
                assert_eq!((outcome, *left as u64), (&expected, fuel - charged), "{what}");
            }
        }
    }
}

#[test]
fn endless_modules_end() {
    for text in [
        "(func (export \"f\") (param i32) (result i32) (loop (br 0)) (i32.const 0))",
        "(func (export \"f\") (param i32) (result i32) (loop (nop) (br 0)) (i32.const 0))",
        "(func (export \"f\") (param i32) (result i32) (loop (loop (br 1))) (i32.const 0))",
        "(func $f (export \"f\") (param i32) (result i32) (loop (drop (call $f (i32.const 0))) (br 0)) (i32.const 0))",
        "(table 1 funcref) (elem (i32.const 0) $g) (func $g)
         (func (export \"f\") (param i32) (result i32) (loop (call_indirect (i32.const 0)) (br 0)) (i32.const 0))",
        "(memory 1) (func (export \"f\") (param i32) (result i32)
           (loop (memory.fill (i32.const 0) (i32.const 0) (i32.const 65536)) (br 0)) (i32.const 0))",
        "(memory 1) (func (export \"f\") (param i32) (result i32)
           (loop (drop (memory.grow (i32.const 0))) (br 0)) (i32.const 0))",
    ] {
        let mut run = Run::metered(&wat(&format!("(module {text})")));
        run.set("flame:fuel", 10_000);
        let trap = run.i32("f", &[0]).unwrap_err();
        assert!(trap.contains("unreachable") && run.get("flame:fuel") < 0, "{text}: {trap}");
    }
    // Endless recursion ends on the native stack or by fuel, whichever comes first.
    let text = "(module (func $g (param i32) (result i32) (call $h (local.get 0)))
        (func $h (param i32) (result i32) (i32.add (i32.const 1) (call $g (local.get 0))))
        (func (export \"f\") (param i32) (result i32) (call $g (local.get 0))))";
    for (fuel, expected) in [(1000, "unreachable"), (PLENTY, "stack")] {
        let mut run = Run::metered(&wat(text));
        run.set("flame:fuel", fuel);
        let trap = run.i32("f", &[0]).unwrap_err();
        assert!(trap.contains(expected), "{trap}");
    }
}

/// `f(i)` marks packet i, then spends (a loop of `i` iterations, or nothing).
const MARKS: [&str; 2] = [
    "(import \"flame\" \"packet\" (func $p (param i32)))
     (func (export \"f\") (param i32) (result i32) (local i32)
       (call $p (local.get 0)) (local.set 1 (i32.const 100))
       (loop $l (br_if $l (local.tee 1 (i32.sub (local.get 1) (i32.const 1)))))
       (i32.const 1))",
    "(import \"flame\" \"packet\" (func $p (param i32)))
     (func (export \"f\") (param i32) (result i32) (call $p (local.get 0)) (i32.const 1))",
];

#[test]
fn a_packet_mark_refuels_and_must_increase() {
    for text in MARKS {
        let mut run = Run::metered(&wat(&format!("(module {text})")));
        run.set("flame:count", 4);
        run.set("flame:packet_budget", 5000);
        run.set("flame:fuel", 100);
        assert_eq!((run.i32("f", &[0]), run.get("flame:packet")), (Ok(1), 0));
        let left = run.get("flame:fuel");
        assert!((4000..=5000).contains(&left), "{left}");
        assert_eq!((run.i32("f", &[2]), run.get("flame:packet")), (Ok(1), 2));
        assert_eq!(run.get("flame:fuel"), left);
        for wrong in [2, 1, 0, -1, 4, i32::MAX, i32::MIN] {
            let trap = run.i32("f", &[wrong]).unwrap_err();
            assert!(trap.contains("unreachable"), "{wrong}: {trap}");
            assert_eq!(run.get("flame:packet"), 2);
            assert!(run.get("flame:fuel") >= 0, "a wrong mark is not a cut-off");
        }
        assert_eq!((run.i32("f", &[3]), run.get("flame:packet")), (Ok(1), 3));
    }
}

#[test]
fn a_packet_mark_without_counting_keeps_its_order() {
    let wasm = rewrite(&wat(&format!("(module {})", MARKS[0])), Metering::Nothing).unwrap();
    let mut run = Run::new(&engine(false), &wasm);
    run.set("flame:count", 2);
    assert_eq!((run.i32("f", &[1]), run.get("flame:packet"), run.get("flame:fuel")), (Ok(1), 1, 0));
    assert!(run.i32("f", &[1]).is_err() && run.i32("f", &[2]).is_err());
}

/// Each packet has its own budget if the mark is inside the packet loop, and the index shows which was cut
/// off.
#[test]
fn one_packet_is_cut_off_not_the_batch() {
    let text = "(module (import \"flame\" \"packet\" (func $p (param i32)))
      (func (export \"f\") (param $n i32) (result i32) (local $i i32) (local $k i32)
        (loop $l
          (call $p (local.get $i))
          (local.set $k (select (i32.const 1000) (i32.const 10) (i32.eq (local.get $i) (i32.const 5))))
          (loop $w (br_if $w (local.tee $k (i32.sub (local.get $k) (i32.const 1)))))
          (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $n))))
        (local.get $i)))";
    for (n, expected) in [(5, Ok(5)), (8, Err(5))] {
        let mut run = Run::metered(&wat(text));
        for (name, value) in [("flame:count", 8), ("flame:packet_budget", 200), ("flame:fuel", 200)] {
            run.set(name, value);
        }
        match (run.i32("f", &[n]), expected) {
            (Ok(found), expected) => assert_eq!(Ok(found), expected),
            (Err(_), expected) => {
                assert!(run.get("flame:fuel") < 0);
                assert_eq!(Err(run.get("flame:packet")), expected);
            }
        }
    }
}

/// A memory of the whole address space of 4 GiB stands for a window.
#[test]
fn copies_from_the_window_are_byte_exact() {
    let text = "(module (memory (export \"memory\") 32770)
      (func (export \"f\") (param i32 i32 i32) (result i32)
        (memory.copy (local.get 0) (local.get 1) (local.get 2)) (i32.const 7)))";
    let wasm = wat(text);
    let base = 0x8000_0000_u32 as i32;
    for meter in [true, false] {
        let out = rewrite(&wasm, if meter { Metering::All } else { Metering::Nothing }).unwrap();
        let mut run = Run::new(&engine(false), &out);
        run.set("flame:fuel", PLENTY);
        let memory = run.instance.get_memory(&mut run.store, "memory").unwrap();
        let function = run.instance.get_typed_func::<(i32, i32, i32), i32>(&mut run.store, "f").unwrap();
        let source = 0x8000_0000..0x8000_0000 + 300;
        memory.data_mut(&mut run.store)[source]
            .iter_mut()
            .enumerate()
            .for_each(|(i, b)| *b = i as u8 / 2 + 7);
        for n in 0..=200_usize {
            for from in [0, 1, 62] {
                memory.data_mut(&mut run.store)[..512].fill(0xee);
                let result = function.call(&mut run.store, (100, base + from as i32, n as i32));
                assert_eq!(result.ok(), Some(7), "{n} bytes");
                let data = memory.data(&run.store);
                let at = 0x8000_0000 + from;
                assert_eq!(data[100..100 + n], data[at..at + n]);
                assert!(data[..100].iter().chain(&data[100 + n..512]).all(|b| *b == 0xee), "{n} bytes");
            }
        }
        // Past 4 GiB the copy would wrap to the module's own memory; beyond the mapped part it traps.
        for (from, n) in [(-1, 2), (-16, 17), (base, -1), (-1, 1), (-64, 64)] {
            assert!(function.call(&mut run.store, (100, from, n)).is_err(), "{from} {n}");
        }
        assert!(function.call(&mut run.store, (100, -1, 0)).is_ok());
    }
    // The length is charged before the copy.
    let mut run = Run::new(&engine(false), &metered(&wasm));
    run.set("flame:fuel", 1000);
    assert!(run.i32("f", &[0, base, 65_536]).is_err() && run.get("flame:fuel") < 0);
}

#[test]
fn sections_are_kept_or_dropped_by_name() {
    let text = "(module $m (@custom \"flame.manifest\" \"abi = 1\") (@custom \".debug_info\" \"x\")
      (@custom \"producers\" \"\\00\") (@custom \"linking\" \"y\")
      (memory 1) (func $first (export \"f\") (param i32) (result i32) (local i32)
        (memory.copy (i32.const 0) (i32.const 1) (i32.const 2)) (loop (br_if 0 (local.get 0))) (local.get 0)))";
    let out = metered(&wat(text));
    let mut sections = Vec::new();
    let mut functions = Vec::new();
    for payload in wasmparser::Parser::new(0).parse_all(&out) {
        if let wasmparser::Payload::CustomSection(section) = payload.unwrap() {
            sections.push(section.name());
            let wasmparser::KnownCustom::Name(names) = section.as_known() else { continue };
            for name in names {
                if let wasmparser::Name::Function(map) = name.unwrap() {
                    functions.extend(map.into_iter().map(|n| n.map(|n| (n.index, n.name)).unwrap()));
                }
            }
        }
    }
    sections.sort_unstable();
    assert_eq!(sections, ["flame.manifest", "name", "producers"]);
    let copies = [(1, "flame:copy"), (2, "flame:long_copy"), (3, "flame:counted_copy")];
    assert_eq!(functions, [&[(0, "first")], &copies[..]].concat());
}

#[test]
fn bytes_that_are_not_a_module_are_refused() {
    let metered = Metering::All;
    assert!(matches!(rewrite(b"", metered), Err(ModuleError::Malformed { .. })));
    assert!(matches!(rewrite(b"\0asm\x0d\0\x01\0", metered), Err(ModuleError::Feature { .. })));
    let reserved = wat("(module (func (export \"flame:fuel\")))");
    assert!(matches!(rewrite(&reserved, metered), Err(ModuleError::ReservedExport { .. })));
    // The smallest module gets its counters too.
    assert_eq!(Run::metered(&wat("(module)")).get("flame:packet"), -1);
}
