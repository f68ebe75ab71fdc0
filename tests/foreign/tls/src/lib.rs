//! `tls-parser` (nom): messages of the first record of what goes to and from port 443.

use each::{Each, Look};

struct Tls;

impl Look for Tls {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        tls_parser::parse_tls_plaintext(bytes).map_or(0, |(_, record)| record.msg.len() as u64)
    }
}

flame_module::export!(Each<Tls>);
