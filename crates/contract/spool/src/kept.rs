//! Positions of batches, and the statement of a spool about those that it keeps.

use crate::frame::Hash;
use std::fmt;

/// A random number that identifies the batches that follow one opening of a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The place of a batch: its epoch, and its number there, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    pub epoch: Epoch,
    pub sequence: u64,
}

/// A position together with the hash of all batches of its epoch up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub position: Position,
    pub hash: Hash,
}

/// Sums over the batches of an epoch from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub rows: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// The latest time of a row in nanoseconds since 1970, or 0.
    pub until: u64,
}

impl Totals {
    /// Returns the sums with one more batch, or `None` if they exceed 64 bits.
    pub fn with(&self, rows: u64, bytes: u64, last: u64) -> Option<Self> {
        let (rows, bytes) = (self.rows.checked_add(rows)?, self.bytes.checked_add(bytes)?);
        Some(Self { rows, bytes, until: self.until.max(last) })
    }

    /// Returns the rows and bytes that these sums have more than `earlier`.
    pub fn beyond(&self, earlier: &Self) -> (u64, u64) {
        (self.rows.saturating_sub(earlier.rows), self.bytes.saturating_sub(earlier.bytes))
    }
}

/// The batches of one epoch in a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub epoch: Epoch,
    /// The lowest sequence that is kept; `last + 1` if none is.
    pub floor: u64,
    pub last: u64,
    /// The sums of the epoch up to `last`.
    pub totals: Totals,
}

/// The relation of a [`Stamp`] to a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The position lies in the spool, or before all that it keeps of the epoch, and no batch differs.
    Common,
    /// The spool knows nothing of the epoch.
    Foreign,
    /// The epoch has ended in this spool, and is longer elsewhere: a backup was restored. Its batches here
    /// are the beginning of those.
    Longer,
    /// The epoch grows in this spool, and is longer elsewhere, or has another batch at the position: its
    /// memory was restored, too.
    Forked,
}

/// A spool as its publisher sees it.
pub trait Kept {
    /// Returns the epochs of the spool from the oldest to the newest, also epochs that keep nothing but
    /// may not have been archived.
    fn ranges(&self) -> &[Range];

    /// Returns the hash at a position that is kept.
    fn hash(&self, position: Position) -> Option<Hash>;

    /// Returns whether batches are still appended to this epoch.
    fn grows(&self, epoch: Epoch) -> bool;

    /// Returns the order of a position in this spool: the index of its epoch, and its sequence.
    fn order(&self, position: Position) -> Option<(usize, u64)> {
        let at = self.ranges().iter().position(|range| range.epoch == position.epoch)?;
        Some((at, position.sequence))
    }

    /// Returns the first kept position at or after `from`, or the first of all.
    fn first(&self, from: Option<Position>) -> Option<Position> {
        let (at, sequence) = from.and_then(|from| self.order(from)).unwrap_or((0, 0));
        let rest = self.ranges().get(at..).unwrap_or_default();
        rest.iter().enumerate().find_map(|(n, range)| {
            let sequence = range.floor.max(if n == 0 { sequence } else { 0 });
            (sequence <= range.last).then_some(Position { epoch: range.epoch, sequence })
        })
    }

    /// Compares the spool with a statement of others about one of its epochs.
    fn place(&self, stamp: &Stamp) -> Place {
        let position = stamp.position;
        let Some(range) = self.ranges().iter().find(|range| range.epoch == position.epoch) else {
            return Place::Foreign;
        };
        match self.hash(position) {
            Some(hash) if hash != stamp.hash => Place::Forked,
            Some(_) => Place::Common,
            None if position.sequence <= range.last => Place::Common,
            None if self.grows(position.epoch) => Place::Forked,
            None => Place::Longer,
        }
    }
}

impl Position {
    /// Returns the position of the next batch of the epoch.
    pub fn next(self) -> Self {
        Self { sequence: self.sequence.saturating_add(1), ..self }
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.epoch, self.sequence)
    }
}
