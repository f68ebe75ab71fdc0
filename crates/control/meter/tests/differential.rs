//! Random programs that end: the rewritten module computes the same as the original, and charges at least as
//! much as Wasmtime's own fuel.

use crate::common::{PLENTY, Run, compare, engine, metered};
use proptest::prelude::*;
use std::fmt::Write as _;
use wasmtime::Val;

/// A statement of a random function. Loops count down, and calls go to later functions, so all end.
#[derive(Clone, Debug)]
enum Statement {
    Mix(i32),
    Store(u8, i32),
    Load(u8),
    Copy(u8, u8, u8),
    Fill(u8, u8),
    Grow,
    Loop(u8, Vec<Statement>),
    Block(Vec<Statement>),
    If(Vec<Statement>, Vec<Statement>),
    /// Leaves a frame, depending on the low bits of the accumulator.
    BranchIf(u8, u8),
    Table(Vec<u8>),
    ReturnIf(u8),
    Call(u8),
    CallIndirect(u8),
}

const FUNCTIONS: usize = 5;

fn statements() -> impl Strategy<Value = Vec<Statement>> {
    let leaf = prop_oneof![
        4 => any::<i32>().prop_map(Statement::Mix),
        2 => (any::<u8>(), any::<i32>()).prop_map(|(a, b)| Statement::Store(a, b)),
        2 => any::<u8>().prop_map(Statement::Load),
        1 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(a, b, c)| Statement::Copy(a, b, c)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Statement::Fill(a, b)),
        1 => Just(Statement::Grow),
        3 => (any::<u8>(), 1_u8..8).prop_map(|(a, b)| Statement::BranchIf(a, b)),
        1 => prop::collection::vec(any::<u8>(), 1..6).prop_map(Statement::Table),
        1 => (1_u8..16).prop_map(Statement::ReturnIf),
        2 => any::<u8>().prop_map(Statement::Call),
        1 => any::<u8>().prop_map(Statement::CallIndirect),
    ];
    let statement = leaf.prop_recursive(4, 40, 5, |inner| {
        let body = || prop::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            3 => (1_u8..6, body()).prop_map(|(n, b)| Statement::Loop(n, b)),
            1 => body().prop_map(Statement::Block),
            1 => (body(), body()).prop_map(|(a, b)| Statement::If(a, b)),
        ]
    });
    prop::collection::vec(statement, 0..8)
}

/// Writes functions as text. Local 0 is the parameter and accumulator; each loop has a separate counter.
struct Text {
    out: String,
    locals: u32,
    /// Whether a branch to the label of each open frame leaves it (for a loop it is a back edge).
    frames: Vec<bool>,
    function: usize,
}

impl Text {
    fn write(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn frame(&mut self, leaves: bool, head: &str, body: impl FnOnce(&mut Self)) {
        self.frames.push(leaves);
        write!(self.out, "({head} ").unwrap();
        body(self);
        self.out.push_str(")\n");
        self.frames.pop();
    }

    /// Returns a label that a branch may target without an endless loop: any frame but loops. The function's
    /// own label requires the result, which the callers of this method supply.
    fn label(&self, wish: u8) -> Option<usize> {
        let leaving: Vec<usize> =
            (0..self.frames.len()).filter(|d| self.frames[self.frames.len() - 1 - d]).collect();
        (!leaving.is_empty()).then(|| leaving[usize::from(wish) % leaving.len()])
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Mix(n) => {
                let n = n | 1;
                writeln!(self.out, "(local.set 0 (i32.add (i32.mul (local.get 0) (i32.const {n})) (i32.const 7)))")
            }
            Statement::Store(at, n) => writeln!(self.out, "(i32.store (i32.const {at}) (i32.const {n}))"),
            Statement::Load(at) => {
                writeln!(self.out, "(local.set 0 (i32.xor (local.get 0) (i32.load (i32.const {at}))))")
            }
            Statement::Copy(a, b, n) => {
                writeln!(self.out, "(memory.copy (i32.const {a}) (i32.const {b}) (i32.const {n}))")
            }
            Statement::Fill(a, n) => writeln!(self.out, "(memory.fill (i32.const {a}) (local.get 0) (i32.const {n}))"),
            Statement::Grow => writeln!(
                self.out,
                "(local.set 0 (i32.add (local.get 0) (memory.grow (i32.and (local.get 0) (i32.const 1)))))"
            ),
            Statement::Loop(n, body) => {
                let counter = self.locals;
                self.locals += 1;
                self.frame(true, "block", |text| {
                    writeln!(text.out, "(local.set {counter} (i32.const {n}))").unwrap();
                    text.frame(false, "loop", |text| {
                        text.write(body);
                        writeln!(
                            text.out,
                            "(br_if 0 (local.tee {counter} (i32.sub (local.get {counter}) (i32.const 1))))"
                        )
                        .unwrap();
                    });
                });
                Ok(())
            }
            Statement::Block(body) => {
                self.frame(true, "block", |text| text.write(body));
                Ok(())
            }
            Statement::If(then, other) => {
                self.out.push_str("(i32.and (local.get 0) (i32.const 2))\n");
                self.frame(true, "if", |text| {
                    text.out.push_str("(then ");
                    text.write(then);
                    text.out.push_str(") (else ");
                    text.write(other);
                    text.out.push(')');
                });
                Ok(())
            }
            Statement::BranchIf(wish, mask) => match self.label(*wish) {
                Some(label) => {
                    writeln!(self.out, "(br_if {label} (i32.eqz (i32.and (local.get 0) (i32.const {mask}))))")
                }
                // A branch to the function's own label, with its result below others.
                None => writeln!(
                    self.out,
                    "(drop (br_if {} (local.get 0) (i32.eqz (i32.and (local.get 0) (i32.const {mask})))))",
                    self.frames.len()
                ),
            },
            Statement::Table(wishes) => {
                let labels: Vec<String> =
                    wishes.iter().filter_map(|w| self.label(*w)).map(|l| l.to_string()).collect();
                if labels.is_empty() {
                    return;
                }
                writeln!(
                    self.out,
                    "(if (i32.and (local.get 0) (i32.const 4)) (then (br_table {} (i32.and (local.get 0) (i32.const 7)))))",
                    // The inner `if` is one more frame.
                    labels.iter().map(|l| (l.parse::<usize>().unwrap() + 1).to_string()).collect::<Vec<_>>().join(" ")
                )
            }
            Statement::ReturnIf(mask) => writeln!(
                self.out,
                "(if (i32.eqz (i32.and (local.get 0) (i32.const {mask}))) (then (return (i32.const {mask}))))"
            ),
            Statement::Call(wish) => match self.later(*wish) {
                Some(f) => writeln!(self.out, "(local.set 0 (call $f{f} (local.get 0)))"),
                None => Ok(()),
            },
            Statement::CallIndirect(wish) => match self.later(*wish) {
                Some(f) => {
                    writeln!(self.out, "(local.set 0 (call_indirect (type $t) (local.get 0) (i32.const {f})))")
                }
                None => Ok(()),
            },
        }
        .unwrap();
    }

    fn later(&self, wish: u8) -> Option<usize> {
        let later = FUNCTIONS - 1 - self.function;
        (later > 0).then(|| self.function + 1 + usize::from(wish) % later)
    }
}

/// `tabled` selects the functions that have an address: those without one can be small.
fn module(functions: &[Vec<Statement>], tabled: u8) -> Vec<u8> {
    let mut text = String::from(
        "(module (type $t (func (param i32) (result i32))) (memory (export \"memory\") 1 4)
         (func (export \"f\") (type $t) (call $f0 (local.get 0)))\n",
    );
    writeln!(text, "(table {FUNCTIONS} funcref)").unwrap();
    for (i, statements) in functions.iter().enumerate() {
        let mut body = Text { out: String::new(), locals: 1, frames: Vec::new(), function: i };
        body.write(statements);
        let locals = "i32 ".repeat(body.locals as usize - 1);
        writeln!(text, "(func $f{i} (type $t) (local {locals}) {} (local.get 0))", body.out).unwrap();
        if tabled & (1 << i) != 0 {
            writeln!(text, "(elem (i32.const {i}) $f{i})").unwrap();
        }
    }
    text.push(')');
    wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_compute_the_same_within_their_charge(
        functions in prop::collection::vec(statements(), FUNCTIONS),
        tabled in any::<u8>(),
        argument in any::<i32>(),
        cut in 0.0_f64..1.0,
    ) {
        let wasm = module(&functions, tabled);
        let (spent, charged, outcome) = compare(&wasm, "f", &[Val::I32(argument)]);
        if outcome.results.is_ok() {
            // Wasmtime counts each byte that is copied or filled, the rewriter every sixteenth.
            let shown = format!("{functions:?}");
            let bytes_for_one = if shown.contains("Copy(") || shown.contains("Fill(") { 16 } else { 1 };
            prop_assert!(charged * bytes_for_one >= spent, "{charged} charged, {spent} spent");
            // With any less fuel it is cut off, at the same point every time.
            let less = (charged as f64 * cut) as i64;
            let ends: Vec<_> = (0..2).map(|_| {
                let mut run = Run::new(&engine(false), &metered(&wasm));
                run.set("flame:fuel", less.min(charged as i64 - 1));
                let outcome = run.call("f", &[Val::I32(argument)]);
                (outcome, run.get("flame:fuel"))
            }).collect();
            prop_assert!(ends[0].0.results.is_err() && ends[0].1 < 0);
            prop_assert_eq!(&ends[0], &ends[1]);
        }
        prop_assert!(charged < PLENTY as u64);
    }
}
