//! Bounds of small modules, exactly: what each construct costs, and which path is the most expensive.

#[allow(dead_code)] // Each test uses a part.
mod modules;

use flame_verify::{Certificate, Cost, Form, LoopNote, Measure, Notes, Reference, Refused, Rule, verify};
use modules::{fact, loops, note};
use std::collections::{BTreeMap, BTreeSet};

/// Functions 2 to 5: a leaf of 9, what calls it, what never returns, and what recurses.
const HEAD: &str = r#"(type $t (func (param i32) (result i32))) (type $v (func))
    (import "flame" "packet" (func $packet (param i32))) (import "flame" "rare" (func $rare))
    (memory (export "memory") 1) (table 4 4 funcref) (elem (i32.const 0) func $leaf $middle $rare)
    (data $data "12345678")
    (func $leaf (type $t) (local i32) (drop (i32.add (i32.const 1) (i32.const 2)))
      (if (result i32) (local.get 0) (then (i32.const 1)) (else (i32.add (i32.const 1) (i32.const 2)))))
    (func $middle (type $t) (call $leaf (i32.const 5)))
    (func $never (drop (i32.const 1)) (loop (br 0)))
    (func $again (param i32) (result i32) (call $again (i32.const 5)))"#;
const FIRST: u32 = 6;

fn certificate(notes: Notes) -> Certificate {
    let none = Notes::default;
    Certificate {
        summaries: vec![(2, none()), (3, none())],
        diverging: BTreeSet::from([4]),
        entries: BTreeMap::from([(FIRST, notes)]),
    }
}

fn bound(text: &str, notes: Notes) -> Result<Cost, Refused> {
    let text = format!("(module {HEAD} {text})");
    let wasm = wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&wasm, &certificate(notes).to_bytes()).unwrap().entries[0].bound
}

/// What a tick with this body costs besides its entry and its result.
fn tick(body: &str, notes: Notes) -> String {
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

fn plain(body: &str) -> String {
    tick(body, Notes::default())
}

/// Of a batch, besides its entry and its result: of the call, of loops over the batch, and of each packet.
fn batch(body: &str, notes: Notes) -> (String, String, String) {
    let text = format!(
        r#"(func (export "flame_batch") (param $b i32) (result i64) (local $n i32) (local $i i32) (local $d i32) (local $l i32) (local $j i32)
            {body} (i64.const 0))"#
    );
    let cost = bound(&text, notes).unwrap_or_else(|why| panic!("{why}"));
    let call = cost.call.as_constant().map_or_else(|| cost.call.to_string(), |n| (n - 2).to_string());
    (call, cost.each.to_string(), cost.packet.to_string())
}

fn is(found: &(String, String, String), call: &str, each: &str, packet: &str) {
    assert_eq!((&*found.0, &*found.1, &*found.2), (call, each, packet));
}

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
        // As much as memory may hold, and no more.
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.load (i32.const 0)))", "67108877"),
        ("(memory.copy (i32.const 0) (i32.const 0) (i32.load (i32.const 0)))", "520093821"),
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.const 0x40000000))", "67108876"),
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.const 0x40000010))", "67108876"),
        ("(call $packet (i32.const 0))", "2"),
        ("(call $rare)", "1"),
        ("(drop (call $leaf (i32.const 1)))", "11"),
        ("(drop (call $middle (i32.const 1)))", "14"),
        ("(call $never) (drop (call $leaf (i32.const 1)))", "0"),
        ("(drop (call_indirect (type $t) (i32.const 1) (i32.load (i32.const 0))))", "16"),
        ("(call_indirect (type $v) (i32.load (i32.const 0)))", "3"),
        ("(drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) unreachable", "2"),
        ("(return (i64.const 1))", "0"),
        (
            "(if (i32.load (i32.const 0)) (then (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) (drop (i32.const 1)) unreachable))",
            "6",
        ),
        // What is never executed costs nothing.
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
    assert_eq!(tick("(call $never)", with(0, Notes::default())), "0", "it diverges all the same");
    // Calls in calls, at most ten.
    let deep = |n: usize| (0..n).fold(Notes::default(), |inner, _| with(0, inner));
    let again = tick("(drop (call $again (i32.const 1)))", deep(10));
    assert!(again.starts_with("it calls function 5"), "{again}");
    // What is left behind a call: locals and operands.
    assert_eq!(
        tick(
            "(local.set $i (i32.const 1)) (drop (i32.add (i32.const 4) (call $leaf (i32.const 1)))) (if (local.get $i) (then) (else (drop (memory.grow (i32.const 1)))))",
            with(0, Notes::default())
        ),
        "15"
    );
}

fn step(local: u32, by: i64, facts: &[flame_verify::Template]) -> LoopNote {
    note(&[(local, Form::Step(by))], facts)
}

fn trips(most: i64) -> flame_verify::Template {
    fact(most, &[(-1, Reference::Trip)])
}

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
    // Two ways back: the more expensive iteration each time.
    let ways = format!(
        "(loop {up} (br_if 1 (i32.ge_u (local.get $i) (i32.const 10))) (br_if 0 (i32.load (i32.const 0))) (drop (memory.grow (i32.const 0))) (br 0))"
    );
    let cost = 9 * (4 + 4 + 3 + 1026 + 1) + 8;
    // A trap may come at the end of one more that would go back.
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
    // Below what was there before: the loop may be entered with more, so the fact needs room for it.
    let related = [at_least.clone(), fact(3, &[(1, term), (-1, head)])];
    assert_eq!(tick(&all, ranged(0, 66, &related)), (7 + 7 * 64).to_string());
    // The order of facts does not matter, nor what is said of locals that are not written.
    let reversed = [related[1].clone(), at_least.clone()];
    assert_eq!(tick(&all, ranged(0, 66, &reversed)), (7 + 7 * 64).to_string());
    let mut more = ranged(0, 66, &related);
    more.loops.get_mut(&0).unwrap().forms.insert(4, Form::Range(0, 63));
    assert_eq!(tick(&all, more), (7 + 7 * 64).to_string());
    // Claims about what is not there.
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
    // What a loop writes is not known behind it; what it leaves alone is.
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
    // Without that claim, it is a loop with as many iterations as packets; with a limit, a loop like any other.
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
    // What comes before the first mark in each iteration, and what comes behind a loop.
    let before = format!("{COUNT} (loop {work} (call $packet (local.get $i)) {NEXT}) {work}");
    is(&batch(&before, one(packets())), "8", "0", "13");
    // An iteration that ends without a packet is the call's; one that began one is the packet's.
    let ends = |at: &str, then: &str| {
        format!("{COUNT} (block (loop {at} (call $packet (local.get $i)) {then} {NEXT}))")
    };
    let leave = format!("(if (i32.load (i32.const 0)) (then {work} {work} (br 2)))");
    is(&batch(&ends(&leave, ""), one(packets())), "15", "0", "12");
    is(&batch(&ends("", &leave), one(packets())), "4", "0", "14");
    let trap = format!("(if (i32.load (i32.const 0)) (then {work} {work} unreachable))");
    is(&batch(&ends(&trap, ""), one(packets())), "13", "0", "12");
    is(&batch(&ends("", &trap), one(packets())), "4", "0", "13");
    // A way back without a packet.
    let skip = "(br_if 0 (i32.load (i32.const 0)))";
    let text = ends(skip, "");
    let refused = bound(
        &format!(
            r#"(func (export "flame_batch") (param $b i32) (result i64) (local $n i32) (local $i i32) {text} (i64.const 0))"#
        ),
        one(packets()),
    );
    assert_eq!(refused.unwrap_err().rule, Rule::Packets);
    // A loop in each packet, as long as it.
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
    let halves =
        note(&[(5, Form::Step(2))], &[fact(0, &[(1, Reference::Term(4, 0)), (-2, Reference::Trip)])]);
    is(&batch(&inner, loops(vec![packets(), halves])), "7", "0", "3.5 L + 25");
    // As many bytes as the packet has, at once.
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

/// Fewer than 32 iterations, or what may be more than the packets, are no loops over the batch.
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
