#![allow(unsafe_code)] // Maps memory.

use crate::lease::Lease;
use crate::{BlockError, MAX_SLOTS, SLOT_BYTES, SLOT_DESCRIPTORS};
use flame_abi::Descriptor;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub(crate) const PAGE: usize = 4096;
const _: () = assert!(SLOT_BYTES.is_multiple_of(PAGE));

/// The seals that fix the size of a mapped file, because access to missing pages raises SIGBUS.
pub(crate) const SIZED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// The seals under which only existing mappings can be written through (Linux 5.1).
const READ_ONLY: SealFlags = SIZED.union(SealFlags::FUTURE_WRITE);

/// A part of a file, mapped and shared.
pub(crate) struct Mapping {
    pub(crate) start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping lives as long as the value and is not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference provides only the address; its users state why they may follow it.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: impl AsFd, offset: usize, bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        let (at, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: a new mapping at an address the kernel picks, which nothing else refers to.
        let start = unsafe { rustix::mm::mmap(at, bytes, protection, flags, file, offset as u64) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("address 0 was mapped"))?;
        Ok(Self { start, bytes })
    }

    /// Returns the address of `len` bytes at `offset` if they lie in the mapping.
    fn range(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.bytes);
        // SAFETY: `offset` is at most the end of the mapping.
        inside.then(|| unsafe { self.start.add(offset) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped once; all references to it borrowed `self`.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Creates a memfd of `bytes`.
pub(crate) fn create_file(bytes: usize) -> Result<OwnedFd, BlockError> {
    let fail = |step| move |error: io::Error| BlockError::Memory { bytes, step, error };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("flame-block", flags).map_err(|e| fail("memfd_create")(e.into()))?;
    rustix::fs::ftruncate(&fd, bytes as u64).map_err(|e| fail("ftruncate")(e.into()))?;
    Ok(fd)
}

/// Maps a part of a file for writing.
pub(crate) fn map_part(fd: &OwnedFd, offset: usize, bytes: usize) -> Result<Mapping, BlockError> {
    Mapping::new(fd, offset, bytes, ProtFlags::READ | ProtFlags::WRITE).map_err(|error| BlockError::Memory {
        bytes,
        step: "mmap",
        error,
    })
}

pub(crate) fn seal(fd: &OwnedFd, bytes: usize, seals: SealFlags) -> Result<(), BlockError> {
    rustix::fs::fcntl_add_seals(fd, seals | SealFlags::SEAL).map_err(|e| BlockError::Memory {
        bytes,
        step: "fcntl(F_ADD_SEALS)",
        error: e.into(),
    })
}

/// A memfd of fixed size, or a part of a [`Region`](crate::Region), that only its creator can write.
///
/// A memfd is mapped for writing here and then sealed, so its descriptor can be shared freely: it can only be
/// mapped for reading. Pages take up memory only once they are written.
pub struct SharedMemory {
    fd: Arc<OwnedFd>,
    offset: usize,
    mapping: Mapping,
    /// Returns the part to its region when dropped, after the mapping.
    _lease: Option<Lease>,
}

impl SharedMemory {
    /// Creates shared memory of `bytes`, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses the memory, its mapping or its seals.
    pub fn new(bytes: usize) -> Result<Self, BlockError> {
        let bytes = bytes.next_multiple_of(PAGE);
        let fd = create_file(bytes)?;
        let mapping = map_part(&fd, 0, bytes)?;
        seal(&fd, bytes, READ_ONLY)?;
        Ok(Self { fd: Arc::new(fd), offset: 0, mapping, _lease: None })
    }

    /// Maps `bytes` at `offset` of a region's file, whole pages that nothing else maps for writing.
    pub(crate) fn part(
        fd: Arc<OwnedFd>,
        offset: usize,
        bytes: usize,
        lease: Lease,
    ) -> Result<Self, BlockError> {
        let mapping = map_part(&fd, offset, bytes)?;
        Ok(Self { fd, offset, mapping, _lease: Some(lease) })
    }

    /// Returns the offset in the file of [`fd`](Self::fd).
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the descriptor of the file, which the memory still owns.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Returns the size of the mapping.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    /// Returns another descriptor to pass on.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd, BlockError> {
        let bytes = self.bytes();
        self.fd.try_clone().map_err(|error| BlockError::Memory { bytes, step: "fcntl(F_DUPFD)", error })
    }

    /// Returns `len` bytes at `offset` for writing. Readers elsewhere may see a write at any time; the pool's
    /// queues order blocks so that none is read half-written.
    ///
    /// # Panics
    ///
    /// Panics if the range does not lie in the mapping.
    pub fn slice_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        let start = self.mapping.range(offset, len).expect("range lies in the mapping");
        // SAFETY: in bounds, and `&mut self` makes it the only reference in this process; the seals
        // keep every other process from writing.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// Returns `len` bytes at `offset` for reading.
    ///
    /// # Panics
    ///
    /// Panics if the range does not lie in the mapping.
    pub fn slice(&self, offset: usize, len: usize) -> &[u8] {
        let start = self.mapping.range(offset, len).expect("range lies in the mapping");
        // SAFETY: in bounds; only this process can write, and it needs `&mut self` for that.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// Returns the descriptors and the packets' bytes of a slot.
    pub(crate) fn slot_mut(&mut self, slot: usize) -> (&mut [Descriptor], &mut [u8]) {
        let bytes = self.slice_mut(slot * SLOT_BYTES, SLOT_BYTES);
        let (descriptors, data) = bytes.split_at_mut(SLOT_DESCRIPTORS);
        // SAFETY: a descriptor is plain numbers, so any bytes are one; slots are page-aligned.
        let (before, descriptors, after) = unsafe { descriptors.align_to_mut::<Descriptor>() };
        debug_assert!(before.is_empty() && after.is_empty());
        (descriptors, data)
    }
}

/// All slots of a pool, mapped read-only by a reader.
pub(crate) struct Slots {
    fd: OwnedFd,
    mapping: Mapping,
}

impl Slots {
    /// Maps slots that a writer created.
    pub(crate) fn open(fd: OwnedFd) -> Result<Self, BlockError> {
        const NAME: &str = "data";
        let bytes = checked(&fd, NAME, READ_ONLY)?;
        if !bytes.is_multiple_of(SLOT_BYTES) || !(1..=MAX_SLOTS).contains(&(bytes / SLOT_BYTES)) {
            let expected = format!("1 to {MAX_SLOTS} slots of {SLOT_BYTES} bytes");
            return Err(unexpected(NAME, expected, format!("{bytes} bytes")));
        }
        let mapping = map(&fd, NAME, bytes, ProtFlags::READ)?;
        Ok(Self { fd, mapping })
    }

    pub(crate) fn window(&self) -> (RawFd, usize, usize) {
        (self.fd.as_raw_fd(), 0, self.mapping.bytes)
    }

    /// Copies bytes of a slot. Returns false if they do not lie in it.
    pub(crate) fn copy(&self, slot: usize, offset: usize, into: &mut [u8]) -> bool {
        let in_slot = offset.checked_add(into.len()).is_some_and(|end| end <= SLOT_BYTES);
        let at = slot.checked_mul(SLOT_BYTES).and_then(|start| start.checked_add(offset));
        let Some(start) = at.filter(|_| in_slot).and_then(|at| self.mapping.range(at, into.len())) else {
            return false;
        };
        for (i, byte) in into.iter_mut().enumerate() {
            // SAFETY: in bounds. Atomic, as the writer may write the slot meanwhile if it has removed
            // this reader; a relaxed load needs no write access.
            *byte = unsafe { start.add(i).cast::<AtomicU8>().as_ref() }.load(Ordering::Relaxed);
        }
        true
    }
}

pub(crate) fn unexpected(name: &'static str, expected: String, found: String) -> BlockError {
    BlockError::Unexpected { name, expected, found }
}

/// Returns the size of a passed descriptor, after checking that it has at least these seals.
pub(crate) fn checked(fd: &OwnedFd, name: &'static str, seals: SealFlags) -> Result<usize, BlockError> {
    let fail = |step| move |e: rustix::io::Errno| BlockError::Descriptor { name, step, error: e.into() };
    let found = rustix::fs::fcntl_get_seals(fd).map_err(fail("fcntl(F_GET_SEALS)"))?;
    if !found.contains(seals) {
        return Err(unexpected(name, format!("the seals {seals:?}"), format!("{found:?}")));
    }
    // The seals are checked first, because they fix the size.
    let bytes = rustix::fs::fstat(fd).map_err(fail("fstat"))?.st_size;
    usize::try_from(bytes).map_err(|e| BlockError::Descriptor {
        name,
        step: "size",
        error: io::Error::other(e),
    })
}

pub(crate) fn map(
    fd: &OwnedFd,
    name: &'static str,
    bytes: usize,
    protection: ProtFlags,
) -> Result<Mapping, BlockError> {
    Mapping::new(fd, 0, bytes, protection).map_err(|error| BlockError::Descriptor {
        name,
        step: "mmap",
        error,
    })
}
