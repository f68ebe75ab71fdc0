//! The naps of the thread that collects, between looks at its queues.

use std::time::Duration;

/// The first time that events of a capture wait at most until they are looked at, since they are many. To be
/// woken up for each takes processor time from the workers, and the processor.
const FIRST: Duration = Duration::from_millis(1);
/// The longest such time.
const LONGEST: Duration = Duration::from_millis(4);
/// The number of naps of one length after which they become longer. A short run does not wait at its end.
const EACH: u32 = 16;

/// The number of waits without a nap after one that held somebody up, and the maximum number after several.
const WAITS: u32 = 256;
const MOST_WAITS: u32 = 1 << 16;

/// Decides between naps and waits in which each event wakes the thread up.
pub(crate) struct Naps {
    length: Duration,
    /// The longest nap that holds nobody up.
    longest: Duration,
    /// The number of naps of this length.
    number: u32,
    /// The number of waits until the next nap.
    left: u32,
    /// The number of waits after the next nap that holds somebody up, if it is as short as possible.
    next: u32,
}

impl Naps {
    pub(crate) fn new() -> Self {
        Self { length: FIRST, longest: LONGEST, number: 0, left: 0, next: WAITS }
    }

    /// Returns whether a nap is due.
    pub(crate) fn are_due(&self) -> bool {
        self.left == 0
    }

    /// Returns the length of the next nap.
    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Records a nap, after which a queue `is_full`: whoever fills it may have waited.
    pub(crate) fn napped(&mut self, is_full: bool) {
        self.number += 1;
        if !is_full {
            self.next = WAITS;
            if self.number >= EACH {
                (self.length, self.number) = ((2 * self.length).min(self.longest), 0);
            }
        } else if self.length > FIRST {
            self.longest = self.length / 2;
            (self.length, self.number) = (self.longest, 0);
        } else {
            (self.left, self.next) = (self.next, (2 * self.next).min(MOST_WAITS));
            self.number = 0;
        }
    }

    /// Records a wait without a nap.
    pub(crate) fn waited(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of naps between so many waits, if those of this length hold somebody up, and the
    /// length of the next.
    fn naps(waits: u32, holds_up: Duration) -> (u32, Duration) {
        let mut naps = Naps::new();
        let mut number = 0;
        for _ in 0..waits {
            if naps.are_due() {
                naps.napped(naps.length() >= holds_up);
                number += 1;
            }
            naps.waited();
        }
        (number, naps.length())
    }

    #[test]
    fn naps_that_hold_somebody_up_become_shorter_and_rare() {
        assert_eq!(naps(100_000, Duration::MAX), (100_000, LONGEST));
        assert_eq!(naps(100_000, 2 * FIRST), (100_000, FIRST), "the shorter ones hold nobody up");
        assert_eq!(naps(100_000, FIRST), (9, FIRST));
        assert_eq!(naps(EACH - 1, Duration::MAX).1, FIRST);
        let mut naps = Naps::new();
        naps.napped(true);
        naps.napped(true);
        assert!(!naps.are_due());
        (0..=3 * WAITS).for_each(|_| naps.waited());
        naps.napped(false);
        assert!(naps.are_due());
        naps.napped(true);
        assert_eq!(naps.left, WAITS, "as after the first one");
    }
}
