#![no_main]
//! Any bytes as a capture file: packets inside the file, then damage or the end.
use flame_source::DamageKind;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((_, damage)) = flame_source::parse(bytes) {
        assert!(damage.iter().filter(|d| d.kind != DamageKind::Remark).count() <= 1);
        assert!(damage.iter().all(|d| d.offset() <= bytes.len() as u64));
    }
});
