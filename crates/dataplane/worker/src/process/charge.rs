//! The charge of a process's time to the meters of its modules.

use super::state::State;
use flame_plan::limits::UNCHARGED_MAX;
use std::sync::Arc;
use std::time::Duration;

/// The processor time that was charged: of the process, and of the thread that reads its reports.
#[derive(Default)]
pub(super) struct Charged {
    process: Duration,
    reader: Duration,
    /// The time of its start, which counts in no meter.
    start: Duration,
    /// The time that callers of services paid for.
    paid: Duration,
    /// The time of the process that was not charged, because a call of a service is made.
    held_back: Duration,
}

impl Charged {
    /// Records that the process has used `start` until now for itself.
    pub(super) fn begin(&mut self, start: Duration) {
        self.start = start.saturating_sub(self.process);
    }

    /// Returns the time so far that callers of services paid for, or may have to.
    pub(super) fn of_others(&self) -> Duration {
        self.paid + self.held_back
    }

    /// Charges the time since the last call to the meters and the use of the modules, in equal parts. Time
    /// that was spent on calls of services is their callers': as much as was used, at most. Since a call is
    /// reported at its end, time is held back while there is one.
    pub(super) fn charge(&mut self, (process, reader): (Duration, Duration), modules: &[Arc<State>]) {
        let used = process.saturating_sub(self.process);
        let here = reader.saturating_sub(self.reader);
        (self.process, self.reader) = (self.process + used, self.reader + here);
        let mut apart = used + std::mem::take(&mut self.held_back);
        let mut open = Duration::ZERO;
        for state in modules {
            let paid = state.take_paid();
            // The calls of a process are made by one thread.
            open = open.max(paid.open);
            for (payer, time) in paid.paid {
                let time = time.min(apart);
                payer.took(time);
                if let Some(usage) = payer.usage() {
                    usage.add_cpu_apart(time.as_nanos() as u64);
                }
                apart -= time;
                self.paid += time;
            }
        }
        self.held_back = apart.min(open).min(UNCHARGED_MAX);
        apart -= self.held_back;
        let timed = modules.iter().filter(|state| state.meters.timed());
        let start = self.start.min(apart);
        self.start -= start;
        let each = (apart - start + here) / u32::try_from(timed.clone().count().max(1)).unwrap_or(u32::MAX);
        timed.for_each(|state| state.meters.took(each));
        let of = |all: Duration, at: usize| {
            // The first has what cannot be divided.
            let (all, count) = (all.as_nanos() as u64, modules.len() as u64);
            all / count + if at == 0 { all % count } else { 0 }
        };
        for (at, state) in modules.iter().enumerate() {
            if let Some(usage) = state.meters.usage() {
                usage.add_cpu_apart(of(apart, at));
                usage.add_cpu(of(here, at));
            }
        }
    }
}
