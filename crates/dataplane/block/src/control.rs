#![allow(unsafe_code)] // Reads a queue in shared memory.

use crate::BlockError;
use crate::memfd::{Mapping, PAGE, SIZED, checked, create_file, map, map_part, seal, unexpected};
use crate::queue::Queue;
use rustix::mm::ProtFlags;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const _: () = assert!(size_of::<Queue>() <= PAGE);

/// The memory that holds a queue.
pub(crate) enum Control {
    /// Plain memory: both ends are in this process.
    Local(Arc<Queue>),
    Shared(ControlPage),
}

impl Control {
    #[inline]
    pub(crate) fn queue(&self) -> &Queue {
        match self {
            Self::Local(queue) => queue,
            Self::Shared(page) => page.queue(),
        }
    }
}

/// A control page that another process also maps, and may overwrite.
pub(crate) struct ControlPage {
    mapping: Mapping,
}

impl ControlPage {
    /// Creates a page of zeros and a descriptor to pass on.
    pub(crate) fn new() -> Result<(Self, OwnedFd), BlockError> {
        let fd = create_file(PAGE)?;
        let mapping = map_part(&fd, 0, PAGE)?;
        seal(&fd, PAGE, SIZED)?;
        Ok((Self { mapping }, fd))
    }

    /// Maps a page that a writer created.
    pub(crate) fn open(fd: &OwnedFd) -> Result<Self, BlockError> {
        const NAME: &str = "control";
        let bytes = checked(fd, NAME, SIZED)?;
        if bytes != PAGE {
            return Err(unexpected(NAME, format!("a page of {PAGE} bytes"), format!("{bytes} bytes")));
        }
        Ok(Self { mapping: map(fd, NAME, bytes, ProtFlags::READ | ProtFlags::WRITE)? })
    }

    pub(crate) fn queue(&self) -> &Queue {
        // SAFETY: the mapping is a page, page-aligned and not smaller than a queue. A queue is only
        // atomics, of which any bits are one and which others may change at any time.
        unsafe { self.mapping.start.cast::<Queue>().as_ref() }
    }
}
