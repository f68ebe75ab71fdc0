//! The loop that runs a router.

use super::router::{Outcome, Router};
use std::sync::atomic::Ordering;

/// Tasks between two looks at the timers.
const TASKS: usize = 64;
/// Deferred deliveries between two looks at tasks.
const DELIVERIES: usize = 1024;
/// Timers between two looks at tasks: a timer that sets itself at once must not shut the tasks out.
const TIMERS: usize = 1024;

impl Router {
    /// Runs until it is stopped. A router without work sleeps; with simulated time it ends then.
    pub fn run(&self) -> Outcome {
        loop {
            if self.hotconfig.borrow().is_some() {
                return Outcome::Replaced;
            }
            if self.interrupt.load(Ordering::Relaxed) || self.runcount.get() <= 0 && !self.go_on() {
                return Outcome::Stopped;
            }
            let is_busy = self.step();
            if is_busy || self.runcount.get() <= 0 {
                continue;
            }
            match self.next_timer() {
                Some(time) => {
                    if !self.clock.jump(time) {
                        let delay = self.clock.until(time);
                        std::thread::park_timeout(delay);
                    }
                }
                // Nothing will ever happen again.
                None if self.clock.is_simulated() => return Outcome::Stopped,
                None => std::thread::park(),
            }
        }
    }

    /// Does a round of work. Returns whether there was any.
    pub fn step(&self) -> bool {
        let mut is_busy = false;
        for _ in 0..DELIVERIES {
            let Some((to, input, batch)) = self.deferred.borrow_mut().pop_front() else { break };
            self.deliver(to, input, batch);
            is_busy = true;
        }
        for _ in 0..TASKS {
            if self.runcount.get() <= 0 || !self.run_one_task() {
                break;
            }
            is_busy = true;
        }
        let now = self.clock.now();
        for _ in 0..TIMERS {
            if self.runcount.get() <= 0 || !self.run_one_timer(now) {
                break;
            }
            is_busy = true;
        }
        is_busy
    }

    /// The run was asked to stop. Returns whether an element lets it go on.
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
