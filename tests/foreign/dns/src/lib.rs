//! `simple-dns` on what goes to and from port 53: records of all messages that parse.

use each::{Each, Look};
use simple_dns::Packet;

struct Dns;

impl Look for Dns {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        Packet::parse(bytes).map_or(0, |p| (p.questions.len() + p.answers.len()) as u64)
    }
}

flame_module::export!(Each<Dns>);
