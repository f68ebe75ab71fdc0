//! A search for thousands of patterns at once, in any case.
//!
//! Of each pattern, four neighbouring bytes are chosen that few other patterns have. A bit table states for
//! four bytes of a payload whether they may be chosen ones; the patterns of those are compared in full. So
//! memory is small enough for the first cache, however many patterns there are.

use super::work::{BYTE, COMPARE, COMPARE_BYTE, Work};
use std::collections::BTreeMap;

/// The number of bytes that are looked up at once.
pub const GRAM: usize = 4;
/// The number of bits of the bit table, as a power of two: 32 KiB.
const BITS: u32 = 18;
const WORDS: usize = 1 << (BITS - 5);
/// The offsets of a pattern at which its bytes may be chosen.
const OFFSETS: usize = 48;

struct Entry {
    /// The pattern in lower case.
    pattern: Box<[u8]>,
    /// The offset of the chosen bytes in it.
    offset: u32,
}

pub struct Grams {
    bits: Box<[u32; WORDS]>,
    /// Chosen bytes, with the end of their entries, which begin where those of the one before end; sorted
    /// by hash, so that [`Grams::heads`] finds them.
    chosen: Vec<(u32, u32)>,
    /// The first of the chosen with a hash, for the upper bits of the hash.
    heads: Vec<u32>,
    shift: u32,
    entries: Vec<Entry>,
    /// The number of each entry's pattern, as given.
    numbers: Vec<u32>,
}

/// Makes letters of both cases equal, and some other bytes, too: what is found is compared in full.
#[inline]
fn fold(gram: u32) -> u32 {
    gram | 0x2020_2020
}

#[inline]
fn hash(gram: u32) -> u32 {
    let mixed = gram.wrapping_mul(0x9e37_79b1);
    mixed ^ mixed >> 15
}

fn gram(bytes: &[u8]) -> u32 {
    fold(bytes.first_chunk().map_or(0, |b| u32::from_le_bytes(*b)))
}

/// Returns how frequent a byte is in payloads, from 0.
pub fn frequency(byte: u8) -> u32 {
    match byte.to_ascii_lowercase() {
        0 => 5,
        b' ' | b'\r' | b'\n' | 0xff => 4,
        b'a' | b'c' | b'd' | b'e' | b'h' | b'i' | b'l'..=b'p' | b'r'..=b'u' | b'w' => 3,
        b'.' | b'/' | b':' | b'-' | b'=' | b'0'..=b'9' => 2,
        _ => 0,
    }
}

impl Grams {
    /// Creates the search for patterns of at least [`GRAM`] bytes, in lower case.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let patterns: Vec<&[u8]> = patterns.into_iter().collect();
        // Short patterns have the fewest choices, so they choose first.
        let mut order: Vec<u32> = (0..patterns.len() as u32).collect();
        order.sort_by_key(|i| (patterns[*i as usize].len(), *i));
        let mut chosen: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for number in order {
            let pattern = patterns[number as usize];
            let last = pattern.len().saturating_sub(GRAM).min(OFFSETS);
            let cost = |at: usize| {
                let others = chosen.get(&gram(&pattern[at..])).map_or(0, Vec::len) as u32;
                let frequent: u32 = pattern[at..at + GRAM].iter().map(|b| frequency(*b)).sum();
                others * 6 + frequent
            };
            let at = (0..=last).min_by_key(|at| cost(*at)).unwrap_or(0);
            chosen.entry(gram(&pattern[at..])).or_default().push((number, at as u32));
        }
        let slots = (chosen.len() * 2).next_power_of_two().max(2);
        let shift = 32 - slots.ilog2();
        let mut all: Vec<_> = chosen.into_iter().collect();
        all.sort_by_key(|(gram, _)| hash(*gram) >> shift);
        let mut grams = Self {
            bits: vec![0; WORDS].try_into().unwrap_or_else(|_| Box::new([0; WORDS])),
            chosen: Vec::with_capacity(all.len()),
            heads: vec![0; slots + 1],
            shift,
            entries: Vec::with_capacity(patterns.len()),
            numbers: Vec::with_capacity(patterns.len()),
        };
        for (gram, patterns_of) in all {
            let bit = hash(gram) >> (32 - BITS);
            grams.bits[bit as usize >> 5] |= 1 << (bit & 31);
            for (number, offset) in patterns_of {
                grams.entries.push(Entry { pattern: patterns[number as usize].into(), offset });
                grams.numbers.push(number);
            }
            grams.chosen.push((gram, grams.entries.len() as u32));
            grams.heads[(hash(gram) >> shift) as usize + 1] += 1;
        }
        for slot in 1..grams.heads.len() {
            grams.heads[slot] += grams.heads[slot - 1];
        }
        grams
    }

    /// Calls `hit` with the number of each pattern that occurs, with some more than once, until it returns
    /// false. The answer is whether the whole payload was searched.
    #[inline]
    pub fn find(&self, payload: &[u8], work: &mut Work, mut hit: impl FnMut(u32, &mut Work) -> bool) -> bool {
        if !work.spend_each(payload.len(), BYTE) {
            return false;
        }
        for (at, bytes) in payload.windows(GRAM).enumerate() {
            let found = fold(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            let bit = hash(found) >> (32 - BITS);
            if self.bits[bit as usize >> 5] >> (bit & 31) & 1 != 0
                && !self.compare(payload, at, found, work, &mut hit)
            {
                return false;
            }
        }
        true
    }

    /// Compares the patterns whose chosen bytes are those at `at`. A function of its own, because each byte
    /// would pay for its instructions.
    #[inline(never)]
    fn compare(
        &self,
        payload: &[u8],
        at: usize,
        found: u32,
        work: &mut Work,
        hit: &mut impl FnMut(u32, &mut Work) -> bool,
    ) -> bool {
        let slot = (hash(found) >> self.shift) as usize;
        let slots = self.heads[slot] as usize..self.heads[slot + 1] as usize;
        if !work.spend_each(slots.len() + 4, BYTE) {
            return false;
        }
        for i in slots {
            if self.chosen[i].0 != found {
                continue;
            }
            let from = i.checked_sub(1).map_or(0, |before| self.chosen[before].1);
            for number in from as usize..self.chosen[i].1 as usize {
                let Entry { pattern, offset } = &self.entries[number];
                if !work.spend(COMPARE + COMPARE_BYTE * pattern.len() as u32) {
                    return false;
                }
                let there = at.checked_sub(*offset as usize).and_then(|start| payload.get(start..));
                let there = there.and_then(|bytes| bytes.get(..pattern.len()));
                if there.is_some_and(|bytes| bytes.eq_ignore_ascii_case(pattern))
                    && !hit(self.numbers[number], work)
                {
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_search_for_each_finds(
            patterns in prop::collection::btree_set("[ab@`\\x00 .]{4,9}", 0..40),
            payload in "[abAB@`\\x00 .]{0,80}",
        ) {
            let patterns: Vec<_> = patterns.into_iter().map(String::into_bytes).collect();
            let grams = Grams::new(patterns.iter().map(Vec::as_slice));
            let mut found = std::collections::BTreeSet::new();
            let payload = payload.as_bytes();
            let whole = grams.find(payload, &mut Work::default(), |n, _| {
                found.insert(n as usize);
                true
            });
            prop_assert!(whole);
            let lies = |p: &&Vec<u8>| payload.windows(p.len()).any(|w| w.eq_ignore_ascii_case(p));
            let expected = patterns.iter().enumerate().filter(|(_, p)| lies(p)).map(|(i, _)| i).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
