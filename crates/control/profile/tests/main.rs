//! Tests of the counters against Wasmtime's own count of instructions, and against accesses that are counted
//! by hand.

use flame_profile::{Place, Region, instrument, run_offsets};
use std::collections::BTreeMap;
use wasmtime::{Config, Engine, Instance, Linker, Module, Store, Val};

const COUNTER: &str = "profile:";
/// The fuel of a call.
const FUEL: u64 = 1 << 40;

fn engine() -> Engine {
    let mut config = Config::new();
    config.consume_fuel(true);
    Engine::new(&config).unwrap()
}

/// Calls `run` of a module. Returns its result, or `None` if it traps, and the fuel that it used.
fn call(engine: &Engine, wasm: &[u8], argument: i32) -> (Option<i64>, u64, Store<()>, Instance) {
    let module = Module::new(engine, wasm).unwrap();
    let mut store = Store::new(engine, ());
    store.set_fuel(FUEL).unwrap();
    let instance = Linker::new(engine).instantiate(&mut store, &module).unwrap();
    let run = instance.get_typed_func::<i32, i64>(&mut store, "run").unwrap();
    let result = run.call(&mut store, argument).ok();
    let used = FUEL - store.get_fuel().unwrap();
    (result, used, store, instance)
}

/// Returns the values of the counters.
fn counters(store: &mut Store<()>, instance: &Instance) -> Vec<u64> {
    let value = |i| match instance.get_global(&mut *store, &format!("profile:{i}"))?.get(&mut *store) {
        Val::I64(value) => Some(value as u64),
        other => panic!("{other:?}"),
    };
    (0..).map_while(value).collect()
}

/// Programs with each kind of control flow. Each is called with some arguments.
const PROGRAMS: [(&str, &str); 6] = [
    ("straight", "i64.const 3 local.get 0 i64.extend_i32_u i64.add"),
    (
        "a loop with a way out in its middle",
        "(local i64) (block (loop
            local.get 0 i32.eqz br_if 1
            local.get 1 i64.const 7 i64.add local.set 1
            local.get 0 i32.const 3 i32.and (if (then local.get 1 i64.const 1 i64.add local.set 1)
                (else nop local.get 1 i64.const 2 i64.mul local.set 1))
            local.get 0 i32.const 1 i32.sub local.set 0 br 0)) local.get 1",
    ),
    (
        "a table of branches",
        "(block $c (block $b (block $a local.get 0 br_table $a $b $c)
            i64.const 1 return) i64.const 2 return) i64.const 3 drop i64.const 4",
    ),
    (
        "calls",
        "local.get 0 call $double local.get 0 i32.const 1 i32.and call_indirect (param i64) (result i64)",
    ),
    (
        "a trap in the middle",
        "i64.const 1 local.get 0 i32.const 2 i32.sub i32.const 1 i32.shr_u
        (if (then unreachable))",
    ),
    ("code that is never reached", "i64.const 5 return i64.const 6 i64.add drop i64.const 7"),
];

fn program(body: &str) -> Vec<u8> {
    let text = format!(
        "(module (memory (export \"memory\") 1)
            (table funcref (elem $first $second))
            (func $first (param i64) (result i64) local.get 0 i64.const 2 i64.add)
            (func $second (param i64) (result i64) (local i32) local.get 0 i64.const 3 i64.mul)
            (func $double (param i32) (result i64) local.get 0 i64.extend_i32_u i64.const 2 i64.mul)
            (func (export \"run\") (param i32) (result i64) {body}))"
    );
    wat::parse_str(text).unwrap()
}

#[test]
fn instructions_are_those_that_wasmtime_counts() {
    let engine = engine();
    for (name, body) in PROGRAMS {
        let wasm = program(body);
        let instrumented = instrument(&wasm, COUNTER, &BTreeMap::new()).unwrap();
        for argument in [0, 1, 2, 3, 17, 1000] {
            let (expected, fuel, ..) = call(&engine, &wasm, argument);
            let (result, _, mut store, instance) = call(&engine, &instrumented.wasm, argument);
            assert_eq!(result, expected, "{name} {argument}");
            let counters = counters(&mut store, &instance);
            assert_eq!(counters[6..].iter().sum::<u64>(), fuel, "{name} {argument}: {counters:?}");
        }
    }
}

#[test]
fn functions_are_counted_one_by_one() {
    let engine = engine();
    let instrumented = instrument(&program(PROGRAMS[3].1), COUNTER, &BTreeMap::new()).unwrap();
    let (_, _, mut store, instance) = call(&engine, &instrumented.wasm, 1);
    // The second function of the table has an entry and three instructions, the first was not called.
    assert_eq!(counters(&mut store, &instance)[6..], [0, 4, 5, 7]);
}

#[test]
fn lines_are_counted_where_they_are_known() {
    let engine = engine();
    let wasm = program(PROGRAMS[3].1);
    let offsets = run_offsets(&wasm).unwrap();
    // The first runs have one line, the others have none.
    let lines: BTreeMap<usize, String> =
        offsets.iter().take(offsets.len() - 2).map(|offset| (*offset, "a.rs:7".to_owned())).collect();
    let instrumented = instrument(&wasm, COUNTER, &lines).unwrap();
    let (_, fuel, ..) = call(&engine, &wasm, 1);
    let (_, _, mut store, instance) = call(&engine, &instrumented.wasm, 1);
    let counts = counters(&mut store, &instance);
    assert_eq!(counts[6..].len(), instrumented.places.len());
    let of = |line: Option<&str>| -> u64 {
        let places = instrumented.places.iter().zip(&counts[6..]);
        places.filter(|(Place { line: of, .. }, _)| of.as_deref() == line).map(|(_, count)| count).sum()
    };
    assert_eq!(of(Some("a.rs:7")) + of(None), fuel);
    assert!(of(Some("a.rs:7")) > 0 && of(None) > 0, "{counts:?}");
}

/// Returns loads and stores by region of a function over memory, which begins with 2 pages. Addresses of
/// packets lie far beyond them, so that such an access traps after it was counted.
fn accesses(body: &str) -> ([u64; 3], [u64; 3]) {
    let text = format!(
        "(module (memory (export \"memory\") 2) (data $d \"0123456789\")
            (func (export \"run\") (param i32) (result i64) {body} i64.const 0))"
    );
    let wasm = wat::parse_str(text).unwrap();
    let instrumented = instrument(&wasm, COUNTER, &BTreeMap::new()).unwrap();
    let engine = engine();
    let memory = |store: &mut Store<()>, instance: &Instance| {
        instance.get_memory(&mut *store, "memory").unwrap().data(&*store).to_vec()
    };
    let (expected, _, mut plain, plain_instance) = call(&engine, &wasm, 0);
    let (result, _, mut store, instance) = call(&engine, &instrumented.wasm, 0);
    assert_eq!(result, expected);
    assert!(memory(&mut store, &instance) == memory(&mut plain, &plain_instance), "{body}");
    let all = counters(&mut store, &instance);
    (all[..3].try_into().unwrap(), all[3..6].try_into().unwrap())
}

#[test]
fn loads_and_stores_are_counted_in_words() {
    let own = Region::Own as usize;
    let of_own = |words| std::array::from_fn(|i| if i == own { words } else { 0 });
    for (body, loads, stores) in [
        ("i32.const 8 i32.load drop", 1, 0),
        ("i32.const 8 i64.load8_u offset=3 drop", 1, 0),
        ("i32.const 8 i64.load drop", 2, 0),
        ("i32.const 8 v128.load drop", 4, 0),
        ("i32.const 8 v128.const i64x2 1 2 v128.load16_lane 3 drop", 1, 0),
        ("i32.const 8 v128.const i64x2 1 2 v128.store64_lane 1", 0, 2),
        ("i32.const 8 i32.const 5 i32.store16", 0, 1),
        ("i32.const 8 i64.const 5 i64.store offset=16", 0, 2),
        ("i32.const 8 f64.const 5 f64.store", 0, 2),
        ("i32.const 8 f32.const 5 f32.store", 0, 1),
        ("i32.const 8 v128.const i64x2 1 2 v128.store", 0, 4),
        ("i32.const 8 i32.const 100 i32.const 9 memory.copy", 3, 3),
        ("i32.const 8 i32.const 1 i32.const 8 memory.fill", 0, 2),
        ("i32.const 8 i32.const 1 i32.const 5 memory.init $d", 0, 2),
        ("i32.const 8 i32.const 1 i32.const 0 memory.fill", 0, 0),
    ] {
        assert_eq!(accesses(body), (of_own(loads), of_own(stores)), "{body}");
    }
}

#[test]
fn regions_are_told_by_the_address_that_is_reached() {
    let packets =
        flame_abi::layout::VIEW + (flame_abi::MAX_BLOCK_PACKETS * flame_abi::Descriptor::SIZE) as u32;
    let host = flame_abi::layout::WINDOW;
    for (address, offset, region) in [
        (packets, 0, Region::Packet),
        (packets - 1, 0, Region::Host),
        (packets - 1, 1, Region::Packet),
        (host, 0, Region::Host),
        (host - 1, 0, Region::Own),
        (host - 4, 4, Region::Host),
        (flame_abi::layout::SHARED, 0, Region::Own),
        (u32::MAX, u32::MAX, Region::Own),
    ] {
        let (loads, stores) =
            accesses(&format!("i32.const {} i32.load8_u offset={offset} drop", address as i32));
        let expected = std::array::from_fn(|i| u64::from(i == region as usize));
        assert_eq!((loads, stores), (expected, [0; 3]), "{address:#x} {offset}");
        let (loads, stores) =
            accesses(&format!("i32.const {} i32.const 1 i32.store offset={offset}", address as i32));
        assert_eq!((loads, stores), ([0; 3], expected), "{address:#x} {offset}");
    }
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let refused =
        |wasm: &[u8]| instrument(wasm, COUNTER, &BTreeMap::new()).map(|_| ()).unwrap_err().to_string();
    assert!(refused(b"\0asm\x01\0\0\0\x01").starts_with("cannot count what the module executes: "));
    let taken = wat::parse_str("(module (global (export \"profile:0\") i64 (i64.const 0)))").unwrap();
    assert!(refused(&taken).contains("it exports \"profile:0\", a name of the counters: rename it"));
}
