//! The processes that run, which are told together that the run is stopped.

use super::child::Process;
use crate::lock;
use flame_plan::limits::ProcessLimits;
use flame_remote::{Command, Stall};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The processes that run, by name.
pub(super) struct Running {
    /// `None` once the run has ended.
    pub(super) processes: Mutex<Option<BTreeMap<String, Weak<Process>>>>,
    is_stopped: AtomicBool,
    /// The stalls of the thread that collects.
    pub(super) stall: Arc<Stall>,
    pub(super) limits: ProcessLimits,
}

impl Running {
    pub(super) fn new(stall: Arc<Stall>, limits: ProcessLimits) -> Self {
        let (processes, is_stopped) = (Mutex::new(Some(BTreeMap::new())), AtomicBool::new(false));
        Self { processes, is_stopped, stall, limits }
    }

    pub(super) fn all(&self) -> Vec<Arc<Process>> {
        let processes = lock(&self.processes);
        processes.iter().flat_map(BTreeMap::values).filter_map(Weak::upgrade).collect()
    }

    /// Tells all processes, once, that the run is stopped. A worker waits for one after the other, and each
    /// has its time from then on.
    pub(super) fn stop(&self) {
        if !self.is_stopped.swap(true, Ordering::Relaxed) {
            self.all().iter().for_each(|process| process.send(Command::Stop, Vec::new()));
        }
    }

    /// Returns the time that the last calls of all instances may need, one after the other.
    pub(super) fn last_calls(&self) -> Duration {
        let each = |sum: Duration, process: Arc<Process>| sum.saturating_add(process.life.last_calls());
        self.all().into_iter().fold(Duration::ZERO, each)
    }
}
