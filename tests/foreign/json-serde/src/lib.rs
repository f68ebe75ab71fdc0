//! `serde_json` with all values ignored: payloads that are one JSON value.

use each::{Each, Look};
use serde::de::IgnoredAny;

struct Json;

impl Look for Json {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        serde_json::from_slice::<IgnoredAny>(bytes).is_ok().into()
    }
}

flame_module::export!(Each<Json>);
