//! The loop of a worker that takes its part of shared blocks.
//!
//! A worker decodes blocks ahead of those that it processes, in turn with the others, so that no one waits
//! for another.

use crate::error::RunError;
use crate::packets::batches::PROCESS_CHECK;
use crate::packets::commands::Command;
use crate::packets::dispatch::{Memory, Partition, Work};
use crate::packets::pipeline::Pipeline;
use crate::packets::read::Packets;
use crate::packets::shared_reader::Front;
use crate::packets::stage::PipelineOptions;
use crate::records::backpressure::BEHIND_CHECK;
use crate::records::event::{Event, QUEUE};
use crate::records::outlet::Queue;
use crate::run::wiring::Wiring;
use crossbeam_channel::{Receiver, TryRecvError, select};
use flame_execute::{Behind, Stop};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The maximum number of blocks and ticks that a worker looks ahead for blocks that it decodes.
const AHEAD: usize = 4;

/// The work of a worker, in order, of which it has looked at a part ahead.
struct Todo<'a, 's> {
    partition: &'a Partition,
    worker: usize,
    queue: &'a Receiver<Work>,
    /// The source, if the workers read it.
    front: Option<&'a Front<'s>>,
    ahead: VecDeque<Work>,
    memory: Memory,
}

impl Todo<'_, '_> {
    /// Adds work, and decodes its block if that is this worker's turn.
    fn add(&mut self, work: Work) {
        if let Work::Block(shared) = &work
            && shared.decoder == self.worker
        {
            shared.parts(self.partition, &mut self.memory);
        }
        self.ahead.push_back(work);
    }

    /// Returns the next work, if there is any.
    fn next(&mut self) -> Result<Option<Work>, RunError> {
        while self.ahead.len() < AHEAD {
            match self.queue.try_recv() {
                Ok(work) => self.add(work),
                Err(TryRecvError::Empty) => match self.front {
                    Some(front) if front.read(self.worker)? => {}
                    _ => break,
                },
                // What has arrived is processed first.
                Err(TryRecvError::Disconnected) if self.ahead.is_empty() => return Err(RunError::Broken),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        Ok(self.ahead.pop_front())
    }

    /// Returns whether much waits.
    fn is_behind(&self) -> bool {
        self.queue.len() + self.ahead.len() >= QUEUE / 2
    }
}

/// Longest wait for work of a worker that does not read the source.
const WORK_CHECK: Duration = Duration::from_secs(1);

/// Processes the parts of one worker until the end of the source.
pub(crate) fn worker_loop(
    wiring: &Wiring<'_>,
    options: PipelineOptions<'_>,
    (partition, front): (&Partition, Option<&Front<'_>>),
    (queue, commands): (&Receiver<Work>, &Receiver<Command>),
    outlet: &mut Queue<'_>,
) -> Result<(), RunError> {
    let worker = outlet.worker;
    // A worker that is behind has packets left that were read before the stop.
    let behind = Behind::default();
    let stop = Stop::after(options.stop, &behind);
    let mut pipeline = Pipeline::new(wiring.modules, PipelineOptions { stop: &stop, ..options }, outlet)?;
    let (ahead, memory) = (VecDeque::with_capacity(AHEAD), Memory::default());
    let mut todo = Todo { partition, worker, queue, front, ahead, memory };
    // A worker that reads waits until another one has less to do.
    let longest = if front.is_some() { BEHIND_CHECK.first } else { WORK_CHECK };
    let mut now_ns = 0;
    loop {
        while let Ok(command) = commands.try_recv() {
            pipeline.command(command, now_ns, outlet)?;
        }
        let work = match todo.next()? {
            Some(work) => work,
            // No work arrived meanwhile.
            None if pipeline.can_progress() => {
                pipeline.resume(false, outlet)?;
                continue;
            }
            None => {
                select! {
                    recv(queue) -> work => todo.add(work.map_err(|_| RunError::Broken)?),
                    recv(commands) -> command => match command {
                        Ok(command) => pipeline.command(command, now_ns, outlet)?,
                        // Nobody is left to send commands, but work, or its end, will arrive.
                        Err(_) => std::thread::yield_now(),
                    },
                    default(if pipeline.awaits_process() { PROCESS_CHECK.first } else { longest }) => {
                        pipeline.regulate(None, outlet)?;
                        pipeline.resume(false, outlet)?;
                    }
                }
                continue;
            }
        };
        let begun = Instant::now();
        match work {
            Work::Block(shared) => {
                let parts = shared.parts(partition, &mut todo.memory);
                if let Some(part) = parts.get(worker).filter(|part| !part.descriptors().is_empty()) {
                    // If little waits for this worker, others hold the source up.
                    let fill = if todo.is_behind() { shared.fill } else { 0 };
                    pipeline.regulate(Some(fill), outlet)?;
                    now_ns = now_ns.max(part.totals().latest_ns);
                    for (link, descriptors) in part.runs(0..part.descriptors().len()) {
                        pipeline.packets(Packets { block: &shared.block, link, descriptors }, outlet)?;
                    }
                }
                partition.keep(shared);
            }
            Work::Tick(at) => {
                now_ns = now_ns.max(at);
                pipeline.tick(at, outlet)?;
                let accounts = pipeline.released();
                outlet.send(Event::Tick { worker, now_ns: at, accounts })?;
            }
            Work::End(now_ns) => {
                stop.end_worker();
                let accounts = pipeline.end(now_ns, outlet)?;
                return outlet.send(Event::End { accounts, now_ns });
            }
        }
        if let Some(pace) = partition.paces.get(worker) {
            pace.note(begun.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::dispatch::SharedBlock;
    use bytes::Bytes;
    use crossbeam_channel::unbounded;
    use flame_abi::LinkType;
    use flame_source::{RawBlock, RawPacket};
    use std::sync::Arc;

    /// Returns a block with one undecodable packet.
    fn block(decoder: usize) -> Arc<SharedBlock> {
        let packet = RawPacket { ts_ns: 0, offset: 0, cap_len: 4, wire_len: 4, link: LinkType::ETHERNET };
        let data = Bytes::from_static(&[0; 4]);
        let block = RawBlock { data, packets: vec![packet], shared_offset: None };
        Arc::new(SharedBlock::new(block, decoder, 0))
    }

    #[test]
    fn a_worker_decodes_its_blocks_ahead_and_leaves_the_others() {
        let partition = Partition::new(2, None, false);
        let (sender, queue) = unbounded();
        let blocks: Vec<_> = (0..6).map(|number| block(number % 2)).collect();
        blocks.iter().for_each(|shared| sender.send(Work::Block(shared.clone())).unwrap());
        let (ahead, memory) = Default::default();
        let mut todo = Todo { partition: &partition, worker: 1, queue: &queue, front: None, ahead, memory };
        let mut is_next = |number: usize| {
            let next = todo.next().unwrap();
            matches!(next, Some(Work::Block(shared)) if Arc::ptr_eq(&shared, &blocks[number]))
        };
        assert!(is_next(0));
        let decoded: Vec<_> = blocks.iter().map(|shared| shared.is_decoded()).collect();
        assert_eq!(decoded, [false, true, false, true, false, false]);
        // All work comes in order, and each packet belongs to one worker.
        assert!((1..6).all(is_next));
        assert!(todo.next().unwrap().is_none());
        for shared in &blocks {
            let parts = shared.parts(&partition, &mut Memory::default());
            let parts: Vec<_> = parts.iter().map(|part| part.descriptors().len()).collect();
            assert_eq!(parts, [1, 0]);
        }
    }
}
