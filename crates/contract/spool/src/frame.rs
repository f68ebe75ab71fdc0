//! A batch as bytes: in a segment, and in a message.

use crate::kept::{Epoch, Position, Totals};
use sha2::{Digest, Sha256};
use std::fmt;

/// The length of a header in bytes.
pub const HEADER: usize = 104;
/// The most bytes of a body. With its header and a statement of the spool it fits a message of 1 MiB.
pub const MAX_BODY: usize = (1 << 20) - (1 << 16);

const MAGIC: [u8; 4] = *b"FLB1";
/// Where the hash begins, which covers all other bytes from [`COVERED`] on.
const AT_HASH: usize = 88;
const COVERED: usize = 4;

/// The first 16 bytes of a SHA-256 over a frame, in which the hash of the frame before is included.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 16]);

/// All that is known of a batch without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub position: Position,
    /// The sums of the epoch before this batch. Those before the first batch are not zero if the spool gave
    /// up batches of another epoch, which are counted as lost there.
    pub before: Totals,
    pub rows: u64,
    /// The times of the first and of the last row in nanoseconds since 1970.
    pub first: u64,
    pub last: u64,
    /// The length of the body in bytes.
    pub length: u32,
    /// The hash of the batch before, or zeros.
    pub previous: Hash,
    pub hash: Hash,
}

impl Header {
    /// Returns the sums of the epoch with this batch.
    pub fn after(&self) -> Totals {
        // A decoded header was checked for this.
        self.before.with(self.rows, u64::from(self.length), self.last).unwrap_or(self.before)
    }

    /// Returns the position and the hash.
    pub fn stamp(&self) -> crate::Stamp {
        crate::Stamp { position: self.position, hash: self.hash }
    }
}

/// The content of a batch to append.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub rows: u64,
    pub first: u64,
    pub last: u64,
    pub body: &'a [u8],
}

/// A batch that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub header: Header,
    pub body: &'a [u8],
}

/// The reason why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes end before the frame does: a write in progress, or a torn tail.
    #[error("at byte {at}: {found} bytes, expected {expected}: the batch is not whole")]
    Short { at: u64, found: u64, expected: u64 },
    #[error("at byte {at}: {what} is {found}, expected {expected}; remove the file if its disk was damaged")]
    Damaged { at: u64, what: &'static str, found: String, expected: String },
}

/// Reads numbers from the front of bytes, and states where each was.
pub struct Bytes<'a> {
    rest: &'a [u8],
    at: u64,
}

impl<'a> Bytes<'a> {
    /// Begins at `at`, which is only for errors.
    pub fn new(bytes: &'a [u8], at: u64) -> Self {
        Self { rest: bytes, at }
    }

    /// Returns the next `length` bytes.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Short`] if there are fewer.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], FrameError> {
        let short = FrameError::Short { at: self.at, found: self.rest.len() as u64, expected: length as u64 };
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(short)?;
        (self.rest, self.at) = (rest, self.at + length as u64);
        Ok(taken)
    }

    /// Returns the next bytes as an array.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Short`] if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Returns the next number of eight bytes.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Short`] if there are fewer.
    pub fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Returns sums.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Short`] if there are too few bytes.
    pub fn totals(&mut self) -> Result<Totals, FrameError> {
        Ok(Totals { rows: self.u64()?, bytes: self.u64()?, until: self.u64()? })
    }

    /// Returns an error about the bytes at the present place.
    pub fn damaged(&self, what: &'static str, found: impl ToString, expected: impl ToString) -> FrameError {
        FrameError::Damaged { at: self.at, what, found: found.to_string(), expected: expected.to_string() }
    }

    /// Returns the bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the number of bytes before the present place.
    pub fn at(&self) -> u64 {
        self.at
    }
}

/// Appends sums.
pub(crate) fn put_totals(into: &mut Vec<u8>, totals: &Totals) {
    for number in [totals.rows, totals.bytes, totals.until] {
        into.extend_from_slice(&number.to_le_bytes());
    }
}

/// Returns the hash of bytes.
pub(crate) fn hash_of(parts: &[&[u8]]) -> Hash {
    let digest = parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(part)).finalize();
    let mut hash = [0; 16];
    hash.copy_from_slice(&digest[..16]);
    Hash(hash)
}

impl<'a> Frame<'a> {
    /// Makes the frame of a batch that follows the sums and the hash of the one before.
    ///
    /// # Errors
    ///
    /// Returns a description of the fault if the batch is too large, ends before it begins, or exceeds the
    /// numbers of its epoch.
    pub fn new(
        position: Position,
        before: Totals,
        previous: Hash,
        batch: &Batch<'a>,
    ) -> Result<Self, &'static str> {
        if batch.body.len() > MAX_BODY {
            return Err("it has more than 983,040 bytes: divide its rows");
        }
        if batch.first > batch.last {
            return Err("its last time is before its first one");
        }
        let length = u32::try_from(batch.body.len()).unwrap_or(u32::MAX);
        before
            .with(batch.rows, u64::from(length), batch.last)
            .ok_or("the sums of its epoch exceed 64 bits")?;
        let &Batch { rows, first, last, body } = batch;
        let mut header =
            Header { position, before, rows, first, last, length, previous, hash: Hash::default() };
        let bytes = header_bytes(&header);
        header.hash = hash_of(&[&bytes[COVERED..AT_HASH], body]);
        Ok(Self { header, body })
    }

    /// Appends the frame's bytes.
    pub fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&header_bytes(&self.header));
        into.extend_from_slice(self.body);
    }

    /// Reads the frame at the front of `bytes`; what follows it is left. `at` is the place of the bytes, for
    /// errors.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Short`] if the bytes end too early, and otherwise an error if they are no frame,
    /// or not as it was written.
    pub fn read(bytes: &mut Bytes<'a>) -> Result<Self, FrameError> {
        let start = bytes.rest();
        let header = read_header(bytes)?;
        let body = bytes.take(header.length as usize)?;
        let hash = hash_of(&[&start[COVERED..AT_HASH], body]);
        match hash == header.hash {
            true => Ok(Self { header, body }),
            false => Err(bytes.damaged("the hash of the batch before", hash, header.hash)),
        }
    }
}

/// Reads a header, and checks what can be checked without the body.
pub(crate) fn read_header(bytes: &mut Bytes<'_>) -> Result<Header, FrameError> {
    let magic = bytes.rest().get(..4).unwrap_or(bytes.rest());
    if magic != &MAGIC[..magic.len()] {
        return Err(bytes.damaged("the beginning of a batch", format!("{magic:02x?}"), "the letters FLB1"));
    }
    bytes.take(4)?;
    let length = u32::from_le_bytes(bytes.array()?);
    if length as usize > MAX_BODY {
        return Err(bytes.damaged("the length before", length, format!("at most {MAX_BODY}")));
    }
    let position = Position { epoch: Epoch(bytes.u64()?), sequence: bytes.u64()? };
    if position.sequence == 0 {
        return Err(bytes.damaged("the sequence before", 0, "a number from 1"));
    }
    let before = bytes.totals()?;
    let rows = bytes.u64()?;
    let (first, last) = (bytes.u64()?, bytes.u64()?);
    if first > last {
        return Err(bytes.damaged("the last time before", last, format!("at least the first, {first}")));
    }
    if before.with(rows, u64::from(length), last).is_none() {
        return Err(bytes.damaged("the number of rows before", rows, "one with which the sum has 64 bits"));
    }
    let (previous, hash) = (Hash(bytes.array()?), Hash(bytes.array()?));
    Ok(Header { position, before, rows, first, last, length, previous, hash })
}

fn header_bytes(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&header.length.to_le_bytes());
    for number in [header.position.epoch.0, header.position.sequence] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    put_totals(&mut bytes, &header.before);
    for number in [header.rows, header.first, header.last] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&header.previous.0);
    debug_assert_eq!(bytes.len(), AT_HASH);
    bytes.extend_from_slice(&header.hash.0);
    bytes
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
