//! `jiter`'s skipping reader: payloads that are one JSON value.

use each::{Each, Look};
use jiter::Jiter;

struct Json;

impl Look for Json {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        let mut jiter = Jiter::new(bytes);
        (jiter.next_skip().is_ok() && jiter.finish().is_ok()).into()
    }
}

flame_module::export!(Each<Json>);
