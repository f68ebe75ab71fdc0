//! `hash`: a keyed pseudorandom function of kind and value, cut to the field's width.
//!
//! CBC-MAC under AES-128 over `kind | width | value`, zero-padded to blocks: with the length in
//! front, no message is a prefix of another, so it is a pseudorandom function (Bellare, Kilian,
//! Rogaway 2000). The AES key is SHA-256 of a label and the view's key, apart from that of `prefix`.
//!
//! Not a permutation: two ports, of 65536, fall together as often as chance has it.

use crate::Key;
use aes::Aes128Enc;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use sha2::{Digest, Sha256};

/// The kind of flow hashes, behind those of fields.
const FLOW: u8 = 4;

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

/// Names flows without telling which: the flow hash of a descriptor under a key.
pub struct FlowHash(Hash);

impl FlowHash {
    pub fn new(key: &Key) -> Self {
        Self(Hash::new(key))
    }

    #[inline]
    pub fn apply(&self, hash: u32) -> u32 {
        let mut value = hash.to_le_bytes();
        self.0.apply(FLOW, &mut value);
        u32::from_le_bytes(value)
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
}
