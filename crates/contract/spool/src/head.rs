//! The head of a segment.

use crate::frame::{Bytes, FrameError, Hash, hash_of, put_totals};
use crate::kept::{Epoch, Position, Range, Totals};

/// The most earlier epochs that a head names. Of more, the oldest are counted with the ones after them.
pub const MAX_ENDS: usize = 63;

const MAGIC: [u8; 8] = *b"FLAMESPL";
const VERSION: u32 = 1;
/// The length of a head that names no earlier epoch.
const FIXED: usize = 8 + 4 + 4 + 8 + 8 + 24 + 16 + 16;
const END: usize = 8 + 8 + 24;
/// The most bytes of a head.
pub(crate) const MAX_HEAD: usize = FIXED + MAX_ENDS * END;

/// The beginning of a segment: the position of its first batch, what came before it in its epoch, and the
/// ends of the epochs before that may not have been archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub first: Position,
    pub before: Totals,
    /// The hash of the batch before the first one, or zeros.
    pub previous: Hash,
    /// The ends of earlier epochs, from the oldest. In each, `floor` is `last + 1`.
    pub ends: Vec<Range>,
}

impl Head {
    /// Returns the bytes of the head. Names the newest [`MAX_ENDS`] ends; the totals of older ones are added
    /// to the oldest of these.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED + self.ends.len().min(MAX_ENDS) * END);
        let (older, named) = self.ends.split_at(self.ends.len().saturating_sub(MAX_ENDS));
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(named.len()).unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&self.first.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&self.first.sequence.to_le_bytes());
        put_totals(&mut bytes, &self.before);
        bytes.extend_from_slice(&self.previous.0);
        for (at, end) in named.iter().enumerate() {
            let added = if at == 0 { older } else { &[] };
            let sum = |of: fn(&Totals) -> u64| {
                added.iter().fold(0, |sum: u64, r| sum.saturating_add(of(&r.totals)))
            };
            let rows = end.totals.rows.saturating_add(sum(|t| t.rows));
            let size = end.totals.bytes.saturating_add(sum(|t| t.bytes));
            bytes.extend_from_slice(&end.epoch.0.to_le_bytes());
            bytes.extend_from_slice(&end.last.to_le_bytes());
            put_totals(&mut bytes, &Totals { rows, bytes: size, until: end.totals.until });
        }
        let hash = hash_of(&[&bytes]);
        bytes.extend_from_slice(&hash.0);
        bytes
    }

    /// Reads the head at the front of `bytes`; what follows it is left.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Short`] if the bytes end too early, and otherwise an error if they are no head,
    /// one of another version, or damaged.
    pub fn read(bytes: &mut Bytes<'_>) -> Result<Self, FrameError> {
        let start = bytes.rest();
        let magic: [u8; 8] = bytes.array()?;
        if magic != MAGIC {
            let found = format!("{magic:02x?}");
            return Err(bytes.damaged("the beginning of the file", found, "the letters FLAMESPL"));
        }
        let version = u32::from_le_bytes(bytes.array()?);
        if version != VERSION {
            return Err(bytes.damaged("the version", version, format!("{VERSION}, the one of this release")));
        }
        let count = u32::from_le_bytes(bytes.array()?) as usize;
        if count > MAX_ENDS {
            return Err(bytes.damaged("the number of epochs", count, format!("at most {MAX_ENDS}")));
        }
        let first = Position { epoch: Epoch(bytes.u64()?), sequence: bytes.u64()? };
        let (before, previous) = (bytes.totals()?, Hash(bytes.array()?));
        let mut ends = Vec::with_capacity(count);
        for _ in 0..count {
            let (epoch, last, totals) = (Epoch(bytes.u64()?), bytes.u64()?, bytes.totals()?);
            ends.push(Range { epoch, floor: last.saturating_add(1), last, totals });
        }
        let covered = FIXED - 16 + count * END;
        let (found, expected) = (hash_of(&[&start[..covered]]), Hash(bytes.array()?));
        if found != expected {
            return Err(bytes.damaged("the hash of the head before", found, expected));
        }
        if first.sequence == 0 {
            return Err(bytes.damaged("the first sequence", 0, "a number from 1"));
        }
        Ok(Self { first, before, previous, ends })
    }
}
