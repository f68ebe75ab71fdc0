//! Distributions of values in little memory, for flows and intervals, of which there are many.

/// Maximum number of classes. A value of a further class counts in the nearest one.
const MOST: usize = 96;
/// Binary logarithm of the number of classes per power of two. The error of a quantile is 1/128 at most,
/// unless there are more than [`MOST`] classes.
const BITS: u32 = 6;

/// Counts by class, in order. Each class that occurs takes 8 bytes.
#[derive(Clone, Debug, Default)]
pub struct Spread(Vec<(u16, u32)>);

fn class(value: u64) -> u16 {
    let shift = (64 - value.leading_zeros()).saturating_sub(BITS + 1);
    ((shift << BITS) + (value >> shift) as u32) as u16
}

/// Returns the middle of a class.
fn middle(class: u16) -> u64 {
    let class = u64::from(class);
    let shift = (class >> BITS).saturating_sub(1);
    let first = class - (shift << BITS);
    (first << shift) + ((1 << shift) >> 1)
}

impl Spread {
    pub fn add(&mut self, value: u64) {
        let class = class(value);
        let at = self.0.partition_point(|(c, _)| *c < class);
        let nearest = match self.0.get(at) {
            Some((c, _)) if *c == class => at,
            _ if self.0.len() < MOST => {
                self.0.insert(at, (class, 0));
                at
            }
            Some((above, _)) if at == 0 || above - class < class - self.0[at - 1].0 => at,
            _ => at - 1,
        };
        let count = &mut self.0[nearest].1;
        *count = count.saturating_add(1);
    }

    /// Returns the least value such that the fraction `quantile` of all values does not exceed it, or 0 if
    /// there are none.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let all: u64 = self.0.iter().map(|(_, n)| u64::from(*n)).sum();
        let wanted = ((all as f64 * quantile).ceil() as u64).max(1);
        let mut below = 0;
        let found = self.0.iter().find(|(_, n)| {
            below += u64::from(*n);
            below >= wanted
        });
        found.map_or(0, |(class, _)| middle(*class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_class_is_narrow(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            prop_assert!(middle(class(value)).abs_diff(value) <= value / 128, "{value} {}", middle(class(value)));
            prop_assert!(class(value) <= class(value.saturating_add(1)));
        }

        #[test]
        fn quantiles_are_near(mut values in prop::collection::vec(1_000_000u64..1_500_000, 1..200), q in 0.01f64..1.0) {
            let mut spread = Spread::default();
            values.iter().for_each(|v| spread.add(*v));
            values.sort_unstable();
            let exact = values[((values.len() as f64 * q).ceil() as usize).max(1) - 1];
            prop_assert!(spread.quantile(q).abs_diff(exact) <= exact / 64);
        }

        #[test]
        fn memory_is_bounded_and_nothing_is_lost(values in prop::collection::vec(any::<u64>(), 0..2000)) {
            let mut spread = Spread::default();
            values.iter().for_each(|v| spread.add(*v));
            prop_assert!(spread.0.len() <= MOST && spread.0.is_sorted_by_key(|(c, _)| *c));
            prop_assert_eq!(spread.0.iter().map(|(_, n)| *n as usize).sum::<usize>(), values.len());
        }
    }
}
