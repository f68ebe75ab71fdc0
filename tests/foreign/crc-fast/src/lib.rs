//! `crc32fast`, 16 tables: payloads whose CRC-32 is odd.

use each::{Each, Look};

struct Odd;

impl Look for Odd {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        u64::from(crc32fast::hash(bytes) & 1)
    }
}

flame_module::export!(Each<Odd>);
