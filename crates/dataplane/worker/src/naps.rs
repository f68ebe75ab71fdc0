//! The naps of the thread that collects, between looks at its queues.

use std::time::Duration;

/// The time that events of a capture wait at most until they are looked at, since they are many. To be woken
/// up for each takes processor time from the workers, and the processor.
pub(crate) const NAP: Duration = Duration::from_millis(1);

/// The number of waits without a nap after one that held somebody up, and the maximum number after several.
const WAITS: u32 = 256;
const MOST_WAITS: u32 = 1 << 16;

/// Decides between naps and waits in which each event wakes the thread up.
pub(crate) struct Naps {
    /// The number of waits until the next nap.
    left: u32,
    /// The number of waits after the next nap that holds somebody up.
    next: u32,
}

impl Naps {
    pub(crate) fn new() -> Self {
        Self { left: 0, next: WAITS }
    }

    /// Returns whether a nap is due.
    pub(crate) fn are_due(&self) -> bool {
        self.left == 0
    }

    /// Records a nap, after which a queue `is_full`: whoever fills it may have waited.
    pub(crate) fn napped(&mut self, is_full: bool) {
        (self.left, self.next) = match is_full {
            true => (self.next, (2 * self.next).min(MOST_WAITS)),
            false => (0, WAITS),
        };
    }

    /// Records a wait without a nap.
    pub(crate) fn waited(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of naps between so many waits, if each nap holds somebody up or none does.
    fn naps(waits: u32, is_full: bool) -> u32 {
        let mut naps = Naps::new();
        let mut number = 0;
        for _ in 0..waits {
            if naps.are_due() {
                naps.napped(is_full);
                number += 1;
            }
            naps.waited();
        }
        number
    }

    #[test]
    fn naps_that_hold_somebody_up_become_rare() {
        assert_eq!(naps(100_000, false), 100_000);
        assert_eq!(naps(100_000, true), 9);
        let mut naps = Naps::new();
        naps.napped(true);
        naps.napped(true);
        assert!(!naps.are_due());
        naps.napped(false);
        assert!(naps.are_due());
        naps.napped(true);
        assert_eq!(naps.left, WAITS, "as the first one");
    }
}
