//! `adler2`: payloads whose Adler-32 is odd.

use each::{Each, Look};

struct Odd;

impl Look for Odd {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        u64::from(adler2::adler32_slice(bytes) & 1)
    }
}

flame_module::export!(Each<Odd>);
