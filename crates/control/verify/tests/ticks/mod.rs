//! Bounds of ticks and batches, as text.

use super::modules::{fact, note};
use flame_verify::{Certificate, Cost, Form, LoopNote, Notes, Reference, Refused, verify};
use std::collections::{BTreeMap, BTreeSet};

/// Functions 2 to 8: a leaf of 9, its caller, one that diverges, a recursive one, two that are called through
/// tables, and one without a bound.
pub const HEAD: &str = r#"(type $t (func (param i32) (result i32))) (type $v (func))
    (import "flame" "packet" (func $packet (param i32))) (import "flame" "cold" (func $cold))
    (memory (export "memory") 1) (table 5 5 funcref) (elem (i32.const 0) func $leaf $middle $cold $long)
    (data $data "12345678") (global $m (mut i32) (i32.const 0))
    (func $leaf (type $t) (local i32) (drop (i32.add (i32.const 1) (i32.const 2)))
      (if (result i32) (local.get 0) (then (i32.const 1)) (else (i32.add (i32.const 1) (i32.const 2)))))
    (func $middle (type $t) (call $leaf (i32.const 5)))
    (func $never (drop (i32.const 1)) (loop (br 0)))
    (func $again (param i32) (result i32) (call $again (i32.const 5)))
    (type $x (func (param i64 i64))) (global funcref (ref.func $by_global)) (type $y (func (param f32)))
    (func $long (type $x) (loop (br 0))) (func $by_global (type $y) (drop (i32.const 1)) (drop (i32.const 2)))
    (func $endless (loop (br_if 0 (i32.load (i32.const 0)))))"#;
pub const FIRST: u32 = 9;

pub fn certificate(notes: Notes) -> Certificate {
    let none = Notes::default;
    Certificate {
        summaries: vec![(2, none()), (3, none()), (7, none()), (8, none())],
        diverging: BTreeSet::from([4]),
        entries: BTreeMap::from([(FIRST, notes)]),
    }
}

pub fn bound(text: &str, notes: Notes) -> Result<Cost, Refused> {
    let text = format!("(module {HEAD} {text})");
    let wasm = wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&wasm, &certificate(notes).to_bytes()).unwrap().entries[0].bound
}

/// Returns the cost of a tick with this body, without its entry and its result.
pub fn tick(body: &str, notes: Notes) -> String {
    let text = format!(
        r#"(func (export "flame_tick") (param i64) (result i64) (local $i i32) (local $j i32) (local $k i64) (local $x i32)
            {body} (i64.const 0))"#
    );
    match bound(&text, notes) {
        Ok(cost) => {
            assert_eq!(cost.of_packet(), flame_verify::Poly::ZERO, "{body}");
            cost.call.as_constant().map_or_else(|| cost.call.to_string(), |n| (n - 2).to_string())
        }
        Err(why) => why.rule.to_string(),
    }
}

pub fn plain(body: &str) -> String {
    tick(body, Notes::default())
}

/// Returns the costs of a batch without its entry and its result: of the call, of loops over the batch, and
/// of each packet.
pub fn batch(body: &str, notes: Notes) -> (String, String, String) {
    let text = format!(
        r#"(func (export "flame_batch") (param $b i32) (result i64) (local $n i32) (local $i i32) (local $d i32) (local $l i32) (local $j i32)
            {body} (i64.const 0))"#
    );
    let cost = bound(&text, notes).unwrap_or_else(|why| panic!("{why}"));
    let call = cost.call.as_constant().map_or_else(|| cost.call.to_string(), |n| (n - 2).to_string());
    (call, cost.each.to_string(), cost.packet.to_string())
}

pub fn is(found: &(String, String, String), call: &str, each: &str, packet: &str) {
    assert_eq!((&*found.0, &*found.1, &*found.2), (call, each, packet));
}

pub fn step(local: u32, by: i64, facts: &[flame_verify::Template]) -> LoopNote {
    note(&[(local, Form::Step(by))], facts)
}

pub fn trips(most: i64) -> flame_verify::Template {
    fact(most, &[(-1, Reference::Trip)])
}
