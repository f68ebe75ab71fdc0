//! Messages between a node and the archive as bytes.

use flame_spool::{Bytes, Epoch, Frame, FrameError, Hash, MAX_ENDS, Position, Range, Stamp};

/// The most bytes of a message with records.
pub const MAX_MESSAGE: usize = 4 + RANGE * MAX_RANGES + flame_spool::HEADER + flame_spool::MAX_BODY;
/// The most epochs that a message names.
pub const MAX_RANGES: usize = MAX_ENDS + 1;
const RANGE: usize = 8 * 6;
const MARK: [u8; 4] = *b"FLM1";

/// A batch, and the statement of its spool at the time at which it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The epochs of the spool up to the one of the batch, from the oldest.
    pub ranges: Vec<Range>,
    pub frame: Frame<'a>,
}

/// The statement of the archive about a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The last batch that was archived.
    pub archived: Option<Stamp>,
    /// The end of what is archived of an earlier epoch, for a spool that was restored and offered it again.
    pub restored: Option<Stamp>,
    pub missing: Option<Missing>,
}

/// A gap at which the archive waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The position that it waits for.
    pub at: Position,
    /// The latest position that was offered too early. It was passed over, so it must come again, too.
    pub early: Position,
}

impl<'a> Message<'a> {
    /// Appends the message's bytes. Names the newest [`MAX_RANGES`] epochs.
    pub fn write(&self, into: &mut Vec<u8>) {
        let ranges = &self.ranges[self.ranges.len().saturating_sub(MAX_RANGES)..];
        into.extend_from_slice(&u32::try_from(ranges.len()).unwrap_or(0).to_le_bytes());
        for range in ranges {
            let totals = range.totals;
            let numbers = [range.epoch.0, range.floor, range.last, totals.rows, totals.bytes, totals.until];
            numbers.iter().for_each(|number| into.extend_from_slice(&number.to_le_bytes()));
        }
        self.frame.write(into);
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// Returns an error with its place if the bytes are no message, or one with more bytes behind it.
    pub fn read(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let mut at = Bytes::new(bytes, 0);
        let count = u32::from_le_bytes(at.array()?) as usize;
        if !(1..=MAX_RANGES).contains(&count) {
            return Err(at.damaged("the number of epochs", count, format!("1 to {MAX_RANGES}")));
        }
        let mut ranges: Vec<Range> = Vec::with_capacity(count);
        for _ in 0..count {
            let (epoch, floor, last) = (Epoch(at.u64()?), at.u64()?, at.u64()?);
            let range = Range { epoch, floor, last, totals: at.totals()? };
            if floor == 0 || last == u64::MAX || floor > last + 1 {
                let found = format!("{floor} to {last}");
                return Err(at.damaged("the sequences of an epoch before", found, "a range from 1"));
            }
            if ranges.iter().any(|other| other.epoch == epoch) {
                return Err(at.damaged("the epoch before", epoch, "each epoch once"));
            }
            ranges.push(range);
        }
        let frame = Frame::read(&mut at)?;
        let (position, own) = (frame.header.position, ranges[count - 1]);
        if own.epoch != position.epoch || !(own.floor..=own.last).contains(&position.sequence) {
            let expected = format!("{} {} to {}", own.epoch, own.floor, own.last);
            return Err(at.damaged("the position of the batch before", position, expected));
        }
        match at.rest().len() {
            0 => Ok(Self { ranges, frame }),
            more => Err(at.damaged("the rest of the message", format!("{more} bytes"), "none")),
        }
    }
}

impl Mark {
    /// Returns the mark's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MARK.to_vec();
        // No position has the sequence 0.
        let nothing = Position { epoch: Epoch(0), sequence: 0 };
        let without_hash = |position| Stamp { position, hash: Hash::default() };
        let missing = self.missing.map(|missing| without_hash(missing.at));
        let early = self.missing.map(|missing| without_hash(missing.early));
        for stamp in [self.archived, self.restored, missing, early] {
            let stamp = stamp.unwrap_or(Stamp { position: nothing, hash: Hash::default() });
            for number in [stamp.position.epoch.0, stamp.position.sequence] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(&stamp.hash.0);
        }
        bytes
    }

    /// Reads a mark.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are no mark.
    pub fn read(bytes: &[u8]) -> Result<Self, FrameError> {
        let mut at = Bytes::new(bytes, 0);
        let magic: [u8; 4] = at.array()?;
        if magic != MARK {
            return Err(at.damaged("the beginning of a mark", format!("{magic:02x?}"), "the letters FLM1"));
        }
        let mut stamp = || {
            let position = Position { epoch: Epoch(at.u64()?), sequence: at.u64()? };
            let stamp = Stamp { position, hash: Hash(at.array()?) };
            Ok::<_, FrameError>((position.sequence > 0).then_some(stamp))
        };
        let (archived, restored, missing, early) = (stamp()?, stamp()?, stamp()?, stamp()?);
        let missing = missing.zip(early);
        let missing = missing.map(|(at, early)| Missing { at: at.position, early: early.position });
        match at.rest().len() {
            0 => Ok(Self { archived, restored, missing }),
            more => Err(at.damaged("the rest of the mark", format!("{more} bytes"), "none")),
        }
    }
}
