//! Sets of bytes.

use regex_syntax::hir::ClassBytesRange;

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set([u128; 2]);

impl Set {
    pub const NONE: Self = Self([0; 2]);
    pub const ALL: Self = Self([u128::MAX; 2]);

    /// Returns the bytes from `first` to `last`.
    pub fn range(first: u8, last: u8) -> Self {
        (first..=last).fold(Self::NONE, |set, byte| set.or(Self::of(byte)))
    }

    pub fn of(byte: u8) -> Self {
        let mut bits = [0; 2];
        bits[usize::from(byte >> 7)] = 1 << (byte & 127);
        Self(bits)
    }

    /// Returns the set of these bytes.
    pub fn all_of(bytes: &[u8]) -> Self {
        bytes.iter().fold(Self::NONE, |set, byte| set.or(Self::of(*byte)))
    }

    pub fn has(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 7)] >> (byte & 127) & 1 != 0
    }

    pub fn or(self, other: Self) -> Self {
        Self([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    pub fn and(self, other: Self) -> Self {
        Self([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    pub fn not(self) -> Self {
        Self([!self.0[0], !self.0[1]])
    }

    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Adds the other case of each ASCII letter.
    pub fn in_any_case(self) -> Self {
        let letters = (b'a'..=b'z').filter(|b| self.has(*b) || self.has(b.to_ascii_uppercase()));
        letters.fold(self, |set, b| set.or(Self::of(b)).or(Self::of(b.to_ascii_uppercase())))
    }

    /// Returns the runs of bytes in the set.
    pub fn ranges(self) -> Vec<ClassBytesRange> {
        let mut all: Vec<ClassBytesRange> = Vec::new();
        for (half, base) in self.0.into_iter().zip([0u8, 128]) {
            let mut left = half;
            while left != 0 {
                let first = left.trailing_zeros() as u8;
                let length = (left >> first).trailing_ones() as u8;
                let run = u128::MAX >> (128 - u32::from(length)) << first;
                left &= !run;
                let (first, last) = (base + first, base + first + (length - 1));
                match all.last_mut() {
                    Some(before) if before.end() == 127 && first == 128 => {
                        *before = ClassBytesRange::new(before.start(), last);
                    }
                    _ => all.push(ClassBytesRange::new(first, last)),
                }
            }
        }
        all
    }
}
