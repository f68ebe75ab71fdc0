//! Modules that wasm-smith generates, of every instruction: compared with Wasmtime's own meter, unmodified
//! and rewritten. `FLAME_PROGRAMS` is the number of modules, `FLAME_ARGUMENTS` of calls of each function.

use crate::run::{PLENTY, Run, engine};
use flame_bounds::{Rules, analyse, analyse_exports};
use flame_meter::{Metering, rewrite};
use wasm_smith::{Config, Module};
use wasmtime::{FuncType, Linker, Store, Trap, Val, ValType};

/// The number of instructions after which a call is abandoned.
const PATIENCE: u64 = 200_000;

/// A deterministic pseudorandom generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 32) as u8).collect()
    }
}

fn config() -> Config {
    Config {
        allow_start_export: false,
        bulk_memory_enabled: true,
        custom_page_sizes_enabled: false,
        exceptions_enabled: false,
        export_everything: true,
        extended_const_enabled: false,
        gc_enabled: false,
        max_imports: 0,
        max_memories: 1,
        max_memory32_bytes: 4 << 16,
        max_tables: 1,
        max_table_elements: 100,
        memory64_enabled: false,
        memory_max_size_required: true,
        min_funcs: 1,
        max_funcs: 12,
        max_instructions: 120,
        reference_types_enabled: false,
        relaxed_simd_enabled: false,
        simd_enabled: true,
        tail_call_enabled: false,
        threads_enabled: false,
        shared_everything_threads_enabled: false,
        wide_arithmetic_enabled: false,
        ..Config::default()
    }
}

fn any(kind: &ValType, random: &mut Random) -> Option<Val> {
    let n = random.next();
    // Small numbers, borders, any.
    let n = [n % 8, n, (1 << 31) + n % 3, u64::MAX - n % 3, 1 << (n % 64)][(n >> 40) as usize % 5];
    Some(match kind {
        ValType::I32 => Val::I32(n as i32),
        ValType::I64 => Val::I64(n as i64),
        ValType::F32 => Val::F32(n as u32),
        ValType::F64 => Val::F64(n),
        ValType::V128 => Val::V128((u128::from(n) << 64 | u128::from(random.next())).into()),
        _ => return None,
    })
}

fn arguments(ty: &FuncType, random: &mut Random) -> Option<Vec<Val>> {
    ty.params().map(|kind| any(&kind, random)).collect()
}

fn asked(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[test]
fn no_bound_of_a_made_up_module_is_below_what_is_executed() {
    let (modules, calls) = (asked("FLAME_PROGRAMS", 400), asked("FLAME_ARGUMENTS", 4));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut ended, mut bounded, mut long, mut cut, mut trapped, mut same) = (0, 0, 0, 0, 0, 0);
    for _ in 0..modules {
        let seed = random.bytes(3000);
        let Ok(made) = Module::new(config(), &mut arbitrary::Unstructured::new(&seed)) else { continue };
        let wasm = made.to_bytes();
        let analysis = analyse_exports(&wasm).unwrap_or_else(|e| panic!("valid, but not analysed: {e}"));
        // Whatever the host's rules decide, nothing panics.
        let _ = analyse(&wasm, &Rules::default(), None);
        let engine = engine(true);
        let module = wasmtime::Module::new(&engine, &wasm).expect("compiles");
        let counted = rewrite(&wasm, Metering::All).expect("rewrites");
        let proved = rewrite(&wasm, Metering::Except(&analysis.proved.uncounted))
            .expect("rewrites without what is proved");
        for entry in &analysis.entries {
            for _ in 0..calls {
                let mut store = Store::new(&engine, ());
                store.set_fuel(PATIENCE).unwrap();
                let Ok(instance) = Linker::new(&engine).instantiate(&mut store, &module) else { break };
                let Some(function) = instance.get_func(&mut store, &entry.name) else { break };
                let ty = function.ty(&store);
                let Some(given) = arguments(&ty, &mut random) else { break };
                let mut results = vec![Val::I32(0); ty.results().len()];
                let before = store.get_fuel().unwrap();
                let outcome = function.call(&mut store, &given, &mut results);
                let executed = before - store.get_fuel().unwrap();
                let most = entry.bound.at(0, 0);
                match outcome {
                    Ok(()) => {
                        ended += 1;
                        if let Some(most) = most {
                            bounded += 1;
                            assert!(u128::from(executed) <= most, "{executed} executed, bound {most}");
                        }
                        // The rewritten module computes the same, with all counters and without those that
                        // are not needed.
                        let run = |wasm: &[u8]| {
                            let mut run = Run::new(&crate::run::engine(false), wasm);
                            run.set("flame:fuel", PLENTY);
                            let mut results = vec![Val::I32(0); ty.results().len()];
                            let function = run.instance.get_func(&mut run.store, &entry.name).unwrap();
                            function.call(&mut run.store, &given, &mut results).expect("ends as well");
                            format!("{results:?}")
                        };
                        let text = format!("{results:?}");
                        // References print as addresses.
                        if !text.contains("Ref") {
                            assert_eq!([run(&counted), run(&proved)], [text.clone(), text]);
                            same += 1;
                        }
                    }
                    Err(e) if e.downcast_ref() == Some(&Trap::OutOfFuel) => {
                        long += 1;
                        // Either its bound is as large, or it diverges; then it ends by counters, which must
                        // be where they are needed.
                        if most.is_some_and(|most| most < u128::from(PATIENCE)) {
                            let mut run = Run::new(&engine, &proved);
                            run.set("flame:fuel", 1000);
                            run.store.set_fuel(PATIENCE * 10).unwrap();
                            let mut results = vec![Val::I32(0); ty.results().len()];
                            let function = run.instance.get_func(&mut run.store, &entry.name).unwrap();
                            let error = function.call(&mut run.store, &given, &mut results).unwrap_err();
                            assert_ne!(error.downcast_ref(), Some(&Trap::OutOfFuel), "nothing cut it off");
                            cut += 1;
                        }
                    }
                    Err(_) => trapped += 1,
                }
            }
        }
    }
    println!(
        "{modules} modules: {ended} calls ended, {bounded} of them with a bound, {same} the same when rewritten; \
         {long} were given up, {cut} of which counters cut off; {trapped} trapped"
    );
    assert!(bounded > modules / 4, "hardly anything has a bound");
}
