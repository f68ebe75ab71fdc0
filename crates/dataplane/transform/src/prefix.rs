//! prefix: replaces IP addresses one to one and preserves shared prefixes (Crypto-PAn).
//!
//! Usage:    --transform FIELD=prefix --key FILE
//!           FIELD is ip, ip.src or ip.dst
//! Expects:  a key of 32 bytes or 64 hexadecimal digits. Under a policy the node supplies one for each
//!           principal.
//! Gives:    two addresses that share exactly k leading bits become addresses that share exactly k. IPv4 and
//!           IPv6 are mapped independently. Method: Xu, Fan, Ammar, Moon, ICNP 2002; for IPv6 the same on 128
//!           bits.
//! Limits:   the structure of the address space stays visible. A sender of packets, or an owner of some true
//!           pairs, learns the prefixes that other addresses share with them (section 5 of the paper).
//! Example:  flame run flow -r FILE --transform ip=prefix --key KEY
//! Related:  hash, truncate, zero, anonymize (module)

use crate::Key;
use crate::special::{kept4, kept6};
use aes::Aes128Enc;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};

/// Log2 of the number of sets: 128 KiB for IPv4, 128 KiB for IPv6. The cache is larger in the sandbox, where
/// AES runs in software: 512 KiB.
const CACHE_V4: u32 = if cfg!(target_arch = "wasm32") { 15 } else { 13 };
const CACHE_V6: u32 = 11;
/// Log2 of the number of entries for prefixes: 64 KiB for /24, 32 KiB for /64. Every /16 has its entry, in
/// 256 KiB.
const CACHE_24: u32 = 13;
const CACHE_64: u32 = 11;

/// Two pairs of an address and its pseudonym. The most recently used comes first.
type Set<A> = [(A, A); 2];

/// The number of blocks encrypted at a time.
const LANES: usize = 8;

/// The mapping of addresses under one key.
///
/// Bit i of the result is bit i of the address, flipped by the first bit of AES(first i bits of the address,
/// then padding from bit i on). The padding is AES of the second half of the key.
///
/// The blocks of an address are independent and are encrypted eight at a time, which fills the pipeline of
/// the AES unit. Whole addresses are kept in two-way caches of fixed size, and so are the flips of prefixes
/// that addresses share: an IPv4 address in a known /24 needs eight more blocks, an IPv6 address in a known
/// /64 sixty-four.
pub struct Prefix {
    aes: Aes128Enc,
    pad: u128,
    v4: Box<[Set<u32>]>,
    v6: Box<[Set<u128>]>,
    /// The flips of the first 16 bits, above a 1 once they are known.
    p16: Box<[u32]>,
    /// The first 24 bits, a 1, and the flips of the last 8 of them: an entry is one word.
    p24: Box<[u64]>,
    /// The first 64 bits and their flips.
    p64: Box<[(u64, u64)]>,
    /// Whether special ranges are kept, with the prefixes that others share with them.
    keeps_special: bool,
}

impl Prefix {
    pub fn new(key: &Key) -> Self {
        let (mut aes_key, mut pad) = ([0; 16], Array::from([0; 16]));
        aes_key.copy_from_slice(&key.bytes()[..16]);
        pad.copy_from_slice(&key.bytes()[16..]);
        let aes = Aes128Enc::new(&aes_key.into());
        aes.encrypt_block(&mut pad);
        let mut p = Self {
            aes,
            pad: u128::from_be_bytes(pad.into()),
            v4: Box::default(),
            v6: Box::default(),
            p16: vec![0; 1 << 16].into(),
            p24: vec![0; 1 << CACHE_24].into(),
            p64: Box::default(),
            keeps_special: false,
        };
        // A valid entry for address 0 everywhere, so that entries need no flag for being in use.
        let (zero4, zero6) = (p.flips(0, 0, 32), p.flips(0, 0, 128));
        p.v4 = vec![[(0, (zero4 >> 96) as u32); 2]; 1 << CACHE_V4].into();
        p.v6 = vec![[(0, zero6); 2]; 1 << CACHE_V6].into();
        p.p64 = vec![(0, (zero6 >> 64) as u64); 1 << CACHE_64].into();
        p
    }

    /// Keeps special ranges as they are, or not. It is decided before the first address: 0 is known by then,
    /// and is special.
    #[must_use]
    pub(crate) fn keeping(mut self, special: bool) -> Self {
        self.keeps_special = special;
        if special {
            self.v4.fill([(0, 0); 2]);
            self.v6.fill([(0, 0); 2]);
        }
        self
    }

    /// Returns the pseudonym of an address, whose first byte is the most significant one.
    #[inline]
    pub fn ipv4(&mut self, address: u32) -> u32 {
        let slot = (address.wrapping_mul(0x9e37_79b1) >> (32 - CACHE_V4)) as usize;
        match recall(&mut self.v4[slot], address) {
            Some(mapped) => mapped,
            None => self.new4(address, slot),
        }
    }

    fn new4(&mut self, address: u32, slot: usize) -> u32 {
        let left = u128::from(address) << 96;
        let last = (self.flips(left, 24, 32) >> 96) as u32;
        let mut flips = self.first24(address, left) | last;
        if self.keeps_special {
            flips &= u32::MAX.checked_shr(kept4(address)).unwrap_or(0);
        }
        let mapped = address ^ flips;
        self.v4[slot] = [(address, mapped), self.v4[slot][0]];
        mapped
    }

    /// Returns the flips of the first 24 bits, at their place in an address.
    fn first24(&mut self, address: u32, left: u128) -> u32 {
        const KNOWN: u32 = 1 << 16;
        let (p16, p24) = ((address >> 16) as usize, u64::from(address >> 8));
        if self.p16[p16] == 0 {
            self.p16[p16] = KNOWN | (self.flips(left, 0, 16) >> 112) as u32;
        }
        let first = self.p16[p16] << 16;
        let slot = ((address >> 8).wrapping_mul(0x9e37_79b1) >> (32 - CACHE_24)) as usize;
        if self.p24[slot] >> 9 != p24 || self.p24[slot] & 0x100 == 0 {
            let middle = (self.flips(left, 16, 24) >> 104) as u64 & 0xff;
            self.p24[slot] = p24 << 9 | 0x100 | middle;
        }
        first | (self.p24[slot] as u32 & 0xff) << 8
    }

    /// Returns the pseudonym of an address, whose first byte is the most significant one.
    pub fn ipv6(&mut self, address: u128) -> u128 {
        let folded = (address >> 64) as u64 ^ (address as u64).rotate_left(32);
        let hash =
            |folded: u64, bits: u32| (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize;
        let slot = hash(folded, CACHE_V6);
        if let Some(mapped) = recall(&mut self.v6[slot], address) {
            return mapped;
        }
        let prefix = (address >> 64) as u64;
        let of_prefix = hash(prefix, CACHE_64);
        if self.p64[of_prefix].0 != prefix {
            self.p64[of_prefix] = (prefix, (self.flips(address, 0, 64) >> 64) as u64);
        }
        let mut flips = u128::from(self.p64[of_prefix].1) << 64 | self.flips(address, 64, 128);
        if self.keeps_special {
            flips &= u128::MAX.checked_shr(kept6(address)).unwrap_or(0);
        }
        let mapped = address ^ flips;
        self.v6[slot] = [(address, mapped), self.v6[slot][0]];
        mapped
    }

    pub(super) fn apply(&mut self, value: &mut [u8]) {
        if let Ok(v4) = <[u8; 4]>::try_from(&*value) {
            value.copy_from_slice(&self.ipv4(u32::from_be_bytes(v4)).to_be_bytes());
        } else if let Ok(v6) = <[u8; 16]>::try_from(&*value) {
            value.copy_from_slice(&self.ipv6(u128::from_be_bytes(v6)).to_be_bytes());
        } else {
            value.fill(0);
        }
    }

    /// Returns the bits `from..to` (multiples of 8) to flip in an address, both left-aligned.
    fn flips(&self, address: u128, from: usize, to: usize) -> u128 {
        let (address, pad) = (address.to_be_bytes(), self.pad.to_be_bytes());
        let mut flips = [0; 16];
        for byte in from / 8..to / 8 {
            let mut start = pad;
            start[..byte].copy_from_slice(&address[..byte]);
            let mut blocks = [Array::from(start); LANES];
            for (i, block) in blocks.iter_mut().enumerate() {
                let rest = 0xff >> i;
                block[byte] = address[byte] & !rest | pad[byte] & rest;
            }
            self.aes.encrypt_blocks(&mut blocks);
            flips[byte] = blocks.iter().fold(0, |bits, block| bits << 1 | block[0] >> 7);
        }
        u128::from_be_bytes(flips)
    }
}

#[inline]
fn recall<A: Copy + PartialEq>(set: &mut Set<A>, address: A) -> Option<A> {
    if set[1].0 == address {
        set.swap(0, 1);
    }
    (set[0].0 == address).then_some(set[0].1)
}
