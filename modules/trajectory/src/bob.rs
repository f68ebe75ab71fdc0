//! The hash function BOB of RFC 5475 (section 6.2.4.1 and appendix A.2): Bob Jenkins' lookup2 of 1996.
//!
//! A [`Key`] contains the hash input in blocks of twelve bytes, its last block already in the form that the
//! function requires. One key takes some 27 dependent steps per block, so [`LANES`] keys are hashed at a
//! time, in parallel.

use crate::lanes::{LANES, Lanes};

/// The largest size of a key in bytes; its length must fit the one byte that is kept for it.
pub const MOST: usize = 107;

const GOLDEN: u32 = 0x9e37_79b9;

/// The largest number of blocks of a key.
const MOST_BLOCKS: usize = 9;

/// The input of the hash, at most [`MOST`] bytes.
#[derive(Clone, Copy)]
pub struct Key {
    bytes: [u8; 108],
    blocks: usize,
}

impl Default for Key {
    fn default() -> Self {
        Self { bytes: [0; 108], blocks: 0 }
    }
}

impl Key {
    /// Returns the buffer into which a key is written; [`Key::end`] completes it.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8; 108] {
        &mut self.bytes
    }

    /// Makes the first `len` bytes the key: the third word of its last block leaves the lowest byte to the
    /// length.
    #[inline]
    pub fn end(&mut self, len: usize) {
        let len = len.min(MOST);
        let start = len / 12 * 12;
        self.blocks = start / 12 + 1;
        let Some(last) = self.bytes[start..].first_chunk_mut::<12>() else { return };
        let filled = (len - start) as u32 * 8;
        let [low, high] = [0, 8].map(|at| last.get(at..).map_or(0, eight));
        // Two numbers masked to the filled bytes, because a shift of 128 bits is a call.
        let below = |bits: u32| 1u64.checked_shl(bits).map_or(u64::MAX, |n| n - 1);
        let third = (high & below(filled.saturating_sub(64))) as u32;
        last[..8].copy_from_slice(&(low & below(filled)).to_le_bytes());
        last[8..].copy_from_slice(&(third << 8 | len as u32).to_le_bytes());
    }

    pub fn new(key: &[u8]) -> Self {
        let mut new = Self::default();
        let len = key.len().min(MOST);
        new.bytes[..len].copy_from_slice(&key[..len]);
        new.end(len);
        new
    }

    #[inline]
    fn words(&self, block: usize) -> [u32; 3] {
        match self.bytes.as_chunks::<12>().0.get(block) {
            Some(b) => [0, 4, 8].map(|i| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]])),
            None => [0; 3],
        }
    }
}

/// Returns up to eight bytes as a number.
#[inline]
fn eight(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(b) => u64::from_le_bytes(*b),
        None => bytes.iter().take(4).rev().fold(0, |n, b| n << 8 | u64::from(*b)),
    }
}

/// Mixes three words reversibly; the shifts and their order are the function's definition.
#[inline]
fn mix([mut a, mut b, mut c]: [Lanes; 3]) -> [Lanes; 3] {
    for [p, q, r] in [[13, 8, 13], [12, 16, 5], [3, 10, 15]] {
        a = a.minus(b).minus(c).xor(c.right(p));
        b = b.minus(c).minus(a).xor(a.left(q));
        c = c.minus(a).minus(b).xor(b.right(r));
    }
    [a, b, c]
}

/// Returns the hashes of eight keys; `seeds` are the initial values.
#[inline]
pub fn bobs(keys: [&Key; LANES], seeds: [u32; LANES]) -> [u32; LANES] {
    let golden = Lanes::new([GOLDEN; LANES]);
    let mut state = [golden, golden, Lanes::new(seeds)];
    let blocks = keys.map(|key| key.blocks.min(MOST_BLOCKS));
    let least = blocks.iter().fold(MOST_BLOCKS, |n, of| n.min(*of));
    let most = blocks.iter().fold(0, |n, of| n.max(*of));
    for block in 0..MOST_BLOCKS {
        if block >= most {
            break;
        }
        let words = keys.map(|key| key.words(block));
        let of = |i: usize| Lanes::new(words.map(|w| w[i]));
        let mixed = mix([state[0].plus(of(0)), state[1].plus(of(1)), state[2].plus(of(2))]);
        if block < least {
            state = mixed;
            continue;
        }
        // A lane whose key has ended keeps its state.
        let on = Lanes::new(blocks.map(|end| if block < end { u32::MAX } else { 0 }));
        for (state, mixed) in state.iter_mut().zip(mixed) {
            *state = mixed.or_else(on, *state);
        }
    }
    state[2].get()
}

/// Returns the hash of a key of at most [`MOST`] bytes.
pub fn bob(key: &Key, seed: u32) -> u32 {
    bobs([key; LANES], [seed; LANES])[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Implements the function as the RFC describes it: one byte at a time, one key.
    fn plainly(key: &[u8], seed: u32) -> u32 {
        let (mut a, mut b, mut c) = (GOLDEN, GOLDEN, seed);
        let mut mix = |k: &dyn Fn(usize) -> u32, length: u32| {
            let sum = |from: usize, to: usize, shift: usize| {
                (from..to).fold(0u32, |n, i| n.wrapping_add(k(i) << (8 * (i - from) + shift)))
            };
            a = a.wrapping_add(sum(0, 4, 0));
            b = b.wrapping_add(sum(4, 8, 0));
            let third = if length > 0 { sum(8, 11, 8) } else { sum(8, 12, 0) };
            c = c.wrapping_add(third).wrapping_add(length);
            for (p, q, r) in [(13, 8, 13), (12, 16, 5), (3, 10, 15)] {
                a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> p);
                b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << q);
                c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> r);
            }
            c
        };
        let whole = key.len() / 12 * 12;
        for block in key[..whole].chunks(12) {
            mix(&|i| block[i].into(), 0);
        }
        let rest = &key[whole..];
        // A length of 0 adds nothing and the rest is empty, so either form of the third word is correct.
        mix(&|i| rest.get(i).copied().unwrap_or(0).into(), key.len() as u32)
    }

    /// Compares with values on which other implementations agree.
    #[test]
    fn known_values() {
        for (key, hash) in [
            ("foobar", 0x9d3f_fa02),
            ("hello world", 0x1aa9_19e6),
            ("           ", 0xf559_76fa),
            ("1234567890abcdefghijklmnopqstuvwxyz", 0x49ea_ee3e),
            ("", 0xbd49_d10d),
        ] {
            assert_eq!(bob(&Key::new(key.as_bytes()), 0), hash, "{key:?}");
            assert_eq!(plainly(key.as_bytes(), 0), hash, "{key:?}, plainly");
        }
    }

    proptest! {
        #[test]
        fn many_at_once_are_each_as_the_rfc_words_it(
            keys in prop::array::uniform8(prop::collection::vec(any::<u8>(), 0..=MOST)),
            seeds in any::<[u32; LANES]>(),
        ) {
            let padded = keys.each_ref().map(|k| Key::new(k));
            let lanes = bobs(padded.each_ref(), seeds);
            prop_assert_eq!(lanes, std::array::from_fn(|i| plainly(&keys[i], seeds[i])));
        }

        /// Bytes left by an earlier key do not matter.
        #[test]
        fn a_key_may_be_written_over(a in prop::collection::vec(any::<u8>(), 0..=MOST), n in 0usize..=MOST) {
            let mut key = Key { bytes: [0xa5; 108], blocks: 0 };
            let n = n.min(a.len());
            key.bytes()[..n].copy_from_slice(&a[..n]);
            key.end(n);
            prop_assert_eq!(bob(&key, 7), plainly(&a[..n], 7));
        }
    }
}
