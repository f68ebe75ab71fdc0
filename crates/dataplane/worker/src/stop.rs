//! How a run is ended from outside, and how long a call may go on then.

use crate::threads::SLICE;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// After the run was stopped, each instance has this long for the batch or init that it is at and for blocks
/// that wait. Other calls have a budget ([`flame_run::Allowance::last`]), so that what a module knows is not
/// lost to a slow machine.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The flag that stops a run. All workers share it.
pub(crate) struct Stop<'a>(&'a AtomicBool);

impl<'a> Stop<'a> {
    pub(crate) fn new(flag: &'a AtomicBool) -> Self {
        Self(flag)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an instance may take before somebody else is looked after.
#[derive(Clone, Copy)]
pub(crate) struct Quantum<'a> {
    pub(crate) stop: &'a Stop<'a>,
    /// None: nobody waits.
    began: Option<Instant>,
    /// No packets come any more: shares no longer matter.
    is_ending: bool,
}

impl<'a> Quantum<'a> {
    /// As long as it takes.
    pub(crate) fn whole(stop: &'a Stop<'a>) -> Self {
        Self { stop, began: None, is_ending: false }
    }

    /// One slice.
    pub(crate) fn slice(stop: &'a Stop<'a>) -> Self {
        Self { began: Some(Instant::now()), ..Self::whole(stop) }
    }

    pub(crate) fn ending(self) -> Self {
        Self { is_ending: true, ..self }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.began.is_none()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.began.is_some_and(|began| began.elapsed() >= SLICE)
    }

    /// Whether an instance whose share is used up waits.
    pub(crate) fn keeps_shares(&self) -> bool {
        !self.is_whole() && !self.is_ending
    }
}
