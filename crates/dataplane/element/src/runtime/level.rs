//! The levels and the fuel of a router in a step.

use super::limits::{
    CALL, FUEL, GLANCE, HANDLER, HANDLER_LEVELS, LAST_DELIVERIES, Limits, PULL, PUSH, REFERENCE_LEVELS,
    TOO_MUCH,
};
use super::loops;
use super::router::Router;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A call that is at work. Its levels end with it.
pub struct Level<'a>(&'a Router, usize);

impl Drop for Level<'_> {
    fn drop(&mut self) {
        let Limits { depth, stack, .. } = &self.0.limits;
        depth.set(depth.get() - self.1);
        stack.set(stack.get() - self.1);
    }
}

impl Router {
    fn enter(&self, levels: usize, most: usize) -> Option<Level<'_>> {
        let (depth, stack) = (self.limits.depth.get() + levels, self.limits.stack.get() + levels);
        (depth <= most && stack <= PULL).then(|| {
            self.limits.depth.set(depth);
            self.limits.stack.set(stack);
            Level(self, levels)
        })
    }

    pub(super) fn enter_push(&self) -> Option<Level<'_>> {
        self.enter(1, PUSH)
    }

    pub(super) fn enter_pull(&self) -> Option<Level<'_>> {
        self.enter(1, PULL)
    }

    /// Enters a reference of a script inside another.
    pub fn enter_reference(&self) -> Option<Level<'_>> {
        self.enter(REFERENCE_LEVELS, HANDLER).or_else(|| self.give_up("references nest too deeply"))
    }

    /// Enters a handler with a value of `bytes`.
    pub(super) fn enter_handler(&self, bytes: usize) -> Result<Level<'_>, String> {
        if !self.limits.is_in_step.get() && self.limits.depth.get() == 0 {
            self.limits.fuel.set(FUEL);
            self.limits.waited.set(Duration::ZERO);
        }
        if !self.spend(CALL) || !self.spend_bytes(bytes) {
            return Err(TOO_MUCH.into());
        }
        let level = self.enter(HANDLER_LEVELS, HANDLER);
        level
            .or_else(|| self.give_up("handlers call each other too deeply"))
            .ok_or_else(|| "given up, since handlers call each other too deeply".to_owned())
    }

    /// Runs a step: a task, a timer or a delivery.
    pub(super) fn in_step<T>(&self, step: impl FnOnce() -> T) -> T {
        self.limits.fuel.set(FUEL);
        self.limits.waited.set(Duration::ZERO);
        self.limits.is_in_step.set(true);
        let _call = loops::Call::with(&[]);
        let result = step();
        self.limits.is_in_step.set(false);
        result
    }

    /// Returns whether the run was interrupted so long ago that packets are delivered no more. A step ends
    /// then, although the packets in it multiply.
    pub(super) fn is_cut_short(&self) -> bool {
        if !self.interrupt.load(Ordering::Relaxed) {
            return false;
        }
        let since = self.limits.interrupted.get().unwrap_or_else(Instant::now);
        self.limits.interrupted.set(Some(since));
        since.elapsed() > LAST_DELIVERIES
    }

    /// Draws fuel. Returns whether there was enough; if not, or if the run was interrupted, scripts end.
    pub fn spend(&self, units: u64) -> bool {
        let fuel = self.limits.fuel.get();
        if fuel == 0 {
            return false;
        }
        let left = fuel.saturating_sub(units);
        self.limits.fuel.set(left);
        if left == 0 {
            self.message("scripts and handlers do too much in one step, giving up");
        } else if left / GLANCE != fuel / GLANCE
            && self.limits.is_in_step.get()
            && self.interrupt.load(Ordering::Relaxed)
        {
            self.limits.fuel.set(0);
        }
        self.limits.fuel.get() > 0
    }

    /// Draws the fuel for a text of `bytes`, or a list of as many entries.
    pub fn spend_bytes(&self, bytes: usize) -> bool {
        self.spend(bytes as u64 / 16)
    }

    /// Ends all scripts and handlers of this step.
    pub fn give_up<T>(&self, cause: &str) -> Option<T> {
        if self.limits.fuel.replace(0) > 0 {
            self.message(&format!("{cause}, giving up"));
        }
        None
    }
}
