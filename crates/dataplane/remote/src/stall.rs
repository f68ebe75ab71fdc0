//! Time that does not count in limits: the one who is waited for had no use of it.

use flame_base::lock;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The time for which one thread stands still, or works for others, as those see it who wait for it.
#[derive(Debug)]
pub struct Stall {
    /// The time of each stall that is none.
    least: Duration,
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    /// The time when the stall began that goes on.
    begun: Option<Instant>,
    /// The time of all stalls that have ended.
    total: Duration,
}

/// The thread that has the stalls.
#[derive(Debug)]
pub struct Staller {
    stall: Arc<Stall>,
    _one_thread: PhantomData<Cell<()>>,
}

/// A stall that goes on, until this is dropped.
#[must_use]
pub struct Stalled(Option<Arc<Stall>>);

impl Stall {
    /// Creates the time of a thread, of which nothing counts within the first `least` of a stall.
    pub fn create(least: Duration) -> (Staller, Arc<Self>) {
        let stall = Arc::new(Self { least, times: Mutex::default() });
        (Staller { stall: stall.clone(), _one_thread: PhantomData }, stall)
    }

    /// Returns the time of a thread that has no stalls.
    pub fn none() -> Arc<Self> {
        Self::create(Duration::ZERO).1
    }

    fn since(&self, begun: Option<Instant>, now: Instant) -> Duration {
        begun.map_or(Duration::ZERO, |begun| now.duration_since(begun).saturating_sub(self.least))
    }

    /// Returns the time of all stalls until `now`.
    pub fn total(&self, now: Instant) -> Duration {
        let times = lock(&self.times);
        times.total + self.since(times.begun, now)
    }
}

impl Staller {
    /// Begins a stall. One within another one is part of that.
    pub fn begin(&self) -> Stalled {
        self.begin_at(Instant::now)
    }

    /// Reads `clock` under the lock, as the end does, so that no look sees a time that is taken back.
    fn begin_at(&self, clock: impl FnOnce() -> Instant) -> Stalled {
        let mut times = lock(&self.stall.times);
        let is_outer = times.begun.is_none();
        if is_outer {
            times.begun = Some(clock());
        }
        Stalled(is_outer.then(|| self.stall.clone()))
    }
}

impl Stalled {
    fn end_at(&mut self, clock: impl FnOnce() -> Instant) {
        if let Some(stall) = self.0.take() {
            let mut times = lock(&stall.times);
            let begun = times.begun.take();
            times.total += stall.since(begun, clock());
        }
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.end_at(Instant::now);
    }
}

/// The time for which somebody waits, without the stalls of one thread.
#[derive(Debug)]
pub struct Waited {
    stall: Arc<Stall>,
    /// The longest time between two looks that counts: a program that was suspended did not wait.
    step: Duration,
    /// The time of the last look, and that of all stalls until then.
    last: Option<(Instant, Duration)>,
    sum: Duration,
}

impl Waited {
    /// Creates a time that begins with the first look, and is looked at more often than each `step`.
    pub fn without(stall: Arc<Stall>, step: Duration) -> Self {
        Self { stall, step, last: None, sum: Duration::ZERO }
    }

    /// Returns the time from the first look until `now`.
    pub fn look(&mut self, now: Instant) -> Duration {
        let stalled = self.stall.total(now);
        if let Some((at, before)) = self.last.replace((now, stalled)) {
            self.sum += (now - at).saturating_sub(stalled.saturating_sub(before)).min(self.step);
        }
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(40);
    const STEP: Duration = Duration::from_secs(2);

    #[test]
    fn stalls_do_not_count_except_for_their_first_moment() {
        for least in [Duration::ZERO, MOMENT] {
            let (staller, stall) = Stall::create(least);
            let mut waited = Waited::without(stall.clone(), STEP);
            let begun = Instant::now();
            let at = |moments| begun + moments * MOMENT;
            assert_eq!(waited.look(at(0)), Duration::ZERO);
            assert_eq!(waited.look(at(1)), MOMENT);
            let mut stalled = staller.begin_at(|| at(1));
            staller.begin_at(|| at(2)).end_at(|| at(3));
            assert_eq!(stall.total(at(3)), 2 * MOMENT - least, "the outer one has not ended");
            stalled.end_at(|| at(4));
            assert_eq!(waited.look(at(4)), MOMENT + least);
            assert_eq!(stall.total(at(9)), 3 * MOMENT - least, "it has ended");
            assert_eq!(waited.look(at(9)), 6 * MOMENT + least);
        }
    }

    #[test]
    fn nobody_sees_a_stall_twice() {
        let (staller, stall) = Stall::create(Duration::ZERO);
        let (begun, mut last) = (Instant::now(), Duration::ZERO);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for _ in 0..200_000 {
                    let total = stall.total(Instant::now());
                    assert!(total >= last && total <= begun.elapsed(), "{total:?} after {last:?}");
                    last = total;
                }
            });
            while !reader.is_finished() {
                drop(staller.begin());
            }
        });
    }

    /// A suspension of the program looks so.
    #[test]
    fn a_long_time_without_a_look_does_not_count() {
        let (mut waited, begun) = (Waited::without(Stall::none(), STEP), Instant::now());
        waited.look(begun);
        assert_eq!(waited.look(begun + 10 * STEP), STEP);
    }
}
