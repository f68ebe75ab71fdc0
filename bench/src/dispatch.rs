//! The cost of a call: a module that does nothing, in batches of several sizes, compared to an indirect call.

use crate::fixture::{Error, instance, plan, run_slot};
use crate::row::{Row, Target, Way, in_turn};
use flame_admit::Protection;
use flame_block::Pool;
use flame_run::Engines;
use std::hint::black_box;

const GROUP: &str = "dispatch: one call a batch";
const PACKETS: usize = 1024;

const EMPTY: &str = r#"(module (memory (export "memory") 1)
    (func (export "flame_batch") (param i32) (result i64) (i64.const 0)))"#;
const MANIFEST: &str =
    "abi = 1\nname = \"empty\"\nversion = \"1\"\ndescription = \"does nothing\"\n[needs]\nexpose = ";

/// Returns a module that ignores the packets it gets.
pub fn empty(expose: &str) -> Result<Vec<u8>, Error> {
    let mut wasm = wat::parse_str(EMPTY)?;
    // A custom section: id, length, length of the name, name and contents.
    let name = flame_abi::layout::names::MANIFEST_SECTION;
    let manifest = format!("{MANIFEST}\"{expose}\"\n");
    let (length, all) = (name.len() as u8, (1 + name.len() + manifest.len()) as u8);
    wasm.extend([0, all, length]);
    assert!(all < 128, "one byte each");
    wasm.extend([name.as_bytes(), manifest.as_bytes()].concat());
    Ok(wasm)
}

pub fn rows(engine: &Engines, rounds: usize) -> Result<Vec<Row>, Error> {
    let wasm = empty("none")?;
    let plan = plan(&wasm, Protection::Auto, &[])?;
    let pool = Pool::new(1)?;
    let mut instance = instance(engine, &plan, &pool)?;
    let mut rows = Vec::new();
    for batch in [1, 4, 16, 64, 256] {
        let call: fn(usize) -> usize = black_box(|n| n);
        let again = 200;
        let mut ways: [Way<'_, Error>; 2] = [
            Box::new(|| {
                for _ in 0..again * PACKETS / batch {
                    black_box(call(black_box(batch)));
                }
                Ok(())
            }),
            Box::new(|| (0..again).try_for_each(|_| run_slot(&mut instance, 0, PACKETS, batch))),
        ];
        let (times, ratios) = in_turn(rounds, &mut ways)?;
        let ns = |i: usize| times[i] * 1e9 / (again * PACKETS) as f64;
        let name = format!("batches of {batch}");
        let detail = format!("{:.1} times an indirect call of {:.3} ns a packet", ratios[1], ns(0));
        let row = Row::ratio(GROUP, name, ns(1), detail).unit("ns");
        rows.push(if batch == 256 { row.target(Target::AtMost(1.0)) } else { row });
    }
    Ok(rows)
}
