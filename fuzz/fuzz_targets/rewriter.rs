//! Any bytes as a module: neither the check nor the rewriter panics, and rewritten modules are valid.
#![no_main]

use flame_bounds::{Rules, check};
use flame_meter::{Metering, ModuleError, rewrite, rewrite_polled};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let checked = check(bytes, &Rules::default());
    let rewritten = [
        rewrite(bytes, Metering::All),
        rewrite(bytes, Metering::Nothing),
        rewrite_polled(bytes, Metering::Nothing),
    ];
    for result in rewritten {
        match result {
            Ok(_) => {}
            // The rewriter validates its output; only the size may make that fail.
            Err(ModuleError::Grown { reason }) => {
                assert!(bytes.len() > 1 << 20, "wrote what is not valid: {reason}")
            }
            Err(error) => assert!(checked.is_err(), "passed the check: {error}"),
        }
    }
});
