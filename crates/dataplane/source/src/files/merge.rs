//! Merges several files into one source, in time order.

use super::ahead::Ahead;
use super::reader::Reader;
use super::spares::Spares;
use crate::{Damage, Next, Progress, RawBlock, Source, SourceError};
use bytes::Bytes;
use flame_abi::{MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS};
use std::sync::{Arc, Weak};

/// The number of consecutive packets of one file from which on they are returned without a copy.
const LONG_RUN: usize = 32;

/// The files of which any thread may read parts before they are needed. Those that have ended are closed.
#[derive(Default)]
pub struct Help {
    files: Vec<Weak<Ahead>>,
    spares: Arc<Spares>,
}

impl Help {
    /// Returns the number of bytes of large buffers in which packets lie that somebody holds.
    pub fn large(&self) -> usize {
        self.spares.large()
    }

    /// Reads a part of a file. Returns false if enough was read.
    pub fn read(&self) -> bool {
        self.files.iter().filter_map(Weak::upgrade).any(|file| file.help())
    }

    /// Returns whether the source would wait for a part that another thread is reading.
    pub fn is_reading(&self) -> bool {
        matches!(self.files.as_slice(), [only] if only.upgrade().is_some_and(|file| file.is_reading()))
    }
}

/// The maximum number of files that are read ahead, of which a helper looks at each.
const MOST_HELPED: usize = 64;

pub struct Files {
    files: Vec<Open>,
    /// The number of bytes of files that have ended.
    ended_bytes: u64,
    damage: Vec<Damage>,
    /// Whether one of the files is a pipe or a device.
    waits: bool,
    /// The buffers of all files.
    spares: Arc<Spares>,
}

struct Open {
    reader: Reader,
    block: RawBlock,
    /// The index of the next packet in `block`.
    next: usize,
}

impl Open {
    /// Returns the time of the next packet.
    fn time(&self) -> u64 {
        self.block.packets[self.next].ts_ns
    }

    /// Returns the number of following packets, at most `most`, that are not newer than `until`.
    fn run(&self, until: u64, most: usize) -> usize {
        self.block.packets[self.next..].iter().take(most).take_while(|p| p.ts_ns <= until).count()
    }
}

impl Files {
    pub fn new(readers: Vec<Reader>, damage: Vec<Damage>, spares: Arc<Spares>) -> Self {
        let waits = readers.iter().any(Reader::waits);
        let open = |reader| Open { reader, block: RawBlock::default(), next: 0 };
        let files = readers.into_iter().map(open).collect();
        Self { files, ended_bytes: 0, damage, waits, spares }
    }

    /// Ensures that file `i` has a next packet, or removes the file.
    fn refill(&mut self, i: usize) -> Result<bool, SourceError> {
        let file = &mut self.files[i];
        if file.next < file.block.packets.len() {
            return Ok(true);
        }
        file.next = 0;
        if file.reader.next(&mut file.block, &mut self.damage)? {
            return Ok(true);
        }
        self.ended_bytes += file.reader.consumed().0;
        self.files.remove(i);
        Ok(false)
    }

    fn fill_all(&mut self) -> Result<(), SourceError> {
        let mut i = 0;
        while i < self.files.len() {
            if self.refill(i)? {
                i += 1;
            }
        }
        Ok(())
    }

    /// Returns the file whose next packet is the oldest, and the time up to which it remains so. Of packets
    /// of the same time, those of the file that was named first are the oldest.
    fn oldest(&self) -> Option<(usize, u64)> {
        let times = || self.files.iter().map(Open::time).enumerate();
        let (oldest, _) = times().min_by_key(|(_, time)| *time)?;
        let others = times().filter(|(i, _)| *i != oldest);
        // Those that were named before have later packets, so that there is a time before them.
        let until = others.map(|(i, time)| time - u64::from(i < oldest)).min();
        Some((oldest, until.unwrap_or(u64::MAX)))
    }

    /// Copies packets of files that overlap in time into one block.
    fn interleaved(&mut self, block: &mut RawBlock) {
        let mut data = Vec::with_capacity(MAX_BLOCK_BYTES / 4);
        while let Some((i, until)) = self.oldest() {
            let room = MAX_BLOCK_PACKETS - block.packets.len();
            let run = self.files[i].run(until, room.min(LONG_RUN));
            if room == 0 || data.len() >= MAX_BLOCK_BYTES || (run == LONG_RUN && !data.is_empty()) {
                break;
            }
            let file = &mut self.files[i];
            // At least one: the oldest packet comes next even if time goes backwards in its own file.
            for p in &file.block.packets[file.next..file.next + run.max(1)] {
                let mut copy = *p;
                copy.offset = data.len() as u32;
                data.extend_from_slice(&file.block.data[p.offset as usize..(p.offset + p.cap_len) as usize]);
                block.packets.push(copy);
            }
            file.next += run.max(1);
            if file.next == file.block.packets.len() {
                break;
            }
        }
        block.data = Bytes::from(data);
    }
}

impl Source for Files {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        block.packets.clear();
        block.shared_offset = None;
        block.data = Bytes::new();
        if let [only] = self.files.as_mut_slice()
            && only.next >= only.block.packets.len()
        {
            let more = only.reader.next(block, &mut self.damage)?;
            return Ok(if more { Next::Packets } else { Next::End });
        }
        // Here, not after the packets before, which would wait as long as a pipe does.
        self.fill_all()?;
        let Some((i, until)) = self.oldest() else { return Ok(Next::End) };
        let file = &mut self.files[i];
        let run = file.run(until, MAX_BLOCK_PACKETS);
        if run >= LONG_RUN || until == u64::MAX || run == file.block.packets.len() {
            block.packets.extend_from_slice(&file.block.packets[file.next..file.next + run]);
            block.data = file.block.data.clone();
            file.next += run;
        } else {
            self.interleaved(block);
        }
        Ok(Next::Packets)
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn help(&self) -> Help {
        let files = self.files.iter().filter_map(|file| file.reader.ahead()).map(Arc::downgrade);
        Help { files: files.take(MOST_HELPED).collect(), spares: self.spares.clone() }
    }

    fn progress(&self) -> Progress {
        let mut progress =
            Progress { bytes: self.ended_bytes, total: Some(self.ended_bytes), kernel_drops: 0 };
        for file in &self.files {
            let (bytes, total) = file.reader.consumed();
            progress.bytes += bytes;
            progress.total = progress.total.zip(total).map(|(a, b)| a + b);
        }
        progress
    }

    fn damage(&self) -> &[Damage] {
        &self.damage
    }
}
