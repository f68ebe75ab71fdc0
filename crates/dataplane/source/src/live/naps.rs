//! The wait for the next block while blocks fill up one after the other.
//!
//! `poll` takes the lock of the socket that the kernel takes for each packet it receives. While many arrive,
//! the two contend for it: on a virtual machine, up to half of a worker's processor time was spent there.
//! The status of a block is in mapped memory, so the wait for one that fills up needs no system call but a
//! sleep of about the right length.

use std::time::Duration;

/// The least wait that is worth a sleep.
const SHORTEST: Duration = Duration::from_micros(100);
/// The longest wait for a block that fills up. Others are handed over by the kernel's timer, or not at all.
const LONGEST: Duration = Duration::from_millis(16);

/// The waits for the blocks of one ring.
#[derive(Default)]
pub struct Naps {
    /// The length of the next wait, if it can be foreseen.
    expected: Option<Duration>,
}

impl Naps {
    /// Records that `poll` waited for a block, or that none came.
    pub fn polled(&mut self, waited: Option<Duration>) {
        self.expected = waited.filter(|waited| (SHORTEST..=LONGEST).contains(waited));
    }

    /// Waits by `sleep` until `is_ready`, if that can be foreseen. Returns false if it is not, or was not as
    /// foreseen: `poll` has to wait.
    pub fn wait(&mut self, is_ready: impl Fn() -> bool, mut sleep: impl FnMut(Duration)) -> bool {
        let Some(expected) = self.expected else { return false };
        let (mut slept, mut nap) = (Duration::ZERO, expected);
        while slept < LONGEST {
            sleep(nap);
            slept += nap;
            if is_ready() {
                // It may have been ready before.
                let next = if slept == expected { expected - expected / 32 } else { slept };
                self.polled(Some(next));
                return true;
            }
            nap = (expected / 4).max(SHORTEST);
        }
        self.expected = None;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Waits for a block that comes after `after`. Returns whether it was slept for, the time slept and the
    /// number of sleeps.
    fn wait(naps: &mut Naps, after: Duration) -> (bool, Duration, u32) {
        let (slept, times) = (Cell::new(Duration::ZERO), Cell::new(0));
        let found = naps.wait(
            || slept.get() >= after,
            |nap| {
                slept.set(slept.get() + nap);
                times.set(times.get() + 1);
            },
        );
        (found, slept.get(), times.get())
    }

    #[test]
    fn blocks_that_fill_up_evenly_take_about_one_sleep_each() {
        for micros in [150, 900, 12_000] {
            let (mut naps, every) = (Naps::default(), Duration::from_micros(micros));
            assert_eq!(wait(&mut naps, every), (false, Duration::ZERO, 0), "nothing is foreseen yet");
            naps.polled(Some(every));
            let mut sleeps = 0;
            for _ in 0..100 {
                let (found, slept, times) = wait(&mut naps, every);
                assert!(found && slept < every + (every / 3).max(SHORTEST), "{slept:?} for {every:?}");
                sleeps += times;
            }
            assert!(sleeps <= 150, "{sleeps} sleeps for 100 blocks of {every:?}");
        }
    }

    #[test]
    fn poll_waits_for_blocks_that_do_not_fill_up() {
        let mut naps = Naps::default();
        for rare in [Some(Duration::from_millis(20)), Some(Duration::from_micros(20)), None] {
            naps.polled(Some(SHORTEST));
            naps.polled(rare);
            assert!(!wait(&mut naps, Duration::ZERO).0, "{rare:?}");
        }
        naps.polled(Some(SHORTEST * 4));
        let (found, slept, _) = wait(&mut naps, Duration::MAX);
        assert!(!found && slept < LONGEST + SHORTEST, "{slept:?}");
        assert!(!wait(&mut naps, Duration::ZERO).0, "the traffic has ended");
    }
}
