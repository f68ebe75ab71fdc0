//! Time excluded from a process's limits, because the process could not make progress.

use flame_base::lock;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Accumulated time during which one thread was blocked or busy elsewhere.
#[derive(Debug)]
pub struct Stall {
    /// Stalls shorter than this are ignored, and so is as much of each longer one.
    least: Duration,
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    /// The beginning of the current stall.
    begun: Option<Instant>,
    /// The sum of the stalls that have ended.
    total: Duration,
}

/// Records the stalls of one thread.
#[derive(Debug)]
pub struct StallRecorder {
    stall: Arc<Stall>,
    _one_thread: PhantomData<Cell<()>>,
}

/// A stall, which ends when this is dropped.
#[must_use]
pub struct StallGuard(Option<Arc<Stall>>);

impl Stall {
    /// Creates the stalls of a thread, without the first `least` of each.
    pub fn create(least: Duration) -> (StallRecorder, Arc<Self>) {
        let stall = Arc::new(Self { least, times: Mutex::default() });
        (StallRecorder { stall: stall.clone(), _one_thread: PhantomData }, stall)
    }

    /// Returns the stalls of a thread without any.
    pub fn none() -> Arc<Self> {
        Self::create(Duration::ZERO).1
    }

    fn since(&self, begun: Option<Instant>, now: Instant) -> Duration {
        begun.map_or(Duration::ZERO, |begun| now.duration_since(begun).saturating_sub(self.least))
    }

    /// Returns the sum of all stalls until `now`.
    pub fn total(&self, now: Instant) -> Duration {
        let times = lock(&self.times);
        times.total + self.since(times.begun, now)
    }
}

impl StallRecorder {
    /// Begins a stall. A stall within another is part of it.
    pub fn begin(&self) -> StallGuard {
        self.begin_at(Instant::now)
    }

    /// Reads `clock` under the lock, as the end does, so that the sum never decreases.
    fn begin_at(&self, clock: impl FnOnce() -> Instant) -> StallGuard {
        let mut times = lock(&self.stall.times);
        let is_outer = times.begun.is_none();
        if is_outer {
            times.begun = Some(clock());
        }
        StallGuard(is_outer.then(|| self.stall.clone()))
    }
}

impl StallGuard {
    fn end_at(&mut self, clock: impl FnOnce() -> Instant) {
        if let Some(stall) = self.0.take() {
            let mut times = lock(&stall.times);
            let begun = times.begun.take();
            times.total += stall.since(begun, clock());
        }
    }
}

impl Drop for StallGuard {
    fn drop(&mut self) {
        self.end_at(Instant::now);
    }
}

/// A clock of the time for which a process is waited for, which pauses during the stalls of one thread.
#[derive(Debug)]
pub struct PausableClock {
    stall: Arc<Stall>,
    /// The longest time between two readings that counts: a longer one means the program was suspended.
    step: Duration,
    /// The time of the last reading, and the sum of all stalls until then.
    last: Option<(Instant, Duration)>,
    sum: Duration,
}

impl PausableClock {
    /// Creates a clock that begins with the first reading, and is read more often than each `step`.
    pub fn new(stall: Arc<Stall>, step: Duration) -> Self {
        Self { stall, step, last: None, sum: Duration::ZERO }
    }

    /// Returns the time from the first reading until `now`.
    pub fn read(&mut self, now: Instant) -> Duration {
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
            let (recorder, stall) = Stall::create(least);
            let mut clock = PausableClock::new(stall.clone(), STEP);
            let begun = Instant::now();
            let at = |moments| begun + moments * MOMENT;
            assert_eq!(clock.read(at(0)), Duration::ZERO);
            assert_eq!(clock.read(at(1)), MOMENT);
            let mut stalled = recorder.begin_at(|| at(1));
            recorder.begin_at(|| at(2)).end_at(|| at(3));
            assert_eq!(stall.total(at(3)), 2 * MOMENT - least, "the outer one has not ended");
            stalled.end_at(|| at(4));
            assert_eq!(clock.read(at(4)), MOMENT + least);
            assert_eq!(stall.total(at(9)), 3 * MOMENT - least, "it has ended");
            assert_eq!(clock.read(at(9)), 6 * MOMENT + least);
        }
    }

    #[test]
    fn the_sum_of_stalls_never_decreases() {
        let (recorder, stall) = Stall::create(Duration::ZERO);
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
                drop(recorder.begin());
            }
        });
    }

    /// As when the program is suspended.
    #[test]
    fn a_long_time_without_a_reading_does_not_count() {
        let (mut clock, begun) = (PausableClock::new(Stall::none(), STEP), Instant::now());
        clock.read(begun);
        assert_eq!(clock.read(begun + 10 * STEP), STEP);
    }
}
