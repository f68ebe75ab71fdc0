//! The checker's knowledge of one local at the end of a small program.

use flame_verify::linear::{COUNT, Linear};
use flame_verify::module::Module;
use flame_verify::state::State;
use flame_verify::value::Value;
use flame_verify::walk::{Guide, LoopBody, Summary, Walk};
use flame_verify::{LoopNote, Notes};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Records the state at each loop that is entered.
#[derive(Default)]
struct Seen {
    ranges: RefCell<Vec<(u64, u64)>>,
    begun: RefCell<Vec<bool>>,
}

impl Guide for Seen {
    fn note<'a>(&self, walk: &mut Walk<'_, 'a>, _: &LoopBody<'_, 'a>, entry: &State) -> LoopNote {
        // The result is the local after the parameters: of 32 or of 64 bits.
        let range = |walk: &mut Walk<'_, 'a>, at: usize| match &entry.locals[at] {
            Value::Sum(sum) => walk.values.range(sum, &entry.facts),
            Value::Condition(_) => (0, 1),
            _ => (0, u64::MAX),
        };
        let (r, s) = (range(walk, ARGUMENTS.len()), range(walk, ARGUMENTS.len() + 1));
        self.ranges.borrow_mut().push(if r == (0, 0) { s } else { r });
        let left = Linear { constant: -2, terms: vec![(COUNT, 1)] };
        self.begun.borrow_mut().push(entry.marked || walk.values.symbols.proves(&left, &entry.facts));
        LoopNote::default()
    }

    fn inlines(&self, _: &Walk<'_, '_>, callee: u32, _: &[Value]) -> bool {
        callee == 2
    }
}

/// Name, bits, least and greatest value.
pub const ARGUMENTS: [(&str, u8, u64, u64); 8] = [
    ("a", 32, 3, 10),
    ("b", 32, 2, 5),
    ("c", 32, 0, 255),
    ("d", 32, 0, 0xffff_ffff),
    ("e", 64, 3, 10),
    ("f", 64, 0, 255),
    ("g", 64, 0, u64::MAX),
    ("batch", 32, 0x8000_0000, 0x8000_0000),
];

/// Replaces names by `local.get`, and numbers by constants of `bits` bits.
pub fn operands(text: &str, bits: u8) -> String {
    let mut out = String::new();
    for token in text.split_inclusive([' ', ')', '(']) {
        let (word, rest) = token.split_at(token.trim_end_matches([' ', ')', '(']).len());
        out += &match word {
            _ if ARGUMENTS.iter().any(|a| a.0 == word) || word == "r" || word == "s" => {
                format!("(local.get ${word})")
            }
            _ if word.parse::<i64>().is_ok() => format!("(i{bits}.const {word})"),
            _ => word.into(),
        };
        out += rest;
    }
    out
}

pub fn walk(body: &str) -> (Vec<(u64, u64)>, Vec<bool>) {
    let params: String = ARGUMENTS.iter().map(|a| format!("(param ${} i{})", a.0, a.1)).collect();
    let text = format!(
        r#"(module (import "flame" "packet" (func $packet (param i32))) (memory 1)
          (global $m (mut i32) (i32.const 4)) (global $w (mut i64) (i64.const 4)) (global $k i32 (i32.const 44)) (global $l i64 (i64.const 45))
          (func $any (result i32) (i32.const 1))
          (func $small (param i32) (result i32) (i32.and (local.get 0) (i32.const 3)))
          (func (export "f") {params} (local $r i32) (local $s i64) (local $u f32) {body} (loop)))"#
    );
    let wasm = wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let module = Module::read(&wasm, flame_verify::SECTION).expect("valid");
    let cost = flame_verify::Cost::ZERO;
    let summaries = BTreeMap::from([(1, Summary { cost, returns: true, diverges: false })]);
    let none = BTreeSet::new();
    let seen = Rc::new(Seen::default());
    let mut walk = Walk::new(&module, (&summaries, &none), Notes::default(), 1 << 20).guided(seen.clone());
    walk.host.batch = true;
    let arguments = ARGUMENTS.map(|(_, bits, low, high)| Value::Sum(walk.values.within(bits, low, high)));
    walk.entry(3, arguments.into()).unwrap_or_else(|why| panic!("{why}: {text}"));
    (seen.ranges.borrow().clone(), seen.begun.borrow().clone())
}

/// Returns the range at the last loop that is entered, or `None` if it is not reached.
pub fn known(body: &str) -> Option<(u64, u64)> {
    walk(body).0.last().copied()
}

/// Returns the range of an expression, whose name states its width.
pub fn of(text: &str) -> (u64, u64) {
    let bits = if text.trim_start_matches('(').starts_with("i64") { 64 } else { 32 };
    let set = if bits == 64 { "$s" } else { "$r" };
    known(&format!("(local.set {set} {})", operands(text, bits))).expect("reached")
}

pub fn holds(expected: &[(&str, (u64, u64))]) {
    let wrong: Vec<String> = expected
        .iter()
        .filter_map(|(text, range)| Some((text, of(text), range)).filter(|(_, found, _)| *found != *range))
        .map(|(text, found, range)| format!("{text}: {found:?} instead of {range:?}\n"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.concat());
}
