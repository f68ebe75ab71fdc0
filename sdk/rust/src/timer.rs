/// A timer in packet time, for [`Module::batch`](crate::Module::batch) with the time of each packet and for
/// ticks with theirs. Time that goes back by up to a minute is ignored, as packets may be out of order. If it
/// goes back further, a wrong time stamp had moved the timer ahead, and it begins again. A call of
/// [`Timer::poll`] has a constant cost.
///
/// A timer depends only on the times that it is given, so the same packets give the same records. Those of
/// [`Timer::every`] are due at multiples of their period since 1970, at the same times on every worker.
///
/// ```
/// use flame_module::{Due, Timer};
/// let mut every = Timer::every(100);
/// assert_eq!(every.poll(1_234), None, "begins");
/// assert_eq!(every.poll(1_299), None);
/// assert_eq!(every.poll(1_350), Some(Due { first_ns: 1_300, at_ns: 1_300, periods: 1 }));
/// // The timer was not polled for some time: the last time that was due, and how many there were.
/// assert_eq!(every.poll(1_680), Some(Due { first_ns: 1_400, at_ns: 1_600, periods: 3 }));
///
/// let mut idle = Timer::after(100);
/// assert_eq!(idle.poll(1_000), None, "begins");
/// idle.restart(1_050);
/// assert_eq!(idle.poll(1_149), None);
/// assert_eq!(idle.poll(1_200), Some(Due { first_ns: 1_150, at_ns: 1_150, periods: 1 }));
/// assert_eq!(idle.poll(9_000), None, "once");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    ns: u64,
    is_periodic: bool,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The timer has not been given a time.
    New,
    /// The time at which it is due next.
    Due(u64),
    /// The timer was due for the only time, or for the last time that a time stamp can state.
    Expired,
}

/// The largest step back of packets that are merely out of order, in nanoseconds.
const OUT_OF_ORDER: u64 = 60_000_000_000;

/// The times at which a [`Timer`] was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The first of these times.
    pub first_ns: u64,
    /// The last of them.
    pub at_ns: u64,
    /// The number of them, at least 1.
    pub periods: u64,
}

impl Timer {
    /// Creates a timer that is due at each multiple of `ns` nanoseconds (at least 1) that passes after its
    /// first poll.
    pub const fn every(ns: u64) -> Self {
        Self { ns: if ns == 0 { 1 } else { ns }, is_periodic: true, state: State::New }
    }

    /// Creates a timer that is due once, `ns` nanoseconds after its first poll or its last
    /// [`Timer::restart`].
    pub const fn after(ns: u64) -> Self {
        Self { ns, is_periodic: false, state: State::New }
    }

    /// Returns whether the timer was due since the last poll.
    #[inline]
    pub fn poll(&mut self, now_ns: u64) -> Option<Due> {
        match self.state {
            State::Due(due) if now_ns < due => {
                if now_ns < due.saturating_sub(self.ns).saturating_sub(OUT_OF_ORDER) {
                    self.restart(now_ns);
                }
                None
            }
            // A periodic one ends only where time does; there it has been due.
            State::Expired => {
                if self.is_periodic && now_ns < (u64::MAX - self.ns).saturating_sub(OUT_OF_ORDER) {
                    self.restart(now_ns);
                }
                None
            }
            State::New => {
                self.restart(now_ns);
                None
            }
            State::Due(due) => Some(self.expire(due, now_ns)),
        }
    }

    /// Begins again at `now_ns`.
    #[inline]
    pub fn restart(&mut self, now_ns: u64) {
        let from = if self.is_periodic { now_ns - now_ns % self.ns } else { now_ns };
        self.state = State::Due(from.saturating_add(self.ns));
    }

    fn expire(&mut self, due: u64, now_ns: u64) -> Due {
        crate::cold();
        if !self.is_periodic {
            self.state = State::Expired;
            return Due { first_ns: due, at_ns: due, periods: 1 };
        }
        let more = (now_ns - due) / self.ns;
        let at_ns = due + more * self.ns;
        self.state = at_ns.checked_add(self.ns).map_or(State::Expired, State::Due);
        Due { first_ns: due, at_ns, periods: more + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However often and with which times it is polled, each multiple is due once.
        #[test]
        fn each_multiple_is_due_once(
            ns in 1u64..1000, first in 0u64..1 << 62, steps in prop::collection::vec(-500i64..5000, 1..100)
        ) {
            let mut timer = Timer::every(ns);
            let (mut now, mut latest, mut periods) = (first, first, 0);
            prop_assert_eq!(timer.poll(now), None);
            for step in steps {
                now = now.saturating_add_signed(step);
                let due = timer.poll(now);
                if let Some(Due { first_ns, at_ns, periods: n }) = due {
                    prop_assert_eq!(first_ns + (n - 1) * ns, at_ns);
                    prop_assert!(at_ns % ns == 0 && at_ns > latest - latest % ns && at_ns <= now);
                    periods += n;
                }
                latest = latest.max(now);
            }
            prop_assert_eq!(periods, latest / ns - first / ns);
        }

        #[test]
        fn workers_agree(
            ns in 1u64..1000, times in prop::collection::vec((0u64..100_000, 0usize..3), 1..200)
        ) {
            // Each worker sees a part of the packets, and all see the last tick.
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let mut workers = [Timer::every(ns); 3];
            let mut last = [None; 3];
            workers.iter_mut().for_each(|timer| assert!(timer.poll(0).is_none()));
            for (now, worker) in sorted {
                last[worker] = workers[worker].poll(now).or(last[worker]);
            }
            for (timer, last) in workers.iter_mut().zip(&mut last) {
                *last = timer.poll(100_000).or(*last);
            }
            prop_assert!(last.iter().all(|due| due.map(|d| d.at_ns) == Some(100_000 - 100_000 % ns)));
        }
    }

    #[test]
    fn a_wrong_time_stamp_does_not_silence_it() {
        let day = 86_400_000_000_000;
        let now = 20_000 * day;
        for (wrong, ns) in [(now + 365 * day, 1_000), (u64::MAX, 1_000), (u64::MAX, day)] {
            let mut timer = Timer::every(ns);
            assert_eq!(timer.poll(now), None);
            assert!(timer.poll(wrong).is_some());
            assert_eq!(timer.poll(wrong), None, "at most once");
            assert_eq!(timer.poll(now), None, "begins again");
            let next = timer.poll(now + ns);
            assert_eq!(next.map(|due| (due.at_ns, due.periods)), Some((now + ns, 1)));
            // A packet out of order changes nothing.
            assert_eq!((timer.poll(now + ns - OUT_OF_ORDER), timer.poll(now + ns)), (None, None));
        }
        let mut idle = Timer::after(1_000);
        assert_eq!(idle.poll(now), None);
        idle.restart(now + 365 * day);
        assert_eq!((idle.poll(now), idle.poll(now + 999)), (None, None));
        assert!(idle.poll(now + 1_000).is_some());
        assert_eq!((idle.poll(now - day), idle.poll(now + 2_000)), (None, None), "once");
    }

    #[test]
    fn the_ends_of_time_are_no_trouble() {
        let mut timer = Timer::every(0);
        assert_eq!((timer.poll(5), timer.poll(6)), (None, Some(Due { first_ns: 6, at_ns: 6, periods: 1 })));
        let mut timer = Timer::every(u64::MAX);
        assert_eq!((timer.poll(5), timer.poll(u64::MAX - 1)), (None, None));
        let mut timer = Timer::after(u64::MAX);
        assert_eq!((timer.poll(5), timer.poll(u64::MAX - 1)), (None, None));
        assert_eq!(timer.poll(u64::MAX), Some(Due { first_ns: u64::MAX, at_ns: u64::MAX, periods: 1 }));
        // At the end of time it is due once, not at every poll.
        let mut timer = Timer::every(1);
        assert_eq!(timer.poll(u64::MAX - 1), None);
        assert_eq!((timer.poll(u64::MAX).is_some(), timer.poll(u64::MAX)), (true, None));
    }
}
