//! `memchr`: payloads with a line feed.

use each::{Each, Look};

struct Find;

impl Look for Find {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        memchr::memchr(b'\n', bytes).is_some().into()
    }
}

flame_module::export!(Each<Find>);
