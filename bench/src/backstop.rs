//! The cost of the backstop: calls of modules whose loops poll, compared to the same calls without polls.

use crate::QUICK;
use crate::bounds::settings;
use crate::fixture::{Error, blocks, instance, plan, run_slot, view_into};
use crate::modules::NAMES;
use crate::row::{Row, Target, Way, geometric_mean, in_turn};
use flame_abi::MAX_BATCH;
use flame_admit::Protection;
use flame_block::Pool;
use flame_bounds::{Rules, analyse};
use flame_meter::{Metering, rewrite, rewrite_polled};
use flame_plan::{ModuleClass, ModulePlan};
use flame_run::Engines;
use flame_view::View;
use std::path::Path;

const GROUP: &str = "backstop: with polls / without, calls alone";

/// The number of blocks of the trace that are measured, repeatedly.
const SLOTS: usize = 16;

pub fn rows(engines: &Engines, trace: &Path, folder: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    // Each is compiled twice more.
    let names = if rounds == QUICK { &NAMES[..2] } else { &NAMES[..] };
    for name in names {
        let wasm = std::fs::read(folder.join(format!("{name}.wasm")))?;
        let shipped = plan(&wasm, Protection::Auto, settings(name))?;
        // A module without bounds is measured as if it had them.
        let unchecked = plan(&wasm, Protection::Unchecked, settings(name))?;
        let analysis = analyse(&wasm, &Rules::default(), None)?;
        let (count, what) = match shipped.class {
            ModuleClass::Bounded => (Metering::Except(&analysis.proved.uncounted), "as shipped"),
            ModuleClass::Metered => (Metering::Nothing, "all loops, though it ships metered"),
        };
        let engine = flame_compile::Engines::new()?;
        let with = |code: Vec<u8>| -> Result<ModulePlan, Error> {
            Ok(ModulePlan {
                code: engine.precompile(ModuleClass::Bounded, &code)?.into(),
                ..unchecked.clone()
            })
        };
        let plans = [with(rewrite_polled(&wasm, count)?)?, with(rewrite(&wasm, count)?)?];
        let mut pool = Pool::new(SLOTS)?;
        let mut instances = [instance(engines, &plans[0], &pool)?, instance(engines, &plans[1], &pool)?];
        let mut view = View::new(&shipped.view, None)?;
        let mut filled = Vec::new();
        for (slot, block) in blocks(trace, SLOTS)?.iter().enumerate() {
            filled.push(view_into(&mut pool, slot, &mut view, block)?);
        }
        let packets = filled.iter().sum::<usize>();
        let [polled, plain] = &mut instances;
        // The others are divided by the first.
        let mut ways: [Way<'_, Error>; 2] = [plain, polled].map(|instance| -> Way<'_, Error> {
            let filled = &filled;
            Box::new(move || {
                filled.iter().enumerate().try_for_each(|(slot, n)| run_slot(instance, slot, *n, MAX_BATCH))
            })
        });
        let (times, ratios) = in_turn(rounds * 9, &mut ways)?;
        drop(ways);
        let ns = |i: usize| times[i] * 1e9 / packets as f64;
        let detail = format!("{:.2} / {:.2} ns a packet, {what}", ns(1), ns(0));
        rows.push(Row::ratio(GROUP, *name, ratios[1], detail).target(Target::AtMost(1.08)));
    }
    let values: Vec<f64> = rows.iter().map(|r| r.value).collect();
    let mean = Row::ratio(GROUP, "geometric mean", geometric_mean(&values), String::new());
    rows.push(mean.target(Target::AtMost(1.03)));
    Ok(rows)
}
