//! Compares the hoisting rule with an 8-bit interpreter: over every loop of a few instructions, and over all
//! values.

use super::{Hoist, Scan};
use wasmparser::Operator;

/// An instruction of the tested loops. Locals are `i` (0) and `e` (1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Get(u32),
    Const(i32),
    Add,
    Sub,
    Tee(u32),
    Set(u32),
    Ne,
    Br(u32),
    BrIf(u32),
}

const OPS: [Op; 15] = [
    Op::Get(0),
    Op::Get(1),
    Op::Const(1),
    Op::Const(-4),
    Op::Const(6),
    Op::Add,
    Op::Sub,
    Op::Tee(0),
    Op::Tee(1),
    Op::Set(0),
    Op::Ne,
    Op::Br(0),
    Op::Br(1),
    Op::BrIf(0),
    Op::BrIf(1),
];

impl Op {
    fn operator(self) -> Operator<'static> {
        match self {
            Self::Get(local_index) => Operator::LocalGet { local_index },
            Self::Const(value) => Operator::I32Const { value },
            Self::Add => Operator::I32Add,
            Self::Sub => Operator::I32Sub,
            Self::Tee(local_index) => Operator::LocalTee { local_index },
            Self::Set(local_index) => Operator::LocalSet { local_index },
            Self::Ne => Operator::I32Ne,
            Self::Br(relative_depth) => Operator::Br { relative_depth },
            Self::BrIf(relative_depth) => Operator::BrIf { relative_depth },
        }
    }

    /// Returns the number of operands and of results.
    fn arity(self) -> (usize, usize) {
        match self {
            Self::Get(_) | Self::Const(_) => (0, 1),
            Self::Add | Self::Sub | Self::Ne => (2, 1),
            Self::Tee(_) => (1, 1),
            Self::Set(_) | Self::BrIf(_) => (1, 0),
            Self::Br(_) => (0, 0),
        }
    }
}

/// Returns the number of iterations of a loop with these instructions, or `None` if it repeats a state, and
/// so never ends.
fn run(body: &[Op], mut locals: [u8; 2]) -> Option<u64> {
    let mut seen = [0_u64; 1024];
    'iterations: for n in 1.. {
        let [i, e] = locals.map(usize::from);
        let (word, bit) = (&mut seen[i * 4 + e / 64], 1 << (e % 64));
        if *word & bit != 0 {
            return None;
        }
        *word |= bit;
        let mut stack: Vec<u8> = Vec::new();
        for op in body {
            let mut pop = || stack.pop().expect("an operand");
            let value = match *op {
                Op::Get(l) => locals[l as usize],
                Op::Const(c) => c as u8,
                Op::Add => pop().wrapping_add(pop()),
                Op::Sub => {
                    let b = pop();
                    pop().wrapping_sub(b)
                }
                Op::Ne => u8::from(pop() != pop()),
                Op::Tee(l) => {
                    locals[l as usize] = pop();
                    locals[l as usize]
                }
                Op::Set(l) => {
                    locals[l as usize] = pop();
                    continue;
                }
                Op::Br(0) => continue 'iterations,
                Op::Br(_) => return Some(n),
                Op::BrIf(label) => match (pop(), label) {
                    (0, _) => continue,
                    (_, 0) => continue 'iterations,
                    _ => return Some(n),
                },
            };
            stack.push(value);
        }
        return Some(n);
    }
    None
}

/// Computes the result of `Writer::charge_all` for counters of `bits` bits.
fn iterations(hoist: Hoist, bits: u32, counter: u64, end: u64) -> Option<u64> {
    let mask = (1 << bits) - 1;
    let d = if hoist.down { counter.wrapping_sub(end) } else { end.wrapping_sub(counter) } & mask;
    let divides = d & ((1 << hoist.log_step) - 1) == 0;
    divides.then(|| ((d.wrapping_sub(1) & mask) >> hoist.log_step) + 1)
}

fn scan(body: &[Op]) -> Option<Hoist> {
    let mut scan = Scan::new();
    body.iter().for_each(|op| scan.see(&op.operator(), 0));
    scan.hoist()
}

/// Calls `found` with every body of up to `left` more instructions whose operands are available. Code after a
/// `br` is not executed, and may find any operands: it is tried with as many as it takes.
fn every(body: &mut Vec<Op>, height: usize, left: usize, found: &mut dyn FnMut(&[Op])) {
    found(body);
    if left == 0 {
        return;
    }
    for op in OPS {
        let (takes, gives) = op.arity();
        let dead = body.iter().any(|op| matches!(op, Op::Br(_)));
        if height >= takes || dead {
            body.push(op);
            every(body, height.saturating_sub(takes) + gives, left - 1, found);
            body.pop();
        }
    }
}

#[test]
fn what_is_hoisted_runs_as_often_as_it_is_charged_for() {
    let (mut bodies, mut hoisted) = (0_u64, 0_u64);
    // Values near every border of 8 bits, and between.
    let values = [0, 1, 4, 5, 64, 127, 128, 130, 252, 255];
    let mut check = |body: &[Op]| {
        bodies += 1;
        let Some(hoist) = scan(body) else { return };
        hoisted += 1;
        for i in values {
            for e in values {
                let end = hoist.end.map_or(0, |local| [i, e][local as usize]);
                let counter = [i, e][hoist.counter as usize];
                let charged = iterations(hoist, 8, counter.into(), end.into());
                assert_eq!(run(body, [i, e]), charged, "{body:?} with {i} and {e}");
            }
        }
    };
    every(&mut Vec::new(), 0, 5, &mut check);
    // All patterns, with any instruction in each position, and any instruction before them.
    let add = [Op::Add, Op::Sub];
    for (how, step) in add.into_iter().flat_map(|a| [(a, 1), (a, -4), (a, 6)]) {
        let count = [Op::Get(0), Op::Const(step), how, Op::Tee(0)];
        let after = [&count[..], &[Op::Get(1), Op::Ne, Op::BrIf(0)]].concat();
        let before = [&[Op::Get(1)], &count[..], &[Op::Ne, Op::BrIf(0)]].concat();
        let to_zero = [&count[..], &[Op::BrIf(0)]].concat();
        for pattern in [after, before, to_zero] {
            for place in 0..pattern.len() {
                for op in OPS {
                    let mut changed = pattern.clone();
                    changed[place] = op;
                    for first in [
                        &[][..],
                        &[Op::Get(1), Op::Set(0)],
                        &[Op::Get(0), Op::BrIf(1)],
                        &[Op::Get(0), Op::BrIf(0)],
                    ] {
                        let body = [first, &changed].concat();
                        let mut height = 0_usize;
                        let valid = body.iter().all(|op| {
                            let (takes, gives) = op.arity();
                            let fits = height >= takes;
                            height = height.saturating_sub(takes) + gives;
                            fits
                        });
                        if valid {
                            check(&body);
                        }
                    }
                }
            }
        }
    }
    assert!(bodies > 100_000 && hoisted > 40, "{hoisted} of {bodies}");
}

#[test]
fn the_charge_is_right_for_all_values_of_8_bits() {
    for log_step in 0..8 {
        for down in [false, true] {
            let hoist = Hoist { counter: 0, end: Some(1), log_step, down };
            let step = 1_u8 << log_step;
            for counter in 0..=255_u8 {
                // Computed by stepping from the counter once through all values.
                let mut n_to = [None; 256];
                let mut at = counter;
                for n in 1..=256_u64 {
                    at = if down { at.wrapping_sub(step) } else { at.wrapping_add(step) };
                    n_to[usize::from(at)].get_or_insert(n);
                }
                for end in 0..=255_u8 {
                    let charged = iterations(hoist, 8, counter.into(), end.into());
                    assert_eq!(charged, n_to[usize::from(end)], "{counter} to {end} by {step}, down: {down}");
                }
            }
        }
    }
}

/// Returns the result for the first loop of a function over locals 0 and 1, the parameters, and 2.
fn of_text(body: &str) -> Option<Hoist> {
    let text = format!(
        "(module (memory 1) (table 1 funcref) (func $f (param i32 i32) (local i32) (block $out {body})))"
    );
    let wasm = wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let body = wasmparser::Parser::new(0).parse_all(&wasm).find_map(|payload| match payload.unwrap() {
        wasmparser::Payload::CodeSectionEntry(body) => Some(body),
        _ => None,
    });
    crate::charge::regions(&body.unwrap(), |_| None, |_| false).unwrap().loops[0].hoist
}

#[test]
fn each_condition_of_the_rule_is_needed_and_no_other_is() {
    let up = "(local.tee 0 (i32.add (local.get 0) (i32.const 8)))";
    let end = |next: &str| format!("(br_if $top (i32.ne {next} (local.get 1)))");
    let hoist = |end, log_step, down| Some(Hoist { counter: 0, end, log_step, down });
    let count = |inside: &str, last: &str| of_text(&format!("(loop $top {inside} {last})"));
    // Each form, step and direction.
    assert_eq!(count("", &end(up)), hoist(Some(1), 3, false));
    assert_eq!(count("", &format!("(br_if $top (i32.ne (local.get 1) {up}))")), hoist(Some(1), 3, false));
    assert_eq!(count("", &format!("(br_if $top {up})")), hoist(None, 3, false));
    for (how, step, is) in [
        ("add", 1, hoist(Some(1), 0, false)),
        ("add", -4, hoist(Some(1), 2, true)),
        ("sub", 65_536, hoist(Some(1), 16, true)),
        ("sub", -2, hoist(Some(1), 1, false)),
        ("add", 131_072, None),
        ("add", 0, None),
        ("sub", 0, None),
        ("add", 6, None),
        ("mul", 2, None),
    ] {
        let next = format!("(local.tee 0 (i32.{how} (local.get 0) (i32.const {step})))");
        assert_eq!(count("", &end(&next)), is, "{how} {step}");
    }
    // Code that does not matter: branches that stay inside, other locals, loads and stores, traps.
    for inside in [
        "(block $x (br_if $x (local.get 2)) (br $x))",
        "(block $x (block $y (br_table $x $y (local.get 2))))",
        "(if (local.get 2) (then (local.set 2 (i32.load (local.get 0)))) (else (unreachable)))",
    ] {
        assert_eq!(count(inside, &end(up)), hoist(Some(1), 3, false), "{inside}");
    }
    // Other back edges or exits, other writers, and instructions that are charged separately.
    for inside in [
        "(br_if $top (local.get 2))",
        "(block $x (br_if $top (local.get 2)))",
        "(if (local.get 2) (then (br $top)))",
        "(br_if $out (local.get 2))",
        "(if (local.get 2) (then (br $out)))",
        "(if (local.get 2) (then (return)))",
        "(block $x (br_table $top $x (local.get 2)))",
        "(block $x (br_table $x $top (local.get 2)))",
        "(block $x (br_table $out $x (local.get 2)))",
        "(block $x (br_table $x $out (local.get 2)))",
        "(local.set 0 (local.get 2))",
        "(local.set 1 (local.get 2))",
        "(drop (local.tee 1 (local.get 2)))",
        "(drop (memory.grow (i32.const 0)))",
        "(memory.fill (i32.const 0) (i32.const 0) (local.get 2))",
        "(call $f (local.get 0) (local.get 1))",
        "(call_indirect (param i32) (local.get 0) (i32.const 0))",
        "(loop $inner (br_if $inner (i32.load (i32.const 0))))",
    ] {
        let found = of_text(&format!("(loop $top {inside} {})", end(up)));
        assert_eq!(found, None, "{inside}");
    }
    // The compared value is not the counter, or its end is not invariant.
    for last in [
        format!("(br_if $top (i32.ne {up} (local.get 0)))"),
        format!("(drop {up}) (br_if $top (i32.ne (local.get 2) (local.get 1)))"),
        "(br_if $top (i32.ne (local.tee 2 (i32.add (local.get 0) (i32.const 8))) (local.get 1)))".to_owned(),
        format!("(br_if $top (i32.eq {up} (local.get 1)))"),
        format!("(block (br_if $top (i32.ne {up} (local.get 1))))"),
        format!("{} (nop)", end(up)),
    ] {
        assert_eq!(count("", &last), None, "{last}");
    }
    let always = format!("(loop $top (i32.ne {up} (local.get 1)) (br $top)) drop");
    assert_eq!(of_text(&always.replace("(loop $top", "(loop $top (result i32)")), None);
}
