//! Tests of counters in bounded modules: what is proved is not cut off by a count, and what diverges is.

use crate::common::{MANIFEST, Memory, install, request, run, with_manifest};
use flame_abi::output::REST;
use flame_plan::ModuleClass;
use flame_run::Engines;

/// Returns a module whose batches, or the calls for the rest of their output, call a function that a
/// diverging one calls as well, so it counts. Each iteration takes one of two branches of 90 instructions,
/// and both are charged.
fn shared(batch: &str, rest: &str) -> Vec<u8> {
    let some = "(local.set $x (i32.add (local.get $x) (i32.const 3)))".repeat(90);
    let text = format!(
        r#"(module (memory (export "memory") 1)
          (func $f (param $x i32) (result i32) (local $i i32)
            (loop $l
              (if (i32.and (local.get $i) (local.get $x)) (then {some}) (else {some}))
              (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 2400))))
            (local.get $x))
          (func $die (drop (call $f (i32.const 1))) unreachable)
          (func $work (if (i32.eq (call $f (i32.load (i32.const 16))) (i32.const 77)) (then (call $die))))
          (func (export "flame_batch") (param i32) (result i64) {batch} (i64.const {REST}))
          (func (export "flame_rest") (result i64) {rest} (i64.const 0)))"#
    );
    with_manifest(wat::parse_str(text).unwrap(), MANIFEST.as_bytes())
}

#[test]
fn a_bounded_module_is_not_cut_off_within_its_bound() {
    let engines = Engines::new().unwrap();
    for (batch, rest) in [("(call $work)", ""), ("", "(call $work)")] {
        let plan = install(&shared(batch, rest), &request()).unwrap();
        assert_eq!(plan.class, ModuleClass::Bounded, "within its budget of 1000000");
        let (report, _) = run(&engines, vec![plan], 1, Box::new(Memory::tcp(8, 2)), 1).unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        assert_eq!(report.accounts[0].1.processed, 8);
    }
}

/// Nothing is proved about a function that diverges: the bound contains a part for it.
#[test]
fn a_function_that_diverges_is_cut_off_at_its_part_of_the_bound() {
    let engines = Engines::new().unwrap();
    let batch = "(call $work) (if (i32.eqz (i32.load (i32.const 20))) (then (call $die)))";
    let plan = install(&shared(batch, ""), &request()).unwrap();
    assert_eq!(plan.class, ModuleClass::Bounded);
    let (report, _) = run(&engines, vec![plan], 1, Box::new(Memory::tcp(8, 2)), 1).unwrap();
    let text = &report.faults[0].text;
    assert!(text.contains("code that does not return ran for too long"), "{text}");
}

/// Each packet costs as much as the longest that may come, and nothing interrupts a batch.
#[test]
fn a_batch_has_no_more_packets_than_its_bound_lets_pass_uninterrupted() {
    // It loops 25 times over the length of the first packet for each of them, and keeps the largest batch.
    let text = r#"(module (memory (export "memory") 1)
      (data (i32.const 0) "\08\00\00\00\00\00\00\00")
      (func (export "flame_batch") (param $b i32) (result i64)
        (local $n i32) (local $i i32) (local $cap i32) (local $j i32) (local $k i32)
        (local.set $n (i32.load offset=4 (local.get $b)))
        (local.set $cap (i32.load offset=20 (i32.load (local.get $b))))
        (if (i64.gt_u (i64.extend_i32_u (local.get $n)) (i64.load (i32.const 8)))
          (then (i64.store (i32.const 8) (i64.extend_i32_u (local.get $n)))))
        (loop $packet
          (local.set $j (i32.const 0))
          (block $done (loop $byte
            (br_if $done (i32.ge_u (local.get $j) (local.get $cap)))
            (local.set $k (i32.const 0))
            (loop $e (br_if $e (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 25))))
            (local.set $j (i32.add (local.get $j) (i32.const 1)))
            (br $byte)))
          (br_if $packet (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $n))))
        (i64.const 0))
      (func (export "flame_end") (param i64) (result i64) (i64.const 0x1000000000)))"#;
    let manifest = format!("{MANIFEST}\n[needs]\nexpose = \"all\"\n[limits]\npacket_budget = 100000000\n");
    let wasm = with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes());
    let engines = Engines::new().unwrap();
    let mut request = request();
    request.limits.packet_budget = 100_000_000;
    request.view.expose = flame_plan::Expose::All;
    let plan = install(&wasm, &request).unwrap();
    let most = plan.limits.batch;
    assert_eq!(plan.class, ModuleClass::Bounded);
    let (report, lines) = run(&engines, vec![plan], 1, Box::new(Memory::tcp(2_000, 50)), 256).unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert!(most < 256 && lines[0].ends_with(&format!("={most}")), "{most} packets, {lines:?}");
}
