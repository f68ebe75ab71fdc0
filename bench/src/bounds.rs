//! The benefit of bounds: modules as shipped compared to the same modules metered, and estimated compared to
//! measured times.

use crate::fixture::{Error, blocks, instance, plan, run_slot, view_into};
use crate::modules::{KEY, NAMES};
use crate::row::{Row, Target, Way, geometric_mean, in_turn};
use flame_abi::{MAX_BATCH, layout::names};
use flame_admit::Protection;
use flame_block::Pool;
use flame_bounds::{Rules, analyse};
use flame_calibrate::Calibration;
use flame_plan::ModuleClass;
use flame_run::Engines;
use flame_view::View;
use std::path::Path;

const GAIN: &str = "bounds: metered / bounded, calls alone";
/// The group of estimated over measured times.
pub const ESTIMATE: &str = "bounds: estimated / measured time";

/// Returns settings with tables as large as the trace needs.
pub fn settings(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "anonymize" => &[("key", KEY)],
        "flow" => &[("max_flows", "16384")],
        "rtt" => &[("max_handshakes", "2048"), ("max_connections", "2048")],
        "worm" => &[("max_infections", "1024"), ("max_pending", "1024")],
        _ => &[],
    }
}

/// The number of blocks of the trace that are measured, repeatedly.
const SLOTS: usize = 16;

pub fn rows(engines: &Engines, trace: &Path, folder: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let calibration =
        Calibration::measure(flame_compile::Engines::new()?.of(ModuleClass::Bounded), &mut |_| {})?;
    let (mut gains, mut estimates) = (Vec::new(), Vec::new());
    for name in NAMES {
        let wasm = std::fs::read(folder.join(format!("{name}.wasm")))?;
        let bounded = plan(&wasm, Protection::Auto, settings(name))?;
        if bounded.class == ModuleClass::Metered {
            continue;
        }
        let metered = plan(&wasm, Protection::Metered, settings(name))?;
        let mut pool = Pool::new(SLOTS)?;
        let mut instances = [instance(engines, &bounded, &pool)?, instance(engines, &metered, &pool)?];
        let mut view = View::new(&bounded.view, None)?;
        let (mut filled, mut visible) = (Vec::new(), 0u64);
        for (slot, block) in blocks(trace, SLOTS)?.iter().enumerate() {
            let packets = view_into(&mut pool, slot, &mut view, block)?;
            visible += pool.slot(slot).0[..packets].iter().map(|d| u64::from(d.cap_len)).sum::<u64>();
            filled.push(packets);
        }
        let packets = filled.iter().sum::<usize>();
        let [bounded_instance, metered_instance] = &mut instances;
        let mut ways: [Way<'_, Error>; 2] =
            [bounded_instance, metered_instance].map(|instance| -> Way<'_, Error> {
                let filled = &filled;
                Box::new(move || {
                    filled
                        .iter()
                        .enumerate()
                        .try_for_each(|(slot, n)| run_slot(instance, slot, *n, MAX_BATCH))
                })
            });
        let (times, ratios) = in_turn(rounds * 5, &mut ways)?;
        drop(ways);
        let ns = |i: usize| times[i] * 1e9 / packets as f64;
        let row = Row::ratio(GAIN, name, ratios[1], format!("{:.2} / {:.2} ns a packet", ns(1), ns(0)));
        gains.push(row.target(Target::AtLeast(0.98)));

        // The estimate is for the average packet length. The working set is the memory that is reserved for
        // the module, all of which it took.
        let memory = instances[0].owned_memory().len() as u64;
        let analysis = analyse(&wasm, &Rules::default(), Some(&calibration.costs(memory)))?;
        let time = analysis.entries.iter().find(|e| e.name == names::BATCH).and_then(|e| e.time);
        let average = visible / packets.max(1) as u64;
        let estimate = time.and_then(|t| full_batch_ns(t, average)).ok_or("no estimate")?;
        let detail =
            format!("{estimate:.1} / {:.2} ns a packet of {average} bytes, {} KiB", ns(0), memory >> 10);
        estimates.push(Row::ratio(ESTIMATE, name, estimate / ns(0), detail).target(Target::AtMost(20.0)));
    }
    let values = |rows: &[Row]| rows.iter().map(|r| r.value).collect::<Vec<f64>>();
    let mean = Row::ratio(GAIN, "geometric mean", geometric_mean(&values(&gains)), String::new());
    gains.push(mean);
    let mut sorted = values(&estimates);
    sorted.sort_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    estimates.push(Row::ratio(ESTIMATE, "median", median, String::new()).target(Target::AtMost(4.0)));
    gains.extend(estimates);
    Ok(gains)
}

/// Returns the estimate in nanoseconds for each packet of a full batch, without calls for the rest of output,
/// which these modules do not ask for.
fn full_batch_ns(time: flame_bounds::Bound, length: u64) -> Option<f64> {
    let batch = flame_abi::MAX_BATCH as u64;
    time.at(batch, length).map(|ps| ps as f64 / 1000.0 / batch as f64)
}
