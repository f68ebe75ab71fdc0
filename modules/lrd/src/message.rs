//! Messages of fast instances to the slow one: little-endian 64-bit words after one for the kind.
//!
//! | kind | words |
//! | --- | --- |
//! | 0, counts | late packets since the message before; the first interval that the sender counts; then for each interval index, packets, bytes, connections |
//! | 1, sums | late packets as above; 1 if it is this instance's first; intervals; then for each series and octave coefficients and the bits of their sum of squares |

use crate::pyramid::{Energy, OCTAVES};
use crate::transform::Energies;
use crate::{Counts, SERIES};
use flame_module::MAX_BATCH;

const COUNTS: u64 = 0;
const SUMS: u64 = 1;
/// The number of intervals in one message.
const INTERVALS: usize = 1000;
/// The sizes of the words before the intervals of a message of counts, and of an interval, in bytes.
const HEAD: usize = 3 * 8;
const ENTRY: usize = (1 + SERIES) * 8;
/// The size of the longest message, in bytes.
pub const LARGEST: usize = HEAD + INTERVALS * ENTRY;

/// The size of a message of the packets of one batch, in bytes.
const BEYOND: usize = HEAD + MAX_BATCH * ENTRY;

/// A message of the packets of one batch. It needs no memory that may have to grow.
pub struct Beyond {
    bytes: [u8; BEYOND],
    used: usize,
}

impl Beyond {
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }
}

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

/// Returns a message of packets by their intervals, of a sender that counts from `begin` on.
pub fn beyond(begin: u64, packets: &[(u64, Counts)]) -> Beyond {
    let mut message = Beyond { bytes: [0; BEYOND], used: HEAD };
    let (head, entries) = message.bytes.split_at_mut(HEAD);
    head[HEAD - 8..].copy_from_slice(&begin.to_le_bytes());
    for at in 0..MAX_BATCH {
        let place = entries.get_mut(at * ENTRY..(at + 1) * ENTRY);
        let (Some(to), Some((index, counts))) = (place, packets.get(at)) else { continue };
        let words = [*index, counts[0], counts[1], counts[2]];
        to.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        message.used += ENTRY;
    }
    message
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
