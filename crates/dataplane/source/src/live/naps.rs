//! The wait for the next block while blocks fill up one after the other.
//!
//! `poll` takes the lock of the socket that the kernel takes for each packet it receives. While many arrive,
//! the two contend for it: on a virtual machine, up to half of a worker's processor time was spent there.
//! The status of a block is in mapped memory, so the wait for a full block needs no system call but a
//! sleep of about the right length.
//!
//! A sleep lasts for several blocks, because a wake-up costs as much processor time as a thousand packets. It
//! is a wait of the thread, which others end early: a command must not wait until blocks are full.

use std::time::{Duration, Instant};

/// Shortest wait that is worth a sleep.
const SLEEP_MIN: Duration = Duration::from_micros(100);
/// Longest sleep, so that no packet is late by more than the kernel's timer makes those of a slow link.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// The maximum number of bytes of a ring that fill up in a millisecond, at 40 Gbit/s. A burst that begins
/// while a worker sleeps must not overrun its ring.
const FASTEST: usize = 5_000_000;
/// Longest wait for a block that fills up. Others are handed over by the kernel's timer, or not at all.
const FILL_MAX: Duration = Duration::from_millis(16);
/// The part of a ring that may fill up during a sleep.
const PART: usize = 16;

/// The waits for the blocks of one ring.
pub struct RingSleep {
    /// The number of blocks for which a sleep should last.
    blocks: usize,
    /// The longest sleep.
    most: Duration,
    /// The length of the next wait, if it can be foreseen.
    expected: Option<Duration>,
}

impl RingSleep {
    /// Returns the waits for a ring of some blocks, of `bytes` bytes together. There are none if it has no
    /// room for what arrives while a sleep lasts a little too long.
    pub fn new(blocks: usize, bytes: usize) -> Self {
        let most = Duration::from_millis((bytes / FASTEST) as u64).clamp(SLEEP_MIN, SLEEP_MAX);
        Self { blocks: blocks / PART, most, expected: None }
    }

    /// Records that `poll` waited for a block, or that none came.
    pub fn polled(&mut self, waited: Option<Duration>) {
        let is_long_enough = |waited: &Duration| (SLEEP_MIN..=FILL_MAX).contains(waited) && self.blocks > 0;
        self.expected = waited.filter(is_long_enough).map(|waited| waited.min(self.most));
    }

    /// Waits by `sleep` until a block is ready, if that can be foreseen. `sleep` returns the time slept,
    /// which is shorter if another thread ended it, and `ready` the number of blocks that are ready.
    pub fn wait(&mut self, ready: impl Fn() -> usize, mut sleep: impl FnMut(Duration) -> Duration) -> Nap {
        let Some(expected) = self.expected else { return Nap::Unforeseen };
        let (mut slept, mut nap) = (Duration::ZERO, expected);
        while slept < FILL_MAX {
            let took = sleep(nap);
            slept += took;
            let ready = u32::try_from(ready()).unwrap_or(u32::MAX);
            if ready > 0 {
                // As long as it takes until the right number is ready. Some filled up before the sleep, but
                // so they will before the next one.
                let next = slept * self.blocks as u32 / ready;
                self.expected = Some(((expected + next) / 2).clamp(SLEEP_MIN, self.most));
                return Nap::Ready;
            }
            if took < nap {
                // What was commanded is done with the next block, not with the next few.
                self.expected = None;
                return Nap::Ended;
            }
            nap = (expected / 4).max(SLEEP_MIN);
        }
        self.expected = None;
        Nap::Unforeseen
    }
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nap {
    /// A block is ready.
    Ready,
    /// Another thread has ended the sleep.
    Ended,
    /// The next block cannot be foreseen, or did not come as foreseen: `poll` has to wait.
    Unforeseen,
}

/// Sleeps until another thread unparks this one, at most for `nap`. Returns the time slept.
pub fn park(nap: Duration) -> Duration {
    let begun = Instant::now();
    std::thread::park_timeout(nap);
    begun.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The waits of a ring of 64 blocks, of which a sleep lasts for four.
    fn naps() -> RingSleep {
        RingSleep::new(64, 64 << 20)
    }

    /// Waits for blocks that come each after `every`, of which a part came `before`. Returns whether they
    /// were slept for, their number, the time slept and the number of sleeps.
    fn wait(naps: &mut RingSleep, every: Duration, before: Duration) -> (bool, usize, Duration, u32) {
        let (slept, times) = (Cell::new(Duration::ZERO), Cell::new(0));
        let ready = || ((before + slept.get()).as_nanos() / every.as_nanos()) as usize;
        let found = naps.wait(ready, |nap| {
            slept.set(slept.get() + nap);
            times.set(times.get() + 1);
            nap
        });
        (found == Nap::Ready, ready(), slept.get(), times.get())
    }

    #[test]
    fn a_sleep_lasts_for_several_blocks() {
        // The work on a block takes a part of the time in which the next one fills up.
        for (micros, busy) in [(150, 0), (900, 0), (900, 450), (900, 800), (2_500, 1_000)] {
            let (mut naps, every) = (naps(), Duration::from_micros(micros));
            let busy = Duration::from_micros(busy);
            let none = (false, 0, Duration::ZERO, 0);
            assert_eq!(wait(&mut naps, every, Duration::ZERO), none, "nothing is foreseen yet");
            naps.polled(Some(every));
            let (mut blocks, mut sleeps, mut rest) = (0, 0, Duration::ZERO);
            for round in 0..100 {
                let (found, ready, slept, times) = wait(&mut naps, every, rest);
                assert!(found && slept <= naps.most, "{slept:?} for {every:?}, {busy:?}");
                assert!(ready <= 8, "{ready} blocks of {every:?}, {busy:?}");
                rest += slept;
                while rest >= every {
                    rest = rest - every + busy;
                    blocks += u32::from(round >= 10);
                }
                sleeps += if round >= 10 { times } else { 0 };
            }
            assert!(blocks >= 3 * sleeps, "{sleeps} sleeps for {blocks} blocks of {every:?}, {busy:?}");
        }
    }

    #[test]
    fn blocks_that_fill_up_slowly_take_about_one_sleep_each() {
        let (mut naps, every) = (naps(), Duration::from_millis(11));
        naps.polled(Some(every));
        let (mut blocks, mut sleeps, mut before) = (0, 0, Duration::ZERO);
        for _ in 0..100 {
            let (found, ready, slept, times) = wait(&mut naps, every, before);
            assert!(found && slept <= naps.most);
            before = (before + slept).saturating_sub(every * ready as u32);
            (blocks, sleeps) = (blocks + ready, sleeps + times);
        }
        assert!(sleeps as usize <= blocks * 5 / 4, "{sleeps} sleeps for {blocks} blocks");
    }

    #[test]
    fn a_burst_shortens_the_next_sleep() {
        let mut naps = naps();
        naps.polled(Some(FILL_MAX));
        // 40 blocks in one sleep, and as many in each time that long.
        let every = naps.most / 40;
        let (mut most, mut rounds) = (usize::MAX, 0);
        while most > 8 {
            (most, rounds) = (wait(&mut naps, every, Duration::ZERO).1, rounds + 1);
        }
        assert!(rounds <= 5, "{rounds}");
    }

    #[test]
    fn poll_waits_for_blocks_that_do_not_fill_up() {
        let mut naps = naps();
        for rare in [Some(Duration::from_millis(20)), Some(Duration::from_micros(20)), None] {
            naps.polled(Some(SLEEP_MIN));
            naps.polled(rare);
            assert!(!wait(&mut naps, SLEEP_MIN, Duration::ZERO).0, "{rare:?}");
        }
        naps.polled(Some(SLEEP_MIN * 4));
        let (found, _, slept, _) = wait(&mut naps, Duration::from_secs(1), Duration::ZERO);
        assert!(!found && slept < FILL_MAX + SLEEP_MIN, "{slept:?}");
        assert!(!wait(&mut naps, SLEEP_MIN, Duration::ZERO).0, "the traffic has ended");
    }

    #[test]
    fn a_sleep_is_ended_early() {
        let mut naps = naps();
        naps.polled(Some(SLEEP_MIN * 40));
        assert_eq!(naps.wait(|| 1, |nap| nap / 2), Nap::Ready);
        assert_eq!(naps.wait(|| 0, |nap| nap / 2), Nap::Ended);
        assert_eq!(naps.wait(|| 1, |nap| nap), Nap::Unforeseen, "the next block is waited for by poll");
        let me = std::thread::current();
        me.unpark();
        assert!(park(Duration::from_secs(20)) < Duration::from_secs(10));
    }

    #[test]
    fn small_rings_are_polled() {
        let mut naps = RingSleep::new(PART - 1, 64 << 20);
        naps.polled(Some(SLEEP_MIN * 4));
        assert!(!wait(&mut naps, SLEEP_MIN, Duration::ZERO).0);
    }
}
