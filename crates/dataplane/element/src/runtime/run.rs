//! The loop that runs a router.

use super::router::{Outcome, Router};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Tasks between two looks at the timers.
const TASKS: usize = 64;
/// Deferred deliveries between two looks at tasks.
const DELIVERIES: usize = 1024;
/// Timers between two looks at tasks: a timer that sets itself at once must not shut the tasks out.
const TIMERS: usize = 1024;

/// The time after which a task that nothing wakes is run again.
const POLL: Duration = Duration::from_micros(200);

/// The result of a round of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Done,
    /// Tasks ran and found nothing, but want to run again.
    Polled,
    None,
}

impl Router {
    /// Runs until it is stopped. A router without work sleeps; with simulated time it ends then.
    pub fn run(&self) -> Outcome {
        loop {
            if self.is_to_be_replaced() {
                return Outcome::Replaced;
            }
            let stops = self.collect_stops();
            // A thread that asked for the end may have waited meanwhile.
            if stops == 0 && self.is_to_be_replaced() {
                continue;
            }
            let is_over = || self.runcount.get() <= 0 && !self.go_on();
            if self.interrupt.load(Ordering::Relaxed) || is_over() || self.is_stopping() {
                self.drop_deferred();
                self.complete();
                return Outcome::Stopped;
            }
            self.go_on_after(stops);
            let work = self.step();
            if work == Work::Done || self.runcount.get() <= 0 || self.is_to_be_replaced() {
                continue;
            }
            // Elements may have waited for another thread meanwhile, and used up what woke this one.
            if self.is_called() {
                continue;
            }
            // Tasks that only poll, since nothing notifies them, poll again soon.
            let patience = if work == Work::Polled { POLL } else { Duration::MAX };
            match self.next_timer() {
                Some(time) => {
                    if !self.clock.jump(time) {
                        std::thread::park_timeout(self.clock.until(time).min(patience));
                    }
                }
                None if work == Work::Polled && !self.clock.is_simulated() => {
                    std::thread::park_timeout(patience)
                }
                // Nothing will ever happen again.
                None if self.clock.is_simulated() => {
                    self.complete();
                    return Outcome::Stopped;
                }
                None => std::thread::park(),
            }
        }
    }

    /// Does a round of work.
    pub fn step(&self) -> Work {
        self.collect_wakes();
        let (mut is_busy, mut has_polled) = (self.collect_mail(), false);
        for _ in 0..DELIVERIES {
            let Some((to, input, batch)) = self.deferred.borrow_mut().pop_front() else { break };
            self.in_step(|| self.deliver(to, input, batch));
            is_busy = true;
        }
        // Each task has its turn at least once, so that a round without work means that none has any.
        let count = self.queue.borrow().len().max(TASKS);
        for _ in 0..count {
            match (self.runcount.get() > 0).then(|| self.run_one_task()).flatten() {
                Some(had_work) => {
                    is_busy |= had_work;
                    has_polled = true;
                    self.serve_late_calls();
                }
                None => break,
            }
        }
        let now = self.clock.now();
        for _ in 0..TIMERS {
            if self.runcount.get() <= 0 || !self.run_one_timer(now) {
                break;
            }
            is_busy = true;
            self.serve_late_calls();
        }
        self.flush();
        match (is_busy, has_polled && !self.queue.borrow().is_empty()) {
            (true, _) => Work::Done,
            (false, true) => Work::Polled,
            (false, false) => Work::None,
        }
    }

    /// Returns whether an element lets a run continue that was asked to stop.
    fn go_on(&self) -> bool {
        while self.runcount.get() <= 0 {
            let Some(driver) = self.drivers.borrow().front().copied() else { return false };
            let stops = 1 - self.runcount.get();
            self.runcount.set(1);
            let value = stops.to_string();
            let done = self.element(driver).write(&self.cx(driver), "_stopped", &value);
            if !matches!(done, Some(Ok(()))) {
                self.drivers.borrow_mut().pop_front();
                self.runcount.set(0);
            }
        }
        true
    }
}
