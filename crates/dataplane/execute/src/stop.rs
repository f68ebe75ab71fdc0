//! The end of a run from outside, and the time that calls have then.

use flame_plan::limits::{SLICE, STOP_BEHIND_MAX};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The flag that stops a run, shared by all workers.
pub struct Stop<'a>(Flag<'a>);

enum Flag<'a> {
    Of(&'a AtomicBool),
    Shared(Arc<AtomicBool>),
    /// The flag of a worker that ends later than others.
    After(&'a Stop<'a>, &'a Behind),
}

/// A worker that may have much left of what was read: a stop counts for its calls from its own end on, or
/// [`STOP_BEHIND_MAX`] after it.
#[derive(Debug, Default)]
pub struct Behind {
    has_ended: AtomicBool,
    /// The time when the worker, or its process, found the run stopped.
    since: Arc<OnceLock<Instant>>,
}

impl Behind {
    /// Creates a worker whose time begins with `since`, which others share.
    pub fn since(since: Arc<OnceLock<Instant>>) -> Self {
        Self { since, ..Self::default() }
    }

    /// Records that nothing of what was read before is left.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn is_late(&self) -> bool {
        self.since.get_or_init(Instant::now).elapsed() >= STOP_BEHIND_MAX
    }
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

    /// Returns a flag that is set once `stop` is and the worker is not behind any more, or was for too long.
    pub fn after(stop: &'a Stop<'a>, worker: &'a Behind) -> Self {
        Self(Flag::After(stop, worker))
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

    /// Records that nothing of what was read before the stop is left to the worker of [`Stop::after`].
    pub fn end_worker(&self) {
        if let Flag::After(_, worker) = &self.0 {
            worker.end();
        }
    }

    /// Returns whether the worker was behind for so long after the stop that only last calls are made, not
    /// those of each tick.
    pub fn gives_up(&self) -> bool {
        matches!(&self.0, Flag::After(_, worker) if self.is_run_stopped() && worker.is_late())
    }

    /// Returns whether the run is stopped and the time is over for what was read before, of which a worker
    /// may have much.
    pub(crate) fn is_over(&self) -> bool {
        match &self.0 {
            Flag::After(..) => self.gives_up(),
            Flag::Of(_) | Flag::Shared(_) => self.is_run_stopped(),
        }
    }

    pub fn is_set(&self) -> bool {
        self.is_run_stopped()
            && match &self.0 {
                Flag::After(_, worker) => worker.has_ended.load(Ordering::Relaxed) || worker.is_late(),
                Flag::Of(_) | Flag::Shared(_) => true,
            }
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
        let (all, behind) = (AtomicBool::new(false), Behind::default());
        let run = Stop::new(&all);
        let worker = Stop::after(&run, &behind);
        assert!(!worker.is_set());
        run.set();
        assert!(run.is_set() && !worker.is_set(), "it has packets left that others have read");
        assert!(worker.is_run_stopped());
        behind.end();
        assert!(worker.is_set());
        // Not before the run is stopped.
        all.store(false, Ordering::Relaxed);
        assert!(!worker.is_set());
        worker.set();
        assert!(run.is_set());
    }

    #[test]
    fn a_worker_is_behind_for_some_time_after_the_stop() {
        let (all, behind) = (AtomicBool::new(false), Behind::default());
        let run = Stop::new(&all);
        let worker = Stop::after(&run, &behind);
        // The time begins with the stop.
        assert!(!worker.is_set() && behind.since.get().is_none());
        run.set();
        assert!(!worker.is_set());
        let found = *behind.since.get().unwrap();
        let earlier = Behind::since(Arc::new(OnceLock::from(found - STOP_BEHIND_MAX)));
        assert!(Stop::after(&run, &earlier).is_set() && Stop::after(&run, &earlier).gives_up());
        behind.end();
        assert!(worker.is_set() && !worker.gives_up(), "its last ticks are made");
    }
}
