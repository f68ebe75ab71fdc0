//! The rest of a module of a live graph, in which the other elements of its thread work: after calls that
//! were long, and before an instance that follows a fault goes on.

use crate::runtime::owed::{Ended, Owed};
use flame_base::Backoff;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The rest after a fault whose module was started again: it may fail again at once, as often as its restarts
/// allow.
const RESTART: Backoff = Backoff::doubling(Duration::from_millis(10), Duration::from_secs(1));

/// The rest of one module.
#[derive(Default)]
pub(super) struct Rest {
    /// Whether it rests until nothing is owed in its thread.
    owes: Cell<bool>,
    /// The end of its rest after a restart.
    until: Cell<Option<Instant>>,
    restarts: Cell<u32>,
}

impl Rest {
    /// Records a call of the module, which has been started again `restarts` times so far.
    pub(super) fn worked(&self, ended: Ended, restarts: u32) {
        self.owes.set(self.owes.get() || ended.owes);
        if self.restarts.replace(restarts) < restarts {
            self.until.set(Some(ended.at + RESTART.after(restarts - 1)));
        }
    }

    /// Returns the time for which the module rests, or `None` if it may work.
    pub(super) fn left(&self, owed: &Owed, now: impl FnOnce() -> Instant) -> Option<Duration> {
        if !self.owes.get() && self.until.get().is_none() {
            return None;
        }
        let now = now();
        self.until.set(self.until.get().filter(|until| *until > now));
        let by_restart = self.until.get().map_or(Duration::ZERO, |until| until - now);
        let by_debt = if self.owes.get() { owed.left(now) } else { Duration::ZERO };
        self.owes.set(!by_debt.is_zero());
        Some(by_restart.max(by_debt)).filter(|left| !left.is_zero())
    }

    /// Continues the rest of the element that this one replaces with its module.
    pub(super) fn continues(&self, old: &Self) {
        self.owes.set(old.owes.get());
        self.until.set(old.until.get());
        self.restarts.set(old.restarts.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_module_rests_after_long_calls_and_after_restarts() {
        let (owed, begin) = (Owed::default(), Instant::now());
        let at = |ms: u32| begin + MS * ms;
        let (long, other) = (Rest::default(), Rest::default());
        let work = |rest: &Rest, from: u32, to: u32, restarts| {
            let took = at(to) - at(from);
            rest.worked(Ended { at: at(to), took, owes: owed.called((at(from), at(to)), took) }, restarts);
        };
        work(&long, 0, 100, 0);
        work(&other, 100, 100, 0);
        assert!(long.left(&owed, || at(100)).is_some_and(|left| left > 390 * MS));
        assert_eq!(other.left(&owed, || at(100)), None, "it made no long call");
        assert_eq!((long.left(&owed, || at(500)), long.left(&owed, || at(501))), (None, None));
        // Each restart has a longer rest than the one before, however short the calls are.
        for (restarts, rest) in [(1, 10), (2, 20), (3, 40), (100, 1000)] {
            work(&other, 1000, 1000, restarts);
            assert_eq!(other.left(&owed, || at(1000)), Some(rest * MS));
            work(&other, 1000, 1000, restarts);
        }
        assert_eq!(other.left(&owed, || at(2000)), None);
        let next = Rest::default();
        next.continues(&other);
        work(&next, 2000, 2000, 100);
        assert_eq!(next.left(&owed, || at(2000)), None, "these restarts are known");
    }
}
