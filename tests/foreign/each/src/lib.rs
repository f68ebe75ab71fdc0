//! The shared part of the modules here: third-party code searches the bytes of each packet, and its results
//! are added.

pub use flame_module::Packet;
use flame_module::{Batch, Init, Module, Out, Progress};
use std::net::Ipv4Addr;

pub trait Look {
    fn new() -> Self;

    /// The bytes to look at; packets without any are passed over.
    fn part<'a>(packet: &Packet<'a>) -> &'a [u8] {
        packet.payload()
    }

    /// Returns the number of matches in the bytes.
    fn look(&mut self, bytes: &[u8]) -> u64;
}

/// The module: three sums, one row at the end for each worker.
pub struct Each<L> {
    look: L,
    packets: u64,
    bytes: u64,
    found: u64,
}

impl<L: Look> Module for Each<L> {
    fn new(_: &Init) -> Self {
        Self { look: L::new(), packets: 0, bytes: 0, found: 0 }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            let bytes = L::part(&packet);
            if !bytes.is_empty() {
                self.packets += 1;
                self.bytes += bytes.len() as u64;
                self.found += self.look.look(bytes);
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.row(0).u64(self.packets).u64(self.bytes).u64(self.found).finish();
        Progress::Done
    }
}

/// The patterns of the searches.
pub const WORDS: [&str; 6] = ["GET ", "POST ", "HTTP/1.", "Host:", "User-Agent:", "example"];
pub const PATTERN: &str = r"(?:GET|POST|HEAD) [^ ]+ HTTP/1\.[01]|Host: [a-z0-9.]+";

/// The table in which addresses are looked up.
pub const NETWORKS: [(Ipv4Addr, u32); 6] = [
    (Ipv4Addr::new(10, 9, 0, 0), 31),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(198, 51, 100, 7), 32),
];
