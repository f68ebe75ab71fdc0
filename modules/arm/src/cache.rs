//! The newest packets, in as much memory as answers nine of ten NACKs.

use flame_module::{Map, memory};

/// The packets of a part.
const PLACES: usize = 64;
/// The largest number of parts: 97 MiB.
const PARTS: usize = 1024;
/// NACKs of which the share of those found is known, and after which earlier ones count half.
const KNOWN: u64 = 32;
const WINDOW: u64 = 256;
/// The largest packet that is kept.
pub const LARGEST: usize = 1528;

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
    /// A ring: part number `n` is at `n % PARTS`, so that no collection grows while packets pass.
    parts: Vec<Option<Vec<Kept>>>,
    /// The numbers of the oldest part and of the next one. All but the last are full.
    first: u64,
    next: u64,
    /// The packets in the last part.
    filled: usize,
    /// The numbers of packets, over all parts that there ever were. Some of them may be gone.
    index: Map<u64, u64>,
    nacks: u64,
    found: u64,
    /// The number of times that there was no more memory.
    pub refused: u64,
}

impl Default for Cache {
    fn default() -> Self {
        let (parts, index) = ((0..PARTS).map(|_| None).collect(), Map::new(PARTS * PLACES));
        Self { parts, first: 0, next: 0, filled: PLACES, index, nacks: 0, found: 0, refused: 0 }
    }
}

impl Cache {
    /// Returns the number of parts.
    fn count(&self) -> u64 {
        self.next - self.first
    }

    /// Returns the bytes of the cache.
    pub fn bytes(&self) -> u64 {
        self.count() * (PLACES * size_of::<Kept>()) as u64
    }

    /// Returns the place of the part with this number.
    fn place(&mut self, number: u64) -> Option<&mut Option<Vec<Kept>>> {
        self.parts.get_mut(number as usize % PARTS)
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
        let part = number / PLACES as u64;
        if part < self.first {
            return None;
        }
        let kept = self.place(part)?.as_mut()?.get_mut(number as usize % PLACES)?;
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
            if usize::from(kept.len) != bytes.len() || differs(&kept.bytes, bytes) {
                (kept.len, kept.repaired) = (bytes.len() as u16, 0);
                kept.bytes[..bytes.len()].copy_from_slice(bytes);
            }
            return;
        }
        if self.filled == PLACES {
            self.begin();
        }
        let (last, at) = (self.next.wrapping_sub(1), self.filled);
        if let Some(Some(newest)) = self.place(last)
            && let Some(kept) = newest.get_mut(at)
        {
            (kept.name, kept.len, kept.repaired) = (name, bytes.len() as u16, 0);
            kept.bytes[..bytes.len()].copy_from_slice(bytes);
            self.index.insert(name, now_ns, last * PLACES as u64 + at as u64);
            self.filled += 1;
        }
    }

    /// Begins a part: in new memory if more is needed and there is some, or in that of the oldest.
    fn begin(&mut self) {
        let is_short = self.nacks >= KNOWN && self.found * 10 < self.nacks * 9;
        let needs_more = self.count() == 0 || is_short;
        if needs_more {
            if self.count() < PARTS as u64 && memory::reserve(PLACES * size_of::<Kept>()) {
                self.put(vec![NONE; PLACES]);
                // Those before were of a smaller cache.
                (self.nacks, self.found) = (0, 0);
                return;
            }
            self.refused += 1;
        }
        let first = self.first;
        if let Some(mut oldest) = self.place(first).and_then(Option::take) {
            self.first += 1;
            for at in 0..PLACES {
                if let Some(kept) = oldest.get_mut(at) {
                    kept.len = 0;
                }
            }
            self.put(oldest);
        }
    }

    /// Adds an empty part.
    fn put(&mut self, part: Vec<Kept>) {
        let next = self.next;
        if let Some(place) = self.place(next) {
            *place = Some(part);
            (self.next, self.filled) = (next + 1, 0);
        }
    }

    /// Drops the older half of the packets, and keeps at least one part.
    pub fn halve(&mut self) {
        for _ in 0..self.count() / 2 {
            let first = self.first;
            if let Some(place) = self.place(first) {
                *place = None;
            }
            self.first += 1;
        }
    }
}

/// Returns whether a packet differs from the first bytes of one that is kept. In a constant number of
/// iterations, so that the cost does not grow with the longest packet.
fn differs(kept: &[u8; LARGEST], bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_kept = kept.as_chunks::<8>().0;
    let equal = (0..LARGEST / 8).all(|at| words.get(at).is_none_or(|word| of_kept.get(at) == Some(word)));
    let start = words.len() * 8;
    !equal || (0..7).any(|at| rest.get(at).is_some_and(|byte| kept.get(start + at) != Some(byte)))
}
