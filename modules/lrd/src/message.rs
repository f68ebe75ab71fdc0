//! Messages of fast instances to the slow one: little-endian 64-bit words after one for the kind.
//!
//! | kind | words |
//! | --- | --- |
//! | 0, counts | late packets since the message before; the first interval that the sender counts; then for each interval index, packets, bytes, connections |
//! | 1, sums | late packets as above; 1 if it is this instance's first; intervals; then for each series and octave coefficients and the bits of their sum of squares |

use crate::pyramid::{Energy, OCTAVES};
use crate::transform::Energies;
use crate::{Counts, SERIES};

const COUNTS: u64 = 0;
const SUMS: u64 = 1;
/// The number of intervals in one message.
const INTERVALS: usize = 1000;
const ENTRY: usize = (1 + SERIES) * 8;
/// The size of the longest message, in bytes.
pub const LARGEST: usize = 24 + INTERVALS * ENTRY;

/// An unfinished message of counts.
pub struct Counted(Vec<u8>);

impl Counted {
    pub fn new(late: u64, begin: u64) -> Self {
        let mut bytes = Vec::with_capacity(LARGEST);
        words(&mut bytes, &[COUNTS, late, begin]);
        Self(bytes)
    }

    /// Adds the counts of an interval; returns false if the message is full.
    pub fn push(&mut self, index: u64, counts: &Counts) -> bool {
        if self.0.len() + ENTRY > LARGEST {
            return false;
        }
        words(&mut self.0, &[index]);
        words(&mut self.0, counts);
        true
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

pub fn sums(late: u64, first: bool, intervals: u64, energies: &Energies) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((4 + 2 * SERIES * OCTAVES) * 8);
    words(&mut bytes, &[SUMS, late, first.into(), intervals]);
    for energy in energies.iter().flatten() {
        words(&mut bytes, &[energy.coefficients, energy.squares.to_bits()]);
    }
    bytes
}

fn words(bytes: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|w| bytes.extend(w.to_le_bytes()));
}

/// A received message.
pub enum Message<'a> {
    Counts { late: u64, begin: u64, entries: Entries<'a> },
    Sums { late: u64, first: bool, intervals: u64, energies: Box<Energies> },
}

/// The intervals of a message of counts.
pub struct Entries<'a>(&'a [u8]);

impl Iterator for Entries<'_> {
    type Item = (u64, Counts);

    fn next(&mut self) -> Option<Self::Item> {
        Some((take(&mut self.0)?, [take(&mut self.0)?, take(&mut self.0)?, take(&mut self.0)?]))
    }
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*word))
}

/// Parses a message; returns `None` for bytes that neither [`Counted`] nor [`sums`] produces.
pub fn read(mut bytes: &[u8]) -> Option<Message<'_>> {
    let rest = &mut bytes;
    match (take(rest)?, take(rest)?) {
        (COUNTS, late) => {
            let begin = take(rest)?;
            Some(Message::Counts { late, begin, entries: Entries(rest) })
        }
        (SUMS, late) => {
            let (first, intervals) = (take(rest)? == 1, take(rest)?);
            let mut energies = Box::new([[Energy::default(); OCTAVES]; SERIES]);
            for energy in energies.iter_mut().flatten() {
                *energy = Energy { coefficients: take(rest)?, squares: f64::from_bits(take(rest)?) };
            }
            Some(Message::Sums { late, first, intervals, energies })
        }
        _ => None,
    }
}
