#![no_main]
//! Any blocks after a section header: most mutations of a whole file break its first block.
use flame_source::DamageKind;
use libfuzzer_sys::fuzz_target;

const SECTION: [u8; 28] = [
    0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255,
    255, 255, 28, 0, 0, 0,
];

fuzz_target!(|bytes: &[u8]| {
    for file in [bytes.to_vec(), [&SECTION[..], bytes].concat()] {
        if let Ok((_, damage)) = flame_source::parse(&file) {
            assert!(damage.iter().filter(|d| d.kind != DamageKind::Remark).count() <= 1);
            assert!(damage.iter().all(|d| d.offset() <= file.len() as u64));
        }
    }
});
