//! A search for positions in a payload where a pattern may begin, sixteen at a time.
//!
//! An automaton for many patterns processes one byte after another, and each step waits for the one before.
//! [`Scan`] skips positions where no pattern can begin: it compares the first three bytes of all patterns,
//! half a byte at a time, by table look-ups in vector registers (Teddy: Wang et al., "Hyperscan", NSDI 2019,
//! section 4.3). It never skips the beginning of a pattern; an automaton decides about the positions where it
//! stops.

#[cfg(not(any(target_arch = "wasm32", target_arch = "x86_64")))]
mod fallback;
mod vector;
#[cfg(target_arch = "wasm32")]
mod wasm;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(not(any(target_arch = "wasm32", target_arch = "x86_64")))]
use fallback::{find, places};
#[cfg(target_arch = "wasm32")]
use wasm::{find, places};
#[cfg(target_arch = "x86_64")]
use x86::{find, places};

/// The number of bytes of a pattern that are compared.
const WIDTH: usize = 3;
/// The number of groups of patterns that are distinguished, one bit each.
const BUCKETS: usize = 8;

/// The beginnings of a set of patterns. It takes about 100 bytes for any number of patterns.
#[derive(Clone)]
pub struct Scan {
    /// The buckets with a pattern that has a half of a byte, by its position in the pattern and that half.
    low: [[u8; 16]; WIDTH],
    high: [[u8; 16]; WIDTH],
}

impl Scan {
    /// Creates a scan for patterns, each with a flag that ignores the case of its ASCII letters. An empty
    /// pattern begins anywhere.
    pub fn new<'a>(patterns: impl IntoIterator<Item = (&'a [u8], bool)>) -> Self {
        let mut patterns: Vec<_> = patterns.into_iter().collect();
        // Patterns with the same beginning share a bucket, which makes the filter more selective.
        patterns.sort_by_key(|(bytes, _)| {
            bytes.iter().take(WIDTH).map(u8::to_ascii_lowercase).collect::<Vec<_>>()
        });
        let mut scan = Self { low: [[0; 16]; WIDTH], high: [[0; 16]; WIDTH] };
        let share = patterns.len().div_ceil(BUCKETS).max(1);
        for (bucket, patterns) in patterns.chunks(share).enumerate() {
            for (bytes, nocase) in patterns {
                for place in 0..WIDTH {
                    match bytes.get(place) {
                        Some(byte) if *nocase => {
                            scan.add(place, byte.to_ascii_lowercase(), 1 << bucket);
                            scan.add(place, byte.to_ascii_uppercase(), 1 << bucket);
                        }
                        Some(byte) => scan.add(place, *byte, 1 << bucket),
                        None => (0..=255).for_each(|any| scan.add(place, any, 1 << bucket)),
                    }
                }
            }
        }
        scan
    }

    fn add(&mut self, place: usize, byte: u8, bucket: u8) {
        self.low[place][usize::from(byte & 15)] |= bucket;
        self.high[place][usize::from(byte >> 4)] |= bucket;
    }

    /// Returns the first position at or after `from` where a pattern may begin; `payload.len()` without one.
    /// A pattern may begin at each of the last two bytes and end in the next segment.
    #[inline]
    pub fn next(&self, payload: &[u8], from: usize) -> usize {
        find(self, payload, from)
    }

    /// Returns a bit for each of the sixteen positions from `from` on where a pattern may begin, or `None` if
    /// not all of the compared bytes are there, a case that [`Scan::next`] handles. It is for loops that need
    /// a bound: its cost does not depend on the payload.
    #[inline(always)]
    pub fn places(&self, payload: &[u8], from: usize) -> Option<u32> {
        places(self, payload, from)
    }

    /// Computes [`Scan::places`] one position at a time.
    #[allow(dead_code)] // Unused where there are vectors.
    fn places_slowly(&self, payload: &[u8], from: usize) -> Option<u32> {
        let bytes = payload.get(from..)?.get(..16 + WIDTH - 1)?;
        Some((0..16).filter(|&i| self.slowly(&bytes[i..i + WIDTH], 0) == 0).map(|i| 1 << i).sum())
    }

    /// Computes [`Scan::next`] one position at a time.
    #[inline]
    fn slowly(&self, payload: &[u8], from: usize) -> usize {
        let rest = payload.get(from..).unwrap_or(&[]);
        let found = rest.windows(WIDTH).position(|bytes| {
            let fits =
                |i: usize| self.low[i][usize::from(bytes[i] & 15)] & self.high[i][usize::from(bytes[i] >> 4)];
            fits(0) & fits(1) & fits(2) != 0
        });
        let tail = payload.len().saturating_sub(WIDTH - 1).max(from);
        found.map_or(tail.min(payload.len()), |i| from + i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn begins_at(payload: &[u8], i: usize, (p, nocase): &(Vec<u8>, bool)) -> bool {
        let n = p.len().min(payload.len() - i);
        if *nocase { p[..n].eq_ignore_ascii_case(&payload[i..i + n]) } else { p[..n] == payload[i..i + n] }
    }

    proptest! {
        #[test]
        fn no_beginning_is_skipped_and_only_what_fits_is_given(
            patterns in prop::collection::vec((prop::collection::vec(prop::sample::select(b"abAB\x00\xff\x7f".to_vec()), 0..5), any::<bool>()), 0..20),
            payload in prop::collection::vec(prop::sample::select(b"abABcC\x00\xff\x7f\x80".to_vec()), 0..90),
            from in 0usize..100,
        ) {
            let scan = Scan::new(patterns.iter().map(|(p, nocase)| (&p[..], *nocase)));
            let found = scan.next(&payload, from);
            prop_assert_eq!(found, scan.slowly(&payload, from));
            prop_assert!(found >= from.min(payload.len()) && found <= payload.len());
            let places = scan.places(&payload, from);
            prop_assert_eq!(places.is_some(), from + 18 <= payload.len());
            prop_assert_eq!(places, scan.places_slowly(&payload, from));
            if let Some(places) = places {
                let first = (places != 0).then(|| from + places.trailing_zeros() as usize);
                prop_assert!(first.map_or(found >= from + 16, |first| first == found));
            }
            let skipped = (from..found).filter(|&i| patterns.iter().any(|p| begins_at(&payload, i, p)));
            prop_assert_eq!(skipped.count(), 0);
        }
    }

    #[test]
    fn eight_patterns_are_told_apart_exactly() {
        let patterns: [&[u8]; 8] =
            [b"GET /", b"POST ", b"\x90\x90\x90", b"USER", b"cmd.", b"\0\0\x01", b"SMB", b"\xff\xd8\xff"];
        let scan = Scan::new(patterns.map(|p| (p, false)));
        let mut payload = vec![b'.'; 1000];
        assert_eq!(scan.next(&payload, 0), 998);
        for (at, pattern) in patterns.iter().enumerate().map(|(i, p)| (100 * i + 13, p)) {
            payload[at..at + pattern.len()].copy_from_slice(pattern);
        }
        let mut found = Vec::new();
        let mut from = 0;
        while from < 998 {
            found.push(scan.next(&payload, from));
            from = found[found.len() - 1] + 1;
        }
        assert_eq!(found, [13, 113, 213, 313, 413, 513, 613, 713, 998]);
    }
}
