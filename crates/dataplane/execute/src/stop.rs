//! The end of a run from outside, and the time that calls have then.

use flame_plan::limits::{CALL_DEADLINE_MAX, LENT_CALL_MAX, SLICE, STOP_BEHIND_MAX};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The phase of a run's end, as one worker and its modules find it. It only advances.
///
/// ```text
///          stop           nothing is left to read      STOP_BEHIND_MAX after the stop
/// Running ──┬──► Draining ─────────┬──────► Flushing ──────┬──► Overdue
///           │                      └───────────────────────┘
///           └──► LastCalls, where nothing that was read before can be left
/// ```
///
/// | phase | batches, init | ticks | messages | calls of services | restarts |
/// | --- | --- | --- | --- | --- | --- |
/// | `Running`, `Draining` | as usual | as usual | as usual | while it is `Running` | as usual |
/// | `Flushing` | as usual | one budget | one budget | none | none |
/// | `LastCalls` | [`STOP_GRACE`] | one budget | one budget | none | none |
/// | `Overdue` | [`STOP_GRACE`] | none | one budget | none | none |
///
/// [`STOP_GRACE`]: flame_plan::limits::STOP_GRACE
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The run is not stopped.
    Running,
    /// The worker has packets left that were read before the stop. It processes them as before.
    Draining,
    /// Nothing is left to read. Blocks that modules still hold have the rest of the time for what was read.
    Flushing,
    /// Instances make their last calls, and batches have little time: a run without a backlog is stopped.
    LastCalls,
    /// The time for what was read is over. Instances make their last calls, without those of each tick.
    Overdue,
}

impl Phase {
    /// Returns whether calls of services are made: they would take the time of the last calls.
    pub const fn serves(self) -> bool {
        match self {
            Self::Running => true,
            Self::Draining | Self::Flushing | Self::LastCalls | Self::Overdue => false,
        }
    }

    /// Returns whether all further calls of an instance besides batches and init have one budget together.
    /// No instance starts then, and a fault costs no state that was exported before.
    pub const fn is_last(self) -> bool {
        match self {
            Self::Running | Self::Draining => false,
            Self::Flushing | Self::LastCalls | Self::Overdue => true,
        }
    }

    /// Returns whether the time of batches and init counts, of which each instance has
    /// [`STOP_GRACE`](flame_plan::limits::STOP_GRACE).
    pub(crate) const fn limits_batches(self) -> bool {
        match self {
            Self::Running | Self::Draining | Self::Flushing => false,
            Self::LastCalls | Self::Overdue => true,
        }
    }
}

/// The flag that stops a run, shared by all workers.
pub struct Stop<'a>(Flag<'a>);

enum Flag<'a> {
    Of(&'a AtomicBool),
    Shared(Arc<AtomicBool>),
    /// The flag of a worker that may have a backlog.
    After(&'a Stop<'a>, &'a Behind),
}

/// A worker that may have much left of what was read before a stop.
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

    /// Returns the phase at `now` of a run that is stopped.
    fn phase(&self, now: Instant) -> Phase {
        let since = *self.since.get_or_init(|| now);
        match self.has_ended.load(Ordering::Relaxed) {
            _ if now.saturating_duration_since(since) >= STOP_BEHIND_MAX => Phase::Overdue,
            true => Phase::Flushing,
            false => Phase::Draining,
        }
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

    /// Returns the flag of `stop` for a worker that may have a backlog.
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

    /// Records that nothing of what was read before the stop is left to the worker of [`Stop::after`].
    pub fn end_worker(&self) {
        if let Flag::After(_, worker) = &self.0 {
            worker.end();
        }
    }

    /// Returns the present phase. Reads the clock only if the run is stopped.
    pub fn phase(&self) -> Phase {
        self.phase_at(Instant::now)
    }

    fn phase_at(&self, now: impl FnOnce() -> Instant) -> Phase {
        match &self.0 {
            _ if !self.flag().load(Ordering::Relaxed) => Phase::Running,
            Flag::Of(_) | Flag::Shared(_) => Phase::LastCalls,
            Flag::After(_, worker) => worker.phase(now()),
        }
    }
}

/// The time that an instance may take before others run.
#[derive(Clone, Copy)]
pub struct Quantum<'a> {
    pub stop: &'a Stop<'a>,
    /// The beginning and the length, or `None` if nobody waits.
    limit: Option<(Instant, Duration)>,
    /// Whether no more packets arrive, so that shares no longer matter.
    is_ending: bool,
}

impl<'a> Quantum<'a> {
    /// Creates a quantum without limit.
    pub fn whole(stop: &'a Stop<'a>) -> Self {
        Self { stop, limit: None, is_ending: false }
    }

    /// Creates a quantum of one slice.
    pub fn slice(stop: &'a Stop<'a>) -> Self {
        Self { limit: Some((Instant::now(), SLICE)), ..Self::whole(stop) }
    }

    /// Creates a quantum of several slices, for a call before which the source has lent the blocks that
    /// wait.
    pub fn long(stop: &'a Stop<'a>) -> Self {
        Self { limit: Some((Instant::now(), LENT_CALL_MAX)), ..Self::whole(stop) }
    }

    /// Returns the quantum for a time when no more packets arrive.
    pub fn ending(self) -> Self {
        Self { is_ending: true, ..self }
    }

    /// Returns whether the quantum has no limit.
    pub fn is_whole(&self) -> bool {
        self.limit.is_none()
    }

    /// Returns whether it is used up; false without a limit.
    pub fn is_over(&self) -> bool {
        self.limit.is_some_and(|(began, length)| began.elapsed() >= length)
    }

    /// Returns whether it is used up when a slice of a call has ended, of which another thread has made a
    /// part in this processor time, if one makes it. That one counts, since this thread would wait for a
    /// processor as well.
    pub fn is_over_after_slice(&self, apart: Option<Duration>) -> bool {
        match (self.limit, apart) {
            (None, _) => false,
            (Some((_, length)), _) if length <= SLICE => true,
            (Some((began, length)), Some(used)) => used >= length || began.elapsed() >= CALL_DEADLINE_MAX,
            (Some(_), None) => self.is_over(),
        }
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
        assert_eq!(worker.phase(), Phase::Running);
        run.set();
        assert_eq!(run.phase(), Phase::LastCalls);
        assert_eq!(worker.phase(), Phase::Draining, "it has packets left that others have read");
        assert!(!worker.phase().serves() && !worker.phase().is_last());
        worker.end_worker();
        assert_eq!(worker.phase(), Phase::Flushing);
        assert!(worker.phase().is_last() && !worker.phase().limits_batches());
        // Not before the run is stopped.
        all.store(false, Ordering::Relaxed);
        assert_eq!(worker.phase(), Phase::Running);
        worker.set();
        assert_eq!(run.phase(), Phase::LastCalls);
    }

    #[test]
    fn a_worker_is_behind_for_some_time_after_the_stop() {
        let (all, behind) = (AtomicBool::new(false), Behind::default());
        let run = Stop::new(&all);
        let worker = Stop::after(&run, &behind);
        let begin = Instant::now();
        let phase = |after: Duration| worker.phase_at(|| begin + after);
        // The time begins with the stop.
        assert_eq!(phase(Duration::ZERO), Phase::Running);
        assert!(behind.since.get().is_none());
        run.set();
        assert_eq!(phase(STOP_BEHIND_MAX), Phase::Draining);
        assert_eq!(*behind.since.get().unwrap(), begin + STOP_BEHIND_MAX);
        assert_eq!(phase(2 * STOP_BEHIND_MAX - Duration::from_nanos(1)), Phase::Draining);
        assert_eq!(phase(2 * STOP_BEHIND_MAX), Phase::Overdue);
        assert!(Phase::Overdue.is_last() && Phase::Overdue.limits_batches());
        behind.end();
        assert_eq!(
            phase(2 * STOP_BEHIND_MAX - Duration::from_nanos(1)),
            Phase::Flushing,
            "its last ticks are made"
        );
        assert_eq!(phase(2 * STOP_BEHIND_MAX), Phase::Overdue);
        assert_eq!(run.phase_at(|| begin), Phase::LastCalls);
    }
}
