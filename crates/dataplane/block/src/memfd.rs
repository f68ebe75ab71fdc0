#![allow(unsafe_code)] // Maps memory.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr::NonNull;

/// Why shared memory could not be had.
#[derive(Debug, thiserror::Error)]
#[error("shared memory of {bytes} bytes: {step}: {error}")]
pub struct BlockError {
    pub bytes: usize,
    pub step: &'static str,
    pub error: std::io::Error,
}

/// A memfd of fixed size, mapped for writing in this process. Others map its descriptor read-only.
///
/// Pages take up memory only once they are written.
pub struct SharedMemory {
    file: File,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping lives as long as the value and is not tied to a thread.
unsafe impl Send for SharedMemory {}
// SAFETY: a shared reference gives out only the descriptor and atomics (see `atomic_*`).
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// `bytes` is rounded up to whole pages.
    pub fn new(bytes: usize) -> Result<Self, BlockError> {
        let bytes = bytes.next_multiple_of(4096);
        let fail = |step| BlockError { bytes, step, error: std::io::Error::last_os_error() };
        // SAFETY: a constant NUL-terminated name; the result is checked.
        let fd = unsafe {
            libc::memfd_create(c"flame-block".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(fail("memfd_create"));
        }
        // SAFETY: `fd` was just made and is owned by nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes as u64).map_err(|error| BlockError { bytes, step: "ftruncate", error })?;
        // The size is sealed: a reader's mapping can never be cut short under it (SIGBUS).
        // SAFETY: plain system call on our own descriptor.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) } < 0 {
            return Err(fail("fcntl(F_ADD_SEALS)"));
        }
        // SAFETY: a new mapping at an address the kernel picks; the result is checked.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(fail("mmap"));
        }
        let start = NonNull::new(start.cast()).expect("mmap never maps address 0 unasked");
        Ok(Self { file, start, bytes })
    }

    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of `range`, to write. Readers elsewhere may see a write at any time; what they must
    /// not see half-written is ordered by the pool's atomics.
    ///
    /// Panics if the range does not lie inside.
    pub fn slice_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.bytes), "range lies in the mapping");
        // SAFETY: in bounds, and `&mut self` makes it the only reference in this process.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(offset), len) }
    }

    /// The bytes of `range`, to read. Panics if the range does not lie inside.
    pub fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.bytes), "range lies in the mapping");
        // SAFETY: in bounds; only this process writes, and it needs `&mut self` for that.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), len) }
    }

    /// The 64-bit atomic number `index` of the head (the pool keeps slices away from it).
    pub(crate) fn atomic(&self, index: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(index < self.bytes / 8, "atomic lies in the mapping");
        // SAFETY: in bounds, aligned (mappings are page-aligned), and only ever accessed atomically.
        unsafe { &*self.start.as_ptr().cast::<std::sync::atomic::AtomicU64>().add(index) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, given back once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
