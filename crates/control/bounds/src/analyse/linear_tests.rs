//! Tests of the work of walks through calls, by counts: it doubles with the module.

use super::super::graph::Graph;
use super::super::returns::returning;
use super::Order;
use flame_verify::SECTION;
use flame_verify::module::Module;
use std::fmt::Write;

/// A function with several calls, each of the next ones; a chain of calls; the last one calls `$last`.
fn chain(n: usize, last: &str) -> String {
    let mut text = String::from("(module (func $fan");
    (0..n).for_each(|i| write!(text, " (call $f{i})").unwrap());
    text.push_str(")\n");
    (0..n).for_each(|i| writeln!(text, "(func $f{i} (call $f{}))", i + 1).unwrap());
    writeln!(text, "(func $f{n} {last})").unwrap();
    text.push(')');
    text
}

/// As many types, functions with an address, and calls through a table.
fn tables(n: usize, body: &str) -> String {
    let mut text = String::from("(module");
    (0..n).for_each(|i| writeln!(text, "(type $t{i} (func (param i32)))").unwrap());
    writeln!(text, "(table funcref (elem").unwrap();
    (0..n).for_each(|i| write!(text, " $f{i}").unwrap());
    text.push_str("))\n");
    for i in 0..n {
        let call = format!("(call_indirect (type $t{}) (i32.const 1) (i32.const 0))", (i + 1) % n);
        writeln!(text, "(func $f{i} (type $t{i}) {body} {call} {call})").unwrap();
    }
    text.push(')');
    text
}

/// Nested blocks, each left by branches to all of them.
fn branches(n: usize) -> String {
    let mut text = String::from("(module (func $f (param i32)");
    for _ in 0..n {
        text.push_str("(block (block (br_table 0 1 0 1 (local.get 0))) (br_if 0 (local.get 0)) (call $f (local.get 0)))");
    }
    text + "))"
}

/// Returns the work of all walks, and what they found: the numbers of functions that return, that are
/// ordered, and that are recursive.
fn walked(text: &str) -> (u64, [usize; 3]) {
    let wasm = wat::parse_str(text).unwrap();
    let module = Module::read(&wasm, SECTION).unwrap();
    let graph = Graph::read(&wasm, &module).unwrap();
    let all = graph.left();
    let returns = returning(&module, &graph);
    let order = Order::of(&module, &graph, &returns);
    let reached = graph.reaches(&module, &[0], None);
    order.recursive.iter().next().inspect(|f| drop(graph.cycle(&module, **f)));
    assert!(graph.left() > 0, "the work is enough: {all}");
    assert!(!reached.is_empty());
    (all - graph.left(), [returns.len(), order.functions.len(), order.recursive.len()])
}

/// A name, the module of a size, and what is found in it.
type Case<'a> = (&'static str, &'a dyn Fn(usize) -> String, fn(usize) -> [usize; 3]);

#[test]
fn walks_through_calls_do_work_that_is_linear_in_the_module() {
    let cases: [Case<'_>; 6] = [
        ("calls of functions that return", &|n| chain(n, ""), |n| [n + 2, n + 2, 0]),
        ("a chain into a recursive function", &|n| chain(n, &format!("(call $f{n}) (call $f0)")), |n| {
            [0, n + 2, 0]
        }),
        (
            "a chain into one that may return",
            &|n| chain(n, &format!("(if (i32.const 0) (then (call $f{n})))")),
            |n| [n + 2, n + 1, 1],
        ),
        ("a ring that may return", &|n| chain(n, "(if (i32.const 0) (then (call $f0)))"), |n| {
            [n + 2, 1, n + 1]
        }),
        ("tables", &|n| tables(n, "(br_if 0 (local.get 0))"), |n| [n, 0, n]),
        ("branches", &branches, |_| [1, 0, 1]),
    ];
    for (name, text, expected) in cases {
        let [(one, of_one), (two, of_two)] = [500, 1000].map(|n| walked(&text(n)));
        assert_eq!((of_one, of_two), (expected(500), expected(1000)), "{name}");
        assert!(two <= 2 * one + one / 8, "{name}: {one} steps, twice the size {two}");
        println!("{name}: {one}, {two}");
    }
}

#[test]
fn without_work_left_nothing_is_claimed() {
    let wasm = wat::parse_str(chain(10, "")).unwrap();
    let module = Module::read(&wasm, SECTION).unwrap();
    let graph = Graph::read(&wasm, &module).unwrap();
    assert!(!graph.spend(usize::MAX));
    let returns = returning(&module, &graph);
    assert_eq!(returns.len(), 12, "all may return");
    let order = Order::of(&module, &graph, &returns);
    assert_eq!((order.functions.len(), order.recursive.len()), (0, 12));
    assert_eq!(graph.reaches(&module, &[11], None).len(), 12, "it may call any");
}
