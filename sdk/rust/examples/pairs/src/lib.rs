//! Pairs of hosts in a map that grows with them. No pair is forgotten, so the module has no bound and is
//! metered.

use flame_module::{Batch, HashMap, Init, Ip, Module, Out, Progress};

flame_module::manifest!();

pub struct Pairs {
    packets: HashMap<(Ip, Ip), u64>,
}

impl Module for Pairs {
    fn new(_: &Init) -> Self {
        Self { packets: HashMap::new() }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            if let (Some(src), Some(dst)) = (packet.src(), packet.dst()) {
                *self.packets.entry((src, dst)).or_default() += 1;
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        let (mut packets, mut most) = (0, 0);
        for (_, count) in self.packets.iter() {
            packets += count;
            most = most.max(*count);
        }
        out.write(&Total { pairs: self.packets.len() as u64, packets, most });
        Progress::Done
    }
}

flame_module::export!(Pairs);
