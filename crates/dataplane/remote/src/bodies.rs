//! Memory through which long bodies of frames pass. The socket carries only their places in it.
//!
//! The reader copies a body before anything looks at it, since the writer may write at any time. Through
//! another socket it tells how many of the oldest ones it has read, whose places are free again. An eventfd
//! could be made to block it (see "Trust" in `flame_block`).
//!
//! A place takes few bytes in the socket and stands for many. The reader therefore accepts only what a writer
//! could have written since it was told last: long bodies that do not overlap.

use flame_block::{BlockError, Region, SharedMemory};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// The size of the memory in bytes.
pub(crate) const BYTES: usize = 2 << 20;
/// The number of bytes from which a body is long: a shorter one costs less together with its frame.
pub(crate) const LONG: usize = 16 << 10;
/// Bodies begin at multiples of this number of bytes, so that they are copied fast.
const ALIGNMENT: usize = 64;

/// The writing end.
pub struct BodyWriter {
    memory: SharedMemory,
    /// Each byte is a number of bodies that were read.
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
        let mut counts = [0; 64];
        // Without any, it would block.
        if let Ok((_, length)) = rustix::net::recv(&self.read, &mut counts, RecvFlags::DONTWAIT) {
            let count = counts[..length].iter().map(|count| usize::from(*count)).sum::<usize>();
            self.taken.drain(..count.min(self.taken.len()));
        }
    }
}

/// The reading end.
pub struct BodyReader {
    file: OwnedFd,
    read: OwnedFd,
    /// The places of the bodies that were read and of which the writer was not told, the oldest first.
    untold: VecDeque<Range<usize>>,
}

impl BodyReader {
    /// Creates the memory, and returns what [`BodyWriter::open`] takes: its file and a socket.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no memory or descriptor left.
    pub fn create() -> io::Result<(Self, [OwnedFd; 2])> {
        let file = Region::create(BYTES).map_err(io::Error::other)?;
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = [file.try_clone()?, theirs.into()];
        Ok((Self { file, read: ours.into(), untold: VecDeque::new() }, theirs))
    }

    /// Copies the body of `bytes` at `place`. Returns `None` if it does not lie in the memory as a whole, is
    /// not long, or overlaps one that the writer has not been told of.
    pub(crate) fn take(&mut self, place: usize, bytes: usize) -> io::Result<Option<Vec<u8>>> {
        let Some(end) = place.checked_add(bytes).filter(|end| bytes >= LONG && *end <= BYTES) else {
            return Ok(None);
        };
        if self.untold.iter().any(|other| place < other.end && other.start < end) {
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
        self.untold.push_back(place..end);
        Ok(Some(body))
    }

    /// Tells the writer what was read. It never waits for a writer that does not listen.
    pub(crate) fn tell(&mut self) {
        let count = self.untold.len().min(usize::from(u8::MAX));
        if count > 0
            && rustix::net::send(&self.read, &[count as u8], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
                .is_ok()
        {
            self.untold.drain(..count);
        }
    }
}
