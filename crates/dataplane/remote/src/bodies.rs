//! Memory through which long bodies of frames pass. The socket carries only their places in it.
//!
//! The reader copies a body before anything looks at it, since the writer may write at any time. It reports
//! by an event that it has read the oldest one, whose place is free again.

use flame_block::{BlockError, Region, SharedMemory};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// The size of the memory in bytes.
pub(crate) const BYTES: usize = 2 << 20;
/// The number of bytes from which a body is long: a shorter one costs less together with its frame.
pub(crate) const LONG: usize = 16 << 10;
/// Bodies begin at multiples of this number of bytes, so that they are copied fast.
const ALIGNMENT: usize = 64;

/// The writing end.
pub struct BodyWriter {
    memory: SharedMemory,
    /// Counts the bodies that were read.
    read: OwnedFd,
    /// The places of those that were not, the oldest first. Each follows the one before, or begins at 0.
    taken: VecDeque<Range<usize>>,
}

impl BodyWriter {
    /// Opens the writing end of memory that a [`BodyReader`] created.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is none of such memory, or cannot be mapped.
    pub fn open(file: OwnedFd, read: OwnedFd) -> Result<Self, BlockError> {
        Ok(Self { memory: Region::open(file)?.take(BYTES)?, read, taken: VecDeque::new() })
    }

    /// Writes a body, and returns its place in the file. Returns `None` for one that is not long, and if
    /// there is no room.
    pub(crate) fn place(&mut self, body: &[u8]) -> Option<usize> {
        if !(LONG..=BYTES).contains(&body.len()) {
            return None;
        }
        self.collect();
        let start = self.room(body.len())?;
        self.memory.slice_mut(start, body.len()).copy_from_slice(body);
        self.taken.push_back(start..start + body.len().next_multiple_of(ALIGNMENT));
        Some(self.memory.offset() + start)
    }

    /// Returns the start of free memory. As long as everything was read that is the same memory each time, so
    /// that no more of it is in use, and in caches, than is needed.
    fn room(&self, bytes: usize) -> Option<usize> {
        let (Some(oldest), Some(newest)) = (self.taken.front(), self.taken.back()) else { return Some(0) };
        let fits = |range: Range<usize>| (range.len() >= bytes).then_some(range.start);
        match newest.end > oldest.start {
            true => fits(newest.end..BYTES).or_else(|| fits(0..oldest.start)),
            false => fits(newest.end..oldest.start),
        }
    }

    /// Frees the places of the bodies that were read.
    fn collect(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let mut count = [0; 8];
        // If nothing was read meanwhile, it would block.
        if rustix::io::read(&self.read, &mut count) == Ok(count.len()) {
            let count = u64::from_ne_bytes(count).min(self.taken.len() as u64);
            self.taken.drain(..count as usize);
        }
    }
}

/// The reading end.
pub struct BodyReader {
    file: OwnedFd,
    read: OwnedFd,
}

impl BodyReader {
    /// Creates the memory, and returns what [`BodyWriter::open`] takes: its file and its event.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no memory or descriptor left.
    pub fn create() -> io::Result<(Self, [OwnedFd; 2])> {
        let file = Region::create(BYTES).map_err(io::Error::other)?;
        let read = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let theirs = [file.try_clone()?, read.try_clone()?];
        Ok((Self { file, read }, theirs))
    }

    /// Copies the body of `bytes` at `place`, and lets the writer use its memory again. Returns `None` if it
    /// does not lie in the memory as a whole.
    pub(crate) fn take(&self, place: usize, bytes: usize) -> io::Result<Option<Vec<u8>>> {
        if place.checked_add(bytes).is_none_or(|end| end > BYTES) {
            return Ok(None);
        }
        let mut body = Vec::with_capacity(bytes);
        while body.len() < bytes {
            // It appends, and the capacity may be more than was asked for.
            let at = (place + body.len()) as u64;
            match rustix::io::pread(&self.file, spare_capacity(&mut body), at) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        body.truncate(bytes);
        // It fails only if the writer has filled the counter itself, which harms nobody else.
        let _ = rustix::io::write(&self.read, &1_u64.to_ne_bytes());
        Ok(Some(body))
    }
}
