//! Bulk memory instructions in pieces: the same results and traps as in one, no more work than their bounds
//! contain, and a check at least every 64 KiB.

use crate::common::{PLENTY, Run, engine};
use flame_meter::{Metering, rewrite, rewrite_polled};
use flame_verify::cost::{BULK, BULK_SHIFT, COPY};
use proptest::prelude::*;
use std::collections::BTreeSet;
use wasmtime::{Config, Engine, Instance, Module, Store, UpdateDeadline, Val};

/// The largest piece.
const PIECE: u32 = 64 << 10;
const WASM_PAGE: u32 = 64 << 10;
/// The length of the long segment of [`module`].
const SEGMENT: u32 = 3 * PIECE + 77;

/// A module with a function for each instruction whose length is an argument, and `pages` of memory.
fn module(pages: u32) -> Vec<u8> {
    let long: String = (0..SEGMENT).map(|i| char::from(b'a' + (i % 251 % 26) as u8)).collect();
    let text = format!(
        "(module (memory (export \"memory\") {pages} {})
         (data $active (i32.const 5) \"abc\") (data $short \"0123456789\") (data $long \"{long}\")
         (type $t (func (param i32 i32 i32)))
         (func (export \"fill\") (type $t) (memory.fill (local.get 0) (local.get 1) (local.get 2)))
         (func (export \"copy\") (type $t) (memory.copy (local.get 0) (local.get 1) (local.get 2)))
         (func (export \"long\") (type $t) (memory.init $long (local.get 0) (local.get 1) (local.get 2)))
         (func (export \"short\") (type $t) (memory.init $short (local.get 0) (local.get 1) (local.get 2)))
         (func (export \"active\") (type $t) (memory.init $active (local.get 0) (local.get 1) (local.get 2)))
         (func (export \"constant\") (type $t)
           (memory.fill (local.get 0) (local.get 1) (i32.const 200000))
           (memory.init $long (local.get 0) (i32.const 1) (i32.const 100000)))
         (func (export \"drop\") (type $t) (data.drop $long))
         (func (export \"grow\") (type $t) (drop (memory.grow (i32.const 1)))))",
        pages + 2
    );
    wat::parse_str(text).expect("is Wasm text")
}

/// The pages of the modules whose memory is compared.
const PAGES: u32 = 7;

/// Numbers near multiples of a piece and near the ends of memory and segment, and any.
fn number() -> impl Strategy<Value = u32> {
    let near = (0_u32..=9, -2_i32..=2).prop_map(|(n, d)| (n * PIECE).wrapping_add_signed(d));
    prop_oneof![
        4 => near,
        3 => 0..(PAGES + 1) * WASM_PAGE,
        1 => (-3_i32..=3).prop_map(|d| SEGMENT.wrapping_add_signed(d)),
        1 => 0_u32..20,
        1 => any::<u32>(),
    ]
}

/// The name of a function of [`module`] and its arguments.
fn operation() -> impl Strategy<Value = (&'static str, [u32; 3])> {
    let any = (number(), number(), number()).boxed();
    // Overlaps by any number of bytes in either direction.
    let overlaps = (0..PAGES * WASM_PAGE, -70_000_i32..70_000, number());
    prop_oneof![
        4 => any.clone().prop_map(|(a, b, c)| ("copy", [a, b, c])),
        4 => overlaps.prop_map(|(a, d, n)| ("copy", [a, a.wrapping_add_signed(d), n])),
        3 => any.clone().prop_map(|(a, b, c)| ("fill", [a, b, c])),
        3 => any.clone().prop_map(|(a, b, c)| ("long", [a, b, c])),
        1 => any.clone().prop_map(|(a, b, c)| ("short", [a, b % 20, c % 20])),
        1 => any.clone().prop_map(|(a, b, c)| ("active", [a, b % 2, c % 2])),
        1 => any.prop_map(|(a, b, c)| ("constant", [a, b, c])),
        1 => Just(("drop", [0; 3])),
        1 => Just(("grow", [0; 3])),
    ]
}

fn values(arguments: [u32; 3]) -> [Val; 3] {
    arguments.map(|argument| Val::I32(argument as i32))
}

/// Returns a module in whose memory bytes differ from their neighbours and from those a piece away.
fn started(wasm: &[u8]) -> Run {
    let mut run = Run::new(&engine(false), wasm);
    let memory = run.instance.get_memory(&mut run.store, "memory").expect("is exported");
    for (i, byte) in memory.data_mut(&mut run.store).iter_mut().enumerate().skip(16) {
        *byte = (i.wrapping_mul(0x9e37_79b1) >> 13) as u8;
    }
    run
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_do_what_the_instruction_does(operations in prop::collection::vec(operation(), 1..8)) {
        let wasm = module(PAGES);
        let mut original = started(&wasm);
        let mut rewritten = [Metering::All, Metering::Nothing].map(|count| {
            let mut run = started(&rewrite(&wasm, count).unwrap());
            run.set("flame:fuel", PLENTY);
            run
        });
        for (name, arguments) in operations {
            let expected = original.call(name, &values(arguments));
            for run in &mut rewritten {
                let found = run.call(name, &values(arguments));
                // Addresses in the upper half are the window's, where a copy proceeds until it traps.
                let [dst, src, n] = arguments;
                if name == "copy" && (dst | src) >> 31 == 1 {
                    prop_assert!(n == 0 || found.results.is_err(), "{:?}", arguments);
                    return Ok(());
                }
                prop_assert_eq!(&found.results, &expected.results, "{} {:?}", name, arguments);
                prop_assert!(found.memory == expected.memory, "{} {:?}: memory differs", name, arguments);
            }
        }
    }
}

#[test]
fn the_price_is_that_of_the_length() {
    let mut run = Run::metered(&module(32));
    for (name, arguments) in [
        ("fill", [0, 7, 0]),
        ("fill", [0, 7, PIECE + 1]),
        ("fill", [9, 7, 20 * PIECE + 5]),
        ("copy", [0, 9, 20 * PIECE + 5]),
        ("copy", [9, 0, 20 * PIECE + 5]),
        ("long", [9, 3, 3 * PIECE + 5]),
    ] {
        run.set("flame:fuel", PLENTY);
        assert!(run.call(name, &values(arguments)).results.is_ok(), "{name} {arguments:?}");
        // The function's entry, three operands, and the instruction.
        let price = 5 + BULK + u64::from(arguments[2] >> BULK_SHIFT);
        assert_eq!(PLENTY - run.get("flame:fuel"), price as i64, "{name} {arguments:?}");
        // One less than the price is not enough, and nothing is written.
        let memory = run.instance.get_memory(&mut run.store, "memory").unwrap();
        memory.data_mut(&mut run.store).fill(0x55);
        run.set("flame:fuel", price as i64 - 1);
        let outcome = run.call(name, &values(arguments));
        assert!(outcome.results.unwrap_err().contains("unreachable") && run.get("flame:fuel") < 0);
        assert!(outcome.memory.iter().all(|byte| *byte == 0x55), "{name} {arguments:?}");
    }
}

/// Checks that no more instructions are executed than bounds contain, in pieces and otherwise. Polls are not
/// part of them, but those between pieces have room as well.
#[test]
fn the_work_is_within_the_bound() {
    // Beyond the polling page, for copies out of the window.
    let wasm = module(32_800);
    let all: BTreeSet<u32> = (0..20).collect();
    let none = BTreeSet::new();
    let count = Metering::Verified { uncounted: &all, diverging: &none };
    let mut lengths: Vec<u32> = (0..300).collect();
    for n in [1, 2, 3, 15, 30].map(|n| n * PIECE) {
        lengths.extend([-1, 0, 1, 15, 16, 17, 63, 64, 65, 4095].map(|d| n.wrapping_add_signed(d)));
    }
    // Polls at the function's entry, before the instruction, and where a copy begins.
    for (rewritten, polls) in [(rewrite(&wasm, count), 0), (rewrite_polled(&wasm, count), 3 + 2 + 7)] {
        let mut run = Run::new(&engine(true), &rewritten.unwrap());
        let mut left = [u64::MAX; 2];
        for (n, (name, dst, src)) in lengths.iter().flat_map(|n| CALLS.map(|call| (*n, call))) {
            run.store.set_fuel(PLENTY as u64).unwrap();
            let function = run.instance.get_func(&mut run.store, name).unwrap();
            let returned = function.call(&mut run.store, &values([dst, src, n]), &mut []);
            assert_eq!(returned.is_err(), name == "long" && n > SEGMENT, "{name} of {n}: {returned:?}");
            if returned.is_err() {
                continue;
            }
            // Without the host's call, the function's entry, and three operands.
            let executed = PLENTY as u64 - run.store.get_fuel().unwrap() - 5;
            let (kind, bound) = match (name, u64::from(n)) {
                ("copy", n) => (1, COPY.0 + (COPY.1 * n).div_ceil(COPY.2) + polls),
                (_, n) => (0, 1 + BULK + (n >> BULK_SHIFT) + polls),
            };
            assert!(executed <= bound, "{name} of {n}: {executed} executed, bound {bound} with polls");
            left[kind] = left[kind].min(bound - executed);
        }
        println!("instructions left of the bounds of fills and copies: {left:?}");
    }
}

const CALLS: [(&str, u32, u32); 6] = [
    ("fill", 3, 7),
    ("long", 3, 0),
    ("copy", 3, 64),
    ("copy", 64, 3),
    ("copy", 64, 0x8000_0001),
    ("copy", 0x8000_0003, 9),
];

/// Checks that the host may end a call of any length, or let others run, at least every piece.
#[test]
fn the_host_is_asked_between_pieces() {
    let mut config = Config::new();
    config.epoch_interruption(true);
    let engine = Engine::new(&config).unwrap();
    let rewritten = rewrite_polled(&module(32_800), Metering::All).unwrap();
    let compiled = Module::new(&engine, &rewritten).unwrap();
    let mut store = Store::new(&engine, 0_u32);
    let instance = Instance::new(&mut store, &compiled, &[]).unwrap();
    // The deadline has passed at each check.
    store.epoch_deadline_callback(|mut store| {
        *store.data_mut() += 1;
        Ok(UpdateDeadline::Continue(0))
    });
    store.set_epoch_deadline(0);
    let fuel = instance.get_global(&mut store, "flame:fuel").unwrap();
    for (name, dst, src, n) in [
        ("fill", 3, 7, 40 * PIECE),
        ("copy", 3, 64, 40 * PIECE),
        ("copy", 64, 3, 40 * PIECE),
        ("copy", 64, 0x8000_0000, 16 * PIECE),
        ("long", 3, 0, SEGMENT),
        ("constant", 3, 0, 300_000),
    ] {
        fuel.set(&mut store, Val::I64(PLENTY)).unwrap();
        *store.data_mut() = 0;
        let function = instance.get_func(&mut store, name).unwrap();
        function.call(&mut store, &values([dst, src, n]), &mut []).unwrap();
        let checks = *store.data();
        assert!(checks >= n / PIECE, "{name} of {n} bytes: {checks} checks");
    }
}
