//! Counts of distinct values (Flajolet, Fusy, Gandouet and Meunier, *HyperLogLog*): 256 registers, each with
//! the longest run of zeros of the hashes that fell into it. The standard error is 6.5 %. Small counts follow
//! from the number of empty registers, with an error of 3 to 5 % up to 200.

pub const REGISTERS: usize = 256;

#[derive(Clone, Copy, Debug)]
pub struct Distinct(pub [u8; REGISTERS]);

impl Default for Distinct {
    fn default() -> Self {
        Self([0; REGISTERS])
    }
}

impl Distinct {
    /// Adds a value by its hash, which is spread over all bits.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        let register = &mut self.0[(hash >> 56) as usize % REGISTERS];
        *register = (*register).max((hash << 8 | 0x80).leading_zeros() as u8 + 1);
    }

    /// Adds all values of another count.
    pub fn merge(&mut self, other: &[u8; REGISTERS]) {
        self.0.iter_mut().zip(other).for_each(|(a, b)| *a = (*a).max(*b));
    }

    /// Returns the estimate.
    pub fn count(&self) -> u64 {
        let (mut sum, mut empty) = (0.0, 0);
        for register in self.0 {
            sum += 1.0 / (1u64 << register.min(63)) as f64;
            empty += u32::from(register == 0);
        }
        let m = REGISTERS as f64;
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let estimate = if raw <= 2.5 * m && empty > 0 { m * (m / f64::from(empty)).ln() } else { raw };
        estimate.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_within_their_error() {
        for (count, most) in [(1u64, 0.01), (20, 0.1), (50, 0.12), (200, 0.12), (1000, 0.2), (65_535, 0.2)] {
            let mut squares = 0.0;
            for seed in 0..32u64 {
                let mut distinct = Distinct::default();
                for value in 0..count {
                    distinct.add(flame_module::mix(value << 8 | seed));
                    distinct.add(flame_module::mix(value << 8 | seed));
                }
                let error = distinct.count() as f64 / count as f64 - 1.0;
                assert!(error.abs() <= 2.0 * most, "{count}: {error}");
                squares += error * error;
            }
            assert!((squares / 32.0).sqrt() <= most.min(0.08), "{count}: {squares}");
        }
        assert_eq!(Distinct::default().count(), 0);
    }

    #[test]
    fn merged_counts_are_those_of_all_values() {
        let [mut a, mut b, mut all] = [Distinct::default(); 3];
        for value in 0..500 {
            let hash = flame_module::mix(value);
            if value % 3 == 0 {
                a.add(hash)
            } else {
                b.add(hash)
            }
            all.add(hash);
        }
        a.merge(&b.0);
        assert_eq!(a.0, all.0);
    }
}
