use super::age;

const WAYS: usize = 8;
/// The largest number of entries in a set that have one tag. [`FlowTable::find`] compares no more than these,
/// and one hash takes at most half a set.
const SAME: u32 = 4;

/// An entry of a [`FlowTable`].
pub trait Entry: Copy + Default {
    /// Returns the time in nanoseconds at which the entry was last used.
    fn used(&self) -> u64;
}

/// State of flows in a table of fixed size, found by the packets' flow hash ([`crate::Descriptor::hash`]).
/// Sets have eight entries, at most four of one hash. A new entry replaces the least recently used one.
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
    pub fn find(&mut self, hash: u32, now: u64, is: impl Fn(&T) -> bool) -> Option<usize> {
        let set = self.set(hash);
        let mut same = with_tag(&self.tags[set], hash | 1);
        for _ in 0..SAME {
            if same == 0 {
                break;
            }
            let way = same.trailing_zeros() as usize % WAYS;
            let entry = &self.entries[set * WAYS + way];
            if is(entry) {
                if now.saturating_sub(entry.used()) <= self.timeout {
                    return Some(set * WAYS + way);
                }
                // Another entry will be inserted. If the time went back, both would be found.
                self.tags[set][way] = 0;
                break;
            }
            // Two connections rarely have the same tag.
            crate::cold();
            same &= same - 1;
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

    /// Returns the number of places. Each is free or has an entry.
    pub fn places(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entry in a place, expired or not, or `None` if the place is free. A walk over all places
    /// finds each entry once: for what ends without a packet.
    ///
    /// ```
    /// # use flame_module::{Entry, FlowTable};
    /// # #[derive(Clone, Copy, Default)]
    /// # struct Flow { last_ns: u64 }
    /// # impl Entry for Flow { fn used(&self) -> u64 { self.last_ns } }
    /// # let (mut flows, now) = (FlowTable::<Flow>::new(1024, u64::MAX), 90_000_000_000);
    /// for place in 0..flows.places() {
    ///     if flows.in_place(place).is_some_and(|flow| now - flow.last_ns > 60_000_000_000) {
    ///         flows.remove(place);
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn in_place(&mut self, place: usize) -> Option<&mut T> {
        let tag = *self.tags.get(place / WAYS)?.get(place % WAYS)?;
        self.entries.get_mut(place).filter(|_| tag != 0)
    }

    /// Puts `entry` in a free place or in that of the set's least recently used entry, and returns its index.
    /// If the set has four entries of this hash, the new one replaces the least recently used of these.
    pub fn insert(&mut self, hash: u32, now: u64, entry: T) -> usize {
        self.insert_with(hash, now, entry, |_| {})
    }

    /// Inserts like [`FlowTable::insert`], and passes the entry that is replaced, expired or not, to
    /// `replaced` before: for entries that end with a row.
    pub fn insert_with(&mut self, hash: u32, now: u64, entry: T, replaced: impl FnOnce(&T)) -> usize {
        // Executed once per connection.
        crate::cold();
        let (set, tag) = (self.set(hash), hash | 1);
        let tags = &mut self.tags[set];
        let (same, free) = (with_tag(tags, tag), with_tag(tags, 0));
        let among = match (same.count_ones() >= SAME, free) {
            (true, _) => same,
            (false, 0) => (1 << WAYS) - 1,
            // The first free one.
            (false, _) => free & free.wrapping_neg(),
        };
        let mut chosen = among.trailing_zeros() as usize % WAYS;
        for way in 0..WAYS {
            let age = |way: usize| age(now, self.entries[set * WAYS + way].used());
            let is_older = age(way) > age(chosen);
            if among >> way & 1 != 0 && is_older {
                chosen = way;
            }
        }
        let index = set * WAYS + chosen;
        if tags[chosen] != 0 {
            let old = &self.entries[index];
            self.evicted += u64::from(now.saturating_sub(old.used()) <= self.timeout);
            replaced(old);
        }
        tags[chosen] = tag;
        self.entries[index] = entry;
        index
    }
}

/// Returns a bit for each way that has this tag.
#[cfg(target_arch = "wasm32")]
#[inline]
fn with_tag(tags: &[u32; WAYS], tag: u32) -> u32 {
    use core::arch::wasm32::{i32x4_bitmask, i32x4_eq, u32x4, u32x4_splat};
    let [a, b, c, d, e, f, g, h] = *tags;
    let four = |tags| i32x4_bitmask(i32x4_eq(tags, u32x4_splat(tag)));
    u32::from(four(u32x4(a, b, c, d)) | four(u32x4(e, f, g, h)) << 4)
}

#[cfg(not(target_arch = "wasm32"))]
#[inline]
fn with_tag(tags: &[u32; WAYS], tag: u32) -> u32 {
    tags.iter().enumerate().fold(0, |ways, (way, own)| ways | u32::from(*own == tag) << way)
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
        let hashes = of_one_set(&sets);
        for (n, hash) in (1..=8).zip(hashes) {
            sets.insert(hash, n, n);
        }
        assert_eq!((sets.find(hashes[0], 8, |e| *e == 1).is_some(), sets.evicted), (true, 0));
        sets.insert(hashes[8], 9, 9);
        assert_eq!((sets.find(hashes[0], 9, |e| *e == 1), sets.evicted), (None, 1));
        assert_eq!(sets.find(hashes[1], 109, |e| *e == 2), None, "timed out");
        sets.insert(hashes[9], 103, 103);
        assert_eq!((sets.find(hashes[1], 103, |e| *e == 2), sets.evicted), (None, 1), "it had timed out");
        let index = sets.find(hashes[9], 103, |e| *e == 103).expect("is there");
        sets.remove(index);
        assert_eq!(sets.find(hashes[9], 103, |e| *e == 103), None);
        assert_eq!(sets.insert(hashes[0], 104, 104), index, "the free place");
    }

    /// Returns ten hashes of one set with different tags.
    fn of_one_set(table: &FlowTable<u64>) -> [u32; 10] {
        let mut hashes = (0..).step_by(2).filter(|hash| table.set(*hash) == 1);
        std::array::from_fn(|_| hashes.next().expect("half of all hashes"))
    }

    #[test]
    fn a_hash_takes_at_most_four_places() {
        let mut sets = FlowTable::new(16, 100);
        let [one, other, ..] = of_one_set(&sets);
        sets.insert(other, 1, 1);
        for n in 2..=9 {
            sets.insert(one, n, n);
            assert!(
                (n.saturating_sub(3).max(2)..=n).all(|n| sets.find(one, 9, |e| *e == n).is_some()),
                "{n}"
            );
        }
        assert_eq!((sets.find(one, 9, |e| *e < 6), sets.evicted), (None, 4));
        assert!(sets.find(other, 9, |e| *e == 1).is_some(), "older, but not of this hash");
    }

    #[test]
    fn a_walk_finds_each_entry_once_and_what_is_replaced_is_shown() {
        let mut sets = FlowTable::new(16, 100);
        let hashes = of_one_set(&sets);
        for (n, hash) in (1..=8).zip(hashes) {
            sets.insert_with(hash, n, n, |old| panic!("{old} was replaced by {n}"));
        }
        let mut shown = 0;
        sets.insert_with(hashes[8], 9, 9, |old| shown = *old);
        assert_eq!(shown, 1, "the oldest");
        let all = |sets: &mut FlowTable<u64>| {
            let mut found: Vec<u64> =
                (0..sets.places()).filter_map(|at| sets.in_place(at).copied()).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(all(&mut sets), [2, 3, 4, 5, 6, 7, 8, 9]);
        sets.insert_with(hashes[0], 500, 500, |old| shown = *old);
        assert_eq!((shown, sets.evicted), (2, 1), "an expired one is shown, too, but does not count");
        let index = sets.find(hashes[0], 500, |_| true).expect("is there");
        sets.remove(index);
        assert!(
            !all(&mut sets).contains(&500) && sets.in_place(index).is_none() && sets.in_place(16).is_none()
        );
    }

    #[test]
    fn an_expired_entry_does_not_come_back_when_time_goes_back() {
        let mut sets = FlowTable::new(16, 100);
        sets.insert(2, 50, 50);
        assert_eq!(sets.find(2, 200, |_| true), None);
        let index = sets.insert(2, 200, 200);
        assert_eq!(sets.find(2, 149, |_| true), Some(index), "one entry of the flow is left");
        assert_eq!(*sets.get(index), 200);
    }

    #[test]
    fn entries_of_a_wrong_clock_make_room() {
        let mut sets = FlowTable::new(16, 100);
        let hashes = of_one_set(&sets);
        let wrong = 2 * crate::table::BACK_NS;
        for hash in &hashes[..8] {
            sets.insert(*hash, wrong, wrong);
        }
        assert!(sets.find(hashes[0], wrong, |_| true).is_some());
        for (now, hash) in (1..).zip([&hashes[8..], &hashes[1..7]].concat()) {
            sets.insert(hash, now, now);
        }
        assert!(
            hashes[8..].iter().all(|hash| sets.find(*hash, 9, |_| true).is_some()),
            "none replaced another"
        );
        assert_eq!(sets.evicted, 8);
        // A time that goes back by less is one of merged captures.
        let index = sets.insert(hashes[9], 50 + crate::table::BACK_NS, 50 + crate::table::BACK_NS);
        assert_eq!(sets.find(hashes[9], 50, |used| *used > 50), Some(index));
    }
}
