//! Bounds of any bytes: refused, or found in bounded time, and never for a module that is refused.
#![no_main]

use flame_bounds::{Rules, analyse, analyse_exports};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(analysis) = analyse_exports(data) {
        for entry in &analysis.entries {
            let _ = (entry.bound.call.at(1500), entry.bound.packet.to_string());
        }
    }
    if let Ok(analysis) = analyse(data, &Rules::default(), None) {
        assert!(analysis.entries.iter().any(|e| e.name == "flame_batch"));
    }
});
