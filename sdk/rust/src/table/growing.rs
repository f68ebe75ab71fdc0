use std::borrow::Borrow;
use std::collections::hash_map::{self, RandomState};
use std::hash::{BuildHasher, Hash};

/// The number of maps among which the entries are divided.
const PARTS: usize = 1 << 12;

/// A map that grows in small steps, for any number of keys of any type.
///
/// A `std::collections::HashMap` moves all its entries when it is full, for one packet, which ends a module
/// with more than a few thousand of them. This one consists of 4,096 of these, each of which moves its own
/// entries alone, so that 10 million keys stay within the default budget of a packet. Its cost for a packet
/// has no bound that `flame check` finds, and nothing is evicted: a module that uses it is metered, and
/// should state how many keys it keeps.
///
/// ```
/// use flame_module::HashMap;
/// let mut bytes = HashMap::<String, u64>::new();
/// *bytes.entry("a".to_owned()).or_default() += 5;
/// assert_eq!((bytes.get("a"), bytes.get("b"), bytes.len()), (Some(&5), None, 1));
/// ```
#[derive(Clone, Debug)]
pub struct HashMap<K, V> {
    /// An empty part has no memory.
    parts: Box<[hash_map::HashMap<K, V>]>,
    hasher: RandomState,
}

impl<K, V> Default for HashMap<K, V> {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| hash_map::HashMap::new()).collect();
        Self { parts, hasher: RandomState::new() }
    }
}

impl<K: Eq + Hash, V> HashMap<K, V> {
    /// Creates an empty map, of 200 KiB.
    pub fn new() -> Self {
        Self::default()
    }

    fn part<Q: Hash + ?Sized>(&self, key: &Q) -> usize {
        self.hasher.hash_one(key) as usize % PARTS
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.parts.iter().map(hash_map::HashMap::len).sum()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(hash_map::HashMap::is_empty)
    }

    /// Returns the value of a key.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.parts[self.part(key)].get(key)
    }

    /// Returns the value of a key, to be changed.
    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let part = self.part(key);
        self.parts[part].get_mut(key)
    }

    /// Returns whether a key has a value.
    pub fn contains_key<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Sets the value of a key, and returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let part = self.part(&key);
        self.parts[part].insert(key, value)
    }

    /// Removes a key and returns its value.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let part = self.part(key);
        self.parts[part].remove(key)
    }

    /// Returns the entry of a key, as the map of the standard library does.
    pub fn entry(&mut self, key: K) -> hash_map::Entry<'_, K, V> {
        let part = self.part(&key);
        self.parts[part].entry(key)
    }

    /// Returns all entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flatten()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.parts.iter_mut().for_each(hash_map::HashMap::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map() {
        let mut map = HashMap::new();
        for key in 0..100_000u32 {
            assert_eq!(map.insert(key, key + 1), None);
            *map.entry(key).or_insert(0) += 1;
        }
        assert_eq!((map.len(), map.is_empty()), (100_000, false));
        assert!((0..100_000).all(|key| map.get(&key) == Some(&(key + 2)) && map.contains_key(&key)));
        assert_eq!(map.iter().map(|(_, value)| u64::from(*value)).sum::<u64>(), 5_000_150_000);
        assert_eq!((map.remove(&7), map.remove(&7), map.len()), (Some(9), None, 99_999));
        *map.get_mut(&8).unwrap() = 0;
        assert_eq!(map.insert(8, 1), Some(0));
        map.clear();
        assert!(map.is_empty() && map.get(&1).is_none());
    }

    /// Keys that fill one part would be moved together, so no part has more than its share.
    #[test]
    fn no_part_has_many_entries() {
        let mut map = HashMap::new();
        (0..1_000_000u32).for_each(|key| assert!(map.insert(key, ()).is_none()));
        let most = map.parts.iter().map(hash_map::HashMap::len).max().unwrap();
        assert!(most < 400, "{most}, of 244 on average");
    }
}
