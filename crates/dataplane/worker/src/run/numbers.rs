//! The numbers of all modules that a run has had, in bounded memory.

use flame_plan::ModuleId;

/// The maximum number of stretches. Beyond it, the lowest gap counts as used.
const MOST: usize = 256;

/// A set of numbers as stretches of consecutive ones. An owner that counts upwards needs one stretch, and one
/// more for each number that it leaves out.
#[derive(Default)]
pub(crate) struct Numbers {
    /// The first and last number of each stretch, in order, with a gap between any two.
    stretches: Vec<(u32, u32)>,
}

impl Numbers {
    /// Adds a number, and returns whether it was not used before.
    pub(crate) fn insert(&mut self, id: ModuleId) -> bool {
        let ModuleId(n) = id;
        let at = self.stretches.partition_point(|(_, last)| *last < n);
        if self.stretches.get(at).is_some_and(|(first, _)| *first <= n) {
            return false;
        }
        let joins_next = self.stretches.get(at).is_some_and(|(first, _)| first - 1 == n);
        let joins_last = at > 0 && self.stretches[at - 1].1 + 1 == n;
        match (joins_last, joins_next) {
            (true, true) => self.stretches[at - 1].1 = self.stretches.remove(at).1,
            (true, false) => self.stretches[at - 1].1 = n,
            (false, true) => self.stretches[at].0 = n,
            (false, false) => self.stretches.insert(at, (n, n)),
        }
        if self.stretches.len() > MOST {
            self.stretches[0].1 = self.stretches.remove(1).1;
        }
        true
    }

    /// Removes a number that was added and not given to a module.
    pub(crate) fn remove(&mut self, id: ModuleId) {
        let ModuleId(n) = id;
        let at = self.stretches.partition_point(|(_, last)| *last < n);
        let Some((first, last)) = self.stretches.get(at).copied().filter(|(first, _)| *first <= n) else {
            return;
        };
        let rest = [(first, n.wrapping_sub(1)), (n.wrapping_add(1), last)];
        let kept = [first < n, n < last];
        self.stretches.splice(at..=at, rest.into_iter().zip(kept).filter_map(|(s, is)| is.then_some(s)));
    }
}

impl FromIterator<ModuleId> for Numbers {
    fn from_iter<T: IntoIterator<Item = ModuleId>>(all: T) -> Self {
        let mut numbers = Self::default();
        for id in all {
            numbers.insert(id);
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn they_are_a_set(steps in proptest::collection::vec((any::<bool>(), 0..200u32, any::<bool>()), 0..400)) {
            let (mut numbers, mut set) = (Numbers::default(), BTreeSet::new());
            for (adds, n, is_high) in steps {
                let n = if is_high { u32::MAX - n } else { n };
                match adds {
                    true => prop_assert_eq!(numbers.insert(ModuleId(n)), set.insert(n)),
                    false => {
                        numbers.remove(ModuleId(n));
                        set.remove(&n);
                    }
                }
                prop_assert!(numbers.stretches.windows(2).all(|w| w[0].1 + 1 < w[1].0));
            }
        }
    }

    #[test]
    fn many_installs_take_one_stretch_and_gaps_are_few() {
        let mut numbers: Numbers = (0..1_000_000).map(ModuleId).collect();
        assert_eq!(numbers.stretches, [(0, 999_999)]);
        for n in (2_000_000..3_000_000).step_by(2) {
            assert!(numbers.insert(ModuleId(n)));
        }
        assert_eq!(numbers.stretches.len(), MOST);
        // Numbers that are counted up remain free, and none is given twice.
        assert!(numbers.insert(ModuleId(3_000_001)) && !numbers.insert(ModuleId(2_000_001)));
        assert!(!numbers.insert(ModuleId(17)) && !numbers.insert(ModuleId(2_999_998)));
    }
}
