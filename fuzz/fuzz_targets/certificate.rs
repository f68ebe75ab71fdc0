//! Certificates for modules of known cost, and for any module: refused, or no bound is too low.
#![no_main]

#[path = "../../crates/control/verify/tests/modules/mod.rs"]
#[allow(dead_code)] // The tests use the rest.
mod modules;

use flame_verify::{Certificate, verify};
use libfuzzer_sys::fuzz_target;
use modules::{Sample, exceeded, samples};
use std::sync::LazyLock;

/// The samples with their bytes.
static SAMPLES: LazyLock<Vec<(Vec<u8>, Sample)>> =
    LazyLock::new(|| samples().into_iter().map(|sample| (sample.wasm(), sample)).collect());

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = data.split_first() else { return };
    if let Some((wasm, sample)) = SAMPLES.get(usize::from(*choice)) {
        if let Ok(certificate) = Certificate::from_bytes(rest) {
            assert_eq!(Certificate::from_bytes(&certificate.to_bytes()), Ok(certificate));
        }
        if let Ok(verified) = verify(wasm, rest) {
            assert_eq!(exceeded(sample, &verified), None);
        }
        return;
    }
    // A certificate, whose length is in two bytes, then a module.
    let Some((length, rest)) = rest.split_first_chunk() else { return };
    let (certificate, wasm) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
    if let Ok(verified) = verify(wasm, certificate) {
        for entry in &verified.entries {
            match &entry.bound {
                Ok(cost) => assert!(cost.is_bounded()),
                Err(why) => assert!(why.to_string().contains("at byte")),
            }
        }
    }
});
