//! Several workers on one source: the reading thread gives each block to all of them, one of them decodes it
//! and divides its packets, and each processes its part.
//!
//! The reading thread does little but read, because no second thread can help it, and waits for the slowest
//! worker after [`QUEUE`] blocks. A worker decodes blocks
//! ahead of those that it processes, in turn with the others, so that no one waits for another.

use crate::batches::POLL_INTERVAL;
use crate::error::RunError;
use crate::handle::Command;
use crate::outlet::{Event, Queue};
use crate::pipeline::Pipeline;
use crate::read::{Chunk, Consumer, decode};
use crate::stage::PipelineOptions;
use crate::wiring::{QUEUE, Wiring};
use crossbeam_channel::{Receiver, Sender, TryRecvError, select};
use flame_abi::Descriptor;
use flame_source::{RawBlock, RawPacket};
use flame_view::FlowHash;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The maximum number of blocks and ticks that a worker looks ahead for blocks that it decodes.
const AHEAD: usize = 4;

/// The rule by which packets are divided among workers: both directions of a flow reach the same worker, and
/// all packets without a flow one.
pub(crate) struct Partition {
    key: Option<FlowHash>,
    workers: usize,
    decapsulate: bool,
}

/// The packets of a block that belong to one worker.
#[derive(Clone, Default)]
struct Part {
    packets: Vec<RawPacket>,
    descriptors: Vec<Descriptor>,
}

/// A block for all workers.
pub(crate) struct SharedBlock {
    block: RawBlock,
    /// The number of blocks before it.
    number: usize,
    /// The fill of the source's buffer in thousandths.
    fill: u32,
    /// The part of each worker, once one of them has decoded the block.
    parts: OnceLock<Vec<Part>>,
}

impl Partition {
    pub(crate) fn new(wiring: &Wiring<'_>) -> Self {
        let key = wiring.options.dispatch_key.as_ref().map(FlowHash::new);
        Self { key, workers: wiring.shape.workers, decapsulate: wiring.options.decapsulate }
    }

    /// Computes the hash of each packet by which workers are chosen.
    pub(crate) fn hash(&self, descriptors: &[Descriptor], hashes: &mut Vec<u32>) {
        hashes.clear();
        hashes.extend(descriptors.iter().map(|d| d.hash));
        if let Some(key) = &self.key {
            key.apply(hashes.iter_mut());
        }
    }

    /// Returns the worker of packets with this hash.
    pub(crate) fn worker(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.workers as u64) >> 32) as usize
    }

    /// Decodes a block and divides its packets.
    fn divide(&self, block: &RawBlock) -> Vec<Part> {
        let mut descriptors = Vec::with_capacity(block.packets.len());
        let how = flame_decode::Options { decapsulate: self.decapsulate, without_hash: false };
        decode(block, how, &mut descriptors);
        let mut hashes = Vec::with_capacity(descriptors.len());
        self.hash(&descriptors, &mut hashes);
        // Nearly always enough, so that no list grows.
        let room = block.packets.len() / self.workers * 5 / 4 + 16;
        let part = || Part { packets: Vec::with_capacity(room), descriptors: Vec::with_capacity(room) };
        let mut parts: Vec<Part> = std::iter::repeat_with(part).take(self.workers).collect();
        for ((packet, descriptor), hash) in block.packets.iter().zip(descriptors).zip(hashes) {
            let worker = self.worker(hash);
            parts[worker].packets.push(*packet);
            parts[worker].descriptors.push(descriptor);
        }
        parts
    }
}

impl SharedBlock {
    /// Returns the parts of all workers. The first caller decodes the block; another one waits for it.
    fn parts(&self, partition: &Partition) -> &[Part] {
        self.parts.get_or_init(|| partition.divide(&self.block))
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
    number: usize,
    fill: u32,
}

impl Dispatcher {
    pub(crate) fn new(pipelines: Vec<Sender<Work>>) -> Self {
        Self { pipelines, number: 0, fill: 0 }
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

    fn chunk(&mut self, chunk: Chunk<'_>) -> Result<(), RunError> {
        // The packets' memory goes with them, so the pipelines copy the exposed bytes.
        let block =
            RawBlock { data: chunk.block.data.clone(), packets: chunk.packets.to_vec(), shared_offset: None };
        let parts = OnceLock::new();
        let shared = Arc::new(SharedBlock { block, number: self.number, fill: self.fill, parts });
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

/// The work of a worker, in order, of which it has looked at a part ahead.
struct Todo<'a> {
    partition: &'a Partition,
    worker: usize,
    queue: &'a Receiver<Work>,
    ahead: VecDeque<Work>,
}

impl Todo<'_> {
    /// Adds work, and decodes its block if that is this worker's turn.
    fn add(&mut self, work: Work) {
        if let Work::Block(shared) = &work
            && shared.number % self.partition.workers == self.worker
        {
            shared.parts(self.partition);
        }
        self.ahead.push_back(work);
    }

    /// Returns the next work, if there is any.
    fn next(&mut self) -> Result<Work, TryRecvError> {
        while self.ahead.len() < AHEAD {
            match self.queue.try_recv() {
                Ok(work) => self.add(work),
                // What has arrived is processed first.
                Err(e) => return self.ahead.pop_front().ok_or(e),
            }
        }
        self.ahead.pop_front().ok_or(TryRecvError::Empty)
    }

    /// Returns whether much waits.
    fn is_behind(&self) -> bool {
        self.queue.len() + self.ahead.len() >= QUEUE / 2
    }
}

/// The time after which a worker without work looks around, although no event requires it.
const LONG: Duration = Duration::from_secs(1);

/// Processes the parts of one worker until the end of the source.
pub(crate) fn worker_loop(
    wiring: &Wiring<'_>,
    options: PipelineOptions<'_>,
    partition: &Partition,
    (queue, commands): (&Receiver<Work>, &Receiver<Command>),
    outlet: &mut Queue<'_>,
) -> Result<(), RunError> {
    let worker = outlet.worker;
    let mut pipeline = Pipeline::new(wiring.modules, options, outlet)?;
    let mut todo = Todo { partition, worker, queue, ahead: VecDeque::with_capacity(AHEAD) };
    let mut now_ns = 0;
    loop {
        while let Ok(command) = commands.try_recv() {
            pipeline.command(command, now_ns, outlet)?;
        }
        let work = match todo.next() {
            Ok(work) => work,
            // No work arrived meanwhile.
            Err(TryRecvError::Empty) if pipeline.can_progress() => {
                pipeline.resume(false, outlet)?;
                continue;
            }
            Err(_) => {
                select! {
                    recv(queue) -> work => todo.add(work.map_err(|_| RunError::Broken)?),
                    recv(commands) -> command => match command {
                        Ok(command) => pipeline.command(command, now_ns, outlet)?,
                        // Nobody is left to send commands, but work, or its end, will arrive.
                        Err(_) => std::thread::yield_now(),
                    },
                    default(if pipeline.awaits_process() { POLL_INTERVAL } else { LONG }) => {
                        pipeline.regulate(None, outlet)?;
                        pipeline.resume(false, outlet)?;
                    }
                }
                continue;
            }
        };
        match work {
            Work::Block(shared) => {
                let Some(Part { packets, descriptors }) = shared.parts(partition).get(worker) else {
                    continue;
                };
                if packets.is_empty() {
                    continue;
                }
                // If little waits for this worker, others hold the source up.
                let fill = if todo.is_behind() { shared.fill } else { 0 };
                pipeline.regulate(Some(fill), outlet)?;
                now_ns = packets.iter().map(|p| p.ts_ns).fold(now_ns, u64::max);
                pipeline.chunk(Chunk { block: &shared.block, packets, descriptors }, outlet)?;
            }
            Work::Tick(at) => {
                now_ns = now_ns.max(at);
                pipeline.tick(at, outlet)?;
                outlet.send(Event::Tick { worker, now_ns: at })?;
            }
            Work::End(now_ns) => {
                let accounts = pipeline.end(now_ns, outlet)?;
                return outlet.send(Event::End { accounts, now_ns });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use crossbeam_channel::unbounded;
    use flame_abi::LinkType;

    /// Returns a block of one packet, which is none that can be decoded.
    fn block(number: usize) -> Arc<SharedBlock> {
        let packet = RawPacket { ts_ns: 0, offset: 0, cap_len: 4, wire_len: 4, link: LinkType::ETHERNET };
        let data = Bytes::from_static(&[0; 4]);
        let block = RawBlock { data, packets: vec![packet], shared_offset: None };
        Arc::new(SharedBlock { block, number, fill: 0, parts: OnceLock::new() })
    }

    #[test]
    fn a_worker_decodes_its_blocks_ahead_and_leaves_the_others() {
        let partition = Partition { key: None, workers: 2, decapsulate: false };
        let (sender, queue) = unbounded();
        let blocks: Vec<_> = (0..6).map(block).collect();
        blocks.iter().for_each(|shared| sender.send(Work::Block(shared.clone())).unwrap());
        let mut todo = Todo { partition: &partition, worker: 1, queue: &queue, ahead: VecDeque::new() };
        assert!(matches!(todo.next(), Ok(Work::Block(shared)) if shared.number == 0));
        let decoded: Vec<_> = blocks.iter().map(|shared| shared.parts.get().is_some()).collect();
        assert_eq!(decoded, [false, true, false, true, false, false]);
        // All work comes in order, and each packet belongs to one worker.
        for number in 1..6 {
            assert!(matches!(todo.next(), Ok(Work::Block(shared)) if shared.number == number));
        }
        assert!(matches!(todo.next(), Err(TryRecvError::Empty)));
        for shared in &blocks {
            let parts: Vec<_> = shared.parts(&partition).iter().map(|part| part.packets.len()).collect();
            assert_eq!(parts, [1, 0]);
        }
    }
}
