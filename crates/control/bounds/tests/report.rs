//! The parts of a report besides bounds: cold paths, classes, stacks, times, the worst-case path.

use flame_bounds::{Analysis, Class, Costs, Depends, Entry, Rules, analyse};
use flame_meter::{Metering, rewrite};

/// Returns a module whose batches execute `body` for each packet: local 1 is its descriptor.
fn module(more: &str, body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          (import "flame" "packet" (func $packet (param i32)))
          (import "flame" "cold" (func $cold))
          (memory (export "memory") 1)
          (global $stack (mut i32) (i32.const 65536))
          {more}
          (func (export "flame_batch") (param $batch i32) (result i64)
            (local $d i32) (local $i i32) (local $n i32) (local $at i32) (local $k i32)
            (local.set $d (i32.load (local.get $batch)))
            (local.set $n (i32.load offset=4 (local.get $batch)))
            (loop $packets
              (call $packet (local.get $i))
              (block $next {body})
              (local.set $d (i32.add (local.get $d) (i32.const 32)))
              (br_if $packets (i32.ne (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $n))))
            (i64.const 0)))"#
    );
    let manifest = b"abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n";
    let mut wasm = wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    use wasm_encoder::{CustomSection, Section};
    CustomSection { name: "flame.manifest".into(), data: manifest[..].into() }.append_to(&mut wasm);
    wasm
}

fn costs() -> Costs {
    let latency = vec![(4096, 1_000), (1 << 19, 5_000), (1 << 30, 100_000)];
    Costs {
        classes: Class::ALL.map(|c| if c == Class::Free { 0 } else { 100 }),
        latency,
        memory: 1 << 30,
        dispatch: 7,
    }
}

fn analysis(more: &str, body: &str) -> Analysis {
    analyse(&module(more, body), &Rules::default(), Some(&costs())).unwrap()
}

fn batch(more: &str, body: &str) -> Entry {
    analysis(more, body).entries.into_iter().find(|e| e.name == "flame_batch").unwrap()
}

fn loops(times: &str) -> String {
    format!(
        "(local.set $k (i32.const 0)) (loop $l (br_if $next (i32.ge_u (local.get $k) {times})) \
         (local.set $k (i32.add (local.get $k) (i32.const 1))) (br $l))"
    )
}

#[test]
fn cold_paths_count_for_bounds_and_not_for_estimates() {
    let body = "(if (i32.load8_u (i32.load offset=8 (local.get $d))) \
                (then (call $cold) (drop (i32.load (i32.mul (i32.load (i32.const 8)) (i32.const 4096))))))";
    let found = batch("", body);
    let plain = batch("", &body.replace("(call $cold)", ""));
    assert!(found.common.packet.as_constant() < found.bound.packet.as_constant(), "{found:?}");
    assert_eq!(plain.common.packet, plain.bound.packet);
    let time = |e: &Entry| e.time.unwrap().packet.as_constant().unwrap();
    // The table's line, out of all memory.
    assert!(time(&plain) > time(&found) + 99_000, "{} {}", time(&plain), time(&found));
    // The call is removed.
    let out = rewrite(&module("", body), Metering::Nothing).unwrap();
    let calls = wasmparser::Parser::new(0).parse_all(&out).filter_map(|p| match p.unwrap() {
        wasmparser::Payload::CodeSectionEntry(body) => Some(body),
        _ => None,
    });
    for body in calls {
        let mut all = body.get_operators_reader().unwrap().into_iter();
        assert!(!all.any(|o| matches!(o.unwrap(), wasmparser::Operator::Call { function_index: 1 })));
    }
}

#[test]
fn what_work_depends_on() {
    let field = |at: u32| format!("(i32.load8_u offset={at} (i32.load offset=8 (local.get $d)))");
    for (times, class) in [
        ("(i32.const 9)".to_owned(), Depends::Nothing),
        ("(i32.load offset=20 (local.get $d))".to_owned(), Depends::Length),
        ("(i32.load8_u offset=28 (local.get $d))".to_owned(), Depends::Headers),
        ("(i32.load8_u (i32.const 64))".to_owned(), Depends::Configuration),
        ("(i32.load8_u (i32.load (i32.const 64)))".to_owned(), Depends::Stored),
        (field(3), Depends::Field),
        ("(i32.load (i32.const 64))".to_owned(), Depends::Unknown),
    ] {
        // Loaded before the loop, as compilers do.
        let body = format!("(local.set $at {times}) {}", loops("(local.get $at)"));
        let found = batch("", &body);
        assert_eq!(found.depends, class, "{times}: {found:?}");
        assert_eq!(found.bound.is_bounded(), class != Depends::Unknown, "{times}");
    }
}

#[test]
fn stacks_are_those_of_the_deepest_calls() {
    let more = "(func $leaf (param i32) (result i32) (local i32 i64)
            (local.set 1 (global.get $stack)) (i32.sub (global.get $stack) (i32.const 48)) (global.set $stack)
            (global.set $stack (local.get 1)) (local.get 0))
        (func $middle (param i32) (result i32)
            (global.set $stack (i32.sub (global.get $stack) (i32.const 32)))
            (global.set $stack (i32.add (global.get $stack) (i32.const 32))) (call $leaf (local.get 0)))";
    let found = batch(more, "(drop (call $middle (i32.const 1))) (drop (call $leaf (i32.const 1)))");
    assert_eq!((found.stack.calls, found.stack.memory), (3, 80));
    assert_eq!(found.stack.locals, 8 * (6 + 1 + 3));
    assert_eq!(found.imports, ["flame.packet"]);
}

#[test]
fn the_worst_case_path_is_reported_by_its_places() {
    let more = "(func $cheap (param i32) (nop)) (func $dear (param i32) (if (local.get 0) (then (drop (i32.div_u (local.get 0) (i32.const 3))))))";
    let body = "(if (i32.load8_u offset=28 (local.get $d)) (then (call $cheap (local.get $i))) (else (call $dear (local.get $i))))";
    let found = batch(more, body);
    let last = found.path.last().unwrap();
    assert!(last.is_loop && u128::from(last.cost) < found.bound.at(1, 1500).unwrap(), "{found:?}");
    let (dear, own): (Vec<_>, Vec<_>) = found.path.iter().partition(|step| step.function == "dear");
    // Costs count from the beginning of a function.
    assert!(own.windows(2).all(|w| w[0].cost <= w[1].cost), "{:?}", found.path);
    assert!(!dear.is_empty() && dear.iter().all(|step| step.cost < 10), "{:?}", found.path);
    assert!(found.path.iter().all(|step| step.function != "cheap"), "{:?}", found.path);
}

/// The lesser of two is at most either; where paths join, their common part is kept.
#[test]
fn what_follows_from_two_paths_and_two_numbers() {
    let length = "(i32.load offset=20 (local.get $d))";
    let least = format!("(select {length} (i32.const 100) (i32.lt_u {length} (i32.const 100)))");
    let found = batch("", &format!("(local.set $at {least}) {}", loops("(local.get $at)")));
    assert!(
        found.bound.packet.as_constant().unwrap() < 2000,
        "at most 100 iterations: {}",
        found.bound.packet
    );
    let stepped = |start: &str| {
        format!(
            "(local.set $at {length}) (local.set $k {start})
             (loop $l
               (br_if $next (i32.ge_u (local.get $k) (local.get $at)))
               (if (i32.load8_u (i32.const 64))
                 (then (local.set $k (i32.add (local.get $k) (i32.const 1))))
                 (else (local.set $k (i32.add (local.get $k) (i32.const 16)))))
               (br $l))"
        )
    };
    for start in ["(i32.const 0)", "(i32.const 7)"] {
        let found = batch("", &stepped(start));
        let most = found.bound.packet.at(1000).unwrap();
        assert!((1000 * 10..1000 * 30).contains(&most), "{start}: {}", found.bound.packet);
    }
}

/// The estimate in instructions without cold paths is the verified bound, by the same rules. The bound also
/// counts the path into the trap of `flame.packet`, which has two instructions.
#[test]
fn an_estimate_without_cold_paths_is_the_bound() {
    let more = "(func $leaf (param i32 i32) (result i32)
            (if (result i32) (i32.eqz (local.get 1)) (then (i32.const 0))
              (else (i32.div_u (local.get 0) (i32.mul (local.get 1) (local.get 1))))))
        (func $times (param i32)
            (loop $l (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))))
        (func $exits (param i32)
            (local $k i32)
            (block $out (loop $l
              (br_if $out (i32.load8_u (local.get 0)))
              (if (i32.load8_u offset=1 (local.get 0)) (then (local.set $k (i32.mul (local.get $k) (local.get $k))) (br $out)))
              (br_if $l (i32.ne (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 9))))))";
    let length = "(i32.load offset=20 (local.get $d))";
    for body in [
        // A path that the constant argument rules out.
        "(drop (call $leaf (local.get $i) (i32.const 0)))".to_owned(),
        "(drop (call $leaf (local.get $i) (local.get $n)))".to_owned(),
        // One function in two contexts.
        "(call $times (i32.const 7)) (call $times (i32.const 90))".to_owned(),
        "(call $exits (local.get $d))".to_owned(),
        format!("(local.set $at {length}) {}", loops("(local.get $at)")),
        format!("(memory.fill (i32.const 0) (i32.const 0) {length})"),
        format!("(if {length} (then (br $next))) {}", loops("(i32.const 20)")),
    ] {
        let found = batch(more, &body);
        assert!(found.bound.is_bounded(), "{body}: {found:?}");
        assert_eq!(found.common.packet, found.bound.packet, "{body}");
        let calls = [found.common, found.bound].map(|b| b.call.as_constant().unwrap());
        assert!(calls[0] <= calls[1] && calls[1] <= calls[0] + 2, "{body}: {calls:?}");
    }
}
