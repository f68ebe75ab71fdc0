//! The naps of the thread that collects, between looks at its queues.

use std::time::Duration;

/// Initial nap: the longest delay before queued capture events are handled. A wake-up for each takes
/// processor time from the workers, and the processor.
const FIRST: Duration = Duration::from_millis(1);
/// Longest nap.
const LONGEST: Duration = Duration::from_millis(4);
/// Naps of one length after which they become longer. A short run does not wait at its end.
const EACH: u32 = 16;

/// Wake-ups handled without napping after a nap that blocked a producer, and the most after several.
const WAITS: u32 = 256;
const MOST_WAITS: u32 = 1 << 16;

/// Decides between naps and waits in which each event wakes the thread up.
pub(crate) struct CollectorNap {
    length: Duration,
    /// The longest nap that blocks no producer.
    longest: Duration,
    /// The number of naps of this length.
    number: u32,
    /// The number of waits until the next nap.
    left: u32,
    /// The number of waits after the next nap that blocks a producer, if it is as short as possible.
    next: u32,
}

impl CollectorNap {
    pub(crate) fn new() -> Self {
        Self { length: FIRST, longest: LONGEST, number: 0, left: 0, next: WAITS }
    }

    /// Returns whether a nap is due.
    pub(crate) fn is_due(&self) -> bool {
        self.left == 0
    }

    /// Returns the length of the next nap.
    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Records a nap, after which a queue `is_full`: its producer may have waited.
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

    /// Returns the number of naps between `waits` waits, if naps of length `blocks` or longer block a
    /// producer, and the length of the next.
    fn naps(waits: u32, blocks: Duration) -> (u32, Duration) {
        let mut nap = CollectorNap::new();
        let mut number = 0;
        for _ in 0..waits {
            if nap.is_due() {
                nap.napped(nap.length() >= blocks);
                number += 1;
            }
            nap.waited();
        }
        (number, nap.length())
    }

    #[test]
    fn naps_that_block_a_producer_become_shorter_and_rare() {
        assert_eq!(naps(100_000, Duration::MAX), (100_000, LONGEST));
        assert_eq!(naps(100_000, 2 * FIRST), (100_000, FIRST), "the shorter ones block no producer");
        assert_eq!(naps(100_000, FIRST), (9, FIRST));
        assert_eq!(naps(EACH - 1, Duration::MAX).1, FIRST);
        let mut nap = CollectorNap::new();
        nap.napped(true);
        nap.napped(true);
        assert!(!nap.is_due());
        (0..=3 * WAITS).for_each(|_| nap.waited());
        nap.napped(false);
        assert!(nap.is_due());
        nap.napped(true);
        assert_eq!(nap.left, WAITS, "as after the first one");
    }
}
