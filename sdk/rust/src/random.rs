/// Random numbers that follow from a seed: a run with the same packets and the same seed has the same ones
/// (`flame run --seed N`). Each instance has a sequence of its own. They are not for secrets.
///
/// The manifest needs `random = true` in `[needs]`. Otherwise the seed is always 0.
///
/// Each method has a constant cost, so a module that uses them remains bounded.
#[derive(Clone, Debug)]
pub struct Random(fastrand::Rng);

impl Random {
    /// Creates a generator. Modules get the host's seed by [`Init::random`](crate::Init::random).
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Returns any number.
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a number below `n`, or 0 if `n` is 0. No number is more likely than another by more than
    /// `n` in 2^64.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a number from 0 up to, but not including, 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [(); 8].map(|()| random.number())
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn numbers_are_in_range_and_even() {
        let mut random = Random::new(1);
        let mut found = [0_u32; 10];
        for _ in 0..100_000 {
            found[random.below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(found.iter().all(|n| (9_500..10_500).contains(n)), "{found:?}");
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }
}
