//! The rule for loops: exact bounds, and claims that must be refused.

use crate::modules::{fact, loops, note};
use crate::ticks::{HEAD, bound, plain, step, tick, trips};
use flame_verify::{Form, LoopNote, Measure, Notes, Reference, verify};
use std::collections::BTreeMap;

#[test]
fn loops_cost_their_iterations_and_one_more() {
    let up = "(local.set $i (i32.add (local.get $i) (i32.const 1)))";
    let below = |n: u32| format!("(br_if 0 (i32.lt_u (local.get $i) (i32.const {n})))");
    let counted = format!("(loop {up} {})", below(10));
    assert_eq!(tick(&counted, loops(vec![step(1, 1, &[trips(9)])])), "80");
    assert_eq!(tick(&counted, loops(vec![step(1, 1, &[trips(12)])])), "104", "a weaker claim");
    assert_eq!(
        tick(&counted, loops(vec![step(1, 1, &[trips(8)])])),
        "fact 0 of the certificate does not hold where the loop goes back"
    );
    assert_eq!(tick(&counted, loops(vec![step(1, 1, &[])])), "a loop has no bound");
    assert_eq!(
        tick(&counted, loops(vec![step(1, 2, &[trips(9)])])),
        "the certificate claims a form of local 1 that does not hold"
    );
    // Inside another: the product.
    let inner = format!("(local.set $i (i32.const 0)) {counted}");
    let outer = format!(
        "(loop {inner} (br_if 0 (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 1))) (i32.const 5))))"
    );
    let both = loops(vec![step(2, 1, &[trips(4)]), step(1, 1, &[trips(9)])]);
    assert_eq!(tick(&outer, both), ((2 + 80 + 7) * 5).to_string());
    // Two back edges: the more expensive iteration each time.
    let ways = format!(
        "(loop {up} (br_if 1 (i32.ge_u (local.get $i) (i32.const 10))) (br_if 0 (i32.load (i32.const 0))) (drop (memory.grow (i32.const 0))) (br 0))"
    );
    let cost = 9 * (4 + 4 + 3 + 1026 + 1) + 8;
    // A trap may occur at the end of one more iteration that would take the back edge.
    assert_eq!(
        tick(&format!("(block {ways})"), loops(vec![step(1, 1, &[trips(9)])])),
        (cost - 8 + 1038 - 1).to_string()
    );
    // A step of 3, downwards, and of 64 bits.
    let down = "(local.set $i (i32.const 30)) (loop (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 3)))))";
    let note = step(1, -3, &[fact(27, &[(-3, Reference::Trip)])]);
    assert_eq!(tick(down, loops(vec![note])), (2 + 10 * 5).to_string());
    let wide =
        "(loop (br_if 0 (i64.lt_u (local.tee $k (i64.add (local.get $k) (i64.const 1))) (i64.const 7))))";
    assert_eq!(tick(wide, loops(vec![step(3, 1, &[trips(6)])])), (7 * 7).to_string());
    // Measures: at most 64 times.
    let measured = |measure| loops(vec![LoopNote { measure: Some(measure), ..LoopNote::default() }]);
    let start = "(local.set $i (i32.load (i32.const 0)))";
    let halved = format!("{start} (loop (br_if 0 (local.tee $i (i32.shr_u (local.get $i) (i32.const 1)))))");
    let whole = (3 + 65 * 5).to_string();
    assert_eq!(tick(&halved, measured(Measure::Halved(1))), whole);
    let tenth = format!("{start} (loop (br_if 0 (local.tee $i (i32.div_u (local.get $i) (i32.const 10)))))");
    assert_eq!(tick(&tenth, measured(Measure::Halved(1))), whole);
    let same = format!("{start} (loop (br_if 0 (local.tee $i (i32.shr_u (local.get $i) (i32.const 0)))))");
    let shrinks_not = "the measure of the certificate does not shrink";
    assert_eq!(tick(&same, measured(Measure::Halved(1))), shrinks_not);
    let zero = format!(
        "{start} (loop (local.set $i (i32.shr_u (local.get $i) (i32.const 1))) (br_if 0 (i32.load (i32.const 0))))"
    );
    assert_eq!(tick(&zero, measured(Measure::Halved(1))), shrinks_not, "0 is halved for ever");
    let cleared = format!(
        "{start} (loop (br_if 0 (local.tee $i (i32.and (local.get $i) (i32.sub (local.get $i) (i32.const 1))))))"
    );
    assert_eq!(tick(&cleared, measured(Measure::Cleared(1))), (3 + 65 * 7).to_string());
    assert_eq!(tick(&cleared, measured(Measure::Halved(1))), shrinks_not);
    assert_eq!(tick(&halved, measured(Measure::Cleared(1))), shrinks_not);
    let swapped = format!(
        "{start} (loop (br_if 0 (local.tee $i (i32.and (i32.add (local.get $i) (i32.const -1)) (local.get $i)))))"
    );
    assert_eq!(tick(&swapped, measured(Measure::Cleared(1))), (3 + 65 * 7).to_string());
    let twice = cleared.replace("(i32.const 1)", "(i32.const 2)");
    assert_eq!(tick(&twice, measured(Measure::Cleared(1))), shrinks_not);
    let head = format!(
        "{start} (block (loop (br_if 1 (i32.eqz (local.get $i))) (local.set $i (i32.and (local.get $i) (i32.sub (local.get $i) (i32.const 1)))) (br 0)))"
    );
    assert_eq!(
        tick(&head, measured(Measure::Cleared(1))),
        (3 + 64 * 10 + 10 - 1).to_string(),
        "it was not 0 before"
    );
}

#[test]
fn claims_about_heads() {
    // A range, and relations between locals at the head, before the loop, and the number of iterations.
    let start =
        "(local.set $i (i32.const 3)) (local.set $x (i32.and (i32.load (i32.const 0)) (i32.const 63)))";
    let body =
        "(loop (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $x))))";
    let all = format!("{start} {body}");
    let (head, term) = (Reference::Head(1), Reference::Term(4, 0));
    let ranged = |low, high, facts: &[_]| loops(vec![note(&[(1, Form::Range(low, high))], facts)]);
    let at_least = fact(-3, &[(1, head), (-1, Reference::Trip)]);
    let cost = (7 + 7 * 61).to_string();
    assert_eq!(tick(&all, ranged(3, 63, std::slice::from_ref(&at_least))), cost);
    assert_eq!(
        tick(&all, ranged(4, 63, std::slice::from_ref(&at_least))),
        "the certificate claims a form of local 1 that does not hold"
    );
    assert_eq!(
        tick(&all, ranged(3, 61, std::slice::from_ref(&at_least))),
        "the certificate claims a form of local 1 that does not hold"
    );
    assert_eq!(
        tick(&all, ranged(0, 63, &[fact(-4, &[(1, head)])])),
        "fact 0 of the certificate does not hold before the loop"
    );
    assert_eq!(
        tick(&all, ranged(0, 63, &[fact(3, &[(-1, head)])])),
        "fact 0 of the certificate does not hold where the loop goes back"
    );
    // Below the earlier value: the loop may be entered with more, so the fact needs room for it.
    let related = [at_least.clone(), fact(3, &[(1, term), (-1, head)])];
    assert_eq!(tick(&all, ranged(0, 66, &related)), (7 + 7 * 64).to_string());
    // The order of facts does not matter, nor do claims about locals that are not written.
    let reversed = [related[1].clone(), at_least.clone()];
    assert_eq!(tick(&all, ranged(0, 66, &reversed)), (7 + 7 * 64).to_string());
    let mut more = ranged(0, 66, &related);
    more.loops.get_mut(&0).unwrap().forms.insert(4, Form::Range(0, 63));
    assert_eq!(tick(&all, more), (7 + 7 * 64).to_string());
    // Claims about references that do not exist.
    for reference in [
        Reference::Head(4),
        Reference::Head(9),
        Reference::Term(90, 0),
        Reference::Term(1, 0),
        Reference::Term(4, 5),
    ] {
        let claim = fact(100, &[(-1, reference)]);
        assert_eq!(
            tick(&all, ranged(0, 66, &[claim])),
            "fact 0 of the certificate does not hold before the loop",
            "{reference:?}"
        );
    }
    // More than 2^28 iterations are out of reach.
    let long = |n: i64| {
        format!(
            "(loop (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {n}))))"
        )
    };
    let most = (1 << 28) - 1;
    assert_eq!(tick(&long(most + 1), loops(vec![step(1, 1, &[trips(most)])])), (7 * (most + 1)).to_string());
    assert_eq!(tick(&long(most + 2), loops(vec![step(1, 1, &[trips(most + 1)])])), "a loop has no bound");
    // A value that a loop writes is not known after it; any other value is.
    let after = |of: &str| {
        format!(
            "{all} (if (i32.lt_u (local.get {of}) (i32.const 64)) (then) (else (drop (memory.grow (i32.const 1)))))"
        )
    };
    let known = tick(&after("$x"), ranged(3, 63, std::slice::from_ref(&at_least)));
    assert_eq!(known, (7 + 7 * 61 + 4).to_string());
    let unknown = tick(&after("$i"), ranged(3, 63, std::slice::from_ref(&at_least)));
    assert_eq!(unknown, (7 + 7 * 61 + 4 + 1026).to_string(), "it may be 64");
}

/// The nesting of loops in a function is limited, as is the nesting of frames.
#[test]
fn nesting_is_limited() {
    let nested =
        |n: usize, open: &str| plain(&format!("{} (drop (i32.const 1)) {}", open.repeat(n), ")".repeat(n)));
    let deep = "frames or calls are nested too deep, or a function has exceptions or too many locals";
    assert_eq!((nested(24, "(loop "), nested(25, "(loop ")), ("1".into(), deep.into()));
    // The function is a frame itself.
    assert_eq!((nested(127, "(block "), nested(128, "(block ")), ("1".into(), deep.into()));
    // A call that is analysed with its arguments adds its frames.
    let called = |outer: usize, inner: usize| {
        let (o, i) = ("(block ".repeat(outer), "(block ".repeat(inner));
        let text = format!(
            r#"(func (export "flame_tick") (param i64) (result i64) {o} (call $g) {} (i64.const 0)) (func $g {i} {})"#,
            ")".repeat(outer),
            ")".repeat(inner)
        );
        let notes = Notes { calls: BTreeMap::from([(0, Notes::default())]), ..Notes::default() };
        bound(&text, notes).is_ok()
    };
    assert!(called(63, 63) && !called(64, 63) && !called(63, 64));
}

/// A value that an iteration writes, anywhere in it, is not known at the head.
#[test]
fn heads_know_nothing_of_what_is_written() {
    // 1 at first; the expensive side is only reached after a change.
    let much = "(drop (i32.const 1))".repeat(1026);
    let probe = |read: &str| format!("(if (i32.ne {read} (i32.const 1)) (then {much}))");
    let looped = |before: &str, read: &str, write: &str, inner: bool| {
        let write = if inner { format!("(loop (block {write}))") } else { write.into() };
        let body = format!(
            "{before} (loop {} {write} (br_if 0 (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 1))) (i32.const 2))))",
            probe(read)
        );
        let mut notes = loops(vec![step(2, 1, &[trips(1)])]);
        notes.loops.insert(1, LoopNote::default());
        tick(&body, notes).parse::<u64>().unwrap()
    };
    let memory = ("(i32.store (i32.const 8) (i32.const 1))", "(i32.load (i32.const 8))");
    let global = ("(global.set $m (i32.const 1))", "(global.get $m)");
    let local = ("(local.set $i (i32.const 1))", "(local.get $i)");
    for (at, writes) in [
        (
            memory,
            &[
                "(i32.store (i32.const 8) (i32.const 2))",
                "(i64.store8 (i32.const 8) (i64.const 2))",
                "(f64.store (i32.const 8) (f64.const 2))",
                "(v128.store (i32.const 8) (v128.const i64x2 2 2))",
                "(v128.store8_lane 0 (i32.const 8) (v128.const i64x2 2 2))",
                "(memory.fill (i32.const 8) (i32.const 2) (i32.const 1))",
                "(memory.copy (i32.const 8) (i32.const 9) (i32.const 1))",
                "(memory.init $data (i32.const 8) (i32.const 0) (i32.const 1))",
                "(drop (call $leaf (i32.const 1)))",
                "(drop (call_indirect (type $t) (i32.const 1) (i32.load (i32.const 0))))",
            ][..],
        ),
        (
            global,
            &[
                "(global.set $m (i32.const 2))",
                "(drop (call $leaf (i32.const 1)))",
                "(drop (call_indirect (type $t) (i32.const 1) (i32.load (i32.const 0))))",
            ],
        ),
        (local, &["(local.set $i (i32.const 2))", "(drop (local.tee $i (i32.const 2)))"]),
    ] {
        for write in writes {
            for inner in [false, true] {
                assert!(looped(at.0, at.1, write, inner) >= 1026, "{write}");
            }
        }
        // Instructions that only read change nothing.
        for read in [
            "nop",
            "(drop (i32.load (i32.const 8)))",
            "(drop (memory.size))",
            "(drop (global.get $m))",
            "(drop (v128.load (i32.const 8)))",
        ] {
            for inner in [false, true] {
                assert!(looped(at.0, at.1, read, inner) < 1026, "{read}");
            }
        }
    }
}

/// Paths that leave different loops for one place are distinguished: each has the cost of the iterations that
/// it was in.
#[test]
fn paths_that_leave_loops_are_told_apart() {
    let next = |local: &str, n: u32| {
        format!(
            "(br_if 0 (i32.lt_u (local.tee {local} (i32.add (local.get {local}) (i32.const 1))) (i32.const {n})))"
        )
    };
    let load = "(i32.load (i32.const 0))";
    // The first path is expensive, and ends before the loops.
    let first = format!("(if {load} (then (drop (memory.grow (i32.const 0))) (br 1)))");
    let inner = format!("(local.set $i (i32.const 0)) (loop (br_if 2 {load}) {})", next("$i", 5));
    let notes = loops(vec![step(2, 1, &[trips(3)]), step(1, 1, &[trips(4)])]);
    let cost = |body: &str| tick(body, notes.clone());
    let whole = 3 + 4 * (2 + 5 * 10 + 7);
    assert_eq!(cost(&format!("(block {first} (loop {inner} {}))", next("$j", 4))), 1_030.to_string());
    assert_eq!(
        cost(&format!("(block (br_if 0 {load}) (loop {inner} {}))", next("$j", 4))),
        whole.to_string()
    );
    // One leaves each of the loops.
    let both = format!("(block (loop (br_if 1 {load}) {inner} {}))", next("$j", 4));
    assert_eq!(cost(&both), (4 * (3 + 2 + 5 * 10 + 7)).to_string());
    // One after the other, to the same place.
    let one = format!("(loop (br_if 1 {load}) {})", next("$j", 4));
    let two = format!("(block {one} {})", one.replace("$j", "$i"));
    let notes = loops(vec![step(2, 1, &[trips(3)]), step(1, 1, &[trips(3)])]);
    assert_eq!(tick(&two, notes), (80).to_string());
}

/// A measure is of the local, not of a similar value.
#[test]
fn measures_are_of_one_local() {
    let measured = |measure: Measure, body: &str| {
        let start = "(local.set $i (i32.load (i32.const 0))) (local.set $j (i32.load (i32.const 4)))";
        let note = LoopNote { measure: Some(measure), ..LoopNote::default() };
        tick(&format!("{start} (loop {body} (br_if 0 (local.get $i)))"), loops(vec![note]))
    };
    let cleared = |body: &str| measured(Measure::Cleared(1), body);
    let shrinks_not = "the measure of the certificate does not shrink";
    let lowest = |of: &str| format!("(i32.and {of} (i32.sub {of} (i32.const 1)))");
    assert_eq!(cleared(&format!("(local.set $i {})", lowest("(local.get $i)"))), (6 + 65 * 8).to_string());
    for body in [
        format!("(local.set $i (i32.add {} (i32.const 1)))", lowest("(local.get $i)")),
        format!("(local.set $i {})", lowest("(i32.add (local.get $i) (i32.const 1))")),
        format!("(local.set $i {})", lowest("(local.get $j)")),
        format!("(local.set $j {})", lowest("(local.get $i)")),
        format!("(local.set $i (i32.mul {} (i32.const 2)))", lowest("(local.get $i)")),
        "(local.set $i (i32.and (local.get $i) (local.get $i)))".into(),
        "(local.set $i (i32.and (local.get $i) (local.get $j)))".into(),
    ] {
        assert_eq!(cleared(&body), shrinks_not, "{body}");
    }
    for body in [
        "(local.set $i (i32.shr_u (local.get $j) (i32.const 1)))",
        "(local.set $j (i32.shr_u (local.get $i) (i32.const 1)))",
        "(local.set $i (i32.add (i32.shr_u (local.get $i) (i32.const 1)) (i32.const 1)))",
        "(local.set $i (i32.sub (local.get $i) (i32.const 1)))",
    ] {
        assert_eq!(measured(Measure::Halved(1), body), shrinks_not, "{body}");
    }
    assert_eq!(
        measured(Measure::Halved(1), "(local.set $i (i32.div_u (local.get $i) (i32.const 3)))"),
        (6 + 65 * 6).to_string()
    );
    assert_eq!(
        measured(Measure::Halved(9), "(local.set $i (i32.shr_u (local.get $i) (i32.const 1)))"),
        shrinks_not
    );
}

/// A local from which the lowest set bit is cleared, and to which 1 is added, is 1 for ever.
#[test]
fn what_is_added_to_a_measure_counts() {
    let looped = |by: u32| {
        format!(
            "(local.set $i (i32.and (i32.load (i32.const 0)) (i32.const 255)))
             (loop
               (local.set $j (i32.and (local.get $i) (i32.sub (local.get $i) (i32.const 1))))
               (if (i32.lt_u (local.get $j) (i32.const 255)) (then
                 (local.set $i (i32.add (local.get $j) (i32.const {by})))
                 (br_if 1 (local.get $i)))))"
        )
    };
    let notes = || {
        let forms = BTreeMap::from([(1, Form::Range(0, 255))]);
        loops(vec![LoopNote { forms, measure: Some(Measure::Cleared(1)), ..LoopNote::default() }])
    };
    assert_eq!(tick(&looped(1), notes()), "the measure of the certificate does not shrink");
    assert_eq!(tick(&looped(0), notes()), (5 + 65 * 16).to_string());
}

/// The verified properties of each loop are reported.
#[test]
fn loops_are_told() {
    let text = format!(
        r#"(module {HEAD} (func (export "flame_tick") (param i64) (result i64) (local i32)
          (drop (call $leaf (i32.const 1)))
          (loop (br_if 0 (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 9))))
          (loop (call $never)) (i64.const 0)))"#
    );
    let wasm = wat::parse_str(&text).unwrap();
    let certificate = crate::ticks::certificate(loops(vec![step(1, 1, &[trips(8)])]));
    let verified = verify(&wasm, &certificate.to_bytes()).unwrap();
    let [_, one, two] = &verified.loops[..] else { panic!("{:?}", verified.loops) };
    assert_eq!((one.function, one.packets, one.trips.as_constant()), (9, false, Some(8)));
    assert_eq!(one.iteration.call.as_constant(), Some(7));
    assert_eq!(
        (two.function, two.trips.as_constant(), two.iteration.call.as_constant()),
        (9, Some(0), Some(0))
    );
    assert_eq!(wasm[one.offset as usize], 3, "a loop begins there");
    assert!(wasm[two.offset as usize] == 3 && two.offset > one.offset);
    assert_eq!(verified.diverging, certificate.diverging);
}

/// Claims may refer to values of globals and memory before the loop, by the slot after locals and operands.
#[test]
fn terms_are_found_in_every_slot() {
    let limit = "(i32.and (i32.load (i32.const 0)) (i32.const 63))";
    let looped = |before: &str, read: &str, operands: &str, behind: &str| {
        format!(
            "{before} {operands} (loop (br_if 0 (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 1))) {read}))) {behind}"
        )
    };
    let by = |slot: u32| {
        loops(vec![step(2, 1, &[fact(0, &[(1, Reference::Term(slot, 0)), (-1, Reference::Trip)])])])
    };
    let cost = (64 * 7 + 5).to_string();
    // Five locals, an operand, the two globals, and a place of memory.
    let global = looped(&format!("(global.set $m {limit})"), "(global.get $m)", "", "");
    assert_eq!(tick(&global, by(5)), cost);
    let operand = looped(&format!("(global.set $m {limit})"), "(global.get $m)", "(global.get $m)", "drop");
    assert_eq!(tick(&operand, by(5)), (64 * 7 + 6).to_string());
    assert_eq!(tick(&operand, by(6)), (64 * 7 + 6).to_string());
    let memory = looped(&format!("(i32.store (i32.const 8) {limit})"), "(i32.load (i32.const 8))", "", "");
    assert_eq!(tick(&memory, by(7)), (64 * 8 + 6).to_string());
    for slot in [8, 9, 100] {
        assert_eq!(tick(&memory, by(slot)), "fact 0 of the certificate does not hold before the loop");
    }
}
