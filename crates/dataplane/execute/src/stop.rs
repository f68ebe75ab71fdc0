//! The end of a run from outside, and the time that calls have then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time that an instance has before its worker runs the others.
pub const SLICE: Duration = Duration::from_micros(500);

/// The time that each instance has, after the run was stopped, for its current batch or init and for waiting
/// blocks. Of a worker that is behind, it has that time from the worker's end on, and before it for each
/// batch. Other calls have a budget instead ([`flame_run::Allowance::last`]), so that a slow machine does
/// not cause the loss of a module's state.
pub const GRACE: Duration = Duration::from_secs(1);

/// The flag that stops a run, shared by all workers.
pub struct Stop<'a>(Flag<'a>);

enum Flag<'a> {
    Of(&'a AtomicBool),
    Shared(Arc<AtomicBool>),
    /// The flag of a worker that ends later than others: its calls have their last budget from its own end
    /// on.
    After(&'a Stop<'a>, &'a AtomicBool),
}

impl<'a> Stop<'a> {
    /// Creates a handle of a flag that the caller owns.
    pub fn new(flag: &'a AtomicBool) -> Self {
        Self(Flag::Of(flag))
    }

    /// Returns a flag that lives as long as somebody needs it.
    pub fn shared(flag: Arc<AtomicBool>) -> Self {
        Self(Flag::Shared(flag))
    }

    /// Returns a flag that is set once `stop` is, and `ended` as well.
    pub fn after(stop: &'a Stop<'a>, ended: &'a AtomicBool) -> Self {
        Self(Flag::After(stop, ended))
    }

    fn flag(&self) -> &AtomicBool {
        match &self.0 {
            Flag::Of(flag) => flag,
            Flag::Shared(flag) => flag,
            Flag::After(stop, _) => stop.flag(),
        }
    }

    pub fn set(&self) {
        self.flag().store(true, Ordering::Relaxed);
    }

    /// Returns whether the run is stopped. A worker that is behind has packets left then, and calls of its
    /// instances only may not take for ever.
    pub fn is_run_stopped(&self) -> bool {
        self.flag().load(Ordering::Relaxed)
    }

    pub fn is_set(&self) -> bool {
        let has_ended = match &self.0 {
            Flag::After(_, ended) => ended.load(Ordering::Relaxed),
            Flag::Of(_) | Flag::Shared(_) => true,
        };
        has_ended && self.is_run_stopped()
    }
}

/// The time that an instance may take before others run.
#[derive(Clone, Copy)]
pub struct Quantum<'a> {
    pub stop: &'a Stop<'a>,
    /// The beginning of the slice, or `None` if nobody waits.
    began: Option<Instant>,
    /// Whether no more packets arrive, so that shares no longer matter.
    is_ending: bool,
}

impl<'a> Quantum<'a> {
    /// Creates a quantum without limit.
    pub fn whole(stop: &'a Stop<'a>) -> Self {
        Self { stop, began: None, is_ending: false }
    }

    /// Creates a quantum of one slice.
    pub fn slice(stop: &'a Stop<'a>) -> Self {
        Self { began: Some(Instant::now()), ..Self::whole(stop) }
    }

    /// Returns the quantum for a time when no more packets arrive.
    pub fn ending(self) -> Self {
        Self { is_ending: true, ..self }
    }

    /// Returns whether the quantum has no limit.
    pub fn is_whole(&self) -> bool {
        self.began.is_none()
    }

    /// Returns whether the slice is used up; false without a limit.
    pub fn is_over(&self) -> bool {
        self.began.is_some_and(|began| began.elapsed() >= SLICE)
    }

    /// Returns whether an instance whose share is used up must wait.
    pub fn keeps_shares(&self) -> bool {
        !self.is_whole() && !self.is_ending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_behind_is_stopped_at_its_own_end() {
        let (all, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let run = Stop::new(&all);
        let worker = Stop::after(&run, &ended);
        assert!(!worker.is_set());
        run.set();
        assert!(run.is_set() && !worker.is_set(), "it has packets left that others have read");
        assert!(worker.is_run_stopped());
        ended.store(true, Ordering::Relaxed);
        assert!(worker.is_set());
        // Not before the run is stopped.
        all.store(false, Ordering::Relaxed);
        assert!(!worker.is_set());
        worker.set();
        assert!(run.is_set());
    }
}
