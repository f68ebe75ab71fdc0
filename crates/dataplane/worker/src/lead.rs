//! The lead of workers on others, of which one with many messages waits for those that are behind.
//!
//! A slow instance takes the messages of a worker that has passed a tick once all workers have passed it. From
//! a capture, as many would wait as a module sends in the meantime.

use flame_execute::Backlog;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The number of bytes of a worker's messages that wait for others, from which on it waits, too.
const MOST: usize = 64 << 20;
/// The interval at which a worker that waits looks.
const LOOK: Duration = Duration::from_micros(600);

/// The ticks that the workers have passed, and their messages that wait for others.
pub(crate) struct Lead {
    waiting: Arc<Backlog>,
    /// The last tick that each worker has passed. One that has ended holds up no other.
    ticks: Vec<AtomicU64>,
    /// Whether nobody takes messages any more.
    is_over: AtomicBool,
}

impl Lead {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        let ticks = (0..workers).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { waiting: Backlog::new(workers), ticks, is_over: AtomicBool::new(false) })
    }

    pub(crate) fn waiting(&self) -> Arc<Backlog> {
        self.waiting.clone()
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

    /// Waits while many messages of `worker` wait for others. The last of the workers never waits, so that it
    /// reaches the others.
    pub(crate) fn wait(&self, worker: usize) {
        while self.waiting.bytes(worker) > MOST && self.is_ahead(worker) {
            std::thread::sleep(LOOK);
        }
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
