#![allow(unsafe_code)] // Loads of vectors.

use super::Scan;
use super::vector::{LANES, Vector};
use core::arch::wasm32::{
    u8x16_bitmask, u8x16_ne, u8x16_shr, u8x16_splat, u8x16_swizzle, v128, v128_and, v128_load,
};

impl Vector for v128 {
    #[inline(always)]
    fn load(bytes: &[u8; LANES]) -> Self {
        // SAFETY: sixteen bytes are there; Wasm's loads need no alignment.
        unsafe { v128_load(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn look_up(self, table: Self) -> Self {
        u8x16_swizzle(table, self)
    }

    #[inline(always)]
    fn low_half(self) -> Self {
        v128_and(self, u8x16_splat(15))
    }

    #[inline(always)]
    fn high_half(self) -> Self {
        u8x16_shr(self, 4)
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        v128_and(self, other)
    }

    #[inline(always)]
    fn nonzero(self) -> u32 {
        u32::from(u8x16_bitmask(u8x16_ne(self, u8x16_splat(0))))
    }
}

#[inline]
pub(super) fn find(scan: &Scan, payload: &[u8], from: usize) -> usize {
    super::vector::find::<v128>(scan, payload, from)
}

#[inline(always)]
pub(super) fn places(scan: &Scan, payload: &[u8], from: usize) -> Option<u32> {
    super::vector::places::<v128>(scan, payload, from)
}
