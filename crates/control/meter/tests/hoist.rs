//! Counted loops are charged in advance: the same results, the exact charge, and loops whose counter would
//! never equal its end are cut off before they begin.

use crate::common::{PLENTY, Run, compare, engine, metered};
use proptest::prelude::*;
use wasmtime::Val;

/// Returns a loop over local 0 to local 1 (or to 0), which counts its iterations in local 2 and also contains
/// `body`.
fn module(step: i32, how: &str, until: &str, body: &str) -> Vec<u8> {
    let next = format!("(local.tee 0 ({how} (local.get 0) (i32.const {step})))");
    let condition = match until {
        "end" => format!("(i32.ne {next} (local.get 1))"),
        "end first" => format!("(i32.ne (local.get 1) {next})"),
        "itself" => format!("(i32.ne {next} (local.get 0))"),
        _ => next,
    };
    let text = format!(
        "(module (memory (export \"memory\") 1) (func (export \"f\") (param i32 i32) (result i32) (local i32)
            (block $out (loop $top {body}
                (local.set 2 (i32.add (local.get 2) (i32.const 1)))
                (br_if $top {condition})))
            (local.get 2)))"
    );
    wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Returns a loop that counts, compares, and ignores the result of the comparison.
fn always(compare: &str) -> Vec<u8> {
    let text = format!(
        "(module (memory (export \"memory\") 1) (func (export \"f\") (param i32 i32) (result i32)
            (loop $top (result i32)
                (local.tee 0 (i32.add (local.get 0) (i32.const 1))) {compare}
                (br $top))))"
    );
    wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Returns whether the loops of a rewritten module contain checks: not if they were charged in advance.
fn checks_inside(wasm: &[u8]) -> bool {
    let text = operators(&metered(wasm));
    let inside = text.split("loop").nth(1).expect("a loop");
    inside.split("br_if 0").next().is_some_and(|body| body.contains("i64.lt_s"))
}

/// Returns the operators of all functions, by name.
fn operators(wasm: &[u8]) -> String {
    let mut out = String::new();
    for payload in wasmparser::Parser::new(0).parse_all(wasm) {
        if let wasmparser::Payload::CodeSectionEntry(body) = payload.unwrap() {
            for operator in body.get_operators_reader().unwrap() {
                out += &match operator.unwrap() {
                    wasmparser::Operator::Loop { .. } => "loop ".to_owned(),
                    wasmparser::Operator::BrIf { relative_depth } => format!("br_if {relative_depth} "),
                    wasmparser::Operator::I64LtS => "i64.lt_s ".to_owned(),
                    _ => ". ".to_owned(),
                };
            }
        }
    }
    out
}

#[test]
fn plain_counted_loops_have_no_check_inside_and_others_keep_theirs() {
    for until in ["end", "end first", "zero"] {
        for (step, how) in [(32, "i32.add"), (1, "i32.sub"), (-1, "i32.add"), (65_536, "i32.add")] {
            assert!(!checks_inside(&module(step, how, until, "")), "{how} {step} {until}");
        }
    }
    // Code that stays inside does not matter.
    for body in [
        "(block $x (br_if $x (local.get 2)))",
        "(block $x (block $y (br_table $x $y (local.get 2))))",
        "(if (local.get 2) (then (local.set 2 (i32.const 5))))",
    ] {
        assert!(!checks_inside(&module(1, "i32.add", "end", body)), "{body}");
    }
    let kept = [
        module(3, "i32.add", "end", ""),
        module(0, "i32.add", "end", ""),
        module(1, "i32.mul", "end", ""),
        // The back edge ignores the count: the value is left on the stack, below the branch.
        always(""),
        always("(local.get 1) (i32.ne)"),
        // The counter or end is written, or the loop may exit or continue early.
        module(1, "i32.add", "end", "(local.set 0 (i32.load8_u (i32.const 0)))"),
        module(1, "i32.add", "end", "(local.set 1 (i32.load8_u (i32.const 0)))"),
        module(1, "i32.add", "end", "(br_if $out (local.get 2))"),
        module(1, "i32.add", "end", "(br_if $top (i32.eqz (local.get 2)))"),
        module(1, "i32.add", "end", "(if (local.get 2) (then (return (local.get 2))))"),
        // By a table, to its head or out, by a number or by default.
        module(1, "i32.add", "end", "(block $x (br_table $top $x (i32.const 9)))"),
        module(1, "i32.add", "end", "(block $x (br_table $x $top (i32.const 0)))"),
        module(1, "i32.add", "end", "(block $x (br_table $out $x (i32.const 9)))"),
        module(1, "i32.add", "end", "(block $x (br_table $x $out (i32.const 0)))"),
        module(1, "i32.add", "end", "(block $x (br_if $x (local.get 2)) (br $top))"),
        // The end is the counter, or the sum is written to another local.
        module(1, "i32.add", "itself", ""),
        module(1 << 17, "i32.add", "end", ""),
        module(1, "i32.add", "end", "(drop (memory.grow (i32.const 0)))"),
    ];
    for (i, wasm) in kept.iter().enumerate() {
        assert!(checks_inside(wasm), "{i}");
    }
}

/// Returns the cost of a call, if it ends.
fn charge(wasm: &[u8], from: i32, to: i32) -> Result<i64, String> {
    let mut run = Run::metered(wasm);
    run.call("f", &[Val::I32(from), Val::I32(to)]).results?;
    Ok(PLENTY - run.get("flame:fuel"))
}

#[test]
fn a_loop_that_never_meets_its_end_is_cut_off_and_one_of_2_to_the_32_is_charged_in_full() {
    for (step, how) in [(32, "i32.add"), (8, "i32.sub")] {
        let mut run = Run::metered(&module(step, how, "end", ""));
        let ended = run.call("f", &[Val::I32(5), Val::I32(0)]).results.unwrap_err();
        assert!(ended.contains("unreachable") && run.get("flame:fuel") < 0, "{ended}");
    }
    // Once through all addresses: more than this budget, though not more than it could count.
    let wasm = module(1, "i32.add", "end", "");
    let mut run = Run::metered(&wasm);
    run.set("flame:fuel", 1 << 32);
    assert!(run.call("f", &[Val::I32(7), Val::I32(7)]).results.is_err());
    assert!(run.get("flame:fuel") < 0);
}

/// Returns numbers at every border where 32 bits wrap or change their sign.
fn borders() -> Vec<u32> {
    let near = |at: u32| (0..5_u32).map(move |n| at.wrapping_add(n).wrapping_sub(2));
    let mut all: Vec<u32> =
        [0, 1 << 8, 1 << 16, 1 << 31, u32::MAX - 65_535].into_iter().flat_map(near).collect();
    all.extend([24, 127, 0x7fff_0000, 0xffff_ff00]);
    all
}

#[test]
fn a_loop_that_goes_back_whatever_it_counts_is_cut_off() {
    for wasm in [always(""), always("(local.get 1) (i32.ne)")] {
        // Wasmtime's own meter ends the call if the counters do not.
        let mut run = Run::new(&engine(true), &metered(&wasm));
        run.set("flame:fuel", 10_000);
        run.store.set_fuel(1_000_000).unwrap();
        let ended = run.call("f", &[Val::I32(-7), Val::I32(0)]).results.unwrap_err();
        assert!(ended.contains("unreachable") && run.get("flame:fuel") < 0, "{ended}");
    }
}

#[test]
fn the_charge_is_exact_at_every_border_of_32_bits() {
    // It divides by zero in its first iteration, so that nothing runs 2^32 times; the charge is deduced from
    // the fuel that the loop requires.
    let body = "(drop (i32.div_u (i32.const 1) (local.get 2)))";
    for (until, signed, how) in [
        ("end", 1_i32, "i32.add"),
        ("end first", -1, "i32.add"),
        ("zero", 1, "i32.sub"),
        ("end", -8, "i32.sub"),
        ("end first", 65_536, "i32.add"),
        ("zero", -256, "i32.add"),
        ("end", 2, "i32.sub"),
    ] {
        let mut run = Run::metered(&module(signed, how, until, body));
        let mut enters = |fuel: i64, from: u32, to: u32| {
            run.set("flame:fuel", fuel);
            let ended = run.call("f", &[Val::I32(from as i32), Val::I32(to as i32)]).results.unwrap_err();
            assert!(ended.contains("divide by zero") || run.get("flame:fuel") == -1, "{ended}");
            ended.contains("divide by zero")
        };
        let up = (signed > 0) == (how == "i32.add");
        let step = u64::from(signed.unsigned_abs());
        // Returns the fuel required for n iterations: the same for each, plus a constant.
        let mut threshold = |n: u32| {
            let far = step as u32 * n;
            let (from, to) = match (until, up) {
                ("zero", true) => (far.wrapping_neg(), 0),
                ("zero", false) => (far, 0),
                (_, true) => (5, 5 + far),
                (_, false) => (5 + far, 5),
            };
            (0..10_000).find(|fuel| enters(*fuel, from, to)).expect("little fuel is enough")
        };
        let each = threshold(2) - threshold(1);
        let front = threshold(1) - each;
        for from in borders() {
            for to in borders() {
                let end = if until == "zero" { 0 } else { to };
                let distance = u64::from(if up { end.wrapping_sub(from) } else { from.wrapping_sub(end) });
                let iterations = match distance {
                    0 => Some((1 << 32) / step),
                    d => (d % step == 0).then_some(d / step),
                };
                let text = format!("{how} {signed} from {from} to {end}");
                match iterations {
                    Some(n) => {
                        let all = front + each * n as i64;
                        assert!(enters(all, from, to), "{text}: charged more than {n} iterations");
                        assert!(!enters(all - 1, from, to), "{text}: charged less than {n} iterations");
                    }
                    None => assert!(!enters(i64::MAX, from, to), "{text}: it never ends"),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_charge_is_that_of_the_iterations(
        from in -2000i32..2000, iterations in 1i32..200, log in 0u32..8, down: bool, until in 0usize..3,
    ) {
        let step = 1 << log;
        let signed: i32 = if down { -step } else { step };
        let until = ["end", "end first", "zero"][until];
        let (from, to) = if until == "zero" {
            ((-signed).wrapping_mul(iterations), 0)
        } else {
            (from, from.wrapping_add(signed.wrapping_mul(iterations)))
        };
        let ways = [module(signed, "i32.add", until, ""), module(-signed, "i32.sub", until, "")];
        for wasm in &ways {
            let (spent, charged, outcome) = compare(wasm, "f", &[Val::I32(from), Val::I32(to)]);
            prop_assert_eq!(outcome.results, Ok(vec![format!("I32({iterations})")]));
            prop_assert!(charged >= spent, "{} charged, {} spent", charged, spent);
            // Each further iteration costs the same.
            let one_more = if until == "zero" { (from.wrapping_sub(signed), 0) } else { (from, to.wrapping_add(signed)) };
            let more = charge(wasm, one_more.0, one_more.1).unwrap() - charged as i64;
            let first = charge(wasm, if until == "zero" { -signed } else { from }, if until == "zero" { 0 } else { from.wrapping_add(signed) }).unwrap();
            prop_assert_eq!(charged as i64, first + more * i64::from(iterations - 1));
        }
    }
}
