#![allow(unsafe_code)] // Memory from the allocator.

#[cfg(not(target_family = "wasm"))]
use std::alloc;
use std::alloc::Layout;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

#[cfg(all(target_family = "wasm", not(feature = "heap")))]
const PAGE: usize = 65_536;

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
        #[cfg(all(target_family = "wasm", feature = "heap"))]
        let start = crate::heap::fresh(layout);
        // Other allocators must expect that memory grows without them, and their own cost has no bound.
        #[cfg(all(target_family = "wasm", not(feature = "heap")))]
        let start = match core::arch::wasm32::memory_grow(0, layout.size().div_ceil(PAGE)) {
            usize::MAX => std::ptr::null_mut(),
            pages => (pages * PAGE) as *mut u8,
        };
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
        // SAFETY: as above, and there is no other borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

// Memory of a Wasm module is not given back: areas live as long as the instance.
#[cfg(not(target_family = "wasm"))]
impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: it came from the allocator with this layout.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}
