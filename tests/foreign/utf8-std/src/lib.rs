//! `core::str::from_utf8`: payloads that are UTF-8.

use each::{Each, Look};

struct Utf8;

impl Look for Utf8 {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        std::str::from_utf8(bytes).is_ok().into()
    }
}

flame_module::export!(Each<Utf8>);
