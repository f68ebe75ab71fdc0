//! `memchr::memmem`: payloads with `HTTP/1.1` somewhere.

use each::{Each, Look};
use memchr::memmem::Finder;

struct Find(Finder<'static>);

impl Look for Find {
    fn new() -> Self {
        Self(Finder::new(b"HTTP/1.1"))
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        self.0.find(bytes).is_some().into()
    }
}

flame_module::export!(Each<Find>);
