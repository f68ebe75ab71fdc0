//! The memory of the instance. It grows up to a limit, and never shrinks: blocks that are freed wait for
//! later allocations of their size.

/// Requests memory for a block of `bytes` bytes, and returns whether there is some: an allocation of so much
/// then succeeds, as long as no other takes its place.
///
/// An allocation that fails ends the instance. `Vec::try_reserve` reports the failure instead, for one
/// collection.
pub fn reserve(bytes: usize) -> bool {
    #[cfg(all(target_arch = "wasm32", feature = "heap"))]
    return crate::heap::reserve(bytes);
    // Other allocators keep a block that was freed.
    #[cfg(not(all(target_arch = "wasm32", feature = "heap")))]
    return Vec::<u8>::new().try_reserve_exact(bytes).is_ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_can_be_is_refused() {
        assert!(reserve(0) && reserve(1 << 20));
        assert!(!reserve(usize::MAX));
    }
}
