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
/// AES key is SHA-256 of a label and the view's key, separate from the key of `prefix`.
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

/// Log2 of the number of values that [`Fields`] remembers, in 64 KiB.
const CACHE: u32 = 12;

/// The hashes of fields under one key. Those of MAC addresses, ports and IPv4 addresses are remembered in a
/// cache of fixed size, since AES runs in software in the sandbox.
pub(super) struct Fields {
    hash: Hash,
    /// A value with its kind and width, and its hash.
    known: Box<[(u64, u64)]>,
}

impl Fields {
    pub(super) fn new(key: &Key) -> Self {
        // No field has width 0, so that an entry that is not in use is never found.
        Self { hash: Hash::new(key), known: vec![(0, 0); 1 << CACHE].into() }
    }

    pub(super) fn apply(&mut self, kind: u8, value: &mut [u8]) {
        let n = value.len();
        if n > 6 {
            return self.hash.apply(kind, value);
        }
        let mut name = [0; 8];
        name[..n].copy_from_slice(value);
        (name[6], name[7]) = (n as u8, kind);
        let name = u64::from_le_bytes(name);
        let slot = (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CACHE)) as usize;
        if self.known[slot].0 != name {
            let mut new = [0; 8];
            new[..n].copy_from_slice(value);
            self.hash.apply(kind, &mut new[..n]);
            self.known[slot] = (name, u64::from_le_bytes(new));
        }
        value.copy_from_slice(&self.known[slot].1.to_le_bytes()[..n]);
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

/// Decides which packets are in a sample, by a keyed function of what is given of each packet alone: no
/// state, so that neither the other packets nor the start of a run change the decision.
///
/// The function is a protected counter sum (Bernstein, *How to stretch random functions*, 1999): the numbered
/// blocks of the message are encrypted independently, and their sum once more. The kinds of blocks keep both
/// uses of the cipher apart.
pub struct Sampler {
    aes: Hash,
    /// The threshold: a packet is in the sample if its number is at most this.
    most: u32,
}

/// The kinds of blocks of samples, after the kind of flow hashes.
const SAMPLE: u8 = 5;
const SAMPLE_SUM: u8 = 6;
/// The bytes of a message in each block.
const PART: usize = 14;

impl Sampler {
    /// The maximum number of bytes of a packet that decide.
    pub const BYTES: usize = PART * LANES - Self::FIELDS;
    /// The number of bytes before those of the packet.
    const FIELDS: usize = 24;

    /// Creates a sampler of one packet in `one_in`.
    pub fn new(key: &Key, one_in: u32) -> Self {
        Self { aes: Hash::new(key), most: u32::MAX / one_in.max(1) }
    }

    /// Returns whether a packet is in the sample that has these fields, and of which these are the first
    /// [`Sampler::BYTES`] bytes.
    #[inline]
    pub fn takes(&self, fields: [u64; 3], bytes: &[u8]) -> bool {
        let mut message = [0; PART * LANES];
        for (place, field) in message.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let bytes = &bytes[..bytes.len().min(Self::BYTES)];
        let end = Self::FIELDS + bytes.len();
        message[Self::FIELDS..end].copy_from_slice(bytes);
        let mut blocks = [Array::from([0; 16]); LANES];
        let blocks = &mut blocks[..end.div_ceil(PART)];
        for ((number, block), part) in (0..).zip(&mut *blocks).zip(message.chunks_exact(PART)) {
            (block[0], block[1]) = (SAMPLE, number);
            block[2..].copy_from_slice(part);
        }
        self.aes.0.encrypt_blocks(blocks);
        let add = |sum: u128, block: &Array<u8, _>| sum ^ u128::from_le_bytes((*block).into());
        let mut sum = (blocks.iter().fold(0, add) << 8 | u128::from(SAMPLE_SUM)).to_le_bytes().into();
        self.aes.0.encrypt_block(&mut sum);
        u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]) <= self.most
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

    /// A value that is remembered has the hash that it had, whatever shares its place in the cache.
    #[test]
    fn remembered_hashes_are_those_of_the_cipher() {
        let key = Key::new([7; 32]);
        let (mut fields, hash) = (Fields::new(&key), Hash::new(&key));
        for n in (0..3 << CACHE).chain(0..3 << CACHE) {
            let bytes = (n as u64).to_le_bytes();
            for (kind, width) in [(1, 6), (2, 4), (3, 2), (2, 6)] {
                let (mut ours, mut theirs) = (bytes, bytes);
                fields.apply(kind, &mut ours[..width]);
                hash.apply(kind, &mut theirs[..width]);
                assert_eq!(ours, theirs, "{n}, kind {kind}, {width} bytes");
            }
        }
    }

    /// Each field and each byte that decides does, and the part that is taken is the one asked for.
    #[test]
    fn samples_depend_on_every_part_of_a_packet_and_on_nothing_else() {
        let taken = |key: u8, change: &dyn Fn(&mut [u64; 3], &mut [u8; Sampler::BYTES])| {
            let sampler = Sampler::new(&Key::new([key; 32]), 4);
            let of = |n: u64| {
                let (mut fields, mut bytes) = ([n, 60, 6], [n as u8; Sampler::BYTES]);
                change(&mut fields, &mut bytes);
                assert_eq!(sampler.takes(fields, &bytes), sampler.takes(fields, &bytes));
                sampler.takes(fields, &bytes)
            };
            (0..1000).map(of).collect::<Vec<_>>()
        };
        let one = taken(1, &|_, _| {});
        assert!((190..310).contains(&one.iter().filter(|t| **t).count()));
        let mut others = vec![taken(2, &|_, _| {})];
        others.extend((0..3).map(|at| taken(1, &|fields, _| fields[at] ^= 1)));
        others.extend((0..Sampler::BYTES).map(|at| taken(1, &|_, bytes| bytes[at] ^= 1)));
        for other in others {
            let both = one.iter().zip(&other).filter(|(a, b)| **a && **b).count();
            assert!((25..110).contains(&both), "two samples of one in four share one in sixteen: {both}");
        }
        let sampler = Sampler::new(&Key::new([1; 32]), 4);
        let beyond =
            |n: u64, last: u8| sampler.takes([n, 0, 0], &[&[0; Sampler::BYTES][..], &[last]].concat());
        assert!((0..100).all(|n| beyond(n, 0) == beyond(n, 1)), "later bytes decide nothing");
    }
}
