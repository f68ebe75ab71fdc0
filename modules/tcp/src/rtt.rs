//! A histogram of round-trip times: four bins for each doubling from 4.1 µs to 137 s, one below and one
//! above. A percentile is interpolated in its bin, so it is at most a quarter off.

/// The base-2 logarithms of the first bin's upper bound (4096 ns) and of the last one's lower bound.
const LOW: u32 = 12;
const HIGH: u32 = 37;
pub const BINS: usize = ((HIGH - LOW) * 4 + 2) as usize;

fn bin(ns: u64) -> usize {
    let bits = 63 - (ns | 1).leading_zeros();
    if bits < LOW {
        0
    } else if bits >= HIGH {
        BINS - 1
    } else {
        ((bits - LOW) * 4 + (ns >> (bits - 2) & 3) as u32 + 1) as usize
    }
}

/// Returns the smallest time of a bin, which is the upper bound of the bin before.
fn lower(bin: usize) -> u64 {
    match bin as u32 {
        0 => 0,
        n => u64::from(4 + (n - 1) % 4) << (LOW + (n - 1) / 4 - 2),
    }
}

/// Round-trip times, in counters of type `T`.
#[derive(Clone, Copy, Debug)]
pub struct Times<T> {
    pub bins: [T; BINS],
    pub least: u64,
    pub most: u64,
}

impl<T: Copy + Default> Default for Times<T> {
    fn default() -> Self {
        Self { bins: [T::default(); BINS], least: u64::MAX, most: 0 }
    }
}

/// What a row states of [`Times`], in nanoseconds; zeros without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub count: u64,
    pub least: i64,
    pub most: i64,
    pub percentiles: [i64; 3],
}

impl Times<u16> {
    /// Counts one. A bin of one connection holds at most 65,535.
    pub fn add(&mut self, ns: u64) {
        let count = &mut self.bins[bin(ns)];
        *count = count.saturating_add(1);
        (self.least, self.most) = (self.least.min(ns), self.most.max(ns));
    }
}

impl Times<u64> {
    pub fn add(&mut self, ns: u64) {
        self.bins[bin(ns)] += 1;
        (self.least, self.most) = (self.least.min(ns), self.most.max(ns));
    }
}

impl<T: Copy + Into<u64>> Times<T> {
    pub fn summary(&self) -> Summary {
        let count: u64 = self.bins.iter().map(|n| (*n).into()).sum();
        if count == 0 {
            return Summary::default();
        }
        let percentiles = [50, 95, 99].map(|percent| self.at((count * percent).div_ceil(100)) as i64);
        Summary { count, least: self.least as i64, most: self.most as i64, percentiles }
    }

    /// Returns the time of the one of this rank, from 1.
    fn at(&self, rank: u64) -> u64 {
        let mut before = 0;
        for (n, count) in self.bins.iter().enumerate() {
            let count: u64 = (*count).into();
            if before + count >= rank {
                let (from, to) = (lower(n), if n + 1 < BINS { lower(n + 1) } else { self.most });
                // The middle of its part of the bin.
                let part = (to - from.min(to)) / (2 * count).max(1) * (2 * (rank - before) - 1);
                return (from + part).clamp(self.least, self.most);
            }
            before += count;
        }
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_a_quarter_off() {
        let mut times = Times::<u64>::default();
        let all: Vec<u64> = (0..1000u64).map(|n| 20_000 + n * n * 700).collect();
        all.iter().for_each(|ns| times.add(*ns));
        let found = times.summary();
        assert_eq!((found.count, found.least, found.most), (1000, 20_000, all[999] as i64));
        for (percentile, rank) in found.percentiles.into_iter().zip([500, 950, 990]) {
            let exact = all[rank - 1] as f64;
            assert!((percentile as f64 - exact).abs() < exact / 4.0, "{percentile} for {exact}");
        }
        assert_eq!(Times::<u16>::default().summary(), Summary::default());
        let mut one = Times::<u16>::default();
        one.add(5_000_000);
        assert_eq!(one.summary().percentiles, [5_000_000; 3]);
        let mut ends = Times::<u64>::default();
        [0, 1, u64::MAX / 2].iter().for_each(|ns| ends.add(*ns));
        assert_eq!(ends.summary().most, (u64::MAX / 2) as i64);
    }
}
