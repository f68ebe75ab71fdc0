#![allow(unsafe_code)] // An allocator is made of addresses.
//! The heap of a module. Every request takes the same few instructions, so the cost of a module stays bounded
//! (`flame check`). The usual allocators search lists of any length.
//!
//! Block sizes start at 16 bytes, with four sizes per doubling, so at most a quarter of a block is lost.
//! Freed blocks wait in a list of their size and are never merged. New blocks are taken in order from the end
//! of memory, which is already 0, so a large table of zeros costs no more than a small one. A block at the
//! end grows in place.
//!
//! Wasm has one thread, and no signal handler calls this code.

mod class;

use class::{CLASSES, LEAST, class};
use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32::{memory_grow, memory_size};
use core::cell::UnsafeCell;
use core::ptr::{self, null_mut};

const PAGE: usize = 65_536;
/// The least number of pages that memory grows by at a time.
const GROW: usize = 16;

struct Heap(UnsafeCell<State>);

struct State {
    /// The first free block of each class; each block contains the address of the next.
    free: [*mut u8; CLASSES],
    /// The start of memory that was never handed out; 0 before the first request.
    next: usize,
    end: usize,
}

// SAFETY: a module has one thread.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(State { free: [null_mut(); CLASSES], next: 0, end: 0 }));

unsafe extern "C" {
    /// A symbol of the linker, after data and stack.
    static __heap_base: u8;
}

impl State {
    /// Returns new memory of `bytes` bytes at a multiple of `align`, all 0. `reach` extends memory to an
    /// address.
    #[inline]
    fn fresh(&mut self, bytes: usize, align: usize, reach: impl Fn(&mut Self, usize) -> bool) -> *mut u8 {
        if self.next == 0 {
            self.next = (&raw const __heap_base) as usize;
            self.end = memory_size(0) * PAGE;
        }
        let Some(start) = self.next.checked_add(align - 1).map(|n| n & !(align - 1)) else {
            return null_mut();
        };
        let Some(after) = start.checked_add(bytes) else { return null_mut() };
        if !reach(self, after) {
            return null_mut();
        }
        self.next = after;
        start as *mut u8
    }

    /// Returns whether memory now extends to `after`.
    fn reach(&mut self, after: usize) -> bool {
        if after <= self.end {
            return true;
        }
        let pages = (after - self.end).div_ceil(PAGE);
        // Memory grows by a little more than is needed, so that growth is rare; near the limit, by exactly as
        // much.
        self.grow(pages.max(GROW)) || self.grow(pages)
    }

    /// Returns whether memory now extends to `after`, and no further than it must.
    #[inline]
    fn reach_exactly(&mut self, after: usize) -> bool {
        after <= self.end || self.grow((after - self.end).div_ceil(PAGE))
    }

    #[inline]
    fn grow(&mut self, pages: usize) -> bool {
        let is_grown = memory_grow(0, pages) != usize::MAX;
        if is_grown {
            self.end += pages * PAGE;
        }
        is_grown
    }

    fn take(&mut self, layout: Layout) -> (*mut u8, bool) {
        let Some((class, bytes)) = class(layout.size()) else { return (null_mut(), false) };
        let first = self.free[class];
        // Blocks in a list are only known to be aligned to 16 bytes.
        if first.is_null() || layout.align() > 1 << LEAST {
            return (self.fresh(bytes, layout.align().max(1 << LEAST), Self::reach), true);
        }
        // SAFETY: a free block has at least 16 bytes, which begin with the address of the next one, and
        // nothing else refers to it.
        self.free[class] = unsafe { first.cast::<*mut u8>().read() };
        (first, false)
    }
}

/// Returns new memory that is never freed, or null. Unlike a request to the allocator, it executes
/// `memory.grow` at most once.
pub fn fresh(layout: Layout) -> *mut u8 {
    // SAFETY: one thread, and no call into this from within it.
    let state = unsafe { &mut *HEAP.0.get() };
    state.fresh(layout.size(), layout.align(), State::reach_exactly)
}

/// Returns whether a block of `bytes` bytes is free, or memory for it, after it has grown by as much as is
/// missing.
pub fn reserve(bytes: usize) -> bool {
    let Some((class, bytes)) = class(bytes) else { return false };
    // SAFETY: one thread, and no call into this from within it.
    let state = unsafe { &mut *HEAP.0.get() };
    if !state.free[class].is_null() {
        return true;
    }
    // Nothing is taken: at first only the start of memory is found.
    state.fresh(0, 1, |_, _| true);
    let next = state.next;
    let block = state.fresh(bytes, 1 << LEAST, State::reach_exactly);
    state.next = next;
    !block.is_null()
}

// SAFETY: blocks come from memory that is the module's own, do not overlap, and are given out once until they
// are given back; a class is found again from the layout, which the caller must keep.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: one thread, and no call into this from within it.
        unsafe { &mut *self.0.get() }.take(layout).0
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let (block, fresh) = unsafe { &mut *self.0.get() }.take(layout);
        if !block.is_null() && !fresh {
            // SAFETY: the block has at least this many bytes.
            unsafe { ptr::write_bytes(block, 0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        let state = unsafe { &mut *self.0.get() };
        if let Some((class, _)) = class(layout.size()) {
            // SAFETY: the block is the heap's again, and at least 16 bytes.
            unsafe { block.cast::<*mut u8>().write(state.free[class]) };
            state.free[class] = block;
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let state = unsafe { &mut *self.0.get() };
        if let (Some((old, bytes)), Some((new, needed))) = (class(layout.size()), class(size)) {
            if old == new {
                return block;
            }
            // The last block handed out grows in place.
            let start = block as usize;
            if needed > bytes && start + bytes == state.next && state.reach(start + needed) {
                state.next = start + needed;
                return block;
            }
        }
        // SAFETY: `layout` with another size is valid, as the caller guarantees.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both have at least the lesser of the sizes, and are apart.
            unsafe {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}
