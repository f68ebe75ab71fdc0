//! A histogram of round-trip times: four bins per doubling from 4.1 µs to 137 s, one below and one above.
//!
//! Fast instances send their counts since the last message; the slow one adds them up. A message is
//! [`Counts`] as little-endian u64s: handshakes without a value, evicted handshakes, evicted connections,
//! copies by the capture, then the bins.

use crate::tables;
use flame_module::{Init, Out, Progress, Slow};

/// The base-2 logarithms of the first bin's upper bound (4096 ns) and of the last one's lower bound.
const LOW: u32 = 12;
const HIGH: u32 = 37;
pub const BINS: usize = ((HIGH - LOW) * 4 + 2) as usize;

/// Returns the bin of a time in nanoseconds.
pub fn bin(ns: u64) -> usize {
    let bits = 63 - (ns | 1).leading_zeros();
    if bits < LOW {
        0
    } else if bits >= HIGH {
        BINS - 1
    } else {
        ((bits - LOW) * 4 + (ns >> (bits - 2) & 3) as u32 + 1) as usize
    }
}

/// Returns the smallest time of a bin, in nanoseconds; that of the next bin is its upper bound.
pub fn lower(bin: usize) -> u64 {
    match bin as u32 {
        0 => 0,
        n => u64::from(4 + (n - 1) % 4) << (LOW + (n - 1) / 4 - 2),
    }
}

/// The counts that are added up over workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    pub ambiguous: u64,
    pub evicted_handshakes: u64,
    pub evicted_connections: u64,
    pub copies: u64,
    pub bins: [u64; BINS],
}

impl Default for Counts {
    fn default() -> Self {
        Self { ambiguous: 0, evicted_handshakes: 0, evicted_connections: 0, copies: 0, bins: [0; BINS] }
    }
}

/// The size of a message in bytes.
pub const MESSAGE: usize = (BINS + 4) * 8;

impl Counts {
    pub fn to_bytes(&self) -> [u8; MESSAGE] {
        let head = [self.ambiguous, self.evicted_handshakes, self.evicted_connections, self.copies];
        let mut bytes = [0; MESSAGE];
        for (place, value) in bytes.chunks_exact_mut(8).zip(head.iter().chain(&self.bins)) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Returns the counts made after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = self.clone();
        difference.ambiguous -= earlier.ambiguous;
        difference.evicted_handshakes -= earlier.evicted_handshakes;
        difference.evicted_connections -= earlier.evicted_connections;
        difference.copies -= earlier.copies;
        for (new, old) in difference.bins.iter_mut().zip(&earlier.bins) {
            *new -= old;
        }
        difference
    }

    /// Adds the counts of a message; bytes of another length are ignored.
    pub fn add(&mut self, bytes: &[u8]) {
        if bytes.len() != MESSAGE {
            return;
        }
        let Self { ambiguous, evicted_handshakes, evicted_connections, copies, bins } = self;
        let head = [ambiguous, evicted_handshakes, evicted_connections, copies];
        for (sum, value) in head.into_iter().chain(bins).zip(bytes.chunks_exact(8)) {
            *sum += value.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        }
    }
}

/// The slow path: adds up counts, and writes the tables `histogram` and `state` at the end.
#[derive(Default)]
pub struct Histogram {
    counts: Counts,
}

impl Slow for Histogram {
    fn new(_: &Init) -> Self {
        Self::default()
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        self.counts.add(bytes);
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        let c = &self.counts;
        for (bin, count) in c.bins.iter().enumerate().filter(|(_, n)| **n > 0) {
            let upper = if bin == BINS - 1 { i64::MAX } else { lower(bin + 1) as i64 };
            out.write(&tables::Histogram {
                lower_ns: lower(bin) as i64,
                upper_ns: upper,
                connections: *count,
            });
        }
        let handshakes = c.bins.iter().sum();
        out.write(&tables::State {
            handshakes,
            ambiguous: c.ambiguous,
            evicted_handshakes: c.evicted_handshakes,
            evicted_connections: c.evicted_connections,
            copies: c.copies,
        });
        Progress::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_without_gaps() {
        assert_eq!((bin(0), bin(4095), bin(4096), bin(u64::MAX)), (0, 0, 1, BINS - 1));
        for n in 1..BINS {
            assert_eq!((bin(lower(n)), bin(lower(n) - 1)), (n, n - 1), "{n}");
        }
    }

    #[test]
    fn a_message_is_what_it_was() {
        let mut counts =
            Counts { ambiguous: 1, evicted_handshakes: 2, evicted_connections: 3, ..Counts::default() };
        counts.bins[BINS - 1] = 1 << 40;
        let mut sum = counts.clone();
        sum.add(&counts.to_bytes());
        sum.add(b"something else");
        assert_eq!((sum.ambiguous, sum.evicted_connections, sum.bins[BINS - 1]), (2, 6, 1 << 41));
    }
}
