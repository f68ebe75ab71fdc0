//! Loops as authors write them, each with a bound.

use flame_module::{Batch, Init, Module, Out};
flame_module::manifest!();

pub struct Case {
    table: [u32; 64],
    ports: Vec<u16>,
    found: u64,
}

impl Module for Case {
    fn new(_: &Init) -> Self {
        Self { table: [0; 64], ports: Vec::with_capacity(300), found: 0 }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            let bytes = packet.bytes();
            // A range of constants.
            for at in 12..268 {
                self.found += u64::from(bytes.get(at).copied().unwrap_or(0));
            }
            // At most this many of a list in memory.
            for port in self.ports.iter().take(256) {
                self.found += u64::from(*port == (packet.hash as u16));
            }
            // An array, a slice of the packet, and parts of it.
            for place in &mut self.table {
                *place = place.wrapping_add(packet.hash).rotate_left(3);
            }
            for byte in bytes {
                self.found = self.found.wrapping_mul(31) ^ u64::from(*byte);
            }
            for pair in bytes.chunks_exact(2) {
                self.found ^= u64::from(pair[0]) << pair[1] % 8;
            }
            for (n, byte) in bytes.iter().enumerate().skip(3).step_by(7) {
                self.found ^= (n as u64) << (byte % 8);
            }
            for pair in bytes.windows(2).rev() {
                self.found ^= u64::from(pair[0] ^ pair[1]);
            }
            let n = (packet.hash as usize).min(100);
            for i in 0..n {
                self.found ^= i as u64 * u64::from(packet.hash);
            }
            self.found += self.table.iter().zip(bytes).filter(|(a, b)| **a == u32::from(**b)).count() as u64;
            self.found += self.table.iter().map(|n| u64::from(*n)).max().unwrap_or(0);
        }
    }
}

flame_module::export!(Case);
