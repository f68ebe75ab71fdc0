#![allow(unsafe_code)] // Maps the linear memories of modules.

use crate::areas::Area;
use flame_abi::manifest::{Access, Shared};
use flame_block::SharedMemory;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

/// A file to map into a window.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    pub fd: RawFd,
    /// The page-aligned offset in `fd`.
    pub offset: usize,
    /// The number of bytes, a multiple of the page size.
    pub bytes: usize,
    /// The page-aligned address in the module's memory, at least `layout::WINDOW`.
    pub at: u32,
}

impl Mapping {
    /// Maps `memory` at the address `at` of a module.
    pub(crate) fn of(memory: &SharedMemory, at: u32) -> Self {
        Self { fd: memory.fd(), offset: memory.offset(), bytes: memory.bytes(), at }
    }

    /// Maps the area with this number among those of a module.
    pub(crate) fn of_area(area: &Area, number: usize) -> Self {
        let memory = area.memory();
        Self { fd: memory.fd(), offset: 0, bytes: memory.bytes(), at: Shared::address(number) }
    }
}

/// The size of a huge page in bytes. Tables of modules are larger than the memory that 4 KiB pages cover
/// without a page table walk per access: the module flow took a quarter less time with huge pages.
const HUGE: usize = 2 << 20;

/// The size in bytes from which on owned memory uses huge pages. A smaller module would only take more memory
/// than it needs.
const WORTH_HUGE: usize = 2 * HUGE;

/// Creates linear memories whose upper half is reserved for windows.
pub(crate) struct WindowMemory;

/// The address space of one module: its own memory at the bottom, windows from `layout::WINDOW` on, a guard
/// at the end. All addresses that are not mapped are inaccessible.
struct Reservation {
    /// The first byte of the address space, aligned to [`HUGE`].
    start: NonNull<u8>,
    /// The start of the mapping, which is a little larger because of the alignment.
    mapping: NonNull<u8>,
    mapped: usize,
    size: usize,
    maximum: usize,
}

// SAFETY: the mapping is not tied to a thread.
unsafe impl Send for Reservation {}
// SAFETY: `&Reservation` gives only numbers and the base pointer, whose use Wasmtime governs.
unsafe impl Sync for Reservation {}

// SAFETY: memory is zero-filled, never moves, and all of the reservation and guard that is not
// explicitly made accessible traps.
unsafe impl MemoryCreator for WindowMemory {
    fn new_memory(
        &self,
        _ty: MemoryType,
        minimum: usize,
        maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let limit = flame_abi::layout::MAX_MEMORY as usize;
        if minimum > limit {
            return Err(format!("a memory of {minimum} bytes, at most {limit} are possible"));
        }
        let reserved = reserved.unwrap_or(0) + guard;
        let mapped = reserved + HUGE;
        // SAFETY: a new inaccessible mapping at an address that the kernel chooses; the result is checked.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(format!(
                "reserving {reserved} bytes of address space: {}",
                io::Error::last_os_error()
            ));
        }
        let mapping: NonNull<u8> = NonNull::new(mapping.cast()).ok_or("address 0 was mapped")?;
        // SAFETY: the offset is less than HUGE, by which the mapping exceeds the part that is used.
        let start = unsafe { mapping.add(mapping.as_ptr().align_offset(HUGE)) };
        let maximum = maximum.unwrap_or(limit).min(limit);
        let mut memory = Reservation { start, mapping, mapped, size: 0, maximum };
        memory.grow_to(minimum).map_err(|e| e.to_string())?;
        Ok(Box::new(memory))
    }
}

// SAFETY: `byte_size` bytes at `as_ptr` are readable and writable and stay where they are.
unsafe impl LinearMemory for Reservation {
    fn byte_size(&self) -> usize {
        self.size
    }

    fn byte_capacity(&self) -> usize {
        self.maximum
    }

    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        if new_size > self.maximum {
            wasmtime::bail!("a memory of {new_size} bytes, at most {} are possible", self.maximum);
        }
        // SAFETY: inside the reservation and below WINDOW, so no window changes its protection.
        let ok = unsafe {
            libc::mprotect(self.start.as_ptr().cast(), new_size, libc::PROT_READ | libc::PROT_WRITE)
        };
        if ok != 0 {
            return Err(io::Error::last_os_error().into());
        }
        if new_size >= WORTH_HUGE {
            // SAFETY: own pages of the reservation; only a hint, so it may fail.
            unsafe { libc::madvise(self.start.as_ptr().cast(), new_size, libc::MADV_HUGEPAGE) };
        }
        self.size = new_size;
        Ok(())
    }

    fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the mapping made above with every window in it; the store that used it is gone.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

/// Maps `window` into the linear memory that starts at `base`.
///
/// `base` must be the base of a live memory that [`WindowMemory`] created, so only `Instance::new` calls this
/// function. Only the file of an [`Area`] can be mapped for writing, which is no memory that this process
/// refers to.
pub(crate) fn map_window(base: *mut u8, window: Mapping, access: Access) -> io::Result<()> {
    let end = u64::from(window.at) + window.bytes as u64;
    let aligned = window.at.is_multiple_of(4096) && window.offset.is_multiple_of(4096);
    if window.at < flame_abi::layout::WINDOW || end > 1 << 32 || !aligned {
        return Err(io::Error::other(format!("a window at {:#x} of {} bytes", window.at, window.bytes)));
    }
    let protection = match access {
        Access::Read => libc::PROT_READ,
        Access::Write => libc::PROT_READ | libc::PROT_WRITE,
    };
    // SAFETY: the range was just checked to lie in the reservation, above the module's own memory;
    // MAP_FIXED replaces only inaccessible pages of the reservation. With PROT_READ, a store from Wasm traps.
    let mapped = unsafe {
        libc::mmap(
            base.add(window.at as usize).cast(),
            window.bytes,
            protection,
            libc::MAP_SHARED | libc::MAP_FIXED,
            window.fd,
            window.offset as libc::off_t,
        )
    };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Loads machine code that this node compiled.
pub(crate) fn load(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<wasmtime::Module> {
    // SAFETY: `ModulePlan::code` is by contract the output of this node's own compiler with this
    // engine's configuration: the compile crate makes it, and its cache verifies a keyed MAC.
    // Wasmtime checks version and configuration on top.
    unsafe { wasmtime::Module::deserialize(engine, code) }
}
