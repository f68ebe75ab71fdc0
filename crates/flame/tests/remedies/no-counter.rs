//! A table is probed until a free place.

use flame_module::{Batch, Init, Module, Out};
flame_module::manifest!();

pub struct Case {
    table: Box<[u32; 256]>,
    found: u64,
}

impl Module for Case {
    fn new(_: &Init) -> Self {
        Self { table: Box::new([0; 256]), found: 0 }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            let mut at = packet.hash as usize % 256;
            while self.table[at] != 0 {
                self.found += 1;
                at = (at + 1) % 256;
            }
            self.table[at] = packet.hash;
        }
    }
}

flame_module::export!(Case);
