//! The positions of workers that read the same packets: all end after the same block.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The maximum number of blocks that a worker is ahead of another one, whose messages a slow instance gets
/// later.
const AHEAD: u64 = 32;
/// The time that a worker waits before it looks again whether the others have come closer.
const WAIT: Duration = Duration::from_micros(50);
/// The bit of [`Positions::begun`] for a run that is stopped.
const STOPPED: u64 = 1 << 63;

/// The positions of workers in their sources, by which all end after the same block.
pub(crate) struct Positions {
    /// The most blocks that any worker has begun, and [`STOPPED`].
    begun: AtomicU64,
    /// The number of blocks that each worker has begun, or `u64::MAX` at its end.
    each: Vec<AtomicU64>,
}

impl Positions {
    pub(crate) fn new(workers: usize) -> Self {
        Self { begun: AtomicU64::new(0), each: (0..workers).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Returns the position of a worker.
    pub(crate) fn of(&self, worker: usize) -> Position<'_> {
        Position { all: self, worker }
    }
}

/// The position of one worker. Dropping it states that the worker has ended.
pub(crate) struct Position<'a> {
    all: &'a Positions,
    worker: usize,
}

impl Position<'_> {
    /// Begins the worker's next block, once the others are close enough. Returns false if the run is stopped
    /// and no worker has begun that block: the others end with the same one.
    pub(crate) fn begin(&self, is_stopped: impl Fn() -> bool) -> bool {
        let Positions { begun, each } = self.all;
        let own = each[self.worker].load(Ordering::Relaxed);
        loop {
            if is_stopped() {
                begun.fetch_or(STOPPED, Ordering::AcqRel);
            }
            let most = begun.load(Ordering::Acquire);
            let is_new = own >= most & !STOPPED;
            if is_new && most & STOPPED != 0 {
                return false;
            }
            let last = each.iter().map(|each| each.load(Ordering::Relaxed)).min().unwrap_or(own);
            if own >= last.saturating_add(AHEAD) {
                std::thread::sleep(WAIT);
                continue;
            }
            // Nobody stops the run, or begins the block, in between.
            let next = own + 1;
            if !is_new || begun.compare_exchange(most, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                each[self.worker].store(next, Ordering::Relaxed);
                return true;
            }
        }
    }
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        self.all.each[self.worker].store(u64::MAX, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;

    proptest! {
        /// Whenever a run is stopped, all workers have begun the same blocks at their ends.
        #[test]
        fn all_workers_stop_after_the_same_block(
            steps in proptest::collection::vec(0..3_usize, 1..200),
            stop in 0..200_usize,
        ) {
            let positions = Positions::new(3);
            let workers = [0, 1, 2].map(|worker| positions.of(worker));
            let mut begun = [0_u64; 3];
            let is_near = |begun: &[u64; 3], at: usize| begun[at] < begun.iter().min().unwrap() + AHEAD;
            let mut ended = [false; 3];
            for (n, at) in steps.into_iter().chain((0..600).map(|n| n % 3)).enumerate() {
                // A worker that is too far ahead would wait.
                if is_near(&begun, at) && !ended[at] {
                    ended[at] = !workers[at].begin(|| n >= stop);
                    begun[at] += u64::from(!ended[at]);
                }
            }
            prop_assert_eq!(ended, [true; 3]);
            prop_assert!(begun.iter().all(|blocks| *blocks == begun[0]), "{:?}", begun);
        }
    }

    /// The same under threads, each at its own pace.
    #[test]
    fn threads_stop_after_the_same_block() {
        for round in 0..50_u64 {
            let (positions, stop) = (Positions::new(3), AtomicBool::new(false));
            let blocks: Vec<u64> = std::thread::scope(|scope| {
                let run = |worker: usize| {
                    let (position, mut blocks) = (positions.of(worker), 0_u64);
                    while position.begin(|| stop.load(Ordering::Relaxed)) {
                        blocks += 1;
                        let most = positions.begun.load(Ordering::Relaxed) & !STOPPED;
                        let least = positions.each.iter().map(|each| each.load(Ordering::Relaxed)).min();
                        assert!(most <= least.unwrap().saturating_add(AHEAD));
                        (0..worker as u64 * round).for_each(|_| std::hint::spin_loop());
                    }
                    // The others do not wait for one that has ended.
                    blocks
                };
                let threads: Vec<_> = (0..3).map(|worker| scope.spawn(move || run(worker))).collect();
                std::thread::sleep(Duration::from_micros(100 * round));
                stop.store(true, Ordering::Relaxed);
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(blocks.iter().all(|n| *n == blocks[0]), "{blocks:?}");
        }
    }

    #[test]
    fn nobody_waits_for_a_worker_that_has_ended() {
        let positions = Positions::new(2);
        drop(positions.of(0));
        let position = positions.of(1);
        for _ in 0..10 * AHEAD {
            assert!(position.begin(|| false));
        }
    }
}
