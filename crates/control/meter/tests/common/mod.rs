//! Runs original and rewritten modules next to each other.

mod run;

use flame_meter::{Metering, rewrite};
pub use run::{PLENTY, Run, engine};
use wasmtime::Val;

/// A tight loop that is left by its end, to outer blocks, out of the function, by return and by tables.
pub const EXITS: &str = "(func (export \"f\") (param i32) (result i32) (local $i i32) (local $j i32)
          (block $out (loop $o (block $b
            (local.set $i (i32.const 0))
            (drop (loop $t (result i32)
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if $t (i32.eq (local.get $i) (i32.const 2)))
              (block $x (block $y (br_table $x $y $t $b $x (i32.sub (local.get $i) (local.get $j)))) (br_if $t (local.get $j)))
              (br_if $out (i32.eq (local.get $i) (local.get 0)))
              (if (i32.gt_u (local.get $i) (i32.const 18)) (then (return (i32.const 77))))
              (drop (br_if 4 (i32.const 88) (i32.eq (local.get $j) (i32.const 9))))
              (br_if $t (i32.lt_u (local.get $i) (local.get $j)))
              (i32.const 5))))
            (local.set $j (i32.add (local.get $j) (i32.const 1)))
            (br_if $o (i32.lt_u (local.get $j) (local.get 0)))))
          (i32.add (i32.mul (local.get $j) (i32.const 1000)) (local.get $i)))";

pub fn metered(wasm: &[u8]) -> Vec<u8> {
    rewrite(wasm, Metering::All).expect("rewrites")
}

/// The outcome of one call.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// The results as text (NaN equals itself), or the trap.
    pub results: Result<Vec<String>, String>,
    pub memory: Vec<u8>,
}

impl Run {
    /// Returns the rewritten module, with plenty of fuel.
    pub fn metered(wasm: &[u8]) -> Self {
        let mut run = Self::new(&engine(false), &metered(wasm));
        run.set("flame:fuel", PLENTY);
        run.set("flame:packet_budget", PLENTY);
        run
    }

    pub fn get(&mut self, name: &str) -> i64 {
        match self.instance.get_global(&mut self.store, name).expect("exported").get(&mut self.store) {
            Val::I64(v) => v,
            Val::I32(v) => v.into(),
            other => panic!("{other:?}"),
        }
    }

    pub fn call(&mut self, name: &str, args: &[Val]) -> Outcome {
        let function = self.instance.get_func(&mut self.store, name).expect("exported");
        let mut results = vec![Val::I32(0); function.ty(&self.store).results().len()];
        let called = function.call(&mut self.store, args, &mut results);
        let results = match called {
            Ok(()) => Ok(results.iter().map(|v| format!("{v:?}")).collect()),
            Err(e) => Err(e.root_cause().to_string()),
        };
        let memory = match self.instance.get_memory(&mut self.store, "memory") {
            Some(memory) => memory.data(&self.store).to_vec(),
            None => Vec::new(),
        };
        Outcome { results, memory }
    }

    /// Calls a function that returns one i32.
    pub fn i32(&mut self, name: &str, args: &[i32]) -> Result<i32, String> {
        let args: Vec<Val> = args.iter().map(|v| Val::I32(*v)).collect();
        let results = self.call(name, &args).results?;
        Ok(results[0].trim_start_matches("I32(").trim_end_matches(')').parse().expect("an i32"))
    }
}

/// Makes one call in both modules, whose outcomes must be the same. Returns the original's fuel by Wasmtime's
/// own meter, and the rewritten module's charge.
pub fn compare(wasm: &[u8], name: &str, args: &[Val]) -> (u64, u64, Outcome) {
    let mut original = Run::new(&engine(true), wasm);
    let expected = original.call(name, args);
    let spent = PLENTY as u64 - original.store.get_fuel().expect("counts fuel");
    let mut run = Run::metered(wasm);
    let found = run.call(name, args);
    assert_eq!(found, expected, "{name}");
    let charged = (PLENTY - run.get("flame:fuel")) as u64;
    (spent, charged, found)
}
