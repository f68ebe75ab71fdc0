//! The lead of workers on others. One of which many events wait for those that are behind waits, too.

use flame_base::Backoff;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The number of bytes of a worker's events that wait for others, from which on it waits, too.
const MOST: usize = 64 << 20;
/// The waits of a worker for those that are behind. To a processor that is idle for less, the system moves no
/// thread from another one.
pub(crate) const BEHIND_CHECK: Backoff = Backoff::every(Duration::from_micros(600));

/// The ticks that the workers have passed, and their events that wait for others.
pub(crate) struct Lead {
    /// The number of bytes of each worker's events that wait.
    waiting: Vec<AtomicUsize>,
    /// The last tick that each worker has passed. One that has ended holds up no other.
    ticks: Vec<AtomicU64>,
    /// Whether nobody takes events any more.
    is_over: AtomicBool,
}

impl Lead {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        let ticks = (0..workers).map(|_| AtomicU64::new(0)).collect();
        let waiting = (0..workers).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self { waiting, ticks, is_over: AtomicBool::new(false) })
    }

    /// Counts `bytes` of a worker's events that wait from now on.
    pub(crate) fn add(&self, worker: usize, bytes: usize) {
        if let Some(waiting) = self.waiting.get(worker) {
            waiting.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts them no longer.
    pub(crate) fn subtract(&self, worker: usize, bytes: usize) {
        if let Some(waiting) = self.waiting.get(worker) {
            waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn bytes(&self, worker: usize) -> usize {
        self.waiting.get(worker).map_or(0, |waiting| waiting.load(Ordering::Relaxed))
    }

    /// Records that `worker` has passed the tick at `now_ns`, before the collector learns of it.
    pub(crate) fn pass(&self, worker: usize, now_ns: u64) {
        if let Some(tick) = self.ticks.get(worker) {
            tick.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Records that `worker` has ended.
    pub(crate) fn end_worker(&self, worker: usize) {
        self.pass(worker, u64::MAX);
    }

    /// Records that the collector has ended.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits while many events of `worker` wait for others. The last of the workers never waits, so that it
    /// reaches the others.
    pub(crate) fn wait(&self, worker: usize) {
        let waits = || self.bytes(worker) > MOST && self.is_ahead(worker);
        BEHIND_CHECK.sleep_until(|| (!waits()).then_some(()));
    }

    fn is_ahead(&self, worker: usize) -> bool {
        let of = |tick: &AtomicU64| tick.load(Ordering::Relaxed);
        let Some(mine) = self.ticks.get(worker).map(of) else { return false };
        !self.is_over.load(Ordering::Relaxed) && self.ticks.iter().any(|tick| of(tick) < mine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_the_workers_waits_for_nobody() {
        let lead = Lead::new(3);
        let is_ahead = || [0, 1, 2].map(|worker| lead.is_ahead(worker));
        assert_eq!(is_ahead(), [false; 3]);
        lead.pass(0, 2);
        lead.pass(1, 1);
        assert_eq!(is_ahead(), [true, true, false]);
        lead.end_worker(2);
        assert_eq!(is_ahead(), [true, false, true]);
        lead.end();
        assert_eq!(is_ahead(), [false; 3]);
    }
}
