//! A model of the spool's file: in memory, with a copy of what is synced.

use flame_spool::{Batch, Bytes, Epoch, Frame, Hash, Header, Kept, Position, Range, Stamp, Totals};
use std::collections::VecDeque;

/// A spool of at most `bound` batches. Each batch has an identity in its body.
#[derive(Clone, Debug, Default)]
pub struct Spool {
    ranges: Vec<Range>,
    frames: VecDeque<(Header, u64)>,
    /// The hash at the end of the newest epoch.
    hash: Hash,
    bound: usize,
    /// The identities of batches that made room for others.
    pub dropped: Vec<u64>,
    /// The identities of batches that were given up at a fork.
    pub given_up: Vec<u64>,
}

/// Returns the identity in a body.
pub fn identity(body: &[u8]) -> u64 {
    Bytes::new(body, 0).u64().unwrap_or(0)
}

impl Spool {
    pub fn new(bound: usize) -> Self {
        Self { bound, ..Self::default() }
    }

    /// Begins an epoch, as an opening does.
    pub fn open(&mut self, epoch: Epoch) {
        // An epoch that got no batch leaves the sums before it to the next one.
        let before = self.ranges.last().filter(|range| range.last == 0).map(|range| range.totals);
        self.begin(epoch, before.unwrap_or_default());
    }

    /// Continues the newest epoch, as an opening must not.
    pub fn reopen_without_an_epoch(&mut self, epoch: Epoch) {
        if self.ranges.is_empty() {
            self.open(epoch);
        }
    }

    fn begin(&mut self, epoch: Epoch, before: Totals) {
        self.ranges.retain(|range| range.last > 0);
        self.ranges.push(Range { epoch, floor: 1, last: 0, totals: before });
        self.hash = Hash::default();
    }

    /// Appends a batch.
    ///
    /// # Panics
    ///
    /// Panics if the rows exceed 64 bits.
    pub fn append(&mut self, id: u64, rows: u64, time: u64) {
        while self.frames.len() >= self.bound {
            self.drop_oldest();
        }
        let Some(range) = self.ranges.last_mut() else { return };
        let position = Position { epoch: range.epoch, sequence: range.last + 1 };
        let body = id.to_le_bytes();
        let batch = Batch { rows, first: time, last: time + 5, body: &body };
        let frame = Frame::new(position, range.totals, self.hash, &batch).expect("small batches");
        (range.last, range.totals) = (position.sequence, frame.header.after());
        self.hash = frame.header.hash;
        self.frames.push_back((frame.header, id));
    }

    fn drop_oldest(&mut self) {
        let Some((header, id)) = self.frames.pop_front() else { return };
        self.dropped.push(id);
        let range = self.ranges.iter_mut().find(|range| range.epoch == header.position.epoch);
        if let Some(range) = range {
            range.floor = header.position.sequence + 1;
        }
    }

    /// Returns the ranges up to the epoch of a batch, and the batch.
    pub fn read(&self, position: Position) -> Option<(Vec<Range>, Header, u64)> {
        let at = self.order(position)?.0;
        let (header, id) = self.frames.iter().find(|(header, _)| header.position == position)?;
        Some((self.ranges[..=at].to_vec(), *header, *id))
    }

    /// Removes all batches up to a position, and returns their identities.
    pub fn cut(&mut self, stamp: &Stamp) -> Vec<u64> {
        let Some(cut) = self.order(stamp.position) else { return Vec::new() };
        let ranges = std::mem::take(&mut self.ranges);
        let order = |position: Position| {
            let at = ranges.iter().position(|range| range.epoch == position.epoch)?;
            Some((at, position.sequence))
        };
        let mut removed = Vec::new();
        while let Some((_, id)) = self.frames.pop_front_if(|(h, _)| order(h.position) <= Some(cut)) {
            removed.push(id);
        }
        self.ranges = ranges[cut.0..].to_vec();
        if let Some(range) = self.ranges.first_mut() {
            range.floor = range.floor.max(cut.1.min(range.last) + 1);
        }
        removed
    }

    /// Gives up the batches of an epoch behind a position.
    pub fn fork(&mut self, common: Position, epoch: Epoch) {
        let Some(at) = self.ranges.iter().position(|range| range.epoch == common.epoch) else { return };
        let whole = self.ranges[at].totals;
        let is_behind = |header: &Header| {
            header.position.epoch == common.epoch && header.position.sequence > common.sequence
        };
        let first = self.frames.iter().find(|(header, _)| is_behind(header));
        let totals = first.map_or(whole, |(header, _)| header.before);
        let range = &mut self.ranges[at];
        range.last = range.last.min(common.sequence);
        (range.totals, range.floor) = (totals, range.floor.min(range.last + 1));
        let given_up = self.frames.iter().filter(|(header, _)| is_behind(header)).map(|(_, id)| *id);
        self.given_up.extend(given_up);
        self.frames.retain(|(header, _)| !is_behind(header));
        let (rows, bytes) = whole.beyond(&totals);
        self.begin(epoch, Totals { rows, bytes, until: whole.until });
    }

    /// Returns the identities of the batches that it keeps.
    pub fn identities(&self) -> impl Iterator<Item = u64> {
        self.frames.iter().map(|(_, id)| *id)
    }

    /// States that the oldest batches are kept, as a spool must not once it dropped them.
    pub fn say_that_nothing_was_dropped(&mut self) {
        self.ranges.iter_mut().for_each(|range| range.floor = 1);
    }
}

impl Kept for Spool {
    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn hash(&self, position: Position) -> Option<Hash> {
        let frame = self.frames.iter().find(|(header, _)| header.position == position);
        frame.map(|(header, _)| header.hash)
    }

    fn grows(&self, epoch: Epoch) -> bool {
        self.ranges.last().is_some_and(|range| range.epoch == epoch)
    }
}
