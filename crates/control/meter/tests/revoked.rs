//! A call whose polling page is revoked ends, whatever the module and the compiler make of its loops.
#![allow(unsafe_code)] // Takes away a page of a module's memory, as the host does.

use flame_abi::layout::{POLL, POLL_BYTES};
use flame_meter::{Metering, rewrite_polled};
use std::collections::BTreeSet;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use wasmtime::{Config, Engine, Inlining, Instance, Module, OptLevel, Store, Val};

unsafe extern "C" {
    fn mprotect(at: *mut u8, bytes: usize, protection: i32) -> i32;
}

/// A memory large enough to contain the polling page, which these tests use instead of a window.
const MEMORY: &str = "(memory (export \"memory\") 32784)";

/// Returns an engine configured as for modules that run without counters.
fn engine() -> Engine {
    let mut config = Config::new();
    config.cranelift_opt_level(OptLevel::Speed).compiler_inlining(Inlining::Yes);
    Engine::new(&config).unwrap()
}

/// Runs `f(0)`, revokes its page, and returns whether it traps.
fn ends(text: &str) -> bool {
    ends_with(text, Metering::Nothing)
}

fn ends_with(text: &str, count: Metering<'_>) -> bool {
    let wasm = wat::parse_str(format!("(module {MEMORY} {text})")).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let polled = rewrite_polled(&wasm, count).unwrap();
    let engine = engine();
    let module = Module::new(&engine, &polled).unwrap();
    let mut store = Store::new(&engine, ());
    let instance = Instance::new(&mut store, &module, &[]).unwrap();
    let fuel = instance.get_global(&mut store, "flame:fuel").unwrap();
    fuel.set(&mut store, Val::I64(i64::MAX)).unwrap();
    let memory = instance.get_memory(&mut store, "memory").unwrap();
    let f = instance.get_typed_func::<i32, i32>(&mut store, "f").unwrap();
    let page = memory.data_ptr(&store).wrapping_add(POLL as usize) as usize;
    let (tell, told) = channel();
    std::thread::spawn(move || {
        tell.send(Ok(0)).ok();
        tell.send(f.call(&mut store, 0).map_err(|e| e.root_cause().to_string())).ok();
        // Without its page the memory must not be reused.
        std::mem::forget(store);
    });
    assert_eq!(told.recv(), Ok(Ok(0)), "it begins");
    let early = told.recv_timeout(Duration::from_millis(100));
    assert_eq!(early, Err(RecvTimeoutError::Timeout), "it is meant to go on\n{text}");
    // SAFETY: a page of a memory that lives as long as the process.
    assert_eq!(unsafe { mprotect(page as *mut u8, POLL_BYTES as usize, 0) }, 0);
    match told.recv_timeout(Duration::from_secs(10)) {
        Ok(result) => {
            assert!(result.is_err(), "{result:?}\n{text}");
            true
        }
        Err(_) => false,
    }
}

const ENDLESS: &str = "(loop $l (br_if $l (i32.eqz (local.get 0))))";

/// Checks that a module's own load from the polling page does not replace a poll.
#[test]
fn a_module_that_loads_from_the_page_itself_polls() {
    for place in 0..4 {
        let own = format!("(drop (i32.load (i32.const {})))", POLL + 4 * place);
        let offset = format!("(drop (i32.load offset={} (i32.const 0)))", POLL + 4 * place);
        for own in [own, offset] {
            let text =
                format!("(func (export \"f\") (param i32) (result i32) {own} {ENDLESS} (i32.const 0))");
            assert!(ends(&text), "{text}");
            let called = format!(
                "(func $g (param i32) {own} {ENDLESS})
                 (func (export \"f\") (param i32) (result i32) {own} (call $g (local.get 0)) (i32.const 0))"
            );
            assert!(ends(&called), "{called}");
        }
    }
}

/// Checks that code with counters polls as well where nothing else interrupts a call, whatever its fuel:
/// loops that are unrolled, charged in advance or neither, and recursion.
#[test]
fn what_counts_in_a_verified_module_polls() {
    let none = BTreeSet::new();
    let count = Metering::Verified { uncounted: &none, diverging: &none };
    for body in [
        ENDLESS,
        "(loop $l (call_indirect (i32.const 0)) (br $l))",
        "(loop $l (br_if $l (i32.ne (local.tee 0 (i32.add (local.get 0) (i32.const 1))) (i32.const 0))))",
        "(loop $l (call $tree (i32.const 60)) (br $l))",
    ] {
        let text = format!(
            "(table 1 funcref) (elem (i32.const 0) func $nothing) (func $nothing)
             (func $tree (param i32) (if (local.get 0) (then
                (call $tree (i32.sub (local.get 0) (i32.const 1)))
                (call $tree (i32.sub (local.get 0) (i32.const 1))))))
             (func (export \"f\") (param i32) (result i32) {body} (i32.const 0))"
        );
        assert!(ends_with(&text, count), "{text}");
    }
}

/// Checks a function with more polls than the page has offsets, some of which are not reached.
#[test]
fn a_function_with_many_loops_polls() {
    for loops in [510, 511, 512, 1022, 1023, 1024, 1535] {
        let before = "(loop)".repeat(loops);
        for condition in ["(local.get 0)", "(i32.const 0)"] {
            let body = format!("{before} (if {condition} (then (loop))) {ENDLESS}");
            let alone = format!("(func (export \"f\") (param i32) (result i32) {body} (i32.const 0))");
            assert!(ends(&alone), "{loops} loops, {condition}");
            let called = format!(
                "(func $g (param i32) {body})
                 (func (export \"f\") (param i32) (result i32) (call $g (local.get 0)) (i32.const 0))"
            );
            assert!(ends(&called), "{loops} loops, called, {condition}");
        }
    }
}

/// Checks that copies of a function in its callers, in sequence and nested, have distinct polls.
#[test]
fn each_copy_of_a_function_polls() {
    let f = |functions: &str, body: &str| {
        format!("{functions} (func (export \"f\") (param i32) (result i32) {body} (i32.const 0))")
    };
    let spin = "(func $spin (param i32) (loop $l (br_if $l (local.get 0))))";
    let twice = "(call $spin (i32.const 0)) (call $spin (i32.const 1))";
    let nested = format!("{spin} (func $two (param i32) {twice})");
    for text in [
        f(spin, twice),
        f(&nested, "(call $two (local.get 0))"),
        f(&nested, "(call $spin (i32.const 0)) (call $two (local.get 0))"),
        f(spin, &format!("{} (call $spin (i32.const 1))", "(call $spin (i32.const 0))".repeat(520))),
        // Endless recursion: each call doubles the calls.
        f(
            "(func $tree (param i32) (if (local.get 0) (then
                (call $tree (i32.sub (local.get 0) (i32.const 1)))
                (call $tree (i32.sub (local.get 0) (i32.const 1))))))",
            "(call $tree (i32.const 100))",
        ),
    ] {
        assert!(ends(&text), "{text}");
    }
}
