//! Options are skipped by a length that may be 0.

use flame_module::{Batch, Init, Module, Out};
flame_module::manifest!();

pub struct Case {
    seen: u64,
    found: u64,
}

impl Module for Case {
    fn new(_: &Init) -> Self {
        Self { seen: 0, found: 0 }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            let bytes = packet.bytes();
            let mut at = 20;
            while at < bytes.len() {
                self.seen += 1;
                at += bytes[at] as usize;
            }
            self.found += self.seen;
        }
    }
}

flame_module::export!(Case);
