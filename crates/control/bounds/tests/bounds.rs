//! No bound is below the number of executed instructions: random programs of loops in every shape, run with
//! Wasmtime's own meter. `FLAME_PROGRAMS` is the number of programs, `FLAME_ARGUMENTS` of calls of each.

use crate::run::{Run, engine};
use flame_bounds::{Poly, analyse_exports};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use wasmtime::Val;

/// The number of instructions after which a run is abandoned.
const PATIENCE: u64 = 200_000;

/// The origin of a number, which is often near a border.
#[derive(Clone, Debug)]
enum Number {
    Constant(i32),
    /// The argument and a mask.
    Masked(i32),
    Argument,
    Loaded(u8),
    /// A local with its current value.
    Local(u8),
    Least(Box<Number>, Box<Number>),
    Shifted(Box<Number>, u8),
    Sum(Box<Number>, i32),
}

#[derive(Clone, Debug)]
enum Statement {
    Set(u8, Number),
    Store(u8, Number),
    /// Counts local `0` from one number to another.
    Count {
        local: u8,
        from: Number,
        to: Number,
        step: i32,
        compare: u8,
        at_top: bool,
        after: bool,
        body: Vec<Statement>,
    },
    /// Shifts a local to the right until it is 0.
    Shift {
        local: u8,
        by: u8,
        from: Number,
        body: Vec<Statement>,
    },
    /// Clears the lowest 1 of a local until no 1 is left.
    Clear {
        local: u8,
        from: Number,
        body: Vec<Statement>,
    },
    /// Adds or subtracts a varying value.
    Stride {
        local: u8,
        least: u8,
        mask: u8,
        to: Number,
        down: bool,
        body: Vec<Statement>,
    },
    If(Number, u8, Number, Vec<Statement>, Vec<Statement>),
    /// Branches to the head of the enclosing loop, or out of it.
    Jump(u8, Number, bool),
    Call(u8),
    Fill(Number),
}

const LOCALS: u8 = 4;
const FUNCTIONS: usize = 3;
const COMPARES: [&str; 10] = ["ne", "lt_u", "le_u", "gt_u", "ge_u", "lt_s", "le_s", "gt_s", "ge_s", "eq"];

fn border() -> impl Strategy<Value = i32> {
    prop_oneof![
        4 => 0..40i32,
        1 => -4..0i32,
        1 => Just(i32::MAX),
        1 => Just(i32::MIN),
        1 => Just(255),
        1 => any::<i32>(),
    ]
}

fn number() -> impl Strategy<Value = Number> {
    let leaf = prop_oneof![
        3 => border().prop_map(Number::Constant),
        3 => prop_oneof![Just(15), Just(63), Just(255), Just(-2), Just(-4), border()].prop_map(Number::Masked),
        1 => Just(Number::Argument),
        1 => any::<u8>().prop_map(Number::Loaded),
        2 => (0..LOCALS).prop_map(Number::Local),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Number::Least(a.into(), b.into())),
            (inner.clone(), 0..33u8).prop_map(|(a, n)| Number::Shifted(a.into(), n)),
            (inner, border()).prop_map(|(a, n)| Number::Sum(a.into(), n)),
        ]
    })
}

fn statements() -> impl Strategy<Value = Vec<Statement>> {
    let local = 0..LOCALS;
    let leaf = prop_oneof![
        3 => (local.clone(), number()).prop_map(|(l, n)| Statement::Set(l, n)),
        1 => (any::<u8>(), number()).prop_map(|(at, n)| Statement::Store(at, n)),
        2 => (0..10u8, number(), any::<bool>()).prop_map(|(c, n, out)| Statement::Jump(c, n, out)),
        1 => any::<u8>().prop_map(Statement::Call),
        1 => number().prop_map(Statement::Fill),
    ];
    let step = prop_oneof![
        Just(1),
        Just(-1),
        Just(2),
        Just(-2),
        Just(3),
        Just(4),
        Just(-8),
        Just(1 << 30),
        -9..9i32
    ];
    let statement = leaf.prop_recursive(3, 14, 3, move |inner| {
        let body = || prop::collection::vec(inner.clone(), 0..3);
        let local = 0..LOCALS;
        let shape = (local.clone(), 0..10u8, any::<bool>(), any::<bool>());
        prop_oneof![
            6 => (shape, number(), number(), step.clone(), body()).prop_map(
                |((local, compare, at_top, after), from, to, step, body)| {
                    Statement::Count { local, from, to, step, compare, at_top, after, body }
                }
            ),
            1 => (local.clone(), 0..4u8, number(), body())
                .prop_map(|(local, by, from, body)| Statement::Shift { local, by, from, body }),
            1 => (local.clone(), number(), body()).prop_map(|(local, from, body)| Statement::Clear { local, from, body }),
            1 => (local.clone(), 0..3u8, 0..8u8, number(), any::<bool>(), body())
                .prop_map(|(local, least, mask, to, down, body)| Statement::Stride { local, least, mask, to, down, body }),
            2 => (number(), 0..10u8, number(), body(), body())
                .prop_map(|(a, c, b, then, or)| Statement::If(a, c, b, then, or)),
        ]
    });
    prop::collection::vec(statement, 1..4)
}

/// Writes a function as text. Local 0 is the argument, then [`LOCALS`], then one for scratch.
struct Text {
    out: String,
    function: usize,
    /// Whether each open frame is a loop's; its block is the enclosing one.
    frames: Vec<bool>,
}

fn of(number: &Number) -> String {
    match number {
        Number::Constant(n) => format!("(i32.const {n})"),
        Number::Masked(n) => format!("(i32.and (local.get 0) (i32.const {n}))"),
        Number::Argument => "(local.get 0)".to_owned(),
        Number::Loaded(at) => format!("(i32.load8_u (i32.const {at}))"),
        Number::Local(l) => format!("(local.get {})", l + 1),
        Number::Least(a, b) => format!("(select {0} {1} (i32.lt_u {0} {1}))", of(a), of(b)),
        Number::Shifted(a, n) => format!("(i32.shr_u {} (i32.const {n}))", of(a)),
        Number::Sum(a, n) => format!("(i32.add {} (i32.const {n}))", of(a)),
    }
}

impl Text {
    fn all(&mut self, statements: &[Statement]) {
        statements.iter().for_each(|s| self.one(s));
    }

    /// Writes a loop in a block; `body` writes its contents.
    fn iterate(&mut self, body: impl FnOnce(&mut Self)) {
        self.out.push_str("(block (loop\n");
        self.frames.extend([false, true]);
        body(self);
        self.frames.truncate(self.frames.len() - 2);
        self.out.push_str("))\n");
    }

    fn one(&mut self, statement: &Statement) {
        match statement {
            Statement::Set(local, n) => writeln!(self.out, "(local.set {} {})", local + 1, of(n)).unwrap(),
            Statement::Store(at, n) => writeln!(self.out, "(i32.store8 (i32.const {at}) {})", of(n)).unwrap(),
            Statement::Count { local, from, to, step, compare, at_top, after, body } => {
                let i = local + 1;
                let compare = COMPARES[usize::from(*compare)];
                writeln!(self.out, "(local.set {i} {})", of(from)).unwrap();
                let next = format!("(local.set {i} (i32.add (local.get {i}) (i32.const {step})))");
                self.iterate(|t| {
                    let test = format!("(i32.{compare} (local.get {i}) {})", of(to));
                    if *at_top {
                        writeln!(t.out, "(br_if 1 (i32.eqz {test}))").unwrap();
                    }
                    if !after {
                        writeln!(t.out, "{next}").unwrap();
                    }
                    t.all(body);
                    if *after {
                        writeln!(t.out, "{next}").unwrap();
                    }
                    match at_top {
                        true => t.out.push_str("(br 0)\n"),
                        false => writeln!(t.out, "(br_if 0 {test})").unwrap(),
                    }
                });
            }
            Statement::Shift { local, by, from, body } => {
                let i = local + 1;
                writeln!(self.out, "(local.set {i} {})", of(from)).unwrap();
                self.iterate(|t| {
                    t.all(body);
                    writeln!(t.out, "(br_if 0 (local.tee {i} (i32.shr_u (local.get {i}) (i32.const {by}))))")
                        .unwrap();
                });
            }
            Statement::Clear { local, from, body } => {
                let i = local + 1;
                writeln!(self.out, "(local.set {i} {})", of(from)).unwrap();
                self.iterate(|t| {
                    t.all(body);
                    let cleared =
                        format!("(i32.and (local.get {i}) (i32.sub (local.get {i}) (i32.const 1)))");
                    writeln!(t.out, "(br_if 0 (local.tee {i} {cleared}))").unwrap();
                });
            }
            Statement::Stride { local, least, mask, to, down, body } => {
                let i = local + 1;
                self.iterate(|t| {
                    t.all(body);
                    let stride =
                        format!("(i32.add (i32.and (local.get 0) (i32.const {mask})) (i32.const {least}))");
                    writeln!(t.out, "(local.set 5 {stride})").unwrap();
                    if *down {
                        writeln!(t.out, "(br_if 1 (i32.gt_u (local.get 5) (local.get {i})))").unwrap();
                        writeln!(t.out, "(local.set {i} (i32.sub (local.get {i}) (local.get 5))) (br 0)")
                            .unwrap();
                    } else {
                        writeln!(t.out, "(local.set {i} (i32.add (local.get {i}) (local.get 5)))").unwrap();
                        writeln!(t.out, "(br_if 0 (i32.lt_u (local.get {i}) {}))", of(to)).unwrap();
                    }
                });
            }
            Statement::If(a, compare, b, then, or) => {
                let compare = COMPARES[usize::from(*compare)];
                writeln!(self.out, "(if (i32.{compare} {} {}) (then", of(a), of(b)).unwrap();
                self.frames.push(false);
                self.all(then);
                self.out.push_str(") (else ");
                self.all(or);
                self.frames.pop();
                self.out.push_str("))\n");
            }
            Statement::Jump(compare, n, out) => {
                let Some(depth) = self.frames.iter().rev().position(|is_loop| *is_loop) else { return };
                let compare = COMPARES[usize::from(*compare)];
                let depth = depth + usize::from(*out);
                writeln!(self.out, "(br_if {depth} (i32.{compare} (local.get 1) {}))", of(n)).unwrap();
            }
            Statement::Call(wish) => {
                let later = FUNCTIONS - 1 - self.function;
                if later > 0 {
                    let f = self.function + 1 + usize::from(*wish) % later;
                    writeln!(
                        self.out,
                        "(local.set {} (call $f{f} (local.get {})))",
                        wish % LOCALS + 1,
                        wish % 3
                    )
                    .unwrap();
                }
            }
            Statement::Fill(n) => {
                writeln!(
                    self.out,
                    "(memory.fill (i32.const 0) (local.get 1) (i32.and {} (i32.const 255)))",
                    of(n)
                )
                .unwrap();
            }
        }
    }
}

fn module(functions: &[Vec<Statement>]) -> Vec<u8> {
    let mut text = String::from("(module (memory (export \"memory\") 1)\n");
    for (i, statements) in functions.iter().enumerate() {
        let mut body = Text { out: String::new(), function: i, frames: Vec::new() };
        body.all(statements);
        let export = if i == 0 { "(export \"f\")" } else { "" };
        let locals = "i32 ".repeat(usize::from(LOCALS) + 1);
        writeln!(
            text,
            "(func $f{i} {export} (param i32) (result i32) (local {locals}) {} (local.get 1))",
            body.out
        )
        .unwrap();
    }
    text.push(')');
    wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn bound(wasm: &[u8]) -> Poly {
    let analysis = analyse_exports(wasm).unwrap();
    analysis.entries[0].bound.call.plus(analysis.entries[0].bound.packet)
}

/// Returns the number of instructions that a call executes, by Wasmtime's meter; `None` if it traps, an error
/// if it runs for too long.
fn spent(run: &mut Run, argument: i32) -> Result<Option<u64>, ()> {
    run.store.set_fuel(PATIENCE).unwrap();
    let outcome = run.instance.get_func(&mut run.store, "f").unwrap().call(
        &mut run.store,
        &[Val::I32(argument)],
        &mut [Val::I32(0)],
    );
    let spent = PATIENCE - run.store.get_fuel().unwrap();
    match outcome {
        Ok(()) => Ok(Some(spent)),
        Err(e) if e.downcast_ref::<wasmtime::Trap>() == Some(&wasmtime::Trap::OutOfFuel) => Err(()),
        Err(_) => Ok(None),
    }
}

/// Returns a setting of `make soak`, or the usual value.
fn asked(name: &str, usual: u32) -> u32 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

static CALLS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

#[test]
fn no_bound_is_below_what_is_executed() {
    let (programs, arguments) = (asked("FLAME_PROGRAMS", 400), asked("FLAME_ARGUMENTS", 4) as usize);
    let config = ProptestConfig { cases: programs, failure_persistence: None, ..ProptestConfig::default() };
    let input = (prop::collection::vec(statements(), FUNCTIONS), prop::collection::vec(border(), arguments));
    let count = |i: usize| CALLS[i].fetch_add(1, Ordering::Relaxed);
    proptest!(config, |((functions, arguments) in input)| {
        let wasm = module(&functions);
        let bound = bound(&wasm);
        let limit = bound.as_constant();
        let mut run = Run::new(&engine(true), &wasm);
        count(0);
        for argument in arguments {
            match (spent(&mut run, argument), limit) {
                (Ok(Some(spent)), Some(limit)) => {
                    prop_assert!(spent <= limit, "{spent} spent, {bound} found, {argument}");
                    count(1);
                }
                (Err(()), Some(limit)) => {
                    prop_assert!(limit >= PATIENCE, "more than {PATIENCE} spent, {bound} found, {argument}");
                    count(2);
                }
                _ => drop(count(3)),
            }
        }
    });
    let [programs, ended, long, unbounded] = CALLS.each_ref().map(|n| n.load(Ordering::Relaxed));
    println!(
        "{programs} programs; {ended} calls ended within their bound, {long} are within theirs so far, {unbounded} trap or have none"
    );
    assert!(ended > u64::from(asked("FLAME_PROGRAMS", 400)) / 4, "hardly anything has a bound");
}
