//! Modules with their maximum executed instructions, and certificates for them.

use flame_abi::layout::MAX_DATA;
use flame_verify::{Certificate, Form, LoopNote, Measure, Notes, Reference, Template, Verified};
use std::collections::{BTreeMap, BTreeSet};

pub struct Sample {
    pub text: &'static str,
    pub certificate: Certificate,
    /// The maximum number of instructions of an entry point for this many packets of this length.
    pub executed: fn(&str, u128, u128) -> u128,
    /// The bounds under the certificate, in order of the exports.
    pub bounds: &'static [&'static str],
}

impl Sample {
    pub fn wasm(&self) -> Vec<u8> {
        wat::parse_str(self.text).expect("valid")
    }
}

/// The packets of a call, and their length.
const CALLS: [(u64, u64); 5] = [(1, 0), (1, 60), (256, 0), (256, 1514), (33, 262_144)];

/// Returns an entry point that executes more than its bound, if there is one.
pub fn exceeded(sample: &Sample, verified: &Verified) -> Option<String> {
    // A module that traps instead of returning executes less.
    let entries = verified.entries.iter().filter(|_| verified.diverging.is_empty());
    let mut bounded = entries.filter_map(|entry| Some((&entry.name, entry.bound.ok()?)));
    bounded.find_map(|(name, cost)| {
        CALLS.iter().find_map(|(packets, length)| {
            let executed = (sample.executed)(name, (*packets).into(), (*length).into());
            let most = cost.at(*packets, *length)?;
            (executed > most).then(|| format!("{name} executes {executed}, not {most}: {cost:?}"))
        })
    })
}

pub fn fact(constant: i64, terms: &[(i64, Reference)]) -> Template {
    Template { constant, terms: terms.to_vec() }
}

pub fn note(forms: &[(u32, Form)], facts: &[Template]) -> LoopNote {
    LoopNote { forms: forms.iter().copied().collect(), facts: facts.to_vec(), ..LoopNote::default() }
}

pub fn loops(all: Vec<LoopNote>) -> Notes {
    Notes { loops: (0..).zip(all).collect(), ..Notes::default() }
}

pub fn samples() -> Vec<Sample> {
    vec![packets(), calls()]
}

/// A loop over the packets, and one over the bytes of each; a loop over the bytes of a message.
fn packets() -> Sample {
    let outer = LoopNote { packets: true, ..LoopNote::default() };
    let inner = note(&[(5, Form::Step(1))], &[fact(0, &[(1, Reference::Term(4, 0)), (-1, Reference::Trip)])]);
    let most = u64::from(MAX_DATA);
    let message = note(
        &[(2, Form::Range(0, most))],
        &[
            fact(0, &[(1, Reference::Head(2)), (-1, Reference::Trip)]),
            fact(0, &[(1, Reference::Term(1, 0)), (-1, Reference::Head(2))]),
        ],
    );
    Sample {
        text: r#"(module (import "flame" "packet" (func $packet (param i32))) (memory 1)
          (func (export "flame_batch") (param i32) (result i64) (local $n i32) (local $i i32) (local $d i32) (local $l i32) (local $j i32)
            (local.set $n (i32.load offset=4 (local.get 0)))
            (local.set $d (i32.load (local.get 0)))
            (loop
              (call $packet (local.get $i))
              (local.set $l (i32.load offset=20 (i32.add (local.get $d) (i32.shl (local.get $i) (i32.const 5)))))
              (local.set $j (i32.const 0))
              (block (loop
                (br_if 1 (i32.ge_u (local.get $j) (local.get $l)))
                (local.set $j (i32.add (local.get $j) (i32.const 1)))
                (br 0)))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if 0 (i32.lt_u (local.get $i) (local.get $n))))
            (i64.const 0))
          (func (export "flame_message") (param i32 i32) (result i64) (local i32)
            (block (loop
              (br_if 1 (i32.ge_u (local.get 2) (local.get 1)))
              (local.set 2 (i32.add (local.get 2) (i32.const 1)))
              (br 0)))
            (i64.const 0)))"#,
        certificate: Certificate {
            summaries: Vec::new(),
            diverging: BTreeSet::new(),
            entries: BTreeMap::from([(1, loops(vec![outer, inner])), (2, loops(vec![message]))]),
        },
        executed: |name, packets, length| match name {
            "flame_batch" => 7 + packets * (11 + 9 * length + 12) + 1,
            _ => 1 + 9 * u128::from(MAX_DATA) + 4 + 1,
        },
        bounds: &["9 + packets × (9 L + 23)", "9363466"],
    }
}

/// Loops that halve, that clear bits, and with a step of 3; calls of functions with and without a bound for
/// any arguments.
fn calls() -> Sample {
    let measured = |measure| LoopNote { measure: Some(measure), ..LoopNote::default() };
    let halved = || loops(vec![measured(Measure::Halved(0))]);
    let steps = || note(&[(1, Form::Step(3))], &[fact(99, &[(-3, Reference::Trip)])]);
    let counted =
        note(&[(1, Form::Step(1))], &[fact(0, &[(1, Reference::Term(0, 0)), (-1, Reference::Trip)])]);
    let mut tick = loops(vec![steps()]);
    tick.calls.insert(1, loops(vec![counted]));
    let mut end = loops(vec![measured(Measure::Cleared(0))]);
    end.calls.insert(0, halved());
    Sample {
        text: r#"(module (import "flame" "packet" (func $packet (param i32)))
          (func $half (param i32) (result i32) (local i32)
            (loop
              (local.set 1 (i32.add (local.get 1) (i32.const 1)))
              (br_if 0 (local.tee 0 (i32.shr_u (local.get 0) (i32.const 1)))))
            (local.get 1))
          (func $count (param i32) (local i32)
            (block (loop
              (br_if 1 (i32.ge_u (local.get 1) (local.get 0)))
              (local.set 1 (i32.add (local.get 1) (i32.const 1)))
              (br 0))))
          (func (export "flame_tick") (param i64) (result i64) (local $i i32)
            (loop
              (drop (call $half (i32.const 1000)))
              (call $count (i32.and (i32.wrap_i64 (local.get 0)) (i32.const 15)))
              (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 3))) (i32.const 100))))
            (i64.const 0))
          (func (export "flame_end") (param i64) (result i64)
            (drop (call $half (i32.const -1)))
            (loop
              (local.set 0 (i64.and (local.get 0) (i64.sub (local.get 0) (i64.const 1))))
              (br_if 0 (i64.ne (local.get 0) (i64.const 0))))
            (i64.const 0)))"#,
        certificate: Certificate {
            summaries: vec![(1, halved())],
            diverging: BTreeSet::new(),
            entries: BTreeMap::from([(3, tick), (4, end)]),
        },
        executed: |name, _, _| match name {
            "flame_tick" => 1 + 34 * (2 + (2 + 10 * 9) + 5 + (1 + 15 * 9 + 4) + 7) + 1,
            _ => 1 + 2 + (2 + 32 * 9) + 64 * 10 + 1,
        },
        bounds: &["25196", "1241"],
    }
}
