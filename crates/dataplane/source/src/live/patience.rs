//! The time for which a frame that an interface drops is sent again.
//!
//! The kernel does not report whether it dropped a frame for want of room or since the frame is refused, by
//! the interface or by the other end of the link (it is longer than its MTU). A full queue drains, so the
//! frame is sent again. Once the interface has taken none for [`LONGEST`], although it is up and has a
//! carrier, the frame is given up, and the next one has its turn. Each frame that is given up halves the time
//! for the next one, so that a sender of such frames cannot stop the others for long; each that was taken
//! after a wait of a quarter of the time, as by a slow link, doubles it.

use super::Unsent;
use std::cell::Cell;

/// The longest time in nanoseconds, which is the first: at 6 kbit a second, a full queue has room for a frame
/// of 1,500 bytes by then.
const LONGEST: u64 = 2_000_000_000;
/// The shortest time in nanoseconds: a queue of a fast interface that is full has room again.
const SHORTEST: u64 = 1_000_000;
/// The frames among which one is looked for that the interface takes.
const OTHERS: usize = 64;
/// The fewest attempts, should this process have had no processor time.
const ATTEMPTS: u32 = 4;

/// The time for the first frame that waits.
pub struct Patience {
    time: Cell<u64>,
    /// The time of the first attempt, once it failed, and the number of attempts.
    since: Cell<Option<u64>>,
    attempts: Cell<u32>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { time: Cell::new(LONGEST), since: Cell::new(None), attempts: Cell::new(0) }
    }
}

impl Patience {
    /// Records that the frame was dropped once more. Returns whether it is given up, which it is not while
    /// there is no carrier.
    pub fn is_over(&self, now_ns: u64, has_carrier: impl FnOnce() -> bool) -> bool {
        let since = self.since.get().unwrap_or(now_ns);
        self.since.set(Some(since));
        self.attempts.set(self.attempts.get() + 1);
        if self.attempts.get() < ATTEMPTS || now_ns.saturating_sub(since) < self.time.get() {
            return false;
        }
        self.begin_again();
        let is_over = has_carrier();
        if is_over {
            self.give_up();
        }
        is_over
    }

    /// Ends the wait with the first frame, which is refused.
    fn give_up(&self) {
        self.begin_again();
        self.time.set(SHORTEST.max(self.time.get() / 2));
    }

    /// Looks for a frame that the interface takes, behind the first one, which it drops, if one was given up
    /// not long ago. `send` hands over the frames that wait from an index on, of `waiting`. Returns how many
    /// frames at the front are refused, since one behind them was taken, and how many were taken there.
    pub fn send_others(
        &self,
        waiting: usize,
        mut send: impl FnMut(usize) -> Result<usize, Unsent>,
    ) -> (usize, usize) {
        if self.time.get() >= LONGEST {
            return (0, 0);
        }
        for first in 1..waiting.min(OTHERS) {
            match send(first) {
                Err(Unsent::Dropped) => {}
                Ok(0) | Err(_) => break,
                Ok(taken) => {
                    self.give_up();
                    return (first, taken);
                }
            }
        }
        (0, 0)
    }

    /// Records that the frame was taken.
    pub fn taken(&self, now_ns: u64) {
        let time = self.time.get();
        if self.since.get().is_some_and(|since| now_ns.saturating_sub(since) >= time / 4) {
            self.time.set(LONGEST.min(time * 2));
        }
        self.begin_again();
    }

    /// Begins with another frame.
    pub fn begin_again(&self) {
        self.since.set(None);
        self.attempts.set(0);
    }

    /// Takes over the time of another element, which may have waited with the same frame.
    pub fn take_over(&self, old: &Self) {
        self.time.set(old.time.get());
        self.since.set(old.since.get());
        self.attempts.set(old.attempts.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how long a frame is sent again, each millisecond, from `now` on.
    fn wait(patience: &Patience, now: &mut u64) -> u64 {
        let start = *now;
        while !patience.is_over(*now, || true) {
            *now += 1_000_000;
        }
        *now - start
    }

    #[test]
    fn frames_that_are_given_up_make_it_shorter_and_slow_ones_longer() {
        let (patience, mut now) = (Patience::default(), 0);
        assert_eq!([(); 3].map(|()| wait(&patience, &mut now) / 1_000_000), [2000, 1000, 500]);
        let most = [(); 100].map(|()| wait(&patience, &mut now));
        // At least four attempts.
        assert_eq!(most[99], 3_000_000);
        for _ in 0..20 {
            assert!(!patience.is_over(now, || true));
            now += patience.time.get();
            patience.taken(now);
        }
        assert_eq!(patience.time.get(), LONGEST);
        // A block that is taken at once changes nothing.
        patience.taken(now);
        assert_eq!(wait(&patience, &mut now), LONGEST);
    }

    #[test]
    fn refused_frames_behind_each_other_are_found_at_once() {
        let (patience, mut now) = (Patience::default(), 0);
        // The interface refuses the first five of eight.
        let send = |first: usize| if first < 5 { Err(Unsent::Dropped) } else { Ok(8 - first) };
        assert_eq!(patience.send_others(8, send), (0, 0), "a full queue drains");
        assert_eq!(wait(&patience, &mut now), LONGEST);
        assert!(!patience.is_over(now, || true));
        assert_eq!(patience.send_others(8, send), (5, 3));
        assert_eq!(patience.send_others(5, send), (0, 0));
        assert_eq!(patience.send_others(8, |_| Err(Unsent::NoRoom)), (0, 0));
        // What is sent later has not waited since then.
        now += LONGEST;
        patience.taken(now);
        assert_eq!(patience.send_others(8, send), (5, 3));
    }

    #[test]
    fn without_a_carrier_no_frame_is_given_up() {
        let patience = Patience::default();
        assert!((0..100).all(|second| !patience.is_over(second * 1_000_000_000, || false)));
        // The time counts from then on.
        let mut now = 100_000_000_000;
        assert!(wait(&patience, &mut now) >= LONGEST - 1_000_000_000);
    }
}
