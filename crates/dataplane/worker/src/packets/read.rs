use crate::error::RunError;
use crate::packets::clock::Clock;
use crate::packets::closing::{Closing, Intervals, Look};
use crate::packets::commands::Progress;
use crate::records::report::Observer;
use flame_abi::{Descriptor, LinkType};
use flame_source::{Described, Frame, Next, RawBlock, Source, SourceError};
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maximum age in nanoseconds of packets that arrive after a live source was idle, because the kernel fills a
/// block for up to two of its timeouts. No tick may overtake them.
const KERNEL_DELAY_MAX_NS: u64 = 100_000_000;

/// Interval of periodic work between blocks (rotation, progress).
const ROTATE_CHECK: Duration = Duration::from_millis(10);

/// Packets of one block and of one link type, with their descriptors, whose `addr` is the offset in
/// `block.data`.
#[derive(Clone, Copy)]
pub struct Packets<'a> {
    pub block: &'a RawBlock,
    pub link: LinkType,
    pub descriptors: &'a [Descriptor],
}

/// A consumer of a source's packets and ticks, in order.
pub trait Consumer {
    fn packets(&mut self, packets: Packets<'_>) -> Result<(), RunError>;
    /// Follows the packets of a block, or those before a tick in it.
    fn pause(&mut self) -> Result<(), RunError> {
        Ok(())
    }
    fn tick(&mut self, now_ns: u64) -> Result<(), RunError>;
    fn end(&mut self, now_ns: u64) -> Result<(), RunError>;
    /// Returns whether the consumer decodes the packets itself. It gets them as `raw` then.
    fn decodes(&self) -> bool {
        false
    }

    /// Consumes packets without descriptors.
    fn raw(&mut self, _block: RawBlock) -> Result<(), RunError> {
        Err(RunError::Broken)
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

    /// Makes visible what was written, because nothing may follow for long.
    fn show(&mut self) -> Result<(), RunError> {
        Ok(())
    }

    /// Completes files that are due, about once in [`ROTATE_CHECK`].
    fn rotate(&mut self) -> Result<(), RunError> {
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
    /// The first gap whose intervals are one, from tick to tick.
    pub gap: Option<(u64, u64)>,
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
    described: Described,
    stats: ReadStats,
    closed: bool,
    /// The next step of the source, as it was when it was looked up last.
    look: Look,
    /// The tick at which the source has ended, on request.
    ended: Option<u64>,
    /// Whether what was written is visible.
    shown: bool,
    /// The time of the last look around.
    looked: Instant,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(source: &'a mut dyn Source, options: ReadOptions<'a>) -> Self {
        let described = Described::with_capacity(flame_abi::MAX_BLOCK_PACKETS);
        let clock = Clock::new(options.tick_ns);
        let (block, stats) = Default::default();
        let (looked, look, ended) = (Instant::now(), Look::Goes, None);
        source.tell_when_quiet();
        let (closed, shown) = (false, true);
        Self { source, options, clock, block, described, stats, closed, look, ended, shown, looked }
    }

    /// Reads a block, or waits for one as long as the source does, and gives it to the consumer. Returns
    /// false if nothing is left to read.
    pub(crate) fn step(
        &mut self,
        consumer: &mut dyn Consumer,
        observer: &mut dyn Observer,
    ) -> Result<bool, RunError> {
        let Self { source, options, clock, block, described, stats, closed, look, ended, shown, looked } =
            self;
        if stats.packets >= options.count || ended.is_some() {
            return Ok(false);
        }
        consumer.commands(clock.now)?;
        let present = Instant::now();
        let looks = present.duration_since(*looked) >= ROTATE_CHECK;
        if looks {
            *looked = present;
            consumer.rotate()?;
        }
        let before = std::mem::replace(look, options.look());
        if let Look::Until(until_ns) = *look
            && before != *look
        {
            observer.stopping(until_ns);
        }
        if !*closed && *look == Look::Ends {
            if !source.close() {
                return Ok(false);
            }
            *closed = true;
        }
        while !source.is_ready() && *look != Look::Ends && options.look() == *look && consumer.resume()? {
            consumer.commands(clock.now)?;
        }
        let decodes = consumer.decodes();
        let next = match decodes {
            true => source.next(block),
            false => {
                let without_hash = !consumer.reads_hash();
                let how = flame_decode::Options { decapsulate: options.decapsulate, without_hash };
                source.describe(block, described, how)
            }
        };
        if let Some(notice) = source.take_notice() {
            observer.source(&notice);
        }
        match next {
            Ok(Next::Packets) => {}
            Ok(Next::End) => return Ok(false),
            Ok(Next::Quiet) => {
                if !std::mem::replace(shown, true) {
                    consumer.show()?;
                }
                return Ok(true);
            }
            Ok(Next::Idle) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let past = (now.as_nanos() as u64).saturating_sub(KERNEL_DELAY_MAX_NS);
                consumer.regulate(None)?;
                while ended.is_none()
                    && let Some(tick) = clock.advance(past)
                {
                    consumer.tick(tick)?;
                    *ended = options.closing.pass(tick).then_some(tick);
                }
                return Ok(true);
            }
            Err(e) => {
                stats.failed = Some(e);
                return Ok(false);
            }
        }
        let left = usize::try_from(options.count - stats.packets).unwrap_or(usize::MAX);
        let (packets, totals) = if decodes {
            block.packets.truncate(left);
            (block.packets.len() as u64, block.totals())
        } else {
            described.truncate(left);
            (described.descriptors().len() as u64, described.totals())
        };
        stats.bytes += totals.bytes;
        stats.packets += packets;
        *shown = false;
        // Before any pipeline can count them as offered.
        let source_progress = source.progress();
        options.progress.add(packets, totals.bytes, source_progress.kernel_drops.unwrap_or(0));
        consumer.regulate(Some(source.fill()))?;
        let ends = |tick| options.closing.pass(tick);
        *ended = match decodes {
            true => send_raw((block, totals.latest_ns), clock, consumer, ends)?,
            false => send_ticking((block, described), clock, consumer, ends)?,
        };
        if looks {
            observer.progress(stats.packets, source_progress);
        }
        Ok(true)
    }

    /// Ends the consumer, after the last block.
    pub(crate) fn end(&mut self, consumer: &mut dyn Consumer) -> Result<ReadStats, RunError> {
        let has_intervals = self.options.interval_ns > 0;
        let end = if has_intervals { self.clock.border() } else { self.clock.now };
        consumer.end(self.ended.unwrap_or(end))?;
        let mut stats = std::mem::take(&mut self.stats);
        stats.gap = self.clock.gap.filter(|_| has_intervals);
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

/// Passes the packets of a block on, with the ticks that fall between them, until a tick that `ends` them.
/// Returns that tick.
pub(crate) fn send_ticking(
    (block, described): (&RawBlock, &Described),
    clock: &mut Clock,
    consumer: &mut dyn Consumer,
    ends: impl Fn(u64) -> bool,
) -> Result<Option<u64>, RunError> {
    let times = described.descriptors().iter().map(|d| d.ts_ns);
    let send = |consumer: &mut dyn Consumer, range| {
        for (link, descriptors) in described.runs(range) {
            consumer.packets(Packets { block, link, descriptors })?;
        }
        consumer.pause()
    };
    between_ticks((times, described.totals().latest_ns), clock, consumer, (send, ends))
}

/// Passes the packets of a block on that the consumer decodes, as [`send_ticking`]. `latest_ns` is the latest
/// of their times.
fn send_raw(
    (block, latest_ns): (&mut RawBlock, u64),
    clock: &mut Clock,
    consumer: &mut dyn Consumer,
    ends: impl Fn(u64) -> bool,
) -> Result<Option<u64>, RunError> {
    let packets = Vec::with_capacity(flame_abi::MAX_BLOCK_PACKETS);
    let block = std::mem::replace(block, RawBlock { packets, ..RawBlock::default() });
    // The packets' memory goes with them, so the pipelines copy the exposed bytes.
    let block = RawBlock { shared_offset: None, ..block };
    // Nearly always. Otherwise the list of packets is copied.
    if clock.quiet(latest_ns) {
        return consumer.raw(block).map(|()| None);
    }
    let times = block.packets.iter().map(|packet| packet.ts_ns);
    let send = |consumer: &mut dyn Consumer, range: Range<usize>| {
        let packets = block.packets[range].to_vec();
        consumer.raw(RawBlock { data: block.data.clone(), packets, shared_offset: None })
    };
    between_ticks((times, latest_ns), clock, consumer, (send, ends))
}

/// Passes packets on with `send`, in parts between which ticks fall, until a tick that `ends` them, which it
/// returns. `times` are those of the packets, with the latest one.
fn between_ticks(
    (times, latest_ns): (impl ExactSizeIterator<Item = u64>, u64),
    clock: &mut Clock,
    consumer: &mut dyn Consumer,
    (send, ends): (impl Fn(&mut dyn Consumer, Range<usize>) -> Result<(), RunError>, impl Fn(u64) -> bool),
) -> Result<Option<u64>, RunError> {
    let (mut start, end) = (0, times.len());
    if !clock.quiet(latest_ns) {
        for (i, ts_ns) in times.enumerate() {
            while let Some(tick) = clock.advance(ts_ns) {
                if start < i {
                    send(consumer, start..i)?;
                }
                consumer.tick(tick)?;
                if ends(tick) {
                    return Ok(Some(tick));
                }
                start = i;
            }
        }
    }
    if start < end {
        send(consumer, start..end)?;
    }
    Ok(None)
}

pub struct ReadOptions<'a> {
    pub decapsulate: bool,
    pub tick_ns: u64,
    /// The intervals into which a capture is divided in nanoseconds, or 0. The run ends with the last one,
    /// as on the link that was captured.
    pub interval_ns: u64,
    /// The maximum number of packets to read.
    pub count: u64,
    /// The end of the run, on request.
    pub(crate) closing: &'a Closing<'a>,
    /// Totals of what was read, to which this source adds.
    pub(crate) progress: &'a Progress,
    /// The intervals of the run's modules, which an end on request completes.
    pub(crate) intervals: &'a dyn Intervals,
}

impl ReadOptions<'_> {
    /// Returns what the source does next.
    fn look(&self) -> Look {
        self.closing.look(|| self.intervals.is_open())
    }
}
