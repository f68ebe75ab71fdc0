//! The limits of the nesting of calls and of the work in a step of the router.
//!
//! Packets are pushed and pulled, and handlers are called, by calls of functions, which need stack. One
//! counter of levels serves all of them, and elements can combine them as they like. The work of scripts and
//! handlers do draws on one supply, the fuel, which each task, timer and delivery of the router has anew.

use super::loops;
use super::router::Router;
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// Levels beyond which a push waits for the next round.
pub const PUSH: usize = 250;
/// Levels beyond which a handler is refused: 50 handlers that call each other.
const HANDLER: usize = 400;
/// Levels of a call of a handler, which needs more stack than a push.
const HANDLER_LEVELS: usize = 8;
/// Levels of a reference inside a reference, as in `$(a $(b))`.
const REFERENCE_LEVELS: usize = 2;
/// The longest pull path that a router accepts.
pub const PULL_PATH: usize = 1000;
/// Levels beyond which a pull gives nothing: no path that was accepted is so long.
const PULL: usize = HANDLER + PULL_PATH + HANDLER_LEVELS;

/// The fuel of a step: an instruction of a script needs one unit, a call of a handler 16,
/// and 16 bytes, or entries of a list that is searched, one.
const FUEL: u64 = 4_000_000;
const CALL: u64 = 16;
/// Units between two looks at the interrupt.
const GLANCE: u64 = 1024;

/// The maximum size of a handler's or a script's value, in bytes.
pub const LONGEST_VALUE: usize = 1 << 20;

#[derive(Default)]
pub struct Limits {
    depth: Cell<usize>,
    fuel: Cell<u64>,
    is_in_step: Cell<bool>,
}

/// A call that is at work. Its levels end with it.
pub struct Level<'a>(&'a Router, usize);

impl Drop for Level<'_> {
    fn drop(&mut self) {
        let depth = &self.0.limits.depth;
        depth.set(depth.get() - self.1);
    }
}

impl Router {
    fn enter(&self, levels: usize, most: usize) -> Option<Level<'_>> {
        let depth = self.limits.depth.get() + levels;
        (depth <= most).then(|| {
            self.limits.depth.set(depth);
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
        }
        if !self.spend(CALL) || !self.spend_bytes(bytes) {
            return Err("given up, since the scripts and handlers of this step do too much".into());
        }
        let level = self.enter(HANDLER_LEVELS, HANDLER);
        level
            .or_else(|| self.give_up("handlers call each other too deeply"))
            .ok_or_else(|| "given up, since handlers call each other too deeply".to_owned())
    }

    /// Runs a step: a task, a timer or a delivery.
    pub(super) fn in_step<T>(&self, step: impl FnOnce() -> T) -> T {
        self.limits.fuel.set(FUEL);
        self.limits.is_in_step.set(true);
        let _call = loops::Call::with(&[]);
        let result = step();
        self.limits.is_in_step.set(false);
        result
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
