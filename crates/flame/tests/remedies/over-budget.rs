//! A table of a million places is searched for each packet.

use flame_module::{Batch, Init, Module, Out};
flame_module::manifest!();

pub struct Case {
    table: Vec<u32>,
    found: u64,
}

impl Module for Case {
    fn new(_: &Init) -> Self {
        Self { table: vec![0; 1 << 20], found: 0 }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            for place in self.table.iter().take(1 << 20) {
                self.found += u64::from(*place == packet.hash);
            }
        }
    }
}

flame_module::export!(Case);
