use crate::BlockError;
use crate::memfd::{SIZED, create_file, seal};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Memory of fixed size that modules map, some of them for writing. It begins as zeros and takes up memory
/// only where it was written.
///
/// This process does not map it itself: its bytes may change at any time, so no reference could refer to
/// them.
#[derive(Debug)]
pub struct AreaMemory {
    fd: OwnedFd,
    bytes: usize,
}

impl AreaMemory {
    /// Creates an area of `bytes`, a multiple of the page size.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses the memory or its seals.
    pub fn new(bytes: usize) -> Result<Self, BlockError> {
        let fd = create_file(bytes)?;
        seal(&fd, bytes, SIZED)?;
        Ok(Self { fd, bytes })
    }

    /// Returns the descriptor of the file, which the area still owns.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
