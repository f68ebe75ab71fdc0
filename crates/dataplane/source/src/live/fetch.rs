#![allow(unsafe_code)] // Tells the processor which memory follows.

//! Memory that is fetched before it is read. Another processor has written the packets, so the first access
//! to each of them takes as long as all other work on it.

/// Begins to fetch the first bytes at `start`: the headers of a packet, and what is before them. Any address
/// will do.
#[inline(always)]
pub fn fetch(start: *const u8) {
    #[cfg(target_arch = "x86_64")]
    for line in [0, 64, 128] {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing, whatever the address is.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = start;
}
