//! hash: replaces a field by a keyed pseudorandom value of the same width.
//!
//! Usage:    --transform FIELD=hash --key FILE
//!           FIELD is mac, ip or port, or one side of it: mac.src, ip.dst, port.src
//! Expects:  a key of 32 bytes or 64 hexadecimal digits. Under a policy the node supplies one for each
//!           principal.
//! Gives:    equal values for equal fields, on either side and in every packet, and nothing else.
//!           Different values may collide: two ports do so with probability 1/65536.
//! Example:  flame run flow -r FILE --transform port=hash --key KEY
//! Related:  prefix, truncate, zero

use crate::Key;
use aes::Aes128Enc;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use sha2::{Digest, Sha256};

/// The kind of flow hashes, after the kinds of fields.
const FLOW: u8 = 4;

/// CBC-MAC under AES-128 over `kind | width | value`, zero-padded to blocks. Because the length comes first,
/// no message is a prefix of another, so this is a pseudorandom function (Bellare, Kilian, Rogaway 2000). The
/// AES key is SHA-256 of a label and the view's key, separate from that of `prefix`.
pub(super) struct Hash(Aes128Enc);

impl Hash {
    pub(super) fn new(key: &Key) -> Self {
        let digest = Sha256::new().chain_update(b"flame view hash 1").chain_update(key.bytes()).finalize();
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        Self(Aes128Enc::new(&half.into()))
    }

    pub(super) fn apply(&self, kind: u8, value: &mut [u8]) {
        let mut block = [0; 16];
        (block[0], block[1]) = (kind, value.len() as u8);
        let first = value.len().min(14);
        block[2..2 + first].copy_from_slice(&value[..first]);
        let mut state = block.into();
        self.0.encrypt_block(&mut state);
        if value.len() > first {
            for (s, v) in state.iter_mut().zip(&value[first..]) {
                *s ^= v;
            }
            self.0.encrypt_block(&mut state);
        }
        let n = value.len();
        value.copy_from_slice(&state[..n]);
    }
}

/// The number of blocks encrypted at a time, to fill the pipeline of the AES unit.
const LANES: usize = 8;

/// The flow hash of descriptors under a key: it distinguishes flows without revealing their addresses.
pub struct FlowHash(Hash);

impl FlowHash {
    pub fn new(key: &Key) -> Self {
        Self(Hash::new(key))
    }

    /// Replaces flow hashes by keyed ones.
    #[inline]
    pub fn apply<'a>(&self, mut hashes: impl Iterator<Item = &'a mut u32>) {
        loop {
            let mut places: [Option<&mut u32>; LANES] = std::array::from_fn(|_| hashes.next());
            if places[0].is_none() {
                return;
            }
            let mut blocks = [Array::from([0; 16]); LANES];
            for (block, place) in blocks.iter_mut().zip(&places) {
                (block[0], block[1]) = (FLOW, 4);
                block[2..6].copy_from_slice(&place.as_deref().copied().unwrap_or(0).to_le_bytes());
            }
            self.0.0.encrypt_blocks(&mut blocks);
            for (block, place) in blocks.iter().zip(&mut places) {
                if let Some(place) = place {
                    **place = u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
                }
            }
        }
    }
}

/// Decides which packets are in a sample, by their time and their position among the packets of that time.
pub struct Sampler {
    aes: Hash,
    /// The threshold: a packet is in the sample if its number is at most this.
    most: u32,
    time: u64,
    place: u32,
    /// The unused numbers, last first.
    numbers: [u32; 4 * LANES],
    left: usize,
    /// The first numbers of later times, and the index of the next.
    ahead: [(u64, [u32; 4]); LANES],
    next: usize,
}

fn sample_block(time: u64, place: u32) -> Array<u8, aes::cipher::consts::U16> {
    let mut block = [0; 16];
    (block[0], block[1]) = (SAMPLE, 12);
    block[2..10].copy_from_slice(&time.to_le_bytes());
    block[10..14].copy_from_slice(&place.to_le_bytes());
    block.into()
}

/// The kind of samples, after the kind of flow hashes.
const SAMPLE: u8 = 5;

impl Sampler {
    /// Creates a sampler of one packet in `one_in`.
    pub fn new(key: &Key, one_in: u32) -> Self {
        let most = u32::MAX / one_in.max(1);
        Self {
            aes: Hash::new(key),
            most,
            time: u64::MAX,
            place: 0,
            numbers: [0; 4 * LANES],
            left: 0,
            ahead: [(u64::MAX, [0; 4]); LANES],
            next: LANES,
        }
    }

    /// Returns whether the next packet, of time `time`, is in the sample.
    #[inline]
    pub fn takes(&mut self, time: u64) -> bool {
        if time != self.time {
            (self.time, self.place, self.left) = (time, 0, 0);
            while let Some((ahead, numbers)) = self.ahead.get(self.next) {
                self.next += 1;
                if *ahead == time {
                    self.numbers[..4].copy_from_slice(numbers);
                    (self.place, self.left) = (1, 4);
                    break;
                }
            }
        }
        if self.left == 0 {
            self.refill();
        }
        self.left -= 1;
        self.numbers[self.left] <= self.most
    }

    /// Prepares for packets of these times, in this order. It only affects the time that decisions take.
    #[inline]
    pub fn look_ahead(&mut self, times: impl Iterator<Item = u64>) {
        if self.next < LANES {
            return;
        }
        let mut last = self.time;
        let new = times.filter(|time| std::mem::replace(&mut last, *time) != *time);
        let mut blocks = [Array::from([0; 16]); LANES];
        self.ahead.iter_mut().for_each(|(time, _)| *time = u64::MAX);
        for ((block, (ahead, _)), time) in blocks.iter_mut().zip(&mut self.ahead).zip(new) {
            *ahead = time;
            *block = sample_block(time, 0);
        }
        self.aes.0.encrypt_blocks(&mut blocks);
        for (block, (_, numbers)) in blocks.iter().zip(&mut self.ahead) {
            for (number, bytes) in numbers.iter_mut().rev().zip(block.chunks_exact(4)) {
                *number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        self.next = 0;
    }

    /// Generates many numbers at once for a time with many packets.
    fn refill(&mut self) {
        let lanes = if self.place == 0 { 1 } else { LANES };
        let mut blocks = [Array::from([0; 16]); LANES];
        for (block, place) in blocks.iter_mut().zip(self.place..) {
            *block = sample_block(self.time, place);
        }
        self.aes.0.encrypt_blocks(&mut blocks[..lanes]);
        for (block, numbers) in blocks[..lanes].iter().rev().zip(self.numbers.chunks_exact_mut(4)) {
            for (number, bytes) in numbers.iter_mut().rev().zip(block.chunks_exact(4)) {
                *number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        self.place = self.place.wrapping_add(lanes as u32);
        self.left = 4 * lanes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_key_kind_width_and_every_byte() {
        let apply = |key: u8, kind: u8, value: &[u8]| {
            let mut v = value.to_vec();
            Hash::new(&Key::new([key; 32])).apply(kind, &mut v);
            v
        };
        let mut seen = vec![apply(1, 2, &[0; 16]), apply(2, 2, &[0; 16]), apply(1, 3, &[0; 16])];
        for i in 0..16 {
            let mut v = [0; 16];
            v[i] = 1;
            seen.push(apply(1, 2, &v));
        }
        assert_eq!(apply(1, 2, &[0; 16]), seen[0]);
        assert_ne!(apply(1, 2, &[0; 4]), seen[0][..4]);
        let all = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    #[test]
    fn looking_ahead_changes_no_sample() {
        let times: Vec<u64> = (0..500u64).map(|i| i * i / 90 % 61).collect();
        let plain = |times: &[u64]| {
            let mut sampler = Sampler::new(&Key::new([1; 32]), 3);
            times.iter().map(|t| sampler.takes(*t)).collect::<Vec<_>>()
        };
        let mut sampler = Sampler::new(&Key::new([1; 32]), 3);
        let ahead = |(i, t): (usize, &u64)| {
            sampler.look_ahead(times[i..].iter().copied());
            sampler.takes(*t)
        };
        let ahead: Vec<bool> = times.iter().enumerate().map(ahead).collect();
        assert_eq!(ahead, plain(&times));
        assert!((100..250).contains(&ahead.iter().filter(|t| **t).count()));
    }
}
