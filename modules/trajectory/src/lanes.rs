//! Eight numbers of 32 bits in parallel: two registers on Wasm, where the compiler would keep them in eight;
//! an array elsewhere. There are two, because each step of a hash waits for the one before: while one
//! register waits, the other works.

/// The number of lanes.
pub const LANES: usize = 8;

pub use vector::Lanes;

#[cfg(target_arch = "wasm32")]
mod vector {
    use super::LANES;
    use core::arch::wasm32::{
        i32x4_add, i32x4_sub, u32x4, u32x4_extract_lane, u32x4_shl, u32x4_shr, v128, v128_bitselect, v128_xor,
    };

    #[derive(Clone, Copy)]
    pub struct Lanes([v128; 2]);

    impl Lanes {
        #[inline]
        pub fn new(n: [u32; LANES]) -> Self {
            Self([u32x4(n[0], n[1], n[2], n[3]), u32x4(n[4], n[5], n[6], n[7])])
        }

        #[inline]
        pub fn get(self) -> [u32; LANES] {
            let mut all = [0; LANES];
            for (four, n) in all.as_chunks_mut::<4>().0.iter_mut().zip(self.0) {
                *four = [
                    u32x4_extract_lane::<0>(n),
                    u32x4_extract_lane::<1>(n),
                    u32x4_extract_lane::<2>(n),
                    u32x4_extract_lane::<3>(n),
                ];
            }
            all
        }

        #[inline]
        fn with(self, other: Self, f: impl Fn(v128, v128) -> v128) -> Self {
            Self([f(self.0[0], other.0[0]), f(self.0[1], other.0[1])])
        }

        #[inline]
        pub fn plus(self, other: Self) -> Self {
            self.with(other, |a, b| i32x4_add(a, b))
        }

        #[inline]
        pub fn minus(self, other: Self) -> Self {
            self.with(other, |a, b| i32x4_sub(a, b))
        }

        #[inline]
        pub fn xor(self, other: Self) -> Self {
            self.with(other, |a, b| v128_xor(a, b))
        }

        #[inline]
        pub fn left(self, by: u32) -> Self {
            Self(self.0.map(|n| u32x4_shl(n, by)))
        }

        #[inline]
        pub fn right(self, by: u32) -> Self {
            Self(self.0.map(|n| u32x4_shr(n, by)))
        }

        /// Returns the bits of `self`, and those of `other` where `mask` has 0.
        #[inline]
        pub fn or_else(self, mask: Self, other: Self) -> Self {
            let [a, b] = [0, 1].map(|i: usize| v128_bitselect(self.0[i], other.0[i], mask.0[i]));
            Self([a, b])
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod vector {
    use super::LANES;

    #[derive(Clone, Copy)]
    pub struct Lanes([u32; LANES]);

    impl Lanes {
        #[inline]
        pub fn new(n: [u32; LANES]) -> Self {
            Self(n)
        }

        #[inline]
        pub fn get(self) -> [u32; LANES] {
            self.0
        }

        #[inline]
        fn with(self, other: Self, f: impl Fn(u32, u32) -> u32) -> Self {
            let (a, b) = (self.0, other.0);
            Self([
                f(a[0], b[0]),
                f(a[1], b[1]),
                f(a[2], b[2]),
                f(a[3], b[3]),
                f(a[4], b[4]),
                f(a[5], b[5]),
                f(a[6], b[6]),
                f(a[7], b[7]),
            ])
        }

        #[inline]
        pub fn plus(self, other: Self) -> Self {
            self.with(other, u32::wrapping_add)
        }

        #[inline]
        pub fn minus(self, other: Self) -> Self {
            self.with(other, u32::wrapping_sub)
        }

        #[inline]
        pub fn xor(self, other: Self) -> Self {
            self.with(other, |a, b| a ^ b)
        }

        #[inline]
        pub fn left(self, by: u32) -> Self {
            self.with(self, |a, _| a << by)
        }

        #[inline]
        pub fn right(self, by: u32) -> Self {
            self.with(self, |a, _| a >> by)
        }

        /// Returns the bits of `self`, and those of `other` where `mask` has 0.
        #[inline]
        pub fn or_else(self, mask: Self, other: Self) -> Self {
            self.xor(other).with(mask, |a, b| a & b).xor(other)
        }
    }
}
