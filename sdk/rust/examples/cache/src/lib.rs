//! A cache of packets, as Active Reliable Multicast keeps them in routers to repair losses: it requests more
//! memory while fewer than nine of ten packets are found in it, and drops its oldest half under pressure.

use flame_module::{Batch, Init, Module, Out, Progress, memory};
use std::collections::VecDeque;

flame_module::manifest!();

/// The packets of a part of the cache. A packet has one place there, by its hash.
const PLACES: usize = 64;

#[derive(Clone, Copy)]
struct Kept {
    hash: u64,
    bytes: [u8; 1528],
}

const NONE: Kept = Kept { hash: 0, bytes: [0; 1528] };

#[derive(Default)]
pub struct Cache {
    /// The oldest first. A new part begins when this many packets are in the last one.
    parts: VecDeque<Vec<Kept>>,
    filled: usize,
    packets: u64,
    found: u64,
}

impl Cache {
    /// Begins a part: in new memory if more is needed and there is some, or in the memory of the oldest.
    fn begin(&mut self) {
        let needs_more = self.found * 10 < self.packets * 9;
        if needs_more && memory::reserve(PLACES * size_of::<Kept>()) {
            self.parts.push_back(vec![NONE; PLACES]);
        } else if let Some(mut oldest) = self.parts.pop_front() {
            oldest.fill(NONE);
            self.parts.push_back(oldest);
        }
        self.filled = 0;
    }
}

impl Module for Cache {
    fn new(_: &Init) -> Self {
        Self { filled: PLACES, ..Self::default() }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            let bytes = packet.bytes();
            let hash = bytes
                .iter()
                .fold(1, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
            // The upper bits depend on all bits of all bytes.
            let place = (hash >> 48) as usize % PLACES;
            self.packets += 1;
            if self.parts.iter().any(|part| part[place].hash == hash) {
                self.found += 1;
                continue;
            }
            if self.filled == PLACES {
                self.begin();
            }
            if let Some(newest) = self.parts.back_mut() {
                let length = bytes.len().min(NONE.bytes.len());
                newest[place].hash = hash;
                newest[place].bytes[..length].copy_from_slice(&bytes[..length]);
                self.filled += 1;
            }
        }
    }

    fn pressure(&mut self, free: u64, out: &mut Out) {
        self.parts.drain(..self.parts.len() / 2);
        out.write(&Halved { free, parts: self.parts.len() as u32 });
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.write(&Total { packets: self.packets, found: self.found });
        Progress::Done
    }
}

flame_module::export!(Cache, pressure);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn the_oldest_half_is_dropped() {
        let mut traffic = Traffic::default();
        for n in 0..4 * PLACES {
            traffic.udp(&format!("10.0.{}.{}:1", n / 256, n % 256), "10.0.0.2:2");
        }
        let mut native = Native::<Cache>::new(&Parameters::default(), 0);
        native.run(&traffic);
        assert_eq!((native.fast.parts.len(), native.fast.found), (4, 0));
        native.pressure(0);
        assert_eq!(native.of::<Halved>(), [Halved { free: 0, parts: 2 }]);
        // Packets of the newest half are still there.
        let newest = &traffic.descriptors()[3 * PLACES..];
        native.packets(newest, traffic.memory());
        assert!(native.fast.found > PLACES as u64 / 3, "{}", native.fast.found);
        native.end(0);
        assert_eq!(native.of::<Total>()[0].packets, 5 * PLACES as u64);
    }
}
