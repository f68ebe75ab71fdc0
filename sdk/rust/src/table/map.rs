use super::age;
use crate::Ip;

/// The number of places in which a key can lie.
const WAYS: usize = 4;

/// A key of a [`Map`].
pub trait Key: Copy + Default + Eq {
    /// Returns a hash that is equal for equal keys and spread over all bits, the low ones first.
    fn hash(&self) -> u64;
}

/// A key that is a hash itself, spread over all bits, and is not hashed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hashed(pub u64);

impl Key for Hashed {
    #[inline]
    fn hash(&self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy, Default)]
struct Place<K, V> {
    key: K,
    /// The time of the last [`Map::insert`] or [`Map::or_insert`] plus 1; 0 marks a free place.
    used: u64,
    value: V,
}

/// A map of fixed size. If all four places of a key are taken, the value with the oldest [`Map::insert`] or
/// [`Map::or_insert`] is evicted and counted.
///
/// ```
/// use flame_module::Map;
/// let mut packets = Map::<u16, u64>::new(1024);
/// for (now_ns, port) in [(1, 80), (2, 443), (3, 80)] {
///     *packets.or_insert(port, now_ns) += 1;
/// }
/// assert_eq!((packets.get(80), packets.get(22), packets.evicted), (Some(&2), None, 0));
/// ```
pub struct Map<K, V> {
    places: Box<[Place<K, V>]>,
    /// The number of values that were evicted.
    pub evicted: u64,
}

impl<K: Key, V: Copy + Default> Map<K, V> {
    /// Creates a map for at least `capacity` values, rounded up to a power of two.
    pub fn new(capacity: usize) -> Self {
        let places = capacity.max(WAYS).next_power_of_two();
        Self { places: vec![Place::default(); places].into(), evicted: 0 }
    }

    #[inline]
    fn set(&self, key: &K) -> usize {
        let sets = self.places.len() / WAYS;
        (key.hash() as usize & (sets - 1)) * WAYS
    }

    /// Returns the value of a key. Its time stays as it is, so that reading does not protect it from
    /// eviction.
    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        let at = self.set(&key);
        let set = &self.places[at..at + WAYS];
        set.iter().find(|p| p.used != 0 && p.key == key).map(|p| &p.value)
    }

    /// Returns the value of a key, to be changed. Its time stays as it is, as with [`Map::get`].
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let at = self.set(&key);
        let set = &mut self.places[at..at + WAYS];
        set.iter_mut().find(|p| p.used != 0 && p.key == key).map(|p| &mut p.value)
    }

    /// Sets the value of a key. It is the youngest value if `now_ns` is the latest time.
    pub fn insert(&mut self, key: K, now_ns: u64, value: V) -> &mut V {
        let at = self.set(&key);
        let set = &mut self.places[at..at + WAYS];
        let known = set.iter().position(|p| p.used != 0 && p.key == key);
        // The first of those that are free or oldest.
        let age =
            |p: &Place<K, V>| if p.used == 0 { u64::MAX } else { age(now_ns.saturating_add(1), p.used) };
        let oldest = || set.iter().enumerate().rev().max_by_key(|(_, p)| age(p)).map_or(0, |(i, _)| i);
        let i = known.unwrap_or_else(oldest);
        self.evicted += u64::from(known.is_none() && set[i].used != 0);
        set[i] = Place { key, used: now_ns.saturating_add(1), value };
        &mut set[i].value
    }

    /// Sets the value of a key that the map does not have and returns whether it did. A known key keeps its
    /// value and its time.
    #[inline]
    pub fn insert_new(&mut self, key: K, now_ns: u64, value: V) -> bool {
        let is_new = self.get(key).is_none();
        if is_new {
            crate::cold();
            self.insert(key, now_ns, value);
        }
        is_new
    }

    /// Returns the value of a key, initially the default, and sets its time to `now_ns`.
    #[inline]
    pub fn or_insert(&mut self, key: K, now_ns: u64) -> &mut V {
        let at = self.set(&key);
        let set = &mut self.places[at..at + WAYS];
        let known = set.iter().position(|p| p.used != 0 && p.key == key);
        match known {
            Some(i) => {
                let place = &mut self.places[at + i];
                place.used = now_ns.saturating_add(1);
                &mut place.value
            }
            None => {
                crate::cold();
                self.insert(key, now_ns, V::default())
            }
        }
    }

    /// Removes a key and returns its value, if it is there. This does not count as an eviction.
    #[inline]
    pub fn remove(&mut self, key: K) -> Option<V> {
        let at = self.set(&key);
        let set = &mut self.places[at..at + WAYS];
        let place = set.iter_mut().find(|p| p.used != 0 && p.key == key)?;
        place.used = 0;
        Some(place.value)
    }

    /// Returns all values, in an order that depends only on keys and times.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.places.iter().filter(|p| p.used != 0).map(|p| (&p.key, &p.value))
    }

    /// Empties the map and keeps the count of evicted values.
    pub fn clear(&mut self) {
        self.places.fill(Place::default());
    }
}

/// Spreads 64 bits (the finaliser of SplitMix64), for example to make a key [`Hashed`].
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl Key for $type {
            #[inline]
            fn hash(&self) -> u64 {
                mix((*self).into())
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 }

impl Key for Ip {
    #[inline]
    fn hash(&self) -> u64 {
        let all = u128::from_le_bytes(self.bytes);
        mix(mix(all as u64 ^ u64::from(self.family)) ^ (all >> 64) as u64)
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    #[inline]
    fn hash(&self) -> u64 {
        mix(self.0.hash().rotate_left(1) ^ self.1.hash())
    }
}

impl<A: Key, B: Key, C: Key> Key for (A, B, C) {
    #[inline]
    fn hash(&self) -> u64 {
        mix((self.0, self.1).hash().rotate_left(1) ^ self.2.hash())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A key whose values all fall into one set.
    #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
    struct Same(u32);

    impl Key for Same {
        fn hash(&self) -> u64 {
            0
        }
    }

    #[test]
    fn the_oldest_of_a_full_set_is_evicted_and_counted() {
        let mut map = Map::<Same, u64>::new(1024);
        for n in 0..4 {
            map.insert(Same(n), n.into(), n.into());
        }
        *map.or_insert(Same(0), 9) += 100;
        map.insert(Same(4), 10, 4);
        let kept: Vec<_> = map.iter().map(|(key, value)| (key.0, *value)).collect();
        assert_eq!((kept, map.evicted), (vec![(0, 100), (4, 4), (2, 2), (3, 3)], 1));
        assert_eq!((map.remove(Same(0)), map.remove(Same(0))), (Some(100), None));
        map.insert(Same(5), 0, 5);
        assert_eq!((map.get(Same(0)), map.get(Same(5)), map.evicted), (None, Some(&5), 1), "a free place");
        // A known key stays as old as it was.
        assert!(!map.insert_new(Same(2), 99, 20) && map.insert_new(Same(6), 11, 6));
        assert_eq!((map.get(Same(2)), map.get(Same(5)), map.evicted), (Some(&2), None, 2));
        assert!(map.insert_new(Same(7), 12, 7));
        assert_eq!((map.get(Same(2)), map.evicted), (None, 3));
        map.clear();
        assert_eq!((map.iter().count(), map.evicted), (0, 3));
    }

    #[test]
    fn values_of_a_wrong_clock_make_room() {
        let mut map = Map::<Same, u64>::new(4);
        let wrong = 2 * super::super::BACK_NS;
        for n in 0..4 {
            map.insert(Same(n), wrong, 0);
        }
        for n in 4..8 {
            map.insert(Same(n), u64::from(n), 1);
        }
        assert!((4..8).all(|n| map.get(Same(n)).is_some()), "none replaced another");
        map.insert(Same(9), u64::MAX, 2);
        map.insert(Same(9), u64::MAX, 3);
        assert_eq!((map.get(Same(9)), map.evicted), (Some(&3), 5));
    }

    proptest! {
        #[test]
        fn a_map_that_evicts_nothing_is_like_any_other(
            steps in prop::collection::vec((0u16..300, any::<bool>(), any::<u64>()), 0..400)
        ) {
            let (mut ours, mut theirs) = (Map::<u16, u64>::new(1 << 16), BTreeMap::new());
            for (key, remove, value) in steps {
                if remove {
                    ours.remove(key);
                    theirs.remove(&key);
                } else {
                    ours.insert(key, value, value);
                    theirs.insert(key, value);
                }
            }
            prop_assert_eq!(ours.evicted, 0);
            let mut all: Vec<_> = ours.iter().map(|(key, value)| (*key, *value)).collect();
            all.sort();
            prop_assert!(all.into_iter().eq(theirs));
        }
    }

    #[test]
    fn keys_of_many_kinds_are_spread() {
        let hosts = |n: u32| Ip::v4((0x0a00_0000 + n).to_be_bytes());
        let mut map = Map::<(Ip, u16), u32>::new(1 << 14);
        for n in 0..4096 {
            map.insert((hosts(n), n as u16), 0, n);
        }
        // The map is a quarter full: with four places, almost every key finds one.
        assert!(map.evicted < 40, "{}", map.evicted);
        assert_ne!((1u8, 2u8, 3u8).hash(), (3u8, 2u8, 1u8).hash());
        assert_ne!(Ip::v4([0; 4]).hash(), Ip::v6([0; 16]).hash());
    }
}
