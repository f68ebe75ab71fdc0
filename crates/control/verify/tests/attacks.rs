//! Modules and certificates that once got a bound that an execution exceeds, or took far longer to check than
//! to read.

use flame_verify::linear::Symbols;
use flame_verify::{
    Certificate, Cost, Form, LoopNote, Notes, Reference, Template, Verified, VerifyError, verify,
};
use flame_verify::{Rule, cost::DIVERGING};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const HEAD: &str = r#"(import "flame" "packet" (func $packet (param i32)))
    (import "flame" "cold" (func $cold))
    (memory (export "memory") 1) (table 1 1 funcref) (elem (i32.const 0) func $cold)"#;

/// Returns 100 times `memory.grow`: a weight of 102,600 without a loop.
fn work() -> String {
    "(drop (memory.grow (i32.const 0)))".repeat(100)
}
const WORK: u128 = 102_600;

fn verified(rest: &str, certificate: &Certificate) -> Result<Verified, VerifyError> {
    let wasm = wat::parse_str(format!("(module {HEAD} {rest})")).unwrap();
    verify(&wasm, &certificate.to_bytes())
}

fn bound(rest: &str, certificate: &Certificate) -> Cost {
    verified(rest, certificate).unwrap().entries[0].bound.unwrap()
}

fn of_entry(loops: impl IntoIterator<Item = (u32, LoopNote)>) -> Certificate {
    let notes = Notes { loops: loops.into_iter().collect(), ..Notes::default() };
    Certificate { entries: BTreeMap::from([(2, notes)]), ..Certificate::default() }
}

fn of_calls(n: u32) -> Certificate {
    let calls = (0..n).map(|number| (number, Notes::default())).collect();
    let notes = Notes { calls, ..Notes::default() };
    Certificate { entries: BTreeMap::from([(2, notes)]), ..Certificate::default() }
}

/// The fact that a mark which always traps did not rules out every path after it: the cost before it counts.
#[test]
fn what_precedes_a_mark_that_traps_is_spent() {
    let batch = format!(
        r#"(func (export "flame_batch") (param i32) (result i64) (local i32 i32)
            (local.set 2 (i32.load (i32.const 16)))
            (if (i32.ge_u (local.get 2) (i32.load offset=4 (local.get 0))) (then
                {}
                (call $packet (local.get 2))
                (if (i32.ge_u (local.get 2) (i32.load offset=4 (local.get 0))) (then nop) (else nop))))
            (i64.const 0))"#,
        work()
    );
    let cost = bound(&batch, &Certificate::default());
    assert!(cost.call.at(0).unwrap() >= WORK, "{cost:?}");
}

/// A remainder by 0 does the same; another loop's note combines two facts, so that each of two paths is ruled
/// out.
#[test]
fn what_precedes_a_remainder_by_0_is_spent() {
    let tick = format!(
        r#"(func (export "flame_tick") (param i64) (result i64) (local $a i32) (local $b i32) (local $c i32) (local $i i32)
            (local.set $a (i32.load (i32.const 0)))
            (local.set $b (i32.load (i32.const 4)))
            (local.set $c (i32.load (i32.const 8)))
            (if (i32.ge_u (local.get $a) (local.get $b)) (then
            (if (i32.ge_u (local.get $b) (local.get $c)) (then
            (if (i32.ge_u (local.get $c) (local.get $a)) (then
                {}
                (drop (i32.rem_u (i32.load (i32.const 12)) (i32.sub (local.get $a) (local.get $b))))
                (loop
                    (if (i32.lt_u (local.get $b) (local.get $a)) (then nop) (else nop)))))))))
            (i64.const 0))"#,
        work()
    );
    let equal =
        Template { constant: 0, terms: vec![(1, Reference::Term(2, 0)), (-1, Reference::Term(1, 0))] };
    let certificate = of_entry([(0, LoopNote { facts: vec![equal], ..LoopNote::default() })]);
    let cost = bound(&tick, &certificate);
    assert!(cost.call.at(0).unwrap() >= WORK, "{cost:?}");
}

/// An iteration that traps before it has begun a packet is charged to the call.
#[test]
fn an_iteration_that_begins_no_packet_is_the_calls() {
    let certificate = of_entry([(0, LoopNote { packets: true, ..LoopNote::default() })]);
    // The load traps in the second iteration (64 KiB of memory), or the mark does in a batch of one packet.
    for before in ["nop", "(drop (i32.load (i32.mul (local.get 1) (i32.const 65536))))"] {
        let work = work();
        let body = format!(
            "(local i32)
             (loop {work} {before} (call $packet (local.get 1))
                (local.set 1 (i32.add (local.get 1) (i32.const 1))) (br 0))
             unreachable"
        );
        let batch = format!(r#"(func (export "flame_batch") (param i32) (result i64) {body})"#);
        let cost = bound(&batch, &certificate);
        assert!(cost.at(1, 60).unwrap() >= 2 * WORK, "{cost:?}");
        // Without packets, the first mark traps.
        let tick = format!(r#"(func (export "flame_tick") (param i64) (result i64) {body})"#);
        let cost = bound(&tick, &certificate);
        assert!(cost.at(0, 0).unwrap() >= WORK, "{cost:?}");
    }
}

/// The host's functions do not trap at their end, whatever a certificate claims.
#[test]
fn an_import_does_not_diverge() {
    let tick = r#"(func (export "flame_tick") (param i64) (result i64)
        (call_indirect (i32.const 0)) (loop (br 0)) unreachable)"#;
    let certificate = Certificate { diverging: BTreeSet::from([1]), ..Certificate::default() };
    assert!(matches!(verified(tick, &certificate), Err(VerifyError::NoFunction(1))));
    let no_bound = verified(tick, &Certificate::default()).unwrap();
    assert!(no_bound.entries[0].bound.is_err());
}

/// A function that is claimed to diverge is not free: the bound contains what the rewriter lets it spend,
/// once, however it is reached.
#[test]
fn what_diverges_is_paid_for() {
    let spin = "(func $spin (loop (br 0)))";
    let table = "(type $t (func)) (table $d 1 1 funcref) (elem (table $d) (i32.const 0) func $spin)";
    let inner = "(func $inner (call $spin))";
    for (calls, before, more) in [
        ("(call $spin)", 2, ""),
        ("(call_indirect $d (type $t) (i32.const 0))", 4, table),
        ("(call $inner)", 4, inner),
        ("(if (global.get 0) (then (call $inner))) (call $inner)", 10, inner),
    ] {
        let rest = format!(
            r#"(func (export "flame_batch") (param i32) (result i64) {calls} (i64.const 0))
               {spin} {more} (global (mut i32) (i32.const 0))"#
        );
        let summaries = if more == inner { vec![(4, Notes::default())] } else { Vec::new() };
        let certificate = Certificate { diverging: BTreeSet::from([3]), summaries, ..Certificate::default() };
        let verified = verified(&rest, &certificate).unwrap();
        assert!(verified.entries[0].diverges);
        let most = verified.entries[0].bound.unwrap().at(0, 0).unwrap();
        let own = most.checked_sub(DIVERGING.into());
        assert!(own.is_some_and(|own| (2..=before).contains(&own)), "{calls}: {most}");
    }
}

/// Each call forgets all globals, so their number is charged with each.
#[test]
fn globals_at_calls_are_charged() {
    let rest = |globals: usize, calls: usize| {
        format!(
            r#"(func (export "flame_batch") (param i32) (result i64) {} (i64.const 0)) (func $g) {}"#,
            "(call $g)".repeat(calls),
            "(global (mut i64) (i64.const 0))".repeat(globals)
        )
    };
    let certificate = Certificate { summaries: vec![(3, Notes::default())], ..Certificate::default() };
    assert!(verified(&rest(4, 16_000), &certificate).unwrap().entries[0].bound.is_ok());
    for globals in [1_000, 4_000] {
        let found = verified(&rest(globals, 16_000), &certificate).unwrap();
        assert_eq!(found.entries[0].bound.unwrap_err().rule, Rule::Work, "{globals}");
    }
}

/// Once the work is used up nothing further is walked, and no summary is asked for twice.
#[test]
fn a_walk_ends_with_its_work() {
    let rest = format!(
        r#"(func (export "flame_batch") (param i32) (result i64) (call $small) (i64.const 0))
           (func $large {}) (func $small) {}"#,
        "(call $small)".repeat(16_000),
        "(global (mut i64) (i64.const 0))".repeat(1_000)
    );
    let notes = |functions: &[u32]| Certificate {
        summaries: functions.iter().map(|f| (*f, Notes::default())).collect(),
        ..Certificate::default()
    };
    let found = verified(&rest, &notes(&[4, 3])).unwrap();
    assert!(found.entries[0].bound.is_ok() && found.summaries.len() == 1);
    let found = verified(&rest, &notes(&[4, 3, 2])).unwrap();
    assert_eq!((found.summaries.len(), found.entries[0].bound.is_ok()), (1, true));
    // The small one comes too late.
    let uses = rest.replacen("(call $small) (i64", "(call $late) (i64", 1) + "(func $late)";
    let found = verified(&uses, &notes(&[4, 3, 5])).unwrap();
    let why = found.entries[0].bound.unwrap_err();
    assert_eq!((why.rule, why.function, found.summaries.len()), (Rule::Work, 3, 1));
    let twice = verified(&rest, &notes(&[4, 4])).unwrap_err().to_string();
    assert!(twice.contains("summarised twice"), "{twice}");
}

/// There are no symbols without steps, and no two symbols are ever the same.
#[test]
fn symbols_are_charged() {
    let mut symbols = Symbols::new(100);
    let all: BTreeSet<u32> = (0..100).map(|_| symbols.add(0, 1)).collect();
    assert!(all.len() < 30 && symbols.steps_left() == 0);
    // The next symbol is a new one, and nothing is known about it.
    let none = symbols.add(0, 1);
    symbols.limit(none, 0);
    assert_eq!(symbols.interval(none), (0, u64::MAX));
    assert!(symbols.len() < none as usize);
}

/// The repetition that a certificate requests is limited by the size of the module: all its parts take
/// counted time.
#[test]
fn repetition_is_limited() {
    let descriptors = "(call $packet (local.tee 1 (i32.load (i32.const 0))))
        (local.set 2 (i32.add (i32.load (local.get 0)) (i32.shl (local.get 1) (i32.const 5))))
        (drop (i32.load offset=20 (local.get 2))) (drop (i32.load offset=8 (local.get 2)))
        (drop (i32.load16_u offset=24 (local.get 2))) (drop (i32.load16_u offset=26 (local.get 2)))";
    let loads = format!("(func $g (param i32) (local i32 i32) {})", descriptors.repeat(40));
    let locals = format!("(func $g (param i32) (local {}))", "i32 ".repeat(20_000));
    let exports: String = (0..5_000).map(|n| format!("(export \"{n}\" (func $f))")).collect();
    let exported = format!("(func $g (param i32)) {exports}");
    let calls = 3_000;
    for callee in [loads, locals, exported] {
        let all = "(call $g (local.get 0))".repeat(calls);
        let rest = format!(
            r#"(func $f (export "flame_batch") (param i32) (result i64) {all} (i64.const 0)) {callee}"#
        );
        let start = Instant::now();
        drop(verified(&rest, &of_calls(calls as u32)));
        assert!(start.elapsed() < Duration::from_secs(15));
    }
    // Operands as well as locals are copied at each branch.
    let n = 20_000;
    let stack = format!(
        r#"(func (export "flame_batch") (param i32) (result i64) (local i32) (block {} {} {}) (i64.const 0))"#,
        "(local.get 1)".repeat(n),
        "(br_if 0 (i32.load (i32.const 0)))".repeat(n),
        "drop ".repeat(n)
    );
    let start = Instant::now();
    drop(verified(&stack, &Certificate::default()));
    assert!(start.elapsed() < Duration::from_secs(15));
}

/// A few bytes enter hundreds of loops again: the memory of kept loops is limited by the size of the module.
#[test]
fn what_is_kept_of_loops_is_limited() {
    let calls = 8_000;
    let rest = format!(
        r#"(func $f (export "flame_tick") (param i64) (result i64) {} (i64.const 0)) (func $g {})"#,
        "(call $g)".repeat(calls),
        "(loop)".repeat(400)
    );
    let kept = size_of_val(&verified(&rest, &of_calls(calls as u32)).unwrap().loops[..]);
    assert!(kept < 16 << 20, "{kept} bytes for some 50,000");
}

/// A loop with a count stays bounded.
#[test]
fn an_honest_note_is_enough() {
    let tick = r#"(func (export "flame_tick") (param i64) (result i64) (local i32)
        (loop (br_if 0 (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 100))))
        (i64.const 0))"#;
    let below = Template { constant: 99, terms: vec![(-1, Reference::Trip)] };
    let note =
        LoopNote { forms: BTreeMap::from([(1, Form::Step(1))]), facts: vec![below], ..LoopNote::default() };
    assert_eq!(bound(tick, &of_entry([(0, note)])).call.at(0), Some(702));
}

/// A constant expression is known if it is one constant: of a sum, the first operand is not the value.
#[test]
fn the_first_constant_of_an_expression_is_not_its_value() {
    let tick = |init: &str| {
        let work = work();
        format!(
            r#"(global $g i32 {init}) (func (export "flame_tick") (param i64) (result i64)
                (if (i32.ne (global.get $g) (i32.const 1)) (then {work})) (i64.const 0))"#
        )
    };
    let cost = |init| bound(&tick(init), &Certificate::default()).call.at(0).unwrap();
    assert!(cost("(i32.add (i32.const 1) (i32.const 98))") >= WORK);
    assert_eq!(cost("(i32.const 1)"), 6, "one constant is known");
}

/// Control flow that is not modelled, by which more is executed than the rest of the function suggests.
#[test]
fn unknown_control_flow_has_no_bound() {
    let types = r#"(type $t (func)) (type $r (func (result (ref null $t)))) (tag $e)
        (func $long (type $t) (loop (br 0)))"#;
    for body in [
        "(return_call $long)",
        "(return_call_indirect (type $t) (i32.const 0))",
        "(call_ref $t (ref.func $long))",
        "(return_call_ref $t (ref.func $long))",
        "(loop (br_on_null 0 (ref.null $t)) drop)",
        "(block (result (ref $t)) (loop (param) (br_on_non_null 1 (ref.func $long))) unreachable) drop",
        "(loop (try_table (catch_all 0) (throw $e)))",
        "(try_table (nop))",
        "(throw $e)",
        "(drop (table.grow 0 (ref.null func) (i32.const 1000)))",
        "(table.fill 0 (i32.const 0) (ref.null func) (i32.const 1000))",
    ] {
        let rest = format!(
            r#"{types} (elem declare func $long) (func (export "flame_tick") (param i64) (result i64) {body} (i64.const 0))"#
        );
        match verified(&rest, &Certificate::default()) {
            Ok(verified) => {
                assert!(verified.entries[0].bound.is_err(), "{body}: {:?}", verified.entries[0].bound)
            }
            Err(VerifyError::Module(_)) => {}
            Err(error) => panic!("{body}: {error}"),
        }
    }
}

/// Returns a module in bytes: functions without parameters or results, by their bodies; the last one is
/// exported as `f`.
fn raw(bodies: &[Vec<u8>]) -> Vec<u8> {
    fn number(mut n: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while n > 127 {
            out.push(n as u8 | 128);
            n >>= 7;
        }
        out.push(n as u8);
        out
    }
    let list = |items: Vec<Vec<u8>>| [number(items.len()), items.concat()].concat();
    let sized = |bytes: &[u8]| [&number(bytes.len())[..], bytes].concat();
    let last = number(bodies.len() - 1);
    let sections = [
        (1, list(vec![vec![0x60, 0, 0]])),
        (3, list(vec![vec![0]; bodies.len()])),
        (7, list(vec![[vec![1, b'f', 0], last].concat()])),
        (10, list(bodies.iter().map(|b| sized(b)).collect())),
    ];
    let mut wasm = b"\0asm\x01\0\0\0".to_vec();
    for (id, content) in sections {
        wasm.push(id);
        wasm.extend(sized(&content));
    }
    wasm
}

/// The end of an unsupported frame is not the end of the function: `try … end`, then a loop.
#[test]
fn a_frame_that_is_not_known_ends_no_function() {
    let loops = [0x03, 0x40, 0x0c, 0x00, 0x0b, 0x0b];
    // `try`, `try_table`, and `try … delegate`, which needs no `end`.
    for frame in [&[0x06, 0x40, 0x0b][..], &[0x1f, 0x40, 0x00, 0x0b], &[0x06, 0x40, 0x18, 0x00]] {
        let wasm = raw(&[[&[0][..], frame, &loops].concat()]);
        let refused = match verify(&wasm, &Certificate::default().to_bytes()) {
            Ok(verified) => verified.entries[0].bound.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{frame:?}");
    }
    // A body with more code after its end is an error of the module, with the place.
    let error = verify(&raw(&[vec![0, 0x0b, 0x01, 0x0b]]), &Certificate::default().to_bytes()).unwrap_err();
    assert!(error.to_string().contains("at offset"), "{error}");
}

/// Six bytes declare 50,000 locals: their memory is limited.
#[test]
fn locals_are_limited() {
    let many = vec![1, 0xd0, 0x86, 0x03, 0x7f, 0x0b];
    let wasm = raw(&vec![many; 2_000]);
    let module = flame_verify::module::Module::read(&wasm, flame_verify::SECTION).unwrap();
    let all: usize = module.functions.iter().map(|f| f.locals.len()).sum();
    assert!((4_000_000..=1 << 22).contains(&all), "{all}");
    let verified = verify(&wasm, &Certificate::default().to_bytes()).unwrap();
    let refused = verified.entries[0].bound.unwrap_err();
    assert_eq!(refused.rule, flame_verify::Rule::TooDeep);
    assert!(
        verify(&raw(&[vec![0, 0x0b]]), &Certificate::default().to_bytes()).unwrap().entries[0].bound.is_ok()
    );
}

/// Work is allowed for code and certificate, not for data and other sections.
#[test]
fn data_buys_no_work() {
    let body = "(drop (i32.load (i32.add (local.get 0) (i32.load (i32.const 0)))))".repeat(200);
    let calls = "(call $g (local.get 1))".repeat(2_000);
    let rest = |data: &str| {
        format!(
            r#"(func (export "flame_tick") (param i64) (result i64) (local i32) {calls} (i64.const 0))
               (func $g (param i32) {body}) {data}"#
        )
    };
    let data = format!("(data (i32.const 0) \"{}\")", "a".repeat(1 << 20));
    for data in ["", &data] {
        let verified = verified(&rest(data), &of_calls(2_000)).unwrap();
        assert_eq!(verified.entries[0].bound.unwrap_err().rule, flame_verify::Rule::Work);
    }
}

/// Verifies a tick that ends in a loop without end if memory says so, after `body`.
fn tick(body: &str, notes: Notes) -> Result<Cost, flame_verify::Refused> {
    let rest = format!(
        r#"(func (export "flame_tick") (param i64) (result i64) (local $n i32) (local $i i32) (local $v i32)
             (local.set $n (i32.load16_u (i32.const 0))) {body} (i64.const 0))"#
    );
    let certificate = Certificate { entries: BTreeMap::from([(2, notes)]), ..Certificate::default() };
    verified(&rest, &certificate).unwrap().entries[0].bound
}

/// The value that a select chose is known on the paths that executed it, and nowhere else.
#[test]
fn choices_hold_where_they_were_made() {
    let spin = "(loop (br 0))";
    let most = "(drop (select (local.get $n) (i32.const 5) (i32.gt_u (local.get $n) (i32.const 4))))";
    let least = "(drop (select (local.get $n) (i32.const 50) (i32.lt_u (local.get $n) (i32.const 50))))";
    for body in [
        format!("(if (i32.lt_u (local.get $n) (i32.const 10)) (then {most}) (else {spin}))"),
        format!(
            "(if (i32.lt_u (local.get $n) (i32.const 10)) (then {most}))
             (if (i32.gt_u (local.get $n) (i32.const 50)) (then {spin}))"
        ),
        format!(
            "(block (block (br_if 0 (i32.ge_u (local.get $n) (i32.const 10))) {most} (br 1))
               (br_if 0 (i32.le_u (local.get $n) (i32.const 20))) {spin})"
        ),
        format!(
            "(if (i32.gt_u (local.get $n) (i32.const 40)) (then {least}))
             (if (i32.lt_u (local.get $n) (i32.const 20)) (then {spin}))"
        ),
    ] {
        assert!(tick(&body, Notes::default()).is_err(), "{body}");
    }
    // The path that leaves a loop has not executed the select of its last iteration.
    let counted = LoopNote {
        forms: BTreeMap::from([(2, Form::Step(1))]),
        facts: vec![Template { constant: 10, terms: vec![(-1, Reference::Trip)] }],
        ..LoopNote::default()
    };
    let notes = || Notes { loops: BTreeMap::from([(0, counted.clone())]), ..Notes::default() };
    let after = |end: &str| {
        format!(
            "(block (loop (br_if 1 (i32.ge_u (local.get $i) (i32.const 10)))
               (local.set $v (select (local.get $i) (i32.const 5) (i32.gt_u (local.get $i) (i32.const 4))))
               (local.set $i (i32.add (local.get $i) (i32.const 1))) (br 0)))
             (if (i32.eq (local.get $i) (i32.const 10)) (then {end}))"
        )
    };
    assert!(tick(&after("nop"), notes()).is_ok(), "the loop has a bound");
    assert!(tick(&after(spin), notes()).is_err());
}

/// A condition has a limited number of facts, however often it is combined.
#[test]
fn conditions_do_not_grow() {
    let twice = "(local.set $v (i32.and (local.get $v) (local.get $v)))".repeat(64);
    let read = "(drop (i32.add (local.get $v) (i32.const 1)))".repeat(2_000);
    let body = format!("(local.set $v (i32.lt_u (local.get $n) (i32.const 10))) {twice} {read}");
    assert!(tick(&body, Notes::default()).is_ok());
}
