//! The end of a run on live sources, on request.
//!
//! Views that show times in steps show whole intervals only. If such a module has begun, the run goes on
//! until the next tick, which is the same for all of its sources; otherwise it ends at once.

use crate::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The modules of a run, asked for intervals that are not complete.
pub(crate) trait Intervals: Sync {
    /// Returns whether a module is within an interval that its view shows whole.
    fn is_open(&self) -> bool;
}

/// The end of the run, shared by the threads that read its sources.
pub(crate) struct Closing<'a> {
    /// Whether the end is requested.
    requested: &'a AtomicBool,
    /// Whether the run ends.
    ended: &'a AtomicBool,
    tick_ns: u64,
    sources: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The latest tick of any source.
    latest: u64,
    /// The tick until which the run goes on.
    until: Option<u64>,
    /// The number of sources that have passed it.
    passed: usize,
}

impl<'a> Closing<'a> {
    pub(crate) fn new(
        (requested, ended): (&'a AtomicBool, &'a AtomicBool),
        tick_ns: u64,
        sources: usize,
    ) -> Self {
        Self { requested, ended, tick_ns: tick_ns.max(1), sources, state: Mutex::default() }
    }

    /// Returns whether the run ends now, or the tick until which it goes on after a request. On the first
    /// call after that, `is_open` states whether a module is within an interval.
    pub(crate) fn look(&self, is_open: impl FnOnce() -> bool) -> Look {
        if self.ended.load(Ordering::Relaxed) {
            return Look::Ends;
        }
        if !self.requested.load(Ordering::Relaxed) {
            return Look::Goes;
        }
        let mut state = lock(&self.state);
        if state.until.is_none() && is_open() {
            state.until = Some(state.latest.saturating_add(self.tick_ns));
        }
        match state.until {
            Some(until) => Look::Until(until),
            None => {
                self.ended.store(true, Ordering::Relaxed);
                Look::Ends
            }
        }
    }

    /// Records that a source passes the tick at `now_ns`. Returns whether it ends there.
    pub(crate) fn pass(&self, now_ns: u64) -> bool {
        let mut state = lock(&self.state);
        state.latest = now_ns.max(state.latest);
        let ends = state.until.is_some_and(|until| now_ns >= until);
        state.passed += usize::from(ends);
        if state.passed >= self.sources {
            self.ended.store(true, Ordering::Relaxed);
        }
        ends
    }

    /// Returns whether all sources have ended at the same tick.
    pub(crate) fn is_complete(&self) -> bool {
        lock(&self.state).passed >= self.sources
    }
}

/// The next step of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Goes,
    Until(u64),
    Ends,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sources_end_at_the_same_tick() {
        let (requested, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let closing = Closing::new((&requested, &ended), 10, 2);
        assert!(!closing.pass(10) && !closing.pass(20));
        assert_eq!(closing.look(|| true), Look::Goes);
        requested.store(true, Ordering::Relaxed);
        // One source has not passed the tick at 20 yet.
        assert_eq!(closing.look(|| true), Look::Until(30));
        assert!(!closing.pass(20));
        assert_eq!(closing.look(|| false), Look::Until(30));
        assert!(closing.pass(30) && !closing.is_complete());
        // The other one has no packets for a while.
        assert!(closing.pass(50) && closing.is_complete());
        assert_eq!(closing.look(|| false), Look::Ends);
    }

    #[test]
    fn a_run_without_an_open_interval_ends_at_once() {
        let (requested, ended) = (AtomicBool::new(true), AtomicBool::new(false));
        let closing = Closing::new((&requested, &ended), 10, 1);
        assert!(!closing.pass(10));
        assert_eq!(closing.look(|| false), Look::Ends);
        assert!(ended.load(Ordering::Relaxed) && !closing.is_complete());
    }
}
