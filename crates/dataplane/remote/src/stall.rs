//! Time that does not count in limits: of it, the one who is waited for had no use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest time between two looks that counts: a program that was suspended did not wait.
const STEP: Duration = Duration::from_secs(2);

/// The time for which one thread stands still, or works for others, as those see it who wait for it.
#[derive(Debug)]
pub struct Stall {
    base: Instant,
    /// The nanosecond in which the stall began that goes on, from 1 on, or 0.
    begun: AtomicU64,
    /// The nanoseconds of all stalls that have ended.
    total: AtomicU64,
}

impl Default for Stall {
    fn default() -> Self {
        Self { base: Instant::now(), begun: AtomicU64::new(0), total: AtomicU64::new(0) }
    }
}

impl Stall {
    fn now_ns(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64 + 1
    }

    /// Begins a stall, which ends with the value that this returns. Only one thread has stalls. One within
    /// another one is part of that.
    #[must_use]
    pub fn begin(&self) -> Stalled<'_> {
        let is_outer = self.begun.load(Ordering::Relaxed) == 0;
        if is_outer {
            self.begun.store(self.now_ns(), Ordering::Release);
        }
        Stalled { stall: is_outer.then_some(self), worked: Duration::ZERO }
    }

    /// Returns the time of all stalls so far. Of one that goes on, it is not known yet how much was work.
    pub fn total(&self) -> Duration {
        let begun = self.begun.load(Ordering::Acquire);
        let open = if begun > 0 { self.now_ns().saturating_sub(begun) } else { 0 };
        Duration::from_nanos(self.total.load(Ordering::Acquire) + open)
    }
}

/// A stall that goes on.
pub struct Stalled<'a> {
    /// `None` within another one.
    stall: Option<&'a Stall>,
    worked: Duration,
}

impl Stalled<'_> {
    /// Ends the stall, in which the thread worked for `worked`: that is no part of it.
    pub fn end(mut self, worked: Duration) {
        self.worked = worked;
    }
}

impl Drop for Stalled<'_> {
    fn drop(&mut self) {
        let Some(stall) = self.stall else { return };
        let elapsed = stall.now_ns().saturating_sub(stall.begun.load(Ordering::Relaxed));
        let stalled = elapsed.saturating_sub(self.worked.as_nanos() as u64);
        // In this order, nobody sees less for a moment, which would count as time of waiting for ever.
        stall.total.fetch_add(stalled, Ordering::Release);
        stall.begun.store(0, Ordering::Release);
    }
}

/// The time for which somebody waits, without the stalls of one thread.
#[derive(Debug)]
pub struct Waited {
    stall: Arc<Stall>,
    /// The time of the last look, and that of all stalls until then.
    last: Option<(Instant, Duration)>,
    sum: Duration,
}

impl Waited {
    /// Creates a time that begins with the first look.
    pub fn without(stall: Arc<Stall>) -> Self {
        Self { stall, last: None, sum: Duration::ZERO }
    }

    /// Returns the time since the first look. At most two seconds count between two looks.
    pub fn look(&mut self) -> Duration {
        let (now, stalled) = (Instant::now(), self.stall.total());
        if let Some((at, before)) = self.last.replace((now, stalled)) {
            // What turned out to be work counts after all.
            self.sum += (now - at + before).saturating_sub(stalled).min(STEP);
        }
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(40);

    #[test]
    fn stalls_do_not_count_and_work_within_them_does() {
        let stall = Arc::<Stall>::default();
        let mut waited = Waited::without(stall.clone());
        let begun = Instant::now();
        assert_eq!(waited.look(), Duration::ZERO);
        std::thread::sleep(MOMENT);
        assert!(waited.look() >= MOMENT);
        let before = waited.look();
        let stalled = stall.begin();
        std::thread::sleep(MOMENT);
        assert!(waited.look() < before + MOMENT, "one that goes on");
        {
            let _inner = stall.begin();
        }
        std::thread::sleep(MOMENT);
        stalled.end(MOMENT);
        assert!(waited.look() >= before + MOMENT, "what was work");
        let (sum, all) = (waited.look(), begun.elapsed());
        assert!(sum + MOMENT <= all, "{sum:?} of {all:?}");
        assert_eq!(stall.total(), stall.total(), "none goes on");
    }

    /// A suspension of the program looks so.
    #[test]
    fn a_long_time_without_a_look_does_not_count() {
        let mut waited = Waited::without(Arc::default());
        waited.last = Some((Instant::now() - 10 * STEP, Duration::ZERO));
        assert_eq!(waited.look(), STEP);
    }
}
