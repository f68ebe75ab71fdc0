//! Holds what the checker says about random sequences of operations against concrete executions: for every execution there
//! must be integers for the symbols such that every sum, interval, condition and fact holds.

use flame_verify::linear::{Fact, Linear, Symbol};
use flame_verify::module::Module;
use flame_verify::ops;
use flame_verify::state::State;
use flame_verify::value::{Condition, Known, Sum, Value, Values, mask, signed};
use flame_verify::walk::Walk;
use flame_verify::{Cost, Notes};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wasmparser::Operator;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    /// A number, more often one at a boundary.
    fn number(&mut self) -> u64 {
        let near = (self.next() % 5).wrapping_sub(2);
        match self.below(6) {
            0 | 1 => self.next() % 20,
            2 => near,
            3 => (1u64 << self.below(64)).wrapping_add(near),
            4 => 0u64.wrapping_sub(self.next() % 300),
            _ => self.next() >> self.below(64),
        }
    }
}

macro_rules! binaries {
    ($($name:ident $narrow:ident $wide:ident $of:expr;)*) => {
        /// Operations of two operands: their operators for 32 and 64 bits, and what they compute; nothing if they trap.
        #[derive(Clone, Copy, Debug)]
        enum Binary { $($name),* }
        const BINARIES: &[Binary] = &[$(Binary::$name),*];
        fn operator(of: Binary, bits: u8) -> Operator<'static> {
            match (of, bits) { $((Binary::$name, 32) => Operator::$narrow, (Binary::$name, _) => Operator::$wide),* }
        }
        fn compute(of: Binary, a: u64, b: u64, bits: u8) -> Option<u64> {
            match of { $(Binary::$name => { let f: fn(u64, u64, u8) -> Option<u64> = $of; f(a, b, bits) }),* }
        }
    };
}
fn n(b: u64, bits: u8) -> u32 {
    (b % u64::from(bits)) as u32
}
binaries! {
    Add I32Add I64Add |a, b, _| Some(a.wrapping_add(b));
    Sub I32Sub I64Sub |a, b, _| Some(a.wrapping_sub(b));
    Mul I32Mul I64Mul |a, b, _| Some(a.wrapping_mul(b));
    Shl I32Shl I64Shl |a, b, w| Some(a << n(b, w));
    Shr I32ShrU I64ShrU |a, b, w| Some(a >> n(b, w));
    ShrS I32ShrS I64ShrS |a, b, w| Some((signed(a, w) >> n(b, w)) as u64);
    Div I32DivU I64DivU |a, b, _| a.checked_div(b);
    Rem I32RemU I64RemU |a, b, _| a.checked_rem(b);
    And I32And I64And |a, b, _| Some(a & b);
    Or I32Or I64Or |a, b, _| Some(a | b);
    Xor I32Xor I64Xor |a, b, _| Some(a ^ b);
    Eq I32Eq I64Eq |a, b, _| Some(u64::from(a == b));
    Ne I32Ne I64Ne |a, b, _| Some(u64::from(a != b));
    LtU I32LtU I64LtU |a, b, _| Some(u64::from(a < b));
    GtU I32GtU I64GtU |a, b, _| Some(u64::from(a > b));
    LeU I32LeU I64LeU |a, b, _| Some(u64::from(a <= b));
    GeU I32GeU I64GeU |a, b, _| Some(u64::from(a >= b));
    LtS I32LtS I64LtS |a, b, w| Some(u64::from(signed(a, w) < signed(b, w)));
    GtS I32GtS I64GtS |a, b, w| Some(u64::from(signed(a, w) > signed(b, w)));
    LeS I32LeS I64LeS |a, b, w| Some(u64::from(signed(a, w) <= signed(b, w)));
    GeS I32GeS I64GeS |a, b, w| Some(u64::from(signed(a, w) >= signed(b, w)));
}

/// Operations of one operand: operator, bits taken, bits given, what they compute.
type Unary = (Operator<'static>, u8, u8, fn(u64) -> u64);
const UNARIES: &[Unary] = &[
    (Operator::I32Eqz, 32, 32, |a| u64::from(a == 0)),
    (Operator::I64Eqz, 64, 32, |a| u64::from(a == 0)),
    (Operator::I32Clz, 32, 32, |a| (a as u32).leading_zeros().into()),
    (Operator::I64Ctz, 64, 64, |a| a.trailing_zeros().into()),
    (Operator::I64Popcnt, 64, 64, |a| a.count_ones().into()),
    (Operator::I32WrapI64, 64, 32, |a| a),
    (Operator::I64ExtendI32U, 32, 64, |a| a),
    (Operator::I64ExtendI32S, 32, 64, |a| i64::from(a as i32) as u64),
    (Operator::I32Extend8S, 32, 32, |a| i64::from(a as i8) as u64),
    (Operator::I32Extend16S, 32, 32, |a| i64::from(a as i16) as u64),
    (Operator::I64Extend8S, 64, 64, |a| i64::from(a as i8) as u64),
    (Operator::I64Extend16S, 64, 64, |a| i64::from(a as i16) as u64),
    (Operator::I64Extend32S, 64, 64, |a| i64::from(a as i32) as u64),
];

/// Locals 0..5 are `i32`, the others `i64`; the last three of each are written.
const LOCALS: usize = 10;
fn bits(local: usize) -> u8 {
    if local < LOCALS / 2 { 32 } else { 64 }
}

#[derive(Clone, Copy, Debug)]
enum Operand {
    Local(usize),
    Constant(u64),
}

#[derive(Debug)]
enum Step {
    Binary(Binary, u8, Operand, Operand, usize),
    Unary(usize, Operand, usize),
    Select(u8, Operand, Operand, Operand, usize),
    If(Operand, Vec<Step>, Vec<Step>),
}

fn local(r: &mut Random, width: u8, written: bool) -> usize {
    let base = if width == 32 { 0 } else { LOCALS / 2 };
    base + if written { 2 + r.below(3) } else { r.below(5) }
}

fn operand(r: &mut Random, width: u8) -> Operand {
    match r.below(3) {
        0 => Operand::Constant(r.number() & mask(width)),
        _ => Operand::Local(local(r, width, false)),
    }
}

fn steps(r: &mut Random, length: usize, depth: usize) -> Vec<Step> {
    let step = |r: &mut Random| {
        let width = if r.below(3) == 0 { 64 } else { 32 };
        match r.below(10) {
            0 => {
                let at = r.below(UNARIES.len());
                Step::Unary(at, operand(r, UNARIES[at].1), local(r, UNARIES[at].2, true))
            }
            1 => {
                let (a, b, c) = (operand(r, width), operand(r, width), operand(r, 32));
                Step::Select(width, a, b, c, local(r, width, true))
            }
            2 if depth > 0 => Step::If(operand(r, 32), steps(r, 3, depth - 1), steps(r, 3, depth - 1)),
            _ => {
                let of = BINARIES[r.below(BINARIES.len())];
                let result = if of as usize >= Binary::Eq as usize { 32 } else { width };
                Step::Binary(of, width, operand(r, width), operand(r, width), local(r, result, true))
            }
        }
    };
    (0..length).map(|_| step(r)).collect()
}

/// What the checker knows after a step.
struct Point {
    locals: Vec<Value>,
    ranges: Vec<(u64, u64)>,
    facts: Vec<Fact>,
    nonzero: Vec<std::rc::Rc<Sum>>,
}

enum Seen {
    Step(Point),
    If { yes: Option<(Point, Vec<Seen>)>, no: Option<(Point, Vec<Seen>)>, end: Option<Point> },
}

fn point(walk: &mut Walk<'_, '_>, s: &State) -> Point {
    let mut ranges = Vec::new();
    for (n, value) in s.locals.iter().enumerate() {
        ranges.push(match value {
            Value::Sum(sum) => walk.values.range(sum, &s.facts),
            _ => (0, mask(bits(n))),
        });
    }
    Point { locals: s.locals.clone(), ranges, facts: s.facts.clone(), nonzero: s.nonzero.clone() }
}

fn push(walk: &mut Walk<'_, '_>, s: &mut State, of: Operand, width: u8) {
    let operator = match (of, width) {
        (Operand::Local(n), _) => Operator::LocalGet { local_index: n as u32 },
        (Operand::Constant(n), 32) => Operator::I32Const { value: n as i32 },
        (Operand::Constant(n), _) => Operator::I64Const { value: n as i64 },
    };
    walk.apply(&operator, s).expect("valid");
}

/// Walks the steps; the state at the end, if an execution comes there.
fn walk_all(walk: &mut Walk<'_, '_>, mut s: State, all: &[Step], seen: &mut Vec<Seen>) -> Option<State> {
    for step in all {
        let (operator, to) = match step {
            Step::Binary(of, width, a, b, to) => {
                push(walk, &mut s, *a, *width);
                push(walk, &mut s, *b, *width);
                (operator(*of, *width), to)
            }
            Step::Unary(of, a, to) => {
                push(walk, &mut s, *a, UNARIES[*of].1);
                (UNARIES[*of].0.clone(), to)
            }
            Step::Select(width, a, b, c, to) => {
                push(walk, &mut s, *a, *width);
                push(walk, &mut s, *b, *width);
                push(walk, &mut s, *c, 32);
                (Operator::Select, to)
            }
            Step::If(c, then, or) => {
                push(walk, &mut s, *c, 32);
                let test = ops::condition(walk, &mut s).expect("valid");
                let mut side = |known: &Known, steps: &[Step]| {
                    let mut s = s.clone();
                    s.assume(known, &walk.values);
                    if s.is_impossible(known, &walk.values) {
                        return (None, None);
                    }
                    let (start, mut inner) = (point(walk, &s), Vec::new());
                    let end = walk_all(walk, s, steps, &mut inner);
                    (Some((start, inner)), end)
                };
                let (yes, a) = side(&test.yes, then);
                let (no, b) = side(&test.no, or);
                let end = [a, b].into_iter().flatten().reduce(|a, b| a.join(b, &mut walk.values));
                seen.push(Seen::If { yes, no, end: end.as_ref().map(|s| point(walk, s)) });
                s = end?;
                continue;
            }
        };
        walk.apply(&operator, &mut s).expect("valid");
        walk.apply(&Operator::LocalSet { local_index: *to as u32 }, &mut s).expect("valid");
        seen.push(Seen::Step(point(walk, &s)));
    }
    Some(s)
}

/// A concrete execution, with the integers that the symbols are.
struct Execution<'v> {
    values: &'v Values,
    locals: [u64; LOCALS],
    symbols: HashMap<Symbol, u64>,
    held: usize,
}

impl Execution<'_> {
    fn symbol(&self, symbol: Symbol) -> Option<u64> {
        self.symbols.get(&symbol).copied().or_else(|| self.sum(self.values.named.get(&symbol)?))
    }

    fn sum(&self, sum: &Sum) -> Option<u64> {
        let value = sum.terms.iter().try_fold(sum.constant, |all, (s, n)| {
            Some(all.wrapping_add(n.wrapping_mul(self.symbol(*s)?)))
        });
        Some(value? & mask(sum.bits))
    }

    fn form(&self, form: &Linear) -> Option<i128> {
        form.terms.iter().try_fold(form.constant, |all, (s, n)| Some(all + n * i128::from(self.symbol(*s)?)))
    }

    /// Gives the one symbol of a sum that has no integer yet the one that makes the sum true.
    fn bind(&mut self, sum: &Sum, value: u64) {
        let unknown: Vec<_> = sum.terms.iter().filter(|(s, _)| self.symbol(*s).is_none()).copied().collect();
        let [(symbol, n)] = unknown[..] else { return };
        let rest = Sum { terms: sum.terms.iter().filter(|t| t.0 != symbol).copied().collect(), ..sum.clone() };
        let left = value.wrapping_sub(self.sum(&rest).expect("all known")) & mask(sum.bits);
        let integer = left / n;
        let (low, high) = self.values.symbols.interval(symbol);
        assert!((low..=high).contains(&integer), "symbol {symbol} is {integer}, not in {low}..={high}");
        self.symbols.insert(symbol, integer);
    }

    fn known(&mut self, facts: &[Fact], nonzero: &[std::rc::Rc<Sum>], what: &str) {
        for fact in facts {
            if let Some(n) = self.form(fact) {
                assert!(n >= 0, "{what}: {fact:?} is {n} with {:?}", self.symbols);
                self.held += 1;
            }
        }
        for sum in nonzero {
            assert!(self.sum(sum) != Some(0), "{what}: {sum:?} is 0 with {:?}", self.symbols);
        }
    }

    fn holds(&mut self, point: &Point) {
        for (n, value) in point.locals.iter().enumerate() {
            let concrete = self.locals[n];
            let (low, high) = point.ranges[n];
            assert!((low..=high).contains(&concrete), "local {n} is {concrete}, not in {low}..={high}");
            match value {
                Value::Sum(sum) => {
                    self.bind(sum, concrete);
                    if let Some(found) = self.sum(sum) {
                        assert_eq!(found, concrete, "local {n}: {sum:?} with {:?}", self.symbols);
                        self.held += 1;
                    }
                }
                Value::Condition(condition) => {
                    assert!(concrete <= 1, "local {n} is {concrete}");
                    let Condition { yes, no } = &**condition;
                    let known = if concrete == 1 { yes } else { no };
                    self.known(&known.facts, &known.nonzero, "condition");
                }
                _ => {}
            }
        }
        self.known(&point.facts, &point.nonzero, "fact");
        for (symbol, of) in &self.values.cleared {
            if let (Some(n), Some(of)) = (self.symbols.get(symbol), self.sum(of)) {
                assert_eq!(*n, of & of.wrapping_sub(1), "cleared");
            }
        }
    }

    fn operand(&self, of: Operand) -> u64 {
        match of {
            Operand::Local(n) => self.locals[n],
            Operand::Constant(n) => n,
        }
    }

    /// Executes the steps; nothing if one traps.
    fn run(&mut self, all: &[Step], seen: &[Seen]) -> Option<()> {
        assert_eq!(all.len(), seen.len(), "an execution comes where the checker says none does");
        for (step, seen) in all.iter().zip(seen) {
            let (value, to) = match step {
                Step::Binary(of, width, a, b, to) => {
                    (compute(*of, self.operand(*a), self.operand(*b), *width)?, *to)
                }
                Step::Unary(of, a, to) => (UNARIES[*of].3(self.operand(*a)), *to),
                Step::Select(_, a, b, c, to) => {
                    (self.operand(if self.operand(*c) == 0 { *b } else { *a }), *to)
                }
                Step::If(c, then, or) => {
                    let Seen::If { yes, no, end } = seen else { unreachable!() };
                    let (side, steps) = if self.operand(*c) == 0 { (no, or) } else { (yes, then) };
                    let (start, inner) = side.as_ref().expect("an execution takes a side that is called impossible");
                    self.holds(start);
                    self.run(steps, inner)?;
                    self.holds(end.as_ref().expect("an execution comes to an end that is called impossible"));
                    continue;
                }
            };
            self.locals[to] = value & mask(bits(to));
            let Seen::Step(point) = seen else { unreachable!() };
            self.holds(point);
        }
        Some(())
    }
}

fn check(seed: u64, module: &Module<'_>) -> usize {
    let mut r = Random(seed);
    let length = 2 + r.below(14);
    let program = steps(&mut r, length, 2);
    let (summaries, diverging) = (BTreeMap::new(), BTreeSet::new());
    let mut walk = Walk::new(module, (&summaries, &diverging), Notes::default(), 1 << 40);
    // Some of the locals are known to be small.
    let highs: Vec<u64> = (0..LOCALS)
        .map(|n| [mask(bits(n)), 255, 1500, mask(bits(n)) >> 1, 1][r.below(5)])
        .collect();
    let locals: Vec<Value> =
        highs.iter().enumerate().map(|(n, high)| Value::Sum(walk.values.within(bits(n), 0, *high))).collect();
    let state = State {
        locals,
        stack: Vec::new(),
        globals: Vec::new(),
        memory: Vec::new(),
        facts: Vec::new(),
        nonzero: Vec::new(),
        cost: Cost::ZERO,
        marked: false,
    };
    let (start, mut seen) = (point(&mut walk, &state), Vec::new());
    walk_all(&mut walk, state, &program, &mut seen);
    let mut held = 0;
    for _ in 0..24 {
        let mut locals = [0; LOCALS];
        for (place, high) in locals.iter_mut().zip(&highs) {
            let n = r.number();
            *place = if n > *high { n & *high } else { n };
        }
        let mut execution = Execution { values: &walk.values, locals, symbols: HashMap::new(), held: 0 };
        execution.holds(&start);
        execution.run(&program, &seen);
        held += execution.held;
    }
    held
}

#[test]
fn what_the_checker_says_holds_in_executions() {
    let wasm = wat::parse_str("(module (func (export \"f\")))").expect("valid");
    let module = Module::read(&wasm, flame_verify::SECTION).expect("valid");
    let programs = std::env::var("FLAME_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let mut held = 0;
    for seed in 0..programs {
        held += std::panic::catch_unwind(|| check(seed, &module)).unwrap_or_else(|_| panic!("program {seed}"));
    }
    assert!(held as u64 > programs * 100, "only {held} statements were checked");
}
