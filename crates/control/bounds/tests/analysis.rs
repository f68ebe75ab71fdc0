//! Loops in the shapes that compilers emit, and the result for each; docs/bounds.md explains the first of
//! them.

use flame_bounds::{Analysis, Rules, TripCount, analyse, analyse_exports};
use flame_verify::cost::DIVERGING;

/// Analyses an exported function with an argument, two locals `i` and `n`, and a memory.
fn function(body: &str) -> Analysis {
    let text = format!(
        "(module (memory 1) (global $g (mut i32) (i32.const 0)) (func $change (global.set $g (i32.const 0)))
         (func (export \"f\") (param $a i32) (local $i i32) (local $n i32) {body}))"
    );
    analyse_exports(&wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))).unwrap()
}

/// Returns the trip count of the only loop, or `None` if it is not known.
fn trips(body: &str) -> Option<String> {
    let analysis = function(body);
    match &analysis.loops.first().expect("a loop").trips {
        TripCount::AtMost(n) => Some(n.to_string()),
        _ => None,
    }
}

const NEXT: &str = "(local.set $i (i32.add (local.get $i) (i32.const 1)))";

/// A packet states a length, which is compared with that of the packet: the work on this many bytes, in
/// blocks of 8, grows with the packet.
#[test]
fn a_length_in_a_packet_is_bounded_by_that_of_the_packet() {
    let text = r#"(module
        (import "flame" "packet" (func $packet (param i32)))
        (memory (export "memory") 1)
        (func (export "flame_batch") (param $batch i32) (result i64)
            (local $i i32) (local $count i32) (local $d i32) (local $cap i32) (local $len i32) (local $left i32)
            (local.set $count (i32.load offset=4 (local.get $batch)))
            (local.set $d (i32.load (local.get $batch)))
            (block $done (loop $next
                (br_if $done (i32.ge_u (local.get $i) (local.get $count)))
                (call $packet (local.get $i))
                (local.set $cap (i32.load offset=20 (local.get $d)))
                (local.set $len (i32.load16_u (i32.load offset=8 (local.get $d))))
                (block $skip
                    (br_if $skip (i32.lt_u (local.get $len) (i32.const 16)))
                    (br_if $skip (i32.gt_u (local.get $len) (local.get $cap)))
                    (local.set $left (i32.and (i32.add (local.get $len) (i32.const 2147483640)) (i32.const 2147483640)))
                    (loop $blocks
                        (br_if $blocks (local.tee $left (i32.sub (local.get $left) (i32.const 8))))))
                (local.set $d (i32.add (local.get $d) (i32.const 32)))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br $next)))
            (i64.const 0)))"#;
    let packet = analyse_exports(&wat::parse_str(text).unwrap()).unwrap().entries[0].bound.packet;
    // Five instructions for each 8 bytes.
    assert_eq!(packet.to_string(), "0.62 L + 41");
}

#[test]
fn what_ends_is_found_to_end() {
    let cases: &[(&str, &str, &str)] = &[
        ("up to a constant", "9", "(loop NEXT (br_if 0 (i32.ne (local.get $i) (i32.const 10))))"),
        (
            "tested at its head",
            "10",
            "(block (loop (br_if 1 (i32.ge_u (local.get $i) (i32.const 10))) NEXT (br 0)))",
        ),
        (
            "by threes",
            "3",
            "(loop (local.set $i (i32.add (local.get $i) (i32.const 3))) (br_if 0 (i32.lt_u (local.get $i) (i32.const 10))))",
        ),
        (
            "down to 0",
            "99",
            "(local.set $i (i32.const 100)) (loop (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))",
        ),
        (
            "as often as a byte says",
            "254",
            "(local.set $n (i32.load8_u (local.get $a))) (if (local.get $n) (then (loop NEXT (br_if 0 (i32.ne (local.get $i) (local.get $n))))))",
        ),
        (
            "as often as a mask leaves",
            "15",
            "(local.set $n (i32.and (local.get $a) (i32.const 15))) (block (loop (br_if 1 (i32.eq (local.get $i) (local.get $n))) NEXT (br 0)))",
        ),
        (
            "a part of a value that is below another one, by fours",
            "190",
            "(if (i32.ge_u (local.tee $n (i32.load (local.get $a))) (i32.const 1529)) (then unreachable)) (local.set $i (i32.load offset=4 (local.get $a))) (if (i32.lt_u (local.get $n) (local.get $i)) (then unreachable)) (if (i32.ge_u (local.get $i) (i32.const 8)) (then (local.set $n (i32.and (i32.shr_u (local.get $i) (i32.const 1)) (i32.const 2147483644))) (local.set $i (i32.const 0)) (loop (local.set $i (i32.add (local.get $i) (i32.const 4))) (br_if 0 (i32.ne (local.get $i) (local.get $n))))))",
        ),
        (
            "up to the lesser of two",
            "64",
            "(local.set $n (select (local.get $a) (i32.const 64) (i32.lt_u (local.get $a) (i32.const 64)))) (block (loop (br_if 1 (i32.ge_u (local.get $i) (local.get $n))) NEXT (br 0)))",
        ),
        (
            "a pointer to its end",
            "15",
            "(local.set $n (i32.add (local.get $a) (i32.const 64))) (local.set $i (local.get $a)) (loop (local.set $i (i32.add (local.get $i) (i32.const 4))) (br_if 0 (i32.ne (local.get $i) (local.get $n))))",
        ),
        (
            "whatever else leaves it",
            "9",
            "(block (loop (br_if 1 (i32.load (local.get $i))) NEXT (br_if 0 (i32.lt_s (local.get $i) (i32.const 10)))))",
        ),
        (
            "a shift until nothing is left",
            "32",
            "(loop (br_if 0 (local.tee $a (i32.shr_u (local.get $a) (i32.const 1)))))",
        ),
        (
            "a 1 less in each iteration",
            "32",
            "(loop (br_if 0 (local.tee $a (i32.and (local.get $a) (i32.sub (local.get $a) (i32.const 1))))))",
        ),
        (
            "divided by ten",
            "32",
            "(loop (local.set $a (i32.div_u (local.get $a) (i32.const 10))) (br_if 0 (i32.gt_u (local.get $a) (i32.const 9))))",
        ),
        (
            "by steps that vary",
            "99",
            "(loop (local.set $i (i32.add (local.get $i) (i32.add (i32.load8_u (local.get $i)) (i32.const 1)))) (br_if 0 (i32.lt_u (local.get $i) (i32.const 100))))",
        ),
        (
            "two at a time, of what is left of two",
            "7",
            "(local.set $n (i32.and (i32.and (local.get $a) (i32.const 16)) (i32.const -2))) (if (i32.gt_u (local.get $n) (i32.const 1)) (then (loop (local.set $i (i32.add (local.get $i) (i32.const 2))) (br_if 0 (i32.ne (local.get $i) (local.get $n))))))",
        ),
    ];
    // A loop that the finder misses has a counter; a trip count that it finds is never too small.
    let mut missed = Vec::new();
    for (name, expected, body) in cases {
        match trips(&body.replace("NEXT", NEXT)) {
            None => missed.push(*name),
            Some(found) => {
                let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{name}: {text}"));
                assert!(number(&found) >= number(expected), "{name}: {found}, at least {expected}");
            }
        }
    }
    println!("without a bound: {missed:?}");
    assert!(missed.len() * 2 < cases.len(), "{missed:?}");
}

#[test]
fn what_may_not_end_is_not_taken_to_end() {
    let cases: &[(&str, &str)] = &[
        (
            "it goes past its end",
            "(loop (local.set $i (i32.add (local.get $i) (i32.const 3))) (br_if 0 (i32.ne (local.get $i) (i32.const 10))))",
        ),
        ("its end is anything", "(loop NEXT (br_if 0 (i32.ne (local.get $i) (local.get $a))))"),
        (
            "it wraps around",
            "(loop (local.set $i (i32.add (local.get $i) (i32.const 16))) (br_if 0 (i32.lt_u (local.get $i) (i32.const -1))))",
        ),
        (
            "it goes the other way",
            "(local.set $i (i32.const 5)) (loop (local.set $i (i32.sub (local.get $i) (i32.const 1))) (br_if 0 (i32.lt_u (local.get $i) (i32.const -2))))",
        ),
        (
            "its end moves",
            "(loop NEXT (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if 0 (i32.le_u (local.get $i) (local.get $n))))",
        ),
        (
            "what counts lies in memory",
            "(loop (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1))) (br_if 0 (i32.ne (i32.load (i32.const 0)) (i32.const 9))))",
        ),
        (
            "what counts is changed by a callee",
            "(loop (call $change) (global.set $g (i32.add (global.get $g) (i32.const 1))) (br_if 0 (i32.ne (global.get $g) (i32.const 9))))",
        ),
        (
            "it counts on one way only",
            "(loop (if (local.get $a) (then NEXT)) (br_if 0 (i32.lt_u (local.get $i) (i32.const 10))))",
        ),
        (
            "it is set back",
            "(loop NEXT (if (i32.load (local.get $a)) (then (local.set $i (i32.const 0)))) (br_if 0 (i32.lt_u (local.get $i) (i32.const 10))))",
        ),
        (
            "one of two ways back is not held",
            "(loop NEXT (br_if 0 (i32.load (local.get $i))) (br_if 0 (i32.lt_u (local.get $i) (i32.const 10))))",
        ),
        (
            "two ends that it may pass alternately",
            "(loop NEXT (if (i32.load (local.get $a)) (then (br_if 1 (i32.ne (local.get $i) (i32.const 5)))) (else (br_if 1 (i32.ne (local.get $i) (i32.const 9))))))",
        ),
        (
            "steps that may be 0",
            "(loop (local.set $i (i32.add (local.get $i) (i32.load8_u (local.get $i)))) (br_if 0 (i32.lt_u (local.get $i) (i32.const 100))))",
        ),
        ("a shift by nothing", "(loop (br_if 0 (local.tee $a (i32.shr_u (local.get $a) (i32.const 32)))))"),
        ("it ends by a trap alone", "(loop (drop (i32.load (local.get $i))) (br 0))"),
    ];
    for (name, body) in cases {
        let body = body.replace("NEXT", NEXT);
        assert_eq!(trips(&body), None, "{name}");
        let entry = &function(&body).entries[0];
        assert!(!entry.bound.call.is_bounded() && entry.why.is_some(), "{name}: {entry:?}");
    }
}

#[test]
fn the_greater_of_two_paths_counts_not_their_sum() {
    let one = |body: &str| function(body).entries[0].bound.call.as_constant().unwrap();
    let (long, short) =
        ("(nop) (drop (i32.clz (i32.clz (i32.clz (local.get $a)))))", "(drop (local.get $a))");
    let both = one(&format!("(if (local.get $a) (then {long}) (else {short}))"));
    // Entry, condition and `if`, then four instructions; `drop` weighs nothing.
    assert_eq!(both, 1 + 2 + 4);
    assert_eq!(both, one(&format!("(if (local.get $a) (then {short}) (else {long}))")));
    // An iteration of four instructions and one more, three times; nested loops multiply.
    let three =
        "(local.set $i (i32.const 3)) (loop (br_if 0 (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))";
    let nested = format!(
        "(local.set $n (i32.const 5)) (loop {three} (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))"
    );
    assert_eq!(one(three), 1 + 2 + 3 * 5);
    assert_eq!(one(&nested), 1 + 2 + 5 * (2 + 3 * 5 + 5));
}

#[test]
fn recursion_is_named_and_tables_are_closed() {
    let analysis = analyse_exports(
        &wat::parse_str(
            "(module (func $even (export \"even\") (param i32) (result i32)
               (if (result i32) (local.get 0) (then (call $odd (i32.sub (local.get 0) (i32.const 1)))) (else (i32.const 1))))
             (func $odd (param i32) (result i32)
               (if (result i32) (local.get 0) (then (call $even (i32.sub (local.get 0) (i32.const 1)))) (else (i32.const 0)))))",
        )
        .unwrap(),
    )
    .unwrap();
    assert_eq!(analysis.cycles, [["even", "odd"]]);
    assert!(!analysis.entries[0].bound.call.is_bounded());
    let table = |other: &str| {
        let text = format!(
            "(module (type $t (func (param i32))) (table 2 funcref) (elem (i32.const 0) $a $b)
             (func $a (type $t)) (func $b (type $t) {other})
             (func (export \"f\") (param i32) (call_indirect (type $t) (local.get 0) (local.get 0))))"
        );
        analyse_exports(&wat::parse_str(text).unwrap()).unwrap().entries[0].bound.call.as_constant()
    };
    // Entry, two arguments, the call; the callee's entry and its body.
    assert_eq!(table(""), Some(1 + 3 + 1));
    assert_eq!(table("(drop (i32.clz (local.get 0)))"), Some(1 + 3 + 3));
    // A path that diverges costs what the rewriter lets it spend.
    assert_eq!(
        table(
            "(loop (drop (i32.load (i32.const 0))) (unreachable))"
                .replace("(drop (i32.load (i32.const 0)))", "")
                .as_str()
        ),
        Some(1 + 3 + 1 + DIVERGING)
    );
}

/// Analyses a module with this body of `flame_batch`; `$b` is the address of the batch's header.
fn batch(body: &str) -> Analysis {
    let text = format!(
        "(module (import \"flame\" \"packet\" (func $packet (param i32))) (memory (export \"memory\") 1)
         (func (export \"flame_batch\") (param $b i32) (result i64)
           (local $d i32) (local $end i32) (local $i i32) (local $p i32) (local $n i32) (local $k i32)
           (local.set $d (i32.load (local.get $b)))
           (local.set $end (i32.add (local.get $d) (i32.shl (i32.load offset=4 (local.get $b)) (i32.const 5))))
           {body} (i64.const 0))
         (@custom \"flame.manifest\" \"abi = 1\\0aname = \\22m\\22\\0aversion = \\221\\22\\0adescription = \\22d\\22\"))"
    );
    analyse(&wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), &Rules::default(), None)
        .unwrap()
}

/// A loop over the captured bytes of each packet.
const BYTES: &str = "(loop $packets
    (call $packet (local.get $k)) (local.set $k (i32.add (local.get $k) (i32.const 1)))
    (local.set $n (i32.load offset=20 (local.get $d))) (local.set $i (i32.const 0))
    (block (loop (br_if 1 (i32.ge_u (local.get $i) (local.get $n)))
      (drop (i32.load8_u (i32.add (i32.load offset=8 (local.get $d)) (local.get $i))))
      (local.set $i (i32.add (local.get $i) (i32.const 1))) (br 0)))
    (br_if $packets (i32.ne (local.tee $d (i32.add (local.get $d) (i32.const 32))) (local.get $end))))";

#[test]
fn what_the_host_writes_is_known() {
    // There are 1 to 256 packets.
    let plain = batch(
        "(loop (br_if 0 (i32.ne (local.tee $d (i32.add (local.get $d) (i32.const 32))) (local.get $end))))",
    );
    assert_eq!(plain.loops[0].trips.clone(), TripCount::AtMost(flame_bounds::Poly::constant(255)));
    // A packet has as many bytes as were captured.
    let bytes = batch(BYTES);
    let entry = &bytes.entries[0];
    assert!(bytes.loops.iter().any(|l| l.trips == TripCount::Packets), "{bytes:?}");
    assert!(entry.bound.call.as_constant().is_some(), "{entry:?}");
    // Fourteen instructions for each byte.
    assert_eq!(
        entry.bound.packet.at(1000).unwrap() - entry.bound.packet.at(0).unwrap(),
        14 * 1000,
        "{}",
        entry.bound.packet
    );
    // The memory after the last descriptor may contain any value.
    let behind = batch(&BYTES.replace("offset=20", "offset=52"));
    assert!(!behind.entries[0].bound.packet.is_bounded());
    let before = batch(&BYTES.replace(
        "(i32.load offset=20 (local.get $d))",
        "(i32.load (i32.sub (local.get $d) (i32.const 12)))",
    ));
    assert!(!before.entries[0].bound.packet.is_bounded());
    // The same holds if packets are not processed one by one.
    let beside =
        batch(&BYTES.replace("(i32.const 32))) (local.get $end)", "(i32.const 40))) (local.get $end)"));
    assert!(!beside.entries[0].bound.packet.is_bounded() || !beside.entries[0].bound.call.is_bounded());
}

/// Small functions are analysed at the call, and nest too deep there. Each has a bound by itself.
#[test]
fn a_long_chain_of_small_functions_has_a_bound() {
    let mut functions = String::new();
    for n in 0..400 {
        let next = if n == 0 { String::new() } else { format!("(call $f{})", n - 1) };
        functions += &format!("(func $f{n} (block (block (block (block {next})))))");
    }
    let text = format!(
        "(module (memory (export \"memory\") 1) {functions}
         (func (export \"flame_batch\") (param $b i32) (result i64) (call $f399) (i64.const 0)))"
    );
    let analysis = analyse_exports(&wat::parse_str(&text).unwrap()).unwrap();
    assert!(analysis.entries[0].bound.is_bounded(), "{:?}", analysis.entries[0]);
}

#[test]
fn hostile_shapes_are_answered_in_a_moment() {
    let start = std::time::Instant::now();
    let nest = |depth: usize, functions: usize| {
        let mut text = "(module (memory 1)".to_owned();
        for f in 0..functions {
            let mut body = "(local.set 1 (i32.add (local.get 1) (i32.const 1)))".to_owned();
            if f + 1 < functions {
                body += &format!("(local.set 1 (call $f{} (local.get 1)))", f + 1);
            }
            for _ in 0..depth {
                body = format!("(loop {body} (br_if 0 (i32.load (local.get 1))))");
            }
            let export = if f == 0 { "(export \"f\")" } else { "" };
            text +=
                &format!("(func $f{f} {export} (param i32) (result i32) (local i32) {body} (local.get 1))");
        }
        wat::parse_str(text + ")").unwrap()
    };
    for (depth, functions) in [(120, 8), (100, 1), (400, 1), (3, 2000)] {
        let analysis = analyse_exports(&nest(depth, functions)).unwrap();
        assert!(!analysis.entries[0].bound.call.is_bounded(), "{depth} deep, {functions} functions");
    }
    // A million frames in sequence, and branches to distant targets.
    let wide = format!(
        "(module (func (export \"f\") (param i32) {}))",
        "(block (br_if 0 (local.get 0)))".repeat(200_000)
    );
    let entry = &analyse_exports(&wat::parse_str(&wide).unwrap()).unwrap().entries[0];
    assert_eq!(entry.bound.call.as_constant(), Some(1 + 400_000));
    let ways = format!(
        "(module (func (export \"f\") (param i32) {} {} {}))",
        "(block ".repeat(100),
        "(br_if 99 (local.get 0)) (br_if 50 (local.get 0)) (br_if 3 (local.get 0))".repeat(5000),
        ")".repeat(100)
    );
    assert!(analyse_exports(&wat::parse_str(&ways).unwrap()).unwrap().entries[0].bound.call.is_bounded());
    let locals = format!("(module (func (export \"f\") (param i32) (local {})))", "i32 ".repeat(20_000));
    assert!(analyse_exports(&wat::parse_str(&locals).unwrap()).unwrap().entries[0].bound.call.is_bounded());
    assert!(start.elapsed().as_secs() < 120, "{:?}", start.elapsed());
}

#[test]
fn what_is_no_module_is_refused() {
    for bytes in [&b""[..], b"\0asm", b"\0asm\x01\0\0\0\x01\xff", b"(module)"] {
        assert!(analyse_exports(bytes).is_err() && analyse(bytes, &Rules::default(), None).is_err());
    }
}

/// Code that diverges may run forever: it keeps its counters, and so do all its callees.
#[test]
fn what_does_not_come_back_is_counted() {
    let text = r#"(module (memory (export "memory") 1)
        (func $shared (param i32) (result i32) (i32.load (local.get 0)))
        (func $spins (param i32)
            (loop $again
                (if (i32.eq (call $shared (local.get 0)) (i32.const 7)) (then (unreachable)))
                (br $again)))
        (func $plain (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))
        (func (export "f") (param i32) (result i32)
            (if (i32.gt_u (local.get 0) (i32.const 1000)) (then (call $spins (local.get 0))))
            (call $plain (local.get 0))))"#;
    let wasm = wat::parse_str(text).unwrap();
    let analysis = analyse_exports(&wasm).unwrap();
    let entry = &analysis.entries[0];
    assert!(entry.bound.is_bounded() && entry.diverging == DIVERGING);
    let own = entry.bound.call.as_constant().unwrap() - DIVERGING;
    assert!(own < 20, "{own} of calls that come back");
    assert_eq!(analysis.proved.uncounted.iter().copied().collect::<Vec<_>>(), [2, 3]);
}
