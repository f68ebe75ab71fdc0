//! Sets of addresses, as ranges that do not meet.

/// Ranges of addresses, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranges<A> {
    starts: Box<[A]>,
    ends: Box<[A]>,
}

impl<A: Copy + Ord> Ranges<A> {
    /// Creates a set from first and last addresses in any order.
    pub(crate) fn new(mut ranges: Vec<(A, A)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(A, A)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges {
            match joined.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => joined.push((start, end)),
            }
        }
        let (starts, ends): (Vec<A>, Vec<A>) = joined.into_iter().unzip();
        Self { starts: starts.into(), ends: ends.into() }
    }

    /// Returns whether an address is in the set, after as many steps as its number of ranges has bits.
    #[inline]
    pub(crate) fn contains(&self, address: A) -> bool {
        let behind = self.starts.partition_point(|start| *start <= address);
        behind.checked_sub(1).is_some_and(|at| address <= self.ends[at])
    }
}

/// A set of one version of IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressSet {
    V4(Ranges<u32>),
    V6(Ranges<u128>),
}

impl AddressSet {
    /// Returns the place of the last word of an address.
    pub(crate) fn last(&self) -> usize {
        match self {
            Self::V4(_) => 0,
            Self::V6(_) => 3,
        }
    }

    /// Returns whether the set contains an address of four words, or of the first one for IPv4.
    #[inline]
    pub(crate) fn contains(&self, words: [u32; 4]) -> bool {
        match self {
            Self::V4(ranges) => ranges.contains(words[0]),
            Self::V6(ranges) => ranges.contains(words.iter().fold(0, |all, w| all << 32 | u128::from(*w))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_are_joined() {
        let set = Ranges::new(vec![(9u32, 9), (3, 5), (4, 7), (3, 3), (u32::MAX, u32::MAX), (0, 0)]);
        assert_eq!(set.starts.len(), 4);
        let inside: Vec<u32> = (0..12).filter(|n| set.contains(*n)).collect();
        assert_eq!(inside, [0, 3, 4, 5, 6, 7, 9]);
        assert!(set.contains(u32::MAX) && !set.contains(u32::MAX - 1));
        assert!(!Ranges::<u128>::new(Vec::new()).contains(0));
    }
}
