//! Any bytes as a module: neither the check nor the rewriter panics, and what is rewritten is valid.
#![no_main]

use flame_bounds::{Count, ModuleError, Rules, check, rewrite};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let checked = check(bytes, &Rules::default());
    for meter in [true, false] {
        match rewrite(bytes, if meter { Count::All } else { Count::Nothing }) {
            Ok(_) => {}
            // The rewriter validates what it wrote; only size may make that fail.
            Err(ModuleError::Grown { reason }) => {
                assert!(bytes.len() > 1 << 20, "wrote what is not valid: {reason}")
            }
            Err(error) => assert!(checked.is_err(), "passed the check: {error}"),
        }
    }
});
