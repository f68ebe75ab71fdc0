//! A manifest of any bytes: parsed or refused with a reason, and usable once parsed.
#![no_main]

use flame_abi::manifest::{Manifest, duration_ns};
use flame_output::Schema;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match Manifest::parse(data) {
        Ok(manifest) => {
            let _ = Schema::new(&manifest).check(data, true);
            for parameter in manifest.parameters.values() {
                parameter.encode(&parameter.default).expect("a default was checked");
                let _ = parameter.parse(&String::from_utf8_lossy(data));
            }
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = duration_ns(text);
    }
});
