//! Merges several files into one source, in time order.

use super::ahead::Ahead;
use super::due::{Due, Key};
use super::reader::Reader;
use super::spares::Spares;
use crate::{Damage, Next, Progress, RawBlock, Source, SourceError};
use bytes::Bytes;
use flame_abi::{MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS};
use flame_base::lock;
use flame_plan::Discipline;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, Weak};

/// The number of consecutive packets of one file from which on they are returned without a copy.
const LONG_RUN: usize = 32;

/// The files of which any thread may read parts before they are needed: those whose packets are due.
#[derive(Clone, Default)]
pub struct Help {
    files: Arc<Mutex<Vec<Weak<Ahead>>>>,
    spares: Arc<Spares>,
}

impl Help {
    /// Returns the number of bytes of large buffers in which packets lie that somebody holds.
    pub fn large(&self) -> usize {
        self.spares.large()
    }

    /// Reads a part of a file. Returns false if enough was read.
    pub fn read(&self) -> bool {
        let mut at = 0;
        loop {
            let Some(file) = lock(&self.files).get(at).map(Weak::upgrade) else { return false };
            if file.is_some_and(|file| file.help()) {
                return true;
            }
            at += 1;
        }
    }

    /// Returns whether the source would wait for a part that another thread is reading.
    pub fn is_reading(&self) -> bool {
        let only = match lock(&self.files).as_slice() {
            [only] => only.upgrade(),
            _ => None,
        };
        only.is_some_and(|file| file.is_reading())
    }

    /// Replaces the files by those of `readers`.
    fn set<'a>(&self, readers: impl Iterator<Item = &'a Reader>) {
        let files = readers.filter_map(Reader::ahead).map(Arc::downgrade);
        *lock(&self.files) = files.take(MOST_HELPED).collect();
    }
}

/// The maximum number of files that are read ahead, of which a helper looks at each.
const MOST_HELPED: usize = 64;

#[derive(Default)]
pub struct Files {
    /// The files whose packets are due, in the order in which they were named.
    files: Vec<Open>,
    due: Due,
    /// The number of files so far.
    count: usize,
    help: Help,
    /// The number of bytes of files that have ended.
    ended_bytes: u64,
    damage: Vec<Damage>,
    /// Whether one of the files is a pipe or a device.
    waits: bool,
    /// Whether one of the files has times finer than a microsecond.
    is_nano: bool,
    /// The next packets of all files, while some are interleaved.
    places: BinaryHeap<Reverse<Place>>,
}

struct Open {
    /// The number of the file among all.
    number: usize,
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

    fn key(&self) -> Key {
        (self.time(), self.number)
    }

    /// Returns the number of following packets, at most `most`, that are not newer than `until`.
    fn run(&self, until: u64, most: usize) -> usize {
        self.block.packets[self.next..].iter().take(most).take_while(|p| p.ts_ns <= until).count()
    }
}

impl Files {
    /// Returns the buffers of all files.
    pub fn spares(&self) -> &Arc<Spares> {
        &self.help.spares
    }

    /// Adds the only file.
    pub fn add_only(&mut self, reader: Reader) {
        self.waits |= reader.waits();
        self.is_nano |= reader.is_nano();
        self.insert(self.count, reader);
        self.count += 1;
    }

    /// Adds a file, which is read when its packets are due.
    pub fn add(&mut self, reader: Reader) {
        self.is_nano |= reader.is_nano();
        match self.due.add(self.count, reader, &self.help.spares) {
            Some(reader) => self.add_only(reader),
            None => self.count += 1,
        }
    }

    /// Adds files that are left out.
    pub fn add_damage(&mut self, damage: Vec<Damage>) {
        self.damage.extend(damage);
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the number of files that are being read.
    #[cfg(test)]
    pub fn opened(&self) -> usize {
        self.files.len()
    }

    /// Adds a file that is read from now on, and returns its index.
    fn insert(&mut self, number: usize, reader: Reader) -> usize {
        let at = self.files.partition_point(|file| file.number < number);
        self.files.insert(at, Open { number, reader, block: RawBlock::default(), next: 0 });
        self.help.set(self.files.iter().map(|file| &file.reader));
        at
    }

    /// Ensures that file `i` has a next packet, or removes the file, unless that would take long.
    fn refill(&mut self, i: usize) -> Result<Next, SourceError> {
        let file = &mut self.files[i];
        if file.next < file.block.packets.len() {
            return Ok(Next::Packets);
        }
        file.next = 0;
        let next = file.reader.next(&mut file.block, &mut self.damage)?;
        if next == Next::End {
            self.ended_bytes += file.reader.consumed().0;
            self.files.remove(i);
            self.help.set(self.files.iter().map(|file| &file.reader));
        }
        Ok(next)
    }

    /// Ensures that all files whose packets are due have a next packet. Returns false if that would take
    /// long.
    fn fill_all(&mut self) -> Result<bool, SourceError> {
        let mut i = 0;
        while i < self.files.len() {
            match self.refill(i)? {
                Next::Packets => i += 1,
                Next::End => {}
                Next::Quiet | Next::Idle => return Ok(false),
            }
        }
        let mut oldest = self.files.iter().map(Open::key).min();
        while let Some(first) = self.due.first()
            && oldest.is_none_or(|oldest| first < oldest)
            && let Some((number, reader)) = self.due.open(&self.help.spares, &mut self.damage)?
        {
            let i = self.insert(number, reader);
            if self.refill(i)? == Next::Packets {
                let key = self.files[i].key();
                oldest = Some(oldest.map_or(key, |oldest| oldest.min(key)));
            }
        }
        Ok(true)
    }

    /// Returns the place of the next packet of file `i` in the order of all.
    fn place(&self, i: usize) -> Place {
        (self.files[i].time(), 2 * i + 1)
    }

    /// Returns the place of the first packet of a file that is not read yet.
    fn first_due(&self) -> Option<Place> {
        let before = |number| self.files.partition_point(|file| file.number < number);
        self.due.first().map(|(time, number)| (time, 2 * before(number)))
    }

    /// Returns the oldest of the next packets, and the next one after it.
    fn oldest(&self) -> (Option<Place>, Option<Place>) {
        let places = (0..self.files.len()).map(|i| self.place(i)).chain(self.first_due());
        places.fold((None, None), |(first, second), place| match () {
            () if first.is_none_or(|first| place < first) => (Some(place), first),
            () if second.is_none_or(|second| place < second) => (first, Some(place)),
            () => (first, second),
        })
    }

    /// Copies packets of files that overlap in time into one block.
    fn interleaved(&mut self, block: &mut RawBlock) {
        let mut data = Vec::with_capacity(MAX_BLOCK_BYTES / 4);
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        places.extend(
            (0..self.files.len()).map(|i| Reverse(self.place(i))).chain(self.first_due().map(Reverse)),
        );
        while let Some(Reverse(place)) = places.pop() {
            // One of a file that is not read yet comes in another block.
            let Some(i) = of_file(place) else { break };
            let until = until(place, places.peek().map(|Reverse(next)| *next));
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
            places.push(Reverse(self.place(i)));
        }
        self.places = places;
        block.data = Bytes::from(data);
    }
}

/// The place of a packet in the order of all: its time, and that of its file among all. Files that are read
/// have odd numbers, by their index.
type Place = (u64, usize);

/// Returns the index of a file that is read, or `None` for another one.
fn of_file((_, number): Place) -> Option<usize> {
    (number % 2 == 1).then_some(number / 2)
}

/// Returns the time up to which packets of a file come before those of the file with the next one.
fn until(place: Place, next: Option<Place>) -> u64 {
    // If the other file was named before, up to the time before; then that is later.
    next.map_or(u64::MAX, |next| next.0 - u64::from(next.1 < place.1))
}

impl Source for Files {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        block.packets.clear();
        block.shared_offset = None;
        block.data = Bytes::new();
        if let [only] = self.files.as_mut_slice()
            && only.next >= only.block.packets.len()
            && self.due.is_empty()
        {
            return only.reader.next(block, &mut self.damage);
        }
        // Here, not after the packets before, which would wait as long as a pipe does.
        if !self.fill_all()? {
            return Ok(Next::Quiet);
        }
        let (Some(oldest), next) = self.oldest() else { return Ok(Next::End) };
        let (Some(i), until) = (of_file(oldest), until(oldest, next)) else { return Ok(Next::End) };
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

    fn is_nano(&self) -> bool {
        self.is_nano
    }

    fn discipline(&self) -> Discipline {
        if self.waits { Discipline::Pipe } else { Discipline::File }
    }

    fn tell_when_quiet(&mut self) {
        self.files.iter_mut().for_each(|file| file.reader.tell_when_quiet());
    }

    fn help(&self) -> Help {
        self.help.clone()
    }

    fn progress(&self) -> Progress {
        let total = Some(self.ended_bytes + self.due.bytes);
        let mut progress = Progress { bytes: self.ended_bytes, total, kernel_drops: None };
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
