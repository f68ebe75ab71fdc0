//! The segments of a spool as they were read or written.

use crate::frame::{Bytes, Frame, FrameError, HEADER, Hash, MAX_BODY, read_header};
use crate::head::{Head, MAX_HEAD};
use crate::kept::{Epoch, Kept, Position, Range, Totals};
use crate::reader::Cut;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

/// The largest segment that is read.
const MAX_SEGMENT: u64 = 1 << 30;

/// One file of a spool.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The number in its name; later ones are larger.
    pub number: u64,
    pub head: Head,
    pub entries: Vec<Entry>,
    /// The number of bytes up to the end of the last whole batch.
    pub length: u64,
}

/// A batch of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub at: u64,
    pub hash: Hash,
    pub after: Totals,
}

/// Returns the name of a segment.
pub(crate) fn name_of(number: u64) -> String {
    format!("{number:016x}.seg")
}

/// Returns the number of a segment from its name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// Reads up to `length` bytes at a place.
fn read_at(file: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The reason why a segment cannot be read.
pub(crate) enum Unread {
    Io(io::Error),
    Frame(FrameError),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<FrameError> for Unread {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl Segment {
    /// Reads the head of a segment, and no batch yet.
    pub fn read(number: u64, file: &File) -> Result<Self, Unread> {
        let bytes = read_at(file, 0, MAX_HEAD)?;
        let mut bytes = Bytes::new(&bytes, 0);
        let head = Head::read(&mut bytes)?;
        Ok(Self { number, head, entries: Vec::new(), length: bytes.at() })
    }

    /// Reads the batches that were appended since. Stops without an error where the last one is not whole.
    pub fn extend(&mut self, file: &File) -> Result<(), Unread> {
        loop {
            let header = read_at(file, self.length, HEADER)?;
            if header.is_empty() || self.length > MAX_SEGMENT {
                return Ok(());
            }
            let length = match read_header(&mut Bytes::new(&header, self.length)) {
                Ok(header) => HEADER + header.length as usize,
                Err(FrameError::Short { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let bytes = read_at(file, self.length, length)?;
            let mut bytes = Bytes::new(&bytes, self.length);
            let frame = match Frame::read(&mut bytes) {
                Ok(frame) => frame,
                Err(FrameError::Short { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let (header, expected) = (frame.header, self.next());
            if header.position != expected {
                return Err(bytes.damaged("the position before", header.position, expected).into());
            }
            if (header.before, header.previous) != (self.totals(), self.hash()) {
                let found = header.previous;
                return Err(bytes.damaged("the hash or the sums before", found, self.hash()).into());
            }
            self.push(&frame);
        }
    }

    /// Counts a batch at the end.
    pub fn push(&mut self, frame: &Frame<'_>) {
        let header = &frame.header;
        self.entries.push(Entry { at: self.length, hash: header.hash, after: header.after() });
        self.length += (HEADER + frame.body.len()) as u64;
    }

    /// Returns the position of the next batch.
    pub fn next(&self) -> Position {
        let first = self.head.first;
        Position { sequence: first.sequence.saturating_add(self.entries.len() as u64), ..first }
    }

    /// Returns the sums at its end.
    pub fn totals(&self) -> Totals {
        self.entries.last().map_or(self.head.before, |entry| entry.after)
    }

    /// Returns the hash at its end.
    pub fn hash(&self) -> Hash {
        self.entries.last().map_or(self.head.previous, |entry| entry.hash)
    }

    /// Returns the entry of a position.
    pub fn entry(&self, position: Position) -> Option<&Entry> {
        let first = self.head.first;
        let at = position.sequence.checked_sub(first.sequence).filter(|_| position.epoch == first.epoch)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// Reads one of its batches.
    pub fn frame<'a>(&self, file: &File, entry: &Entry, into: &'a mut Vec<u8>) -> Result<Frame<'a>, Unread> {
        *into = read_at(file, entry.at, HEADER + MAX_BODY)?;
        let frame = Frame::read(&mut Bytes::new(into, entry.at))?;
        match frame.header.hash == entry.hash {
            true => Ok(frame),
            false => {
                let bytes = Bytes::new(&[], entry.at);
                Err(bytes.damaged("the hash of the batch", frame.header.hash, entry.hash).into())
            }
        }
    }
}

/// All segments, and the statement that follows from them.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub list: Vec<Segment>,
    pub ranges: Vec<Range>,
    pub cut: Option<Cut>,
}

impl Segments {
    /// Derives the ranges again.
    pub fn derive(&mut self) {
        self.ranges.clear();
        if let Some(oldest) = self.list.first() {
            self.ranges.extend(oldest.head.ends.iter().copied());
        }
        for segment in &self.list {
            let (first, last) = (segment.head.first, segment.next().sequence - 1);
            match self.ranges.iter_mut().find(|range| range.epoch == first.epoch) {
                Some(range) => {
                    // Where batches in between cannot be read any more, those before them are given up, too.
                    if first.sequence > range.last + 1 {
                        range.floor = first.sequence;
                    }
                    (range.last, range.totals) = (last, segment.totals());
                }
                None => self.ranges.push(Range {
                    epoch: first.epoch,
                    floor: first.sequence,
                    last,
                    totals: segment.totals(),
                }),
            }
        }
        // A later head names a lower end of an epoch that was forked, and a higher one of which batches
        // cannot be read any more.
        for end in self.list.iter().flat_map(|segment| &segment.head.ends) {
            let range = self.ranges.iter_mut().find(|range| range.epoch == end.epoch);
            if let Some(range) = range.filter(|range| range.last != end.last) {
                let floor = if range.last < end.last { end.floor } else { range.floor.min(end.floor) };
                *range = Range { floor, ..*end };
            }
        }
        // What is archived is no longer spoken of, but for the epoch of the cut itself.
        if let Some(at) = self.cut.and_then(|cut| self.order(cut.archived.position)) {
            self.ranges.drain(..at.0);
        }
        let newest = self.list.last().map(|segment| segment.head.first.epoch);
        self.ranges.retain(|range| range.last > 0 || Some(range.epoch) == newest);
    }

    /// Returns the segment and the entry of a position.
    pub fn find(&self, position: Position) -> Option<(&Segment, &Entry)> {
        self.list.iter().rev().find_map(|segment| Some((segment, segment.entry(position)?)))
    }

    /// Returns the sums of an epoch up to a sequence, if they are known.
    pub fn totals(&self, position: Position) -> Option<Totals> {
        let of_head = || {
            let follows = |s: &&Segment| s.head.first == position.next();
            self.list.iter().find(follows).map(|segment| segment.head.before)
        };
        let range = self.ranges.iter().find(|range| range.epoch == position.epoch)?;
        let at_end = (position.sequence == range.last).then_some(range.totals);
        self.find(position).map(|(_, entry)| entry.after).or(at_end).or_else(of_head)
    }
}

impl Kept for Segments {
    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn hash(&self, position: Position) -> Option<Hash> {
        let range = self.ranges.iter().find(|range| range.epoch == position.epoch)?;
        let is_kept = (range.floor..=range.last).contains(&position.sequence);
        self.find(position).filter(|_| is_kept).map(|(_, entry)| entry.hash)
    }

    fn grows(&self, epoch: Epoch) -> bool {
        self.list.last().is_some_and(|segment| segment.head.first.epoch == epoch)
    }
}
