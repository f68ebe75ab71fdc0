//! The transforms of the three series of counts, interval by interval.

use crate::pyramid::{Energy, OCTAVES, Pyramid, Wavelet};
use crate::{Counts, SERIES};

/// The sums that completely describe the series so far.
pub type Energies = [[Energy; OCTAVES]; SERIES];

#[derive(Clone, Debug)]
pub struct Transform {
    pyramids: [Pyramid; SERIES],
    /// The index of the next interval, or `None` before the first arrival.
    next: Option<u64>,
    /// The number of intervals in the series.
    pub intervals: u64,
}

impl Transform {
    pub fn new(moments: usize) -> Self {
        let pyramid = Pyramid::new(Wavelet::daubechies(moments));
        Self { pyramids: [pyramid.clone(), pyramid.clone(), pyramid], next: None, intervals: 0 }
    }

    /// Adds the complete interval `index` with `counts`; the intervals between it and the one before were
    /// empty. The very first interval began before the capture did, so it only defines where the series
    /// begins. Returns false if `index` lies before the next interval.
    pub fn push(&mut self, index: u64, counts: &Counts) -> bool {
        if self.next.is_some_and(|next| index < next) {
            return false;
        }
        if self.next.is_some() {
            self.advance(index);
            for (pyramid, count) in self.pyramids.iter_mut().zip(counts) {
                pyramid.push(*count as f64);
            }
            self.intervals += 1;
        }
        self.next = Some(index.saturating_add(1));
        true
    }

    /// Completes all intervals below `until`.
    pub fn advance(&mut self, until: u64) {
        let Some(next) = self.next else { return };
        let empty = until.saturating_sub(next);
        if empty > 0 {
            self.pyramids.iter_mut().for_each(|p| p.push_zeros(empty));
            self.intervals += empty;
            self.next = Some(until);
        }
    }

    pub fn energies(&self) -> Energies {
        let [packets, bytes, connections] = &self.pyramids;
        [*packets.energies(), *bytes.energies(), *connections.energies()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_intervals_are_zeros_and_the_first_is_left_out() {
        let (mut gaps, mut zeros) = (Transform::new(1), Transform::new(1));
        gaps.advance(3);
        for i in 3..40 {
            let counts = if i % 5 == 0 { [0; SERIES] } else { [i, i * i, 1] };
            assert!(zeros.push(i, &counts));
            if counts != [0; SERIES] {
                assert!(gaps.push(i, &counts));
            }
        }
        assert!(!gaps.push(20, &[1; SERIES]));
        gaps.advance(50);
        (40..50).for_each(|i| assert!(zeros.push(i, &[0; SERIES])));
        assert_eq!((gaps.intervals, gaps.energies()), (46, zeros.energies()));
    }
}
