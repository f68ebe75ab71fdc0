const WAYS: usize = 8;

/// An entry of a [`FlowTable`].
pub trait Entry: Copy + Default {
    /// Returns the time in nanoseconds at which the entry was last used.
    fn used(&self) -> u64;
}

/// State of flows in a table of fixed size, found by the packets' flow hash ([`crate::Descriptor::hash`]).
/// Sets have eight entries, in which a new entry replaces the least recently used one.
///
/// The tags of a set share half a cache line, so a packet without an entry costs one load.
///
/// ```
/// use flame_module::{Entry, FlowTable};
/// #[derive(Clone, Copy, Default)]
/// struct Flow { last_ns: u64, port: u16, packets: u64 }
/// impl Entry for Flow {
///     fn used(&self) -> u64 { self.last_ns }
/// }
/// let mut flows = FlowTable::<Flow>::new(1024, 60_000_000_000);
/// let (hash, now, port) = (0x1234, 5, 80);
/// // A hash can be two flows': what distinguishes them is compared too.
/// let index = flows.find(hash, now, |flow| flow.port == port);
/// let index = index.unwrap_or_else(|| flows.insert(hash, now, Flow { port, ..Flow::default() }));
/// let flow = flows.get(index);
/// (flow.packets, flow.last_ns) = (flow.packets + 1, now);
/// assert_eq!(flows.evicted, 0);
/// ```
pub struct FlowTable<T> {
    /// The tags of the entries; 0 marks a free place.
    tags: Box<[[u32; WAYS]]>,
    entries: Box<[T]>,
    shift: u32,
    timeout: u64,
    /// The number of entries that were replaced before their timeout.
    pub evicted: u64,
}

impl<T: Entry> FlowTable<T> {
    /// Creates a table for `capacity` entries (rounded up to a power of two), which expire `timeout`
    /// nanoseconds after their last use.
    pub fn new(capacity: usize, timeout: u64) -> Self {
        let sets = capacity.div_ceil(WAYS).next_power_of_two().max(2);
        Self {
            tags: vec![[0; WAYS]; sets].into_boxed_slice(),
            entries: vec![T::default(); sets * WAYS].into_boxed_slice(),
            shift: 32 - sets.trailing_zeros(),
            timeout,
            evicted: 0,
        }
    }

    /// Returns the set of a hash, which is multiplied because the low bits may have chosen the worker.
    #[inline]
    fn set(&self, hash: u32) -> usize {
        (hash.wrapping_mul(0x9e37_79b1) >> self.shift) as usize
    }

    /// Returns the index of the first entry under `hash` that `is` accepts and that has not expired at `now`.
    #[inline]
    pub fn find(&self, hash: u32, now: u64, is: impl Fn(&T) -> bool) -> Option<usize> {
        let set = self.set(hash);
        let mut found = 0;
        for (way, tag) in self.tags[set].iter().enumerate() {
            if *tag == hash | 1 {
                // Two connections rarely have the same tag.
                if found > 0 {
                    crate::cold();
                }
                found += 1;
                let entry = &self.entries[set * WAYS + way];
                if is(entry) && now.saturating_sub(entry.used()) <= self.timeout {
                    return Some(set * WAYS + way);
                }
            }
        }
        None
    }

    /// Returns the entry at an index that [`FlowTable::find`] or [`FlowTable::insert`] returned.
    ///
    /// # Panics
    ///
    /// Panics if the table has no such place.
    pub fn get(&mut self, index: usize) -> &mut T {
        &mut self.entries[index]
    }

    /// Frees the place of an entry.
    ///
    /// # Panics
    ///
    /// Panics if the table has no such place.
    pub fn remove(&mut self, index: usize) {
        self.tags[index / WAYS][index % WAYS] = 0;
    }

    /// Puts `entry` in a free place or in that of the set's least recently used entry, and returns its index.
    pub fn insert(&mut self, hash: u32, now: u64, entry: T) -> usize {
        // Executed once per connection.
        crate::cold();
        let set = self.set(hash);
        let mut chosen = 0;
        for way in 0..WAYS {
            if self.tags[set][way] == 0 {
                chosen = way;
                break;
            }
            if self.entries[set * WAYS + way].used() < self.entries[set * WAYS + chosen].used() {
                chosen = way;
            }
        }
        let index = set * WAYS + chosen;
        if self.tags[set][chosen] != 0 && now.saturating_sub(self.entries[index].used()) <= self.timeout {
            self.evicted += 1;
        }
        self.tags[set][chosen] = hash | 1;
        self.entries[index] = entry;
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Entry for u64 {
        fn used(&self) -> u64 {
            *self
        }
    }

    #[test]
    fn the_oldest_gives_way_and_only_the_living_count_as_evicted() {
        let mut sets = FlowTable::new(16, 100);
        for n in 1..=8 {
            sets.insert(7, n, n);
        }
        assert_eq!((sets.find(7, 8, |e| *e == 1).is_some(), sets.evicted), (true, 0));
        sets.insert(7, 9, 9);
        assert_eq!((sets.find(7, 9, |e| *e == 1), sets.evicted), (None, 1));
        assert_eq!(sets.find(7, 109, |e| *e == 2), None, "timed out");
        sets.insert(7, 103, 103);
        assert_eq!((sets.find(7, 103, |e| *e == 2), sets.evicted), (None, 1), "it had timed out");
        let index = sets.find(7, 103, |e| *e == 103).expect("is there");
        sets.remove(index);
        assert_eq!(sets.find(7, 103, |e| *e == 103), None);
    }
}
