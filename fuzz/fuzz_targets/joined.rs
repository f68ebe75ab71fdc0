//! Records of two monitors, of any bytes: refused with file and line, or a result that accounts for them.
#![no_main]

use flame_join::{Options, join};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let middle = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (a, b) = data.split_at(middle);
    let b = b.get(1..).unwrap_or(&[]);
    match join(
        vec![("a".to_owned(), a), ("b".to_owned(), b)],
        Options { max_flows: 64, ..Options::default() },
    ) {
        Ok(all) => {
            let through: u64 = all.paths.iter().map(|p| p.packets).sum();
            assert!(through * 2 + all.alone <= all.logs);
        }
        Err(e) => assert!(e.to_string().starts_with(['a', 'b']), "{e}"),
    }
});
