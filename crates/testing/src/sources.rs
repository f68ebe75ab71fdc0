//! Sources of packets from memory.

use crate::tcp_packet;
use bytes::Bytes;
use flame_abi::LinkType;
use flame_plan::Discipline;
use flame_source::{Next, Progress, RawBlock, RawPacket, Source, SourceError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A source of Ethernet packets from memory, as a capture file.
pub struct Memory {
    /// The packets that are left, with their times in nanoseconds.
    pub packets: Vec<(u64, Vec<u8>)>,
    pub per_block: usize,
}

impl Memory {
    /// Returns `n` TCP packets of `flows` flows, one millisecond apart, in blocks of 1,000.
    pub fn tcp(n: usize, flows: usize) -> Self {
        let packet = |i: usize| (1_000_000_000 + i as u64 * 1_000_000, tcp_packet((i % flows) as u16, 80));
        Self { packets: (0..n).map(packet).collect(), per_block: 1000 }
    }
}

impl Source for Memory {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        let n = self.packets.len().min(self.per_block);
        block.packets.clear();
        let mut data = Vec::new();
        for (ts_ns, bytes) in self.packets.drain(..n) {
            let len = bytes.len() as u32;
            let offset = data.len() as u32;
            block.packets.push(RawPacket {
                ts_ns,
                offset,
                cap_len: len,
                wire_len: len,
                link: LinkType::ETHERNET,
            });
            data.extend(bytes);
        }
        block.data = Bytes::from(data);
        block.shared_offset = None;
        Ok(if n == 0 { Next::End } else { Next::Packets })
    }

    fn discipline(&self) -> Discipline {
        Discipline::File
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// A source that gives each block a time after the one before, as a pipe does.
pub struct Paced<S> {
    pub source: S,
    pub every: Duration,
}

impl<S: Source> Source for Paced<S> {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        std::thread::sleep(self.every);
        self.source.next(block)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}

/// A source that does not wait for its readers.
pub struct Live<S>(pub S);

impl<S: Source> Source for Live<S> {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        self.0.next(block)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn discipline(&self) -> Discipline {
        Discipline::Link
    }
}

/// A source of blocks until the run is stopped, with a few thousand packets per second.
pub struct Endless {
    pub stop: Arc<AtomicBool>,
    /// The number of packets so far.
    pub delivered: Arc<AtomicU64>,
    pub is_live: bool,
}

impl Source for Endless {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Next::End);
        }
        std::thread::sleep(Duration::from_micros(300));
        self.delivered.fetch_add(50, Ordering::Relaxed);
        Memory { per_block: 50, ..Memory::tcp(50, 16) }.next(block)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn discipline(&self) -> Discipline {
        if self.is_live { Discipline::Link } else { Discipline::Pipe }
    }
}
