//! The newest packets, in as much memory as answers nine of ten NACKs.

use flame_module::{Map, memory};
use std::collections::VecDeque;

/// The packets of a part.
const PLACES: usize = 64;
/// The packets that can be found: as many as fit in 96 MiB.
const INDEXED: usize = 65_536;
/// NACKs of which the share of those found is known, and after which earlier ones count half.
const KNOWN: u64 = 32;
const WINDOW: u64 = 256;
/// The largest packet that is kept.
const LARGEST: usize = 1528;

#[derive(Clone, Copy)]
struct Kept {
    name: u64,
    len: u16,
    /// The time of the last repair plus 1, or 0.
    repaired: u64,
    bytes: [u8; LARGEST],
}

const NONE: Kept = Kept { name: 0, len: 0, repaired: 0, bytes: [0; LARGEST] };

pub struct Cache {
    /// The oldest first. All but the last are full.
    parts: VecDeque<Vec<Kept>>,
    /// The packets in the last part.
    filled: usize,
    /// The number of the first part: the parts before it are gone.
    first: u32,
    /// The numbers of packets, over all parts that there ever were. Some of them may be gone.
    index: Map<u64, u32>,
    nacks: u64,
    found: u64,
    /// The number of times that there was no more memory.
    pub refused: u64,
}

impl Default for Cache {
    fn default() -> Self {
        let (parts, index) = (VecDeque::new(), Map::new(INDEXED));
        Self { parts, filled: PLACES, first: 0, index, nacks: 0, found: 0, refused: 0 }
    }
}

impl Cache {
    /// Returns the bytes of the cache.
    pub fn bytes(&self) -> u64 {
        (self.parts.len() * PLACES * size_of::<Kept>()) as u64
    }

    /// Counts a NACK whose packet was found, or not.
    pub fn record(&mut self, found: bool) {
        self.nacks += 1;
        self.found += u64::from(found);
        if self.nacks == WINDOW {
            (self.nacks, self.found) = (self.nacks / 2, self.found / 2);
        }
    }

    fn find(&mut self, name: u64) -> Option<&mut Kept> {
        let number = *self.index.get(name)?;
        let part = (number / PLACES as u32).checked_sub(self.first)?;
        let kept = self.parts.get_mut(part as usize)?.get_mut(number as usize % PLACES)?;
        (kept.len > 0 && kept.name == name).then_some(kept)
    }

    /// Returns a packet, and the time at which it was last repaired.
    pub fn get(&mut self, name: u64) -> Option<(&[u8], Option<u64>)> {
        let kept = self.find(name)?;
        Some((&kept.bytes[..usize::from(kept.len)], kept.repaired.checked_sub(1)))
    }

    pub fn mark_repaired(&mut self, name: u64, now_ns: u64) {
        if let Some(kept) = self.find(name) {
            kept.repaired = now_ns.saturating_add(1);
        }
    }

    /// Keeps a packet. One that is there already, such as a repair, is not kept twice; another one of the
    /// same name takes its place.
    pub fn insert(&mut self, name: u64, now_ns: u64, bytes: &[u8]) {
        if bytes.is_empty() || bytes.len() > LARGEST {
            return;
        }
        if let Some(kept) = self.find(name) {
            if kept.bytes[..usize::from(kept.len)] != *bytes {
                (kept.len, kept.repaired) = (bytes.len() as u16, 0);
                kept.bytes[..bytes.len()].copy_from_slice(bytes);
            }
            return;
        }
        if self.filled == PLACES {
            self.begin();
        }
        let last = self.first.wrapping_add(self.parts.len() as u32).wrapping_sub(1);
        if let Some(newest) = self.parts.back_mut() {
            let kept = &mut newest[self.filled];
            (kept.name, kept.len, kept.repaired) = (name, bytes.len() as u16, 0);
            kept.bytes[..bytes.len()].copy_from_slice(bytes);
            self.index.insert(name, now_ns, last.wrapping_mul(PLACES as u32) + self.filled as u32);
            self.filled += 1;
        }
    }

    /// Begins a part: in new memory if more is needed and there is some, or in that of the oldest.
    fn begin(&mut self) {
        // Numbers of packets end after 2^32: begin anew.
        if self.first as usize + self.parts.len() >= u32::MAX as usize / PLACES {
            self.parts.clear();
            self.index.clear();
            self.first = 0;
        }
        let is_short = self.nacks >= KNOWN && self.found * 10 < self.nacks * 9;
        let needs_more = self.parts.is_empty() || is_short;
        if needs_more {
            if memory::reserve(PLACES * size_of::<Kept>()) {
                self.parts.push_back(vec![NONE; PLACES]);
                self.filled = 0;
                // Those before were of a smaller cache.
                (self.nacks, self.found) = (0, 0);
                return;
            }
            self.refused += 1;
        }
        if let Some(mut oldest) = self.parts.pop_front() {
            self.first += 1;
            oldest.iter_mut().for_each(|kept| kept.len = 0);
            self.parts.push_back(oldest);
            self.filled = 0;
        }
    }

    /// Drops the older half of the packets, and keeps at least one part.
    pub fn halve(&mut self) {
        let dropped = self.parts.len() / 2;
        self.parts.drain(..dropped);
        self.first += dropped as u32;
    }
}
