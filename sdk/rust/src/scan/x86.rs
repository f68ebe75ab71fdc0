#![allow(unsafe_code)] // Instructions that not every processor has.

use super::Scan;
use super::vector::{LANES, Vector};
use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    _mm_setzero_si128, _mm_shuffle_epi8, _mm_srli_epi16,
};

impl Vector for __m128i {
    #[inline(always)]
    fn load(bytes: &[u8; LANES]) -> Self {
        // SAFETY: sixteen bytes are there, and this load needs no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn look_up(self, table: Self) -> Self {
        // SAFETY: only `vectors` uses this type, on a processor that has SSSE3.
        unsafe { _mm_shuffle_epi8(table, self) }
    }

    #[inline(always)]
    fn low_half(self) -> Self {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_and_si128(self, _mm_set1_epi8(15)) }
    }

    #[inline(always)]
    fn high_half(self) -> Self {
        // SAFETY: SSE2 is part of x86-64. Bits from the neighbouring byte are masked.
        unsafe { _mm_and_si128(_mm_srli_epi16(self, 4), _mm_set1_epi8(15)) }
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_and_si128(self, other) }
    }

    #[inline(always)]
    fn nonzero(self) -> u32 {
        // SAFETY: SSE2 is part of x86-64.
        !unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(self, _mm_setzero_si128())) } as u32 & 0xffff
    }
}

#[target_feature(enable = "ssse3")]
fn vectors(scan: &Scan, payload: &[u8], from: usize) -> usize {
    super::vector::find::<__m128i>(scan, payload, from)
}

#[inline]
pub(super) fn find(scan: &Scan, payload: &[u8], from: usize) -> usize {
    if std::arch::is_x86_feature_detected!("ssse3") {
        // SAFETY: the feature was just detected.
        unsafe { vectors(scan, payload, from) }
    } else {
        scan.slowly(payload, from)
    }
}

#[target_feature(enable = "ssse3")]
fn vector(scan: &Scan, payload: &[u8], from: usize) -> Option<u32> {
    super::vector::places::<__m128i>(scan, payload, from)
}

#[inline]
pub(super) fn places(scan: &Scan, payload: &[u8], from: usize) -> Option<u32> {
    if std::arch::is_x86_feature_detected!("ssse3") {
        // SAFETY: the feature was just detected.
        unsafe { vector(scan, payload, from) }
    } else {
        scan.places_slowly(payload, from)
    }
}
