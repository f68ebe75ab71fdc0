use crate::clock::Clock;
use crate::error::RunError;
use crate::handle::Progress;
use crate::report::Observer;
use flame_abi::{Descriptor, LinkType};
use flame_source::{Frame, Next, RawBlock, RawPacket, Source, SourceError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The maximum age in nanoseconds of packets that arrive after a live source was idle, because the kernel
/// fills a block for up to two of its timeouts. No tick may overtake them.
const HELD_BACK_NS: u64 = 100_000_000;

/// Packets of one block with their descriptors, between two ticks.
#[derive(Clone, Copy)]
pub struct Chunk<'a> {
    pub block: &'a RawBlock,
    pub packets: &'a [RawPacket],
    /// The descriptors, whose `addr` is the offset in `block.data`, unless the consumer decodes.
    pub descriptors: &'a [Descriptor],
}

/// Packets of one block and of one link type, with their descriptors.
#[derive(Clone, Copy)]
pub struct Packets<'a> {
    pub block: &'a RawBlock,
    pub link: LinkType,
    pub descriptors: &'a [Descriptor],
}

/// A consumer of a source's packets and ticks, in order.
pub trait Consumer {
    fn chunk(&mut self, chunk: Chunk<'_>) -> Result<(), RunError>;
    /// Takes a block without ticks, if the consumer decodes the packets itself.
    fn whole(&mut self, block: RawBlock) -> Result<(), RunError> {
        self.chunk(Chunk { block: &block, packets: &block.packets, descriptors: &[] })
    }
    fn tick(&mut self, now_ns: u64) -> Result<(), RunError>;
    fn end(&mut self, now_ns: u64) -> Result<(), RunError>;
    /// Returns whether the consumer decodes the packets itself. Its chunks have no descriptors.
    fn decodes(&self) -> bool {
        false
    }

    /// Returns whether the flow hashes of descriptors are read. If not, they are 0.
    fn reads_hash(&self) -> bool {
        true
    }

    /// Announces the packets of the source's next block, when `fill` thousandths of its buffer wait, or that
    /// none waits.
    fn regulate(&mut self, _fill: Option<u32>) -> Result<(), RunError> {
        Ok(())
    }
    /// Resumes paused calls while no packet arrives. Returns whether any are left.
    fn resume(&mut self) -> Result<bool, RunError> {
        Ok(false)
    }

    /// Executes waiting commands, between two blocks.
    fn commands(&mut self, _now_ns: u64) -> Result<(), RunError> {
        Ok(())
    }
}

/// The numbers of packets and bytes that were read.
#[derive(Debug, Default)]
pub struct ReadStats {
    pub packets: u64,
    pub bytes: u64,
    /// The error that ended the source early. Packets before it are still processed.
    pub failed: Option<SourceError>,
}

/// Reads `source` to its end, to `count` packets, or until `stop` (of a live source, the packets that had
/// arrived by then). Decodes each packet once, unless the consumer does.
pub fn read_loop(
    source: &mut dyn Source,
    consumer: &mut dyn Consumer,
    observer: &mut dyn Observer,
    options: ReadOptions<'_>,
) -> Result<ReadStats, RunError> {
    let mut reading = Reading::new(source, options);
    while reading.step(consumer, observer)? {}
    reading.end(consumer)
}

/// A source that is read block by block, and how far it was read.
pub(crate) struct Reading<'a> {
    source: &'a mut dyn Source,
    options: ReadOptions<'a>,
    clock: Clock,
    block: RawBlock,
    descriptors: Vec<Descriptor>,
    stats: ReadStats,
    closed: bool,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(source: &'a mut dyn Source, options: ReadOptions<'a>) -> Self {
        let (block, descriptors) = (RawBlock::default(), Vec::with_capacity(flame_abi::MAX_BLOCK_PACKETS));
        let clock = Clock::new(options.tick_ns);
        Self { source, options, clock, block, descriptors, stats: ReadStats::default(), closed: false }
    }

    /// Reads a block, or waits for one as long as the source does, and gives it to the consumer. Returns false
    /// if nothing is left to read.
    pub(crate) fn step(
        &mut self,
        consumer: &mut dyn Consumer,
        observer: &mut dyn Observer,
    ) -> Result<bool, RunError> {
        let Self { source, options, clock, block, descriptors, stats, closed } = self;
        if stats.packets >= options.count {
            return Ok(false);
        }
        consumer.commands(clock.now)?;
        if !*closed && options.stop.load(Ordering::Relaxed) {
            if !source.close() {
                return Ok(false);
            }
            *closed = true;
        }
        while !source.is_ready() && !options.stop.load(Ordering::Relaxed) && consumer.resume()? {
            consumer.commands(clock.now)?;
        }
        let described = match consumer.decodes() {
            true => source.next(block).map(|next| (next, block.totals())),
            false => {
                let without_hash = !consumer.reads_hash();
                let how = flame_decode::Options { decapsulate: options.decapsulate, without_hash };
                source.describe(block, descriptors, how)
            }
        };
        if let Some(text) = source.take_notice() {
            observer.source(&text);
        }
        let mut totals = match described {
            Ok((Next::Packets, totals)) => totals,
            Ok((Next::End, _)) => return Ok(false),
            Ok((Next::Idle, _)) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let past = (now.as_nanos() as u64).saturating_sub(HELD_BACK_NS);
                consumer.regulate(None)?;
                if let Some(tick) = clock.advance(past) {
                    consumer.tick(tick)?;
                }
                return Ok(true);
            }
            Err(e) => {
                stats.failed = Some(e);
                return Ok(false);
            }
        };
        let wanted = (options.count - stats.packets).min(block.packets.len() as u64) as usize;
        if wanted < block.packets.len() {
            block.packets.truncate(wanted);
            descriptors.truncate(wanted);
            totals = block.totals();
        }
        stats.bytes += totals.bytes;
        stats.packets += wanted as u64;
        // Before any pipeline can count them as offered.
        let source_progress = source.progress();
        options.progress.add(wanted as u64, totals.bytes, source_progress.kernel_drops);
        consumer.regulate(Some(source.fill()))?;
        if consumer.decodes() && clock.quiet(totals.latest_ns) {
            let packets = Vec::with_capacity(flame_abi::MAX_BLOCK_PACKETS);
            consumer.whole(std::mem::replace(block, RawBlock { packets, ..RawBlock::default() }))?;
        } else {
            send_ticking((block, descriptors), totals.latest_ns, clock, consumer)?;
        }
        observer.progress(stats.packets, source_progress);
        Ok(true)
    }

    /// Ends the consumer, after the last block.
    pub(crate) fn end(&mut self, consumer: &mut dyn Consumer) -> Result<ReadStats, RunError> {
        consumer.end(self.clock.now)?;
        let mut stats = std::mem::take(&mut self.stats);
        match stats.failed.take() {
            // No packet was processed that could be reported.
            Some(e) if stats.packets == 0 => Err(e.into()),
            failed => Ok(ReadStats { failed, ..stats }),
        }
    }
}

/// Decodes packets that lie apart, of one link type, or only lists them if their headers are not read.
/// Returns their bytes, and the latest of their times.
pub(crate) fn decode_apart(
    packets: &[Frame<'_>],
    link: LinkType,
    options: Option<flame_decode::Options>,
    descriptors: &mut Vec<Descriptor>,
) -> (u64, u64) {
    let (mut sum, mut latest) = (0, 0);
    descriptors.resize(packets.len(), Descriptor::default());
    for (p, d) in packets.iter().zip(descriptors) {
        let cap_len = p.bytes.len() as u32;
        sum += u64::from(cap_len);
        latest = p.ts_ns.max(latest);
        match options {
            Some(options) => {
                (d.ts_ns, d.addr) = (p.ts_ns, 0);
                flame_decode::decode_into(link, p.bytes, p.wire_len, options, d);
            }
            None => {
                *d = Descriptor { ts_ns: p.ts_ns, wire_len: p.wire_len, cap_len, ..Descriptor::default() };
            }
        }
    }
    (sum, latest)
}

/// Passes the packets of a block on, with the ticks that fall between them. `latest` is the latest of their
/// times.
pub(crate) fn send_ticking(
    (block, descriptors): (&RawBlock, &[Descriptor]),
    latest: u64,
    clock: &mut Clock,
    consumer: &mut dyn Consumer,
) -> Result<(), RunError> {
    let mut start = 0;
    let ticking = if clock.quiet(latest) { 0..0 } else { 0..block.packets.len() };
    for i in ticking {
        if let Some(tick) = clock.advance(block.packets[i].ts_ns) {
            send(consumer, block, descriptors, start..i)?;
            consumer.tick(tick)?;
            start = i;
        }
    }
    send(consumer, block, descriptors, start..block.packets.len())
}

fn send(
    consumer: &mut dyn Consumer,
    block: &RawBlock,
    descriptors: &[Descriptor],
    range: std::ops::Range<usize>,
) -> Result<(), RunError> {
    if range.is_empty() {
        return Ok(());
    }
    let descriptors = descriptors.get(range.clone()).unwrap_or_default();
    consumer.chunk(Chunk { block, packets: &block.packets[range], descriptors })
}

pub struct ReadOptions<'a> {
    pub decapsulate: bool,
    pub tick_ns: u64,
    /// The maximum number of packets to read.
    pub count: u64,
    pub stop: &'a AtomicBool,
    /// The place where packets are counted.
    pub(crate) progress: &'a Progress,
}
