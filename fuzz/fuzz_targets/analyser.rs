//! Bounds of any bytes, as a module and as a capsule: refused, or found in bounded time, and never for a
//! module that is refused; and the module without the counters that it does not need.
#![no_main]

use flame_bounds::{Capsule, Class, Costs, ModuleError, Rules, analyse, analyse_exports, capsule};
use flame_meter::{Metering, export_globals, rewrite, rewrite_polled};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(analysis) = analyse_exports(data) {
        for entry in &analysis.entries {
            let _ = (entry.bound.call.at(1500), entry.bound.packet.to_string());
        }
    }
    // A capsule is compiled from its rewritten form, with its globals exported.
    if let Ok(Capsule { bounds, proved }) = capsule(data) {
        assert!(!bounds.is_empty());
        let count = Metering::Verified { uncounted: &proved.uncounted, diverging: &proved.diverging };
        match rewrite(data, count) {
            Ok(counted) => drop(export_globals(data, &counted).expect("it was read before")),
            Err(ModuleError::Grown { .. } | ModuleError::ReservedExport { .. }) => {}
            Err(error) => panic!("a capsule, but not rewritten: {error}"),
        }
    }
    let latency = vec![(1 << 12, 1_000), (1 << 20, 10_000)];
    let costs = Costs { classes: [100; Class::ALL.len()], latency, memory: 1 << 20, dispatch: 10_000 };
    if let Ok(analysis) = analyse(data, &Rules::default(), Some(&costs)) {
        assert!(analysis.entries.iter().any(|e| e.name == "flame_batch"));
        // Functions that need no counters can have polls instead.
        match rewrite_polled(data, Metering::Except(&analysis.proved.uncounted)) {
            Ok(_) | Err(ModuleError::Grown { .. }) => {}
            Err(error) => panic!("analysed, but not rewritten: {error}"),
        }
    }
});
