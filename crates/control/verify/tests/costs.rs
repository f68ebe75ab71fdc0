//! Exact bounds of small modules: the cost of each construct, and the choice of the most expensive path.

use crate::modules::{fact, loops, note};
use crate::ticks::{batch, bound, is, plain, step, tick, trips};
use flame_verify::{LoopNote, Notes, Reference, Rule};
use std::collections::BTreeMap;

#[test]
fn instructions() {
    for (body, cost) in [
        ("", "0"),
        ("nop", "0"),
        ("(drop (i32.const 1))", "1"),
        ("(block (loop))", "0"),
        ("(local.set $i (i32.add (local.get $j) (i32.const 1)))", "4"),
        ("(drop (select (i32.const 1) (i32.const 2) (local.get $x)))", "4"),
        ("(if (i32.load (i32.const 0)) (then (drop (i32.const 1))))", "4"),
        ("(if (i32.load (i32.const 0)) (then) (else (drop (i32.const 1)) (drop (i32.const 1))))", "5"),
        ("(block (br 0))", "1"),
        ("(block (br_if 0 (i32.load (i32.const 0))) (drop (i32.const 1)))", "4"),
        ("(block (br_table 0 0 (i32.load (i32.const 0))))", "3"),
        ("(drop (f64.add (f64.const 1) (f64.const 2)))", "3"),
        ("(drop (memory.grow (i32.const 1)))", "1026"),
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.const 160))", "22"),
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.const 161))", "23"),
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.and (i32.load (i32.const 0)) (i32.const 31)))", "17"),
        ("(memory.init $data (i32.const 0) (i32.const 0) (i32.const 32))", "14"),
        ("(memory.copy (i32.const 0) (i32.const 0) (i32.const 128))", "186"),
        // As much as memory may contain, and no more.
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.load (i32.const 0)))", "67108877"),
        ("(memory.copy (i32.const 0) (i32.const 0) (i32.load (i32.const 0)))", "520093821"),
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.const 0x40000000))", "67108876"),
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.const 0x40000010))", "67108876"),
        ("(call $packet (i32.const 0))", "2"),
        ("(call $cold)", "1"),
        ("(drop (call $leaf (i32.const 1)))", "11"),
        ("(drop (call $middle (i32.const 1)))", "14"),
        ("(call $never) (drop (call $leaf (i32.const 1)))", "16384"),
        ("(drop (call_indirect (type $t) (i32.const 1) (i32.load (i32.const 0))))", "16"),
        ("(call_indirect (type $v) (i32.load (i32.const 0)))", "3"),
        ("(drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) unreachable", "2"),
        ("(return (i64.const 1))", "0"),
        (
            "(if (i32.load (i32.const 0)) (then (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) unreachable))",
            "6",
        ),
        // Code that is never executed costs nothing.
        ("(if (i32.const 0) (then (drop (memory.grow (i32.const 1)))))", "2"),
        ("(if (i32.const 1) (then) (else (drop (memory.grow (i32.const 1)))))", "2"),
        ("(block (br_if 0 (i32.const 1)) (drop (memory.grow (i32.const 1))))", "2"),
    ] {
        assert_eq!(plain(body), cost, "{body}");
    }
    let again =
        "it calls function 5, which has no bound: recursion, or a function that the certificate leaves out";
    assert_eq!(plain("(drop (call $again (i32.const 1)))"), again);
    assert_eq!(plain("(loop (br 0))"), "a loop has no bound");
    assert_eq!(plain("(loop (br_if 0 (i32.const 0)))"), "2");
    assert_eq!(
        plain("(drop (i32.const 1)) (loop (drop (i32.const 1)) (loop (br_if 1 (i32.load (i32.const 0)))))"),
        "a loop has no bound"
    );
}

#[test]
fn calls() {
    // With its arguments: the shorter side.
    let with =
        |number: u32, inner: Notes| Notes { calls: BTreeMap::from([(number, inner)]), ..Notes::default() };
    let leaf = "(drop (call $leaf (i32.const 1)))";
    assert_eq!(tick(leaf, with(0, Notes::default())), "9");
    assert_eq!(tick("(drop (call $leaf (i32.const 0)))", with(0, Notes::default())), "11");
    assert_eq!(tick(leaf, with(1, Notes::default())), "11", "another call");
    assert_eq!(tick(&format!("{leaf} {leaf}"), with(1, Notes::default())), "20");
    assert_eq!(tick("(drop (call $middle (i32.const 1)))", with(0, with(0, Notes::default()))), "12");
    assert_eq!(tick("(drop (call $middle (i32.const 1)))", with(0, Notes::default())), "14");
    assert_eq!(tick("(call $never)", with(0, Notes::default())), "16384", "it diverges all the same");
    // Nested calls, at most ten deep.
    let deep = |n: usize| (0..n).fold(Notes::default(), |inner, _| with(0, inner));
    let again = tick("(drop (call $again (i32.const 1)))", deep(10));
    assert!(again.starts_with("it calls function 5"), "{again}");
    // The state after a call: locals and operands.
    assert_eq!(
        tick(
            "(local.set $i (i32.const 1)) (drop (i32.add (i32.const 4) (call $leaf (i32.const 1)))) (if (local.get $i) (then) (else (drop (memory.grow (i32.const 1)))))",
            with(0, Notes::default())
        ),
        "15"
    );
}

const COUNT: &str = "(local.set $n (i32.load offset=4 (local.get $b)))";
const NEXT: &str =
    "(br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $n)))";

#[test]
fn packets_are_paid_for_by_packet() {
    let packets = || LoopNote { packets: true, ..LoopNote::default() };
    let one = |note: LoopNote| loops(vec![note]);
    let work = "(drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1))";
    let each = format!("{COUNT} (loop (call $packet (local.get $i)) {work} {NEXT})");
    // A mark that traps is the call's.
    is(&batch(&each, one(packets())), "4", "0", "13");
    // Without that claim, it is a loop with as many iterations as packets; with a limit, it is an ordinary
    // loop.
    let below = fact(-1, &[(1, Reference::Count), (-1, Reference::Trip)]);
    let counted = one(step(2, 1, std::slice::from_ref(&below)));
    is(&batch(&format!("{COUNT} (loop {work} {NEXT})"), counted.clone()), "14", "11", "0");
    is(
        &batch(&format!("{COUNT} (loop {work} {NEXT})"), one(step(2, 1, &[trips(255)]))),
        &(3 + 256 * 11).to_string(),
        "0",
        "0",
    );
    is(&batch(&each, counted), "16", "13", "0");
    // Code before the first mark in each iteration, and code after a loop.
    let before = format!("{COUNT} (loop {work} (call $packet (local.get $i)) {NEXT}) {work}");
    is(&batch(&before, one(packets())), "8", "0", "13");
    // An iteration that ends without a packet is the call's; an iteration that began a packet is the
    // packet's.
    let ends = |at: &str, then: &str| {
        format!("{COUNT} (block (loop {at} (call $packet (local.get $i)) {then} {NEXT}))")
    };
    let leave = format!("(if (i32.load (i32.const 0)) (then {work} {work} (br 2)))");
    is(&batch(&ends(&leave, ""), one(packets())), "15", "0", "12");
    is(&batch(&ends("", &leave), one(packets())), "4", "0", "14");
    let trap = format!("(if (i32.load (i32.const 0)) (then {work} {work} unreachable))");
    is(&batch(&ends(&trap, ""), one(packets())), "13", "0", "12");
    is(&batch(&ends("", &trap), one(packets())), "4", "0", "13");
    // A back edge without a packet.
    let skip = "(br_if 0 (i32.load (i32.const 0)))";
    let text = ends(skip, "");
    let refused = bound(
        &format!(
            r#"(func (export "flame_batch") (param $b i32) (result i64) (local $n i32) (local $i i32) {text} (i64.const 0))"#
        ),
        one(packets()),
    );
    assert_eq!(refused.unwrap_err().rule, Rule::Packets);
    // A loop in each packet, with its length as trip count.
    let inner = format!(
        "{COUNT} (local.set $d (i32.load (local.get $b)))
         (loop (call $packet (local.get $i))
           (local.set $l (i32.load offset=20 (i32.add (local.get $d) (i32.shl (local.get $i) (i32.const 5)))))
           (local.set $j (i32.const 0))
           (loop (br_if 0 (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 2))) (local.get $l))))
           {NEXT})"
    );
    let length = |constant: i64, by: i64| {
        step(5, 2, &[fact(constant, &[(1, Reference::Term(4, 0)), (-by, Reference::Trip)])])
    };
    is(&batch(&inner, loops(vec![packets(), length(0, 1)])), "7", "0", "7 L + 25");
    let halves = note(
        &[(5, flame_verify::Form::Step(2))],
        &[fact(0, &[(1, Reference::Term(4, 0)), (-2, Reference::Trip)])],
    );
    is(&batch(&inner, loops(vec![packets(), halves])), "7", "0", "3.5 L + 25");
    // A bulk instruction with the length of the packet.
    let fill = inner.replace(
        "(loop (br_if 0 (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 2))) (local.get $l))))",
        "(memory.fill (i32.const 0) (i32.const 0) (local.get $l))",
    );
    is(&batch(&fill, one(packets())), "7", "0", "0.06 L + 30");
    let copy = fill.replace("memory.fill", "memory.copy");
    is(&batch(&copy, one(packets())), "7", "0", "0.48 L + 142");
    // Two loops over the packets, one after the other: a packet is begun once.
    let two = format!(
        "{COUNT} (loop (call $packet (local.get $i)) {NEXT}) (local.set $i (i32.const 0)) (loop (call $packet (local.get $i)) {work} {NEXT})"
    );
    is(&batch(&two, loops(vec![packets(), packets()])), "6", "0", "13");
}

/// Loops of fewer than 32 iterations, or of possibly more than the packets, are not loops over the batch.
#[test]
fn loops_over_the_batch() {
    let looped = |n: u32, limit: &str| {
        format!(
            "{COUNT} (if (i32.gt_u (local.get $n) (i32.const {n})) (then (local.set $n (i32.const {n})))) (loop (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get {limit}))))"
        )
    };
    let limited = |n: i64| {
        loops(vec![step(2, 1, &[trips(n), fact(0, &[(1, Reference::Count), (-1, Reference::Trip)])])])
    };
    is(&batch(&looped(32, "$n"), limited(32)), "16", "7", "0");
    is(&batch(&looped(31, "$n"), limited(31)), &(9 + 32 * 7).to_string(), "0", "0");
}

/// Functions reached through tables: every function of the type that has an address, in the table or not.
#[test]
fn calls_through_tables() {
    let refused = plain("(call_indirect (type $x) (i64.const 0) (i64.const 0) (i32.const 3))");
    assert_eq!(
        refused,
        "it calls function 6, which has no bound: recursion, or a function that the certificate leaves out"
    );
    assert_eq!(plain("(call_indirect (type $y) (f32.const 0) (i32.const 3))"), "6");
    // Operands below those of the call are kept.
    let below = "(i32.const 0) (drop (call_indirect (type $t) (i32.const 1) (i32.const 0))) (if (then (drop (memory.grow (i32.const 0)))))";
    assert_eq!(plain(below), (1 + 3 + 12 + 1).to_string());
    assert_eq!(
        plain(
            "(i32.const 0) (drop (call $leaf (i32.const 1))) (if (then (drop (memory.grow (i32.const 0)))))"
        ),
        (1 + 11 + 1).to_string()
    );
}

/// The construct without a bound is named: the loop, not a call before it; or the function that is called.
#[test]
fn the_first_that_has_no_bound_is_named() {
    let text =
        |body: &str| format!(r#"(func (export "flame_tick") (param i64) (result i64) {body} (i64.const 0))"#);
    let loop_ = bound(
        &text("(drop (call $leaf (i32.const 1))) (loop (br_if 0 (i32.load (i32.const 0))))"),
        Notes::default(),
    );
    let loop_ = loop_.unwrap_err();
    assert!(
        (loop_.rule, loop_.function) == (Rule::NoBound, crate::ticks::FIRST) && loop_.offset > 0,
        "{loop_}"
    );
    let call = bound(&text("(call $endless) (loop (br_if 0 (i32.load (i32.const 0))))"), Notes::default())
        .unwrap_err();
    assert_eq!((call.rule, call.function, call.offset), (Rule::NoBound, 8, 0));
}
