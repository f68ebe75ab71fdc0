//! `sha2` over every payload.

use each::{Each, Look};
use sha2::{Digest, Sha256};

struct Sha;

impl Look for Sha {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        u64::from(Sha256::digest(bytes)[0] >> 7)
    }
}

flame_module::export!(Each<Sha>);
