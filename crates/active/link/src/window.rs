//! The numbers that were taken, as RFC 6479 keeps them: a ring of words, so that advancing clears whole
//! words.

const WORDS: usize = 32;

/// A replay window over the latest numbers.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// The highest number that was taken, and one more.
    end: u64,
    taken: [u64; WORDS],
}

/// The standing of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    New,
    Taken,
    /// The number is too far behind to know.
    Late,
}

impl Window {
    /// How far behind the highest number others are still taken.
    pub const SIZE: u64 = (WORDS as u64 - 1) * 64;

    /// Returns the standing of a number, and changes nothing.
    #[must_use]
    pub fn standing(&self, number: u64) -> Standing {
        if number >= self.end {
            return Standing::New;
        }
        if self.end - 1 - number >= Self::SIZE {
            return Standing::Late;
        }
        if self.taken[Self::word(number)] >> (number % 64) & 1 == 0 { Standing::New } else { Standing::Taken }
    }

    /// Takes a number, and returns whether it was new.
    pub fn take(&mut self, number: u64) -> bool {
        if self.standing(number) != Standing::New || number == u64::MAX {
            return false;
        }
        if number >= self.end {
            let (old, new) = (self.end / 64, number / 64);
            // The word of `end` itself is partly in use, unless `end` begins it.
            let first = if self.end.is_multiple_of(64) { old } else { old + 1 };
            for word in (first..=new).take(WORDS) {
                self.taken[usize::try_from(word % WORDS as u64).unwrap_or(0)] = 0;
            }
            if new.saturating_sub(first) >= WORDS as u64 {
                self.taken = [0; WORDS];
            }
            self.end = number + 1;
        }
        self.taken[Self::word(number)] |= 1 << (number % 64);
        true
    }

    fn word(number: u64) -> usize {
        usize::try_from(number / 64 % WORDS as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_window_takes_each_once() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut window, mut taken, mut highest) = (Window::default(), BTreeSet::new(), 0u64);
            let reach = [10, 100, 3000, 100_000][usize::try_from(seed % 4).unwrap()];
            for _ in 0..2000 {
                let number = (highest + rng.u64(..reach)).saturating_sub(rng.u64(..reach));
                let is_late = !taken.is_empty() && highest >= number && highest - number >= Window::SIZE;
                let is_new = !is_late && !taken.contains(&number);
                assert_eq!(window.take(number), is_new, "seed {seed}, number {number} of {highest}");
                if is_new {
                    taken.insert(number);
                    highest = highest.max(number);
                }
            }
        }
        let mut window = Window::default();
        assert!(window.take(u64::MAX - 1) && !window.take(u64::MAX) && !window.take(0));
    }
}
