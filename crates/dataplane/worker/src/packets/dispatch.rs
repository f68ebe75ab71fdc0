//! Several workers on one source: each block is given to all of them, one of them decodes it and divides its
//! packets, and each processes its part.
//!
//! The workers read the source themselves (`front`) unless it waits for packets. Then a thread reads, which
//! waits for the slowest worker after `QUEUE` blocks.

use crate::error::RunError;
use crate::packets::read::{Consumer, Packets};
use crossbeam_channel::Sender;
use flame_source::{Described, RawBlock};
use flame_view::FlowHash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// The number of blocks that wait for one worker beyond which no worker reads more. Fewer would not last
/// until the system moves one of two threads that share a processor to one that waits.
const ROOM: usize = 64;
/// Target processing time of the blocks queued for one worker, which it still processes after a stop.
const QUEUED_TARGET: Duration = Duration::from_millis(100);
/// The number of bytes of large buffers beyond which no worker reads more while any has something to do.
const LARGE: usize = 64 << 20;

/// The maximum number of blocks of which memory is kept: as many as may wait for one worker.
const KEPT: usize = ROOM;

/// The rule by which packets are divided among workers: both directions of a flow reach the same worker, and
/// all packets without a flow one.
pub(crate) struct Partition {
    key: Option<FlowHash>,
    workers: usize,
    decapsulate: bool,
    pub(crate) paces: Arc<[Pace]>,
    /// The parts of blocks that no worker needs any more. The one that needs a block last is rarely the one
    /// that decoded it.
    spare: Mutex<Vec<Vec<Described>>>,
}

/// The time that one worker takes for a block or a tick.
pub(crate) struct Pace(AtomicU64);

impl Pace {
    /// Creates the pace of a worker that is not known to be fast.
    fn new() -> Self {
        Self(AtomicU64::new(QUEUED_TARGET.as_nanos() as u64 / 4))
    }

    /// Records the time that one took. Longer ones count more: what waits for the worker must not last.
    pub(crate) fn note(&self, took: Duration) {
        let (took, before) = (took.as_nanos() as u64, self.0.load(Ordering::Relaxed));
        let now = match took > before {
            true => before + (took - before) / 2,
            false => before - (before - took) / 8,
        };
        self.0.store(now, Ordering::Relaxed);
    }

    /// Returns the number of blocks that may wait for the worker.
    fn room(&self) -> usize {
        let fits = QUEUED_TARGET.as_nanos() as u64 / self.0.load(Ordering::Relaxed).max(1);
        usize::try_from(fits).unwrap_or(ROOM).clamp(1, ROOM)
    }
}

/// A block for all workers.
pub(crate) struct SharedBlock {
    pub(crate) block: RawBlock,
    /// The worker that decodes it ahead of its work.
    pub(crate) decoder: usize,
    /// The fill of the source's buffer in thousandths.
    pub(crate) fill: u32,
    /// The part of each worker, once one of them has decoded the block.
    parts: OnceLock<Vec<Described>>,
}

impl Partition {
    pub(crate) fn new(workers: usize, key: Option<FlowHash>, decapsulate: bool) -> Self {
        let paces = (0..workers).map(|_| Pace::new()).collect();
        Self { key, workers, decapsulate, paces, spare: Mutex::default() }
    }

    /// Keeps the memory of a block, if no other worker needs it.
    pub(crate) fn keep(&self, shared: Arc<SharedBlock>) {
        let parts = Arc::into_inner(shared).and_then(|shared| shared.parts.into_inner());
        if let (Some(parts), Ok(mut spare)) = (parts, self.spare.lock())
            && spare.len() < KEPT
        {
            spare.push(parts);
        }
    }

    /// Returns the memory of earlier parts, the last first, which is most likely in a cache.
    fn take(&self) -> Vec<Described> {
        let kept = self.spare.lock().ok().and_then(|mut spare| spare.pop());
        kept.unwrap_or_else(|| {
            let one = || Described::with_capacity(flame_abi::MAX_BLOCK_PACKETS);
            std::iter::repeat_with(one).take(self.workers).collect()
        })
    }

    /// Returns the worker of packets with this hash.
    fn worker(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.workers as u64) >> 32) as usize
    }

    /// Decodes a block and divides its packets.
    fn divide(&self, block: &RawBlock, Memory { described, hashes }: &mut Memory) -> Vec<Described> {
        let how = flame_decode::Options { decapsulate: self.decapsulate, without_hash: false };
        block.describe(how, described);
        let count = described.descriptors().len();
        let mut parts = self.take();
        parts.iter_mut().for_each(Described::clear);
        for (link, descriptors) in described.runs(0..count) {
            hashes.clear();
            hashes.extend(descriptors.iter().map(|d| d.hash));
            if let Some(key) = &self.key {
                key.apply(hashes.iter_mut());
            }
            let mut adding: Vec<_> = parts.iter_mut().map(|p| p.adding(link, descriptors.len())).collect();
            descriptors.iter().zip(&*hashes).for_each(|(d, hash)| adding[self.worker(*hash)].add(d));
        }
        parts
    }
}

/// A worker's memory of the block that it decoded last. New memory would be in no cache.
#[derive(Default)]
pub(crate) struct Memory {
    described: Described,
    hashes: Vec<u32>,
}

impl SharedBlock {
    pub(crate) fn new(block: RawBlock, decoder: usize, fill: u32) -> Self {
        Self { block, decoder, fill, parts: OnceLock::new() }
    }

    /// Returns whether a worker has decoded the block.
    #[cfg(test)]
    pub(crate) fn is_decoded(&self) -> bool {
        self.parts.get().is_some()
    }

    /// Returns the parts of all workers. The first caller decodes the block; another one waits for it.
    pub(crate) fn parts(&self, partition: &Partition, memory: &mut Memory) -> &[Described] {
        self.parts.get_or_init(|| partition.divide(&self.block, memory))
    }
}

/// The work of one worker.
pub(crate) enum Work {
    Block(Arc<SharedBlock>),
    Tick(u64),
    End(u64),
}

/// The consumer that gives all blocks to all workers.
pub(crate) struct Dispatcher {
    pipelines: Vec<Sender<Work>>,
    /// The worker that decodes the next block, if it is not the next one in turn.
    pub(crate) decoder: Option<usize>,
    number: usize,
    fill: u32,
    paces: Arc<[Pace]>,
}

impl Dispatcher {
    pub(crate) fn new(pipelines: Vec<Sender<Work>>, partition: &Partition) -> Self {
        Self { pipelines, decoder: None, number: 0, fill: 0, paces: partition.paces.clone() }
    }

    /// Returns whether no worker has more than enough to do. The source's blocks hold `large` bytes of large
    /// buffers.
    pub(crate) fn has_room(&self, large: usize) -> bool {
        let mut all = self.pipelines.iter().zip(&*self.paces);
        match large < LARGE {
            true => all.all(|(pipeline, pace)| pipeline.len() < pace.room()),
            false => all.all(|(pipeline, _)| pipeline.is_empty()),
        }
    }

    /// Lets the workers find that nothing more comes.
    pub(crate) fn close(&mut self) {
        self.pipelines.clear();
    }

    fn all(&self, work: impl Fn() -> Work) -> Result<(), RunError> {
        self.pipelines.iter().try_for_each(|p| p.send(work()).map_err(|_| RunError::Broken))
    }
}

impl Consumer for Dispatcher {
    fn decodes(&self) -> bool {
        true
    }

    fn regulate(&mut self, fill: Option<u32>) -> Result<(), RunError> {
        self.fill = fill.unwrap_or(0);
        Ok(())
    }

    fn packets(&mut self, _: Packets<'_>) -> Result<(), RunError> {
        Err(RunError::Broken)
    }

    fn raw(&mut self, block: RawBlock) -> Result<(), RunError> {
        let decoder = self.decoder.unwrap_or(self.number % self.pipelines.len().max(1));
        let shared = Arc::new(SharedBlock::new(block, decoder, self.fill));
        self.number += 1;
        self.all(|| Work::Block(shared.clone()))
    }

    fn tick(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.all(|| Work::Tick(now_ns))
    }

    fn end(&mut self, now_ns: u64) -> Result<(), RunError> {
        self.all(|| Work::End(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks that wait for a worker last about as long, however many they are.
    #[test]
    fn slow_workers_have_room_for_few_blocks() {
        let room = |micros: &[u64]| {
            let pace = Pace::new();
            micros.iter().for_each(|us| pace.note(Duration::from_micros(*us)));
            pace.room()
        };
        assert_eq!(room(&[]), 4);
        assert_eq!(room(&[300; 100]), ROOM);
        assert!((9..=10).contains(&room(&[10_000; 100])));
        assert_eq!(room(&[3_000_000; 3]), 1);
        // One slow block counts at once, and is forgotten.
        let mut all = vec![300; 100];
        all.push(20_000);
        assert!(room(&all) < ROOM / 4);
        all.extend([300; 40]);
        assert_eq!(room(&all), ROOM);
    }
}
