//! Sets of ports and addresses as sorted, disjoint, inclusive intervals: lists, ranges and negations of any
//! depth are converted to these at the start, and a packet costs one binary search.

/// A number type of interval bounds.
pub trait Number: Copy + Ord {
    const MIN: Self;
    const MAX: Self;
    /// Returns the next number; called only below `MAX`.
    fn next(self) -> Self;
    /// Returns the previous number; called only above `MIN`.
    fn previous(self) -> Self;
    /// Returns the last number of the largest prefix that begins here and does not exceed `last`.
    fn block(self, last: Self) -> Self;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            const MIN: Self = <$type>::MIN;
            const MAX: Self = <$type>::MAX;
            fn next(self) -> Self {
                self + 1
            }
            fn previous(self) -> Self {
                self - 1
            }
            fn block(self, last: Self) -> Self {
                let aligned = self.trailing_zeros();
                // The number of low bits that may all be set without exceeding `last`.
                let room = match (last - self).checked_add(1) {
                    Some(count) => count.ilog2(),
                    None => <$type>::BITS,
                };
                let low = <$type>::MAX.checked_shr(<$type>::BITS - aligned.min(room)).unwrap_or(0);
                self | low
            }
        }
    )*};
}
number!(u16, u32, u128);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set<T> {
    parts: Vec<(T, T)>,
}

impl<T: Number> Set<T> {
    pub fn empty() -> Self {
        Self { parts: Vec::new() }
    }

    pub fn all() -> Self {
        Self::range(T::MIN, T::MAX)
    }

    /// Returns `first..=last`, which is empty if `first` is greater than `last`.
    pub fn range(first: T, last: T) -> Self {
        Self { parts: if first <= last { vec![(first, last)] } else { Vec::new() } }
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    #[inline]
    pub fn is_all(&self) -> bool {
        matches!(self.parts[..], [(first, last)] if first == T::MIN && last == T::MAX)
    }

    #[inline]
    pub fn contains(&self, n: T) -> bool {
        if let [(first, last)] = self.parts[..] {
            return first <= n && n <= last;
        }
        let after = self.parts.partition_point(|(first, _)| *first <= n);
        after > 0 && n <= self.parts[after - 1].1
    }

    pub fn parts(&self) -> &[(T, T)] {
        &self.parts
    }

    /// Returns the number of prefixes that the set consists of.
    pub fn prefixes(&self) -> u64 {
        let of = |(first, last): (T, T)| {
            let (mut from, mut count) = (first, 1);
            loop {
                let end = from.block(last);
                if end == last {
                    return count;
                }
                (from, count) = (end.next(), count + 1);
            }
        };
        self.parts.iter().map(|part| of(*part)).sum()
    }

    /// Adds many sets at once; sorting after each would be quadratic.
    pub fn union(sets: impl IntoIterator<Item = Self>) -> Self {
        let mut all: Vec<_> = sets.into_iter().flat_map(|s| s.parts).collect();
        all.sort_unstable();
        let mut parts: Vec<(T, T)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match parts.last_mut() {
                Some((_, end)) if *end == T::MAX || first <= end.next() => *end = last.max(*end),
                _ => parts.push((first, last)),
            }
        }
        Self { parts }
    }

    pub fn complement(&self) -> Self {
        let mut parts = Vec::with_capacity(self.parts.len() + 1);
        let mut from = Some(T::MIN);
        for &(first, last) in &self.parts {
            if let Some(from) = from.filter(|f| *f < first) {
                parts.push((from, first.previous()));
            }
            from = (last < T::MAX).then(|| last.next());
        }
        parts.extend(from.map(|f| (f, T::MAX)));
        Self { parts }
    }

    pub fn minus(&self, other: &Self) -> Self {
        // A \ B is the complement of (complement of A, or B).
        Self::union([self.complement(), other.clone()]).complement()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sets_are_sets(a in prop::collection::vec((0u16..300, 0u16..300), 0..8),
                         b in prop::collection::vec((0u16..300, 65300u16..), 0..3)) {
            let set = |l: &[(u16, u16)]| Set::union(l.iter().map(|(x, y)| Set::range(*x, *y)));
            let is_in = |l: &[(u16, u16)], n: u16| l.iter().any(|(x, y)| *x <= n && n <= *y);
            let (one, two) = (set(&a), set(&b));
            let (less, not) = (one.minus(&two), two.complement());
            for n in (0..400).chain(65200..=u16::MAX) {
                prop_assert_eq!(one.contains(n), is_in(&a, n));
                prop_assert_eq!(not.contains(n), !is_in(&b, n));
                prop_assert_eq!(less.contains(n), is_in(&a, n) && !is_in(&b, n));
            }
            prop_assert!(one.parts().windows(2).all(|w| w[0].1 < w[1].0 - 1), "disjoint, and not even next to each other");
        }
    }

    #[test]
    fn ends() {
        assert!(Set::<u32>::all().is_all() && Set::<u32>::empty().complement().is_all());
        assert!(Set::<u128>::all().complement().is_empty());
        assert_eq!(Set::range(5u16, 4), Set::empty());
        assert_eq!(Set::range(0u16, 9).complement(), Set::range(10, u16::MAX));
    }
}
