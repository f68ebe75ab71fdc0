#![allow(unsafe_code)] // Memory from the allocator.

use std::alloc::{self, Layout};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Memory for output. Unlike a `Vec`, it is not cleared, so no page is touched before it is written, and a
/// failed allocation is reported.
pub struct Area {
    start: NonNull<u8>,
    layout: Layout,
}

impl Area {
    /// Returns an area of `size` bytes, or `None` if the instance may not have that much more memory.
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
        // SAFETY: these bytes belong to this area alone as long as it lives.
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
