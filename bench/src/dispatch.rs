//! The cost of a call: a module that does nothing, in batches of several sizes, compared to an indirect call.

use crate::fixture::{Error, instance, plan, run_slot};
use crate::made::empty;
use crate::row::{Row, Target, Way, in_turn};
use flame_admit::Protection;
use flame_block::Pool;
use flame_run::Engines;
use std::hint::black_box;

const GROUP: &str = "dispatch: one call a batch";
const PACKETS: usize = 1024;

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
