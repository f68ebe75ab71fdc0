#![allow(unsafe_code)] // Memory from the allocator.

use std::alloc::{self, Layout};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Memory for output. Unlike a `Vec` it is not cleared, so that none of it is touched before something is
/// written, and it says when there is none.
pub struct Area {
    start: NonNull<u8>,
    layout: Layout,
}

impl Area {
    /// Nothing if the instance may not have so much more.
    pub fn new(size: usize) -> Option<Self> {
        let layout = Layout::from_size_align(size.max(1), 16).ok()?;
        #[cfg(target_family = "wasm")]
        // SAFETY: the layout's size is not 0. Bytes of a Wasm memory always have a value.
        let start = unsafe { alloc::alloc(layout) };
        #[cfg(not(target_family = "wasm"))]
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        Some(Self { start: NonNull::new(start)?, layout })
    }
}

impl Deref for Area {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes belong to this area alone, as long as it lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Area {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else borrows it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: it came from the allocator with this layout.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}
