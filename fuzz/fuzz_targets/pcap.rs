#![no_main]
//! Any bytes as a capture file: packets inside the file, then damage or the end.
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((_, damage)) = flame_source::parse(bytes) {
        assert!(damage.len() <= 1 && damage.iter().all(|d| d.offset() <= bytes.len() as u64));
    }
});
