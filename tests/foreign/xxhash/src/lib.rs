//! `twox-hash`: payloads whose XXH64 is odd.

use each::{Each, Look};
use twox_hash::XxHash64;

struct Odd;

impl Look for Odd {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        XxHash64::oneshot(0, bytes) & 1
    }
}

flame_module::export!(Each<Odd>);
