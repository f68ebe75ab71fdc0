//! A bucket of tokens.

use flame_click::Nanos;
use flame_click::time::SECOND;

/// A bucket that fills at a rate up to its size. Amounts are in billionths of a token.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    /// Tokens per second.
    pub rate: u64,
    pub size: u64,
    level: i128,
    at: Nanos,
}

impl Bucket {
    /// Returns a full bucket.
    pub fn new(rate: u64, size: u64, now: Nanos) -> Self {
        Self { rate, size: size.max(1), level: i128::from(size.max(1)) * i128::from(SECOND), at: now }
    }

    pub fn refill(&mut self, now: Nanos) {
        let passed = i128::from((now - self.at).0.max(0));
        self.level =
            (self.level + passed * i128::from(self.rate)).min(i128::from(self.size) * i128::from(SECOND));
        self.at = now;
    }

    pub fn contains(&self, tokens: u64) -> bool {
        self.level >= i128::from(tokens) * i128::from(SECOND)
    }

    /// Removes tokens. The level may become negative, so that a large packet pays later.
    pub fn remove(&mut self, tokens: u64) {
        self.level -= i128::from(tokens) * i128::from(SECOND);
    }

    /// Returns the time until `tokens` are there.
    pub fn until(&self, tokens: u64) -> Nanos {
        let missing = i128::from(tokens) * i128::from(SECOND) - self.level;
        if missing <= 0 {
            return Nanos::ZERO;
        }
        match self.rate {
            0 => Nanos(i64::MAX / 4),
            rate => Nanos(
                i64::try_from((missing + i128::from(rate) - 1) / i128::from(rate)).unwrap_or(i64::MAX / 4),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_at_its_rate_and_overflows() {
        let mut b = Bucket::new(2, 3, Nanos(0));
        b.remove(3);
        assert!(!b.contains(1));
        assert_eq!(b.until(1), Nanos(SECOND / 2));
        b.refill(Nanos(SECOND / 2));
        assert!(b.contains(1) && !b.contains(2));
        b.refill(Nanos(100 * SECOND));
        assert!(b.contains(3) && !b.contains(4));
    }
}
