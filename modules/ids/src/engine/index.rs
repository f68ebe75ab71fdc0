//! Rules by a number that they restrict: an address or a port.
//!
//! Each range is split into prefixes, of which any two are nested or disjoint. So memory is linear in the
//! prefixes, however ranges overlap, and a look-up is one binary search and a walk along nested prefixes.

use super::work::{HIT, Work};
use crate::rule::set::{Number, Set};

/// No prefix.
const NONE: u32 = u32::MAX;

struct Prefix {
    /// The narrowest prefix around this one.
    parent: u32,
    /// The end of its rules in [`Index::rules`]; they begin where those of the prefix before end.
    rules: u32,
}

pub struct Index<T> {
    /// The first number of each part of the range, ascending, with the narrowest prefix that covers it.
    starts: Vec<(T, u32)>,
    prefixes: Vec<Prefix>,
    rules: Vec<u32>,
}

impl<T: Number> Index<T> {
    /// Creates the index of rules, each given by its number.
    pub fn new<'a>(rules: impl IntoIterator<Item = (u32, &'a Set<T>)>) -> Self
    where
        T: 'a,
    {
        let mut all: Vec<(T, T, u32)> = Vec::new();
        for (rule, set) in rules {
            for &(first, last) in set.parts() {
                let mut from = first;
                loop {
                    let end = from.block(last);
                    all.push((from, end, rule));
                    if end == last {
                        break;
                    }
                    from = end.next();
                }
            }
        }
        // An outer prefix precedes those in it.
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2)));
        let mut index =
            Self { starts: Vec::new(), prefixes: Vec::new(), rules: Vec::with_capacity(all.len()) };
        // The prefixes around the current one, with their last numbers.
        let mut around: Vec<(T, u32)> = Vec::new();
        let mut before = None;
        for (first, last, rule) in all {
            if before != Some((first, last)) {
                while let Some((end, _)) = around.pop_if(|(end, _)| *end < first) {
                    let outer = around.last().map_or(NONE, |(_, prefix)| *prefix);
                    index.start(end.next(), outer);
                }
                let number = index.prefixes.len() as u32;
                let parent = around.last().map_or(NONE, |(_, prefix)| *prefix);
                index.prefixes.push(Prefix { parent, rules: 0 });
                index.start(first, number);
                around.push((last, number));
                before = Some((first, last));
            }
            index.rules.push(rule);
            if let Some(prefix) = index.prefixes.last_mut() {
                prefix.rules = index.rules.len() as u32;
            }
        }
        while let Some((end, _)) = around.pop() {
            if end < T::MAX {
                index.start(end.next(), around.last().map_or(NONE, |(_, prefix)| *prefix));
            }
        }
        index
    }

    fn start(&mut self, first: T, prefix: u32) {
        match self.starts.last_mut() {
            Some((last, of)) if *last == first => *of = prefix,
            _ => self.starts.push((first, prefix)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Calls `hit` with each rule whose set contains the number, as long as there is work left.
    #[inline]
    pub fn find(&self, n: T, work: &mut Work, mut hit: impl FnMut(u32)) {
        let after = self.starts.partition_point(|(first, _)| *first <= n);
        let Some((_, mut prefix)) = after.checked_sub(1).map(|i| self.starts[i]) else { return };
        while let Some(found) = self.prefixes.get(prefix as usize) {
            let from = (prefix as usize).checked_sub(1).map_or(0, |i| self.prefixes[i].rules as usize);
            let rules = &self.rules[from..found.rules as usize];
            if !work.spend_each(rules.len() + 1, HIT) {
                return;
            }
            rules.iter().for_each(|rule| hit(*rule));
            prefix = found.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_search_of_every_set_finds(
            ranges in prop::collection::vec(prop::collection::vec((any::<u16>(), 0u16..9000), 1..4), 0..12),
            wide in prop::collection::vec((0u16..40, 0u16..40), 0..12),
            numbers in prop::collection::vec(any::<u16>(), 20),
        ) {
            let mut sets: Vec<Set<u16>> = ranges
                .iter()
                .map(|r| Set::union(r.iter().map(|(a, n)| Set::range(*a, a.saturating_add(*n)))))
                .collect();
            sets.extend(wide.iter().map(|(a, b)| Set::range(a * 1600, 65_535 - b * 1600)));
            sets.extend([Set::all(), Set::empty()]);
            let index = Index::new((0..).zip(&sets));
            let ends = sets.iter().flat_map(|s| s.parts().iter().flat_map(|(a, b)| [*a, *b]));
            for n in numbers.iter().copied().chain(ends).chain([0, 65_535]) {
                let mut found = Vec::new();
                index.find(n, &mut Work::default(), |rule| found.push(rule));
                found.sort_unstable();
                let expected: Vec<u32> = (0..).zip(&sets).filter(|(_, s)| s.contains(n)).map(|(i, _)| i).collect();
                prop_assert_eq!(found, expected, "{}", n);
            }
        }
    }

    #[test]
    fn memory_is_linear_in_the_ranges() {
        // Ranges that all overlap: a list for each part would hold millions of entries.
        let sets: Vec<Set<u32>> = (1..4000u32).map(|i| Set::range(i * 1000, u32::MAX - i * 1000)).collect();
        let index = Index::new((0..).zip(&sets));
        assert!(index.rules.len() <= 4000 * 62 && index.starts.len() <= 4000 * 124, "{}", index.rules.len());
    }
}
