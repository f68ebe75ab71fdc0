//! Several workers on equal sources: each reads and decodes all packets, and processes those of its flows.
//!
//! To read and decode a packet again takes less time than to pass it from one processor to another, whose
//! caches do not have it. So nothing is passed on, and no worker waits for one that reads. What costs more is
//! read once (see `dispatch`).

use crate::dispatch::Partition;
use crate::position::{Position, Positions};
use crate::read::Chunk;
use crate::wiring::Wiring;
use flame_abi::Descriptor;
use flame_source::RawPacket;

/// The state that workers on equal sources share.
pub(crate) struct Copies {
    partition: Partition,
    positions: Positions,
}

impl Copies {
    pub(crate) fn new(wiring: &Wiring<'_>) -> Self {
        Self { partition: Partition::new(wiring), positions: Positions::new(wiring.shape.workers) }
    }

    /// Returns the position and the part of a worker.
    pub(crate) fn of(&self, worker: usize) -> (Position<'_>, Part<'_>) {
        (self.positions.of(worker), Part::new(&self.partition, worker))
    }
}

/// The part of one worker in all packets.
pub(crate) struct Part<'a> {
    partition: &'a Partition,
    worker: usize,
    hashes: Vec<u32>,
    packets: Vec<RawPacket>,
    descriptors: Vec<Descriptor>,
    /// A digest of the hashes and times of all packets. Workers with the same digest have divided the packets
    /// in the same way.
    pub(crate) digest: u64,
}

/// An odd constant of many bits (that of FxHash), so that a product depends on all bits below.
const FACTOR: u64 = 0x517c_c1b7_2722_0a95;

impl<'a> Part<'a> {
    fn new(partition: &'a Partition, worker: usize) -> Self {
        let (hashes, packets, descriptors) = Default::default();
        Self { partition, worker, hashes, packets, descriptors, digest: 0 }
    }

    /// Returns those of the packets that belong to the worker.
    pub(crate) fn of<'c>(&'c mut self, chunk: Chunk<'c>) -> Chunk<'c> {
        let Self { partition, worker, hashes, packets, descriptors, digest } = self;
        partition.hash(chunk.descriptors, hashes);
        packets.clear();
        descriptors.clear();
        for ((packet, descriptor), hash) in chunk.packets.iter().zip(chunk.descriptors).zip(hashes) {
            let now = u64::from(*hash) << 32 ^ packet.ts_ns;
            *digest = (digest.rotate_left(5) ^ now).wrapping_mul(FACTOR);
            if partition.worker(*hash) == *worker {
                packets.push(*packet);
                descriptors.push(*descriptor);
            }
        }
        Chunk { packets, descriptors, ..chunk }
    }
}
