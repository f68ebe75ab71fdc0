//! The limits of the time for which a worker waits for a process.

use super::module::RemoteModule;
use flame_execute::Stop;
use flame_remote::{Command, Waited};
use std::time::{Duration, Instant};

/// The time that a process may sleep, in all waits of a worker for one module together. A process that is
/// waited for has work; what it reports is no evidence of it. It has to wait while its reports are handled.
const IDLE: Duration = Duration::from_secs(30);
/// The time in which a process must release a block while a worker waits for it.
const BLOCK: Duration = Duration::from_secs(60);
/// The time that a process has between the request to end and its end, for the remaining work of its slow
/// instances.
pub(crate) const END: Duration = Duration::from_secs(600);
/// The time that a process has to end a module that is removed while the run continues, and besides that of
/// the last calls to end all modules once the run was stopped.
const LAST: Duration = Duration::from_secs(10);
/// The longest time between two looks at a process that counts. Who waits looks much more often, unless the
/// program was suspended.
const LOOK: Duration = Duration::from_secs(2);
/// The interval at which the processor time of a process is read from the kernel.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The event that a worker waits for.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// Room for another block. The process has released this many, as the worker counts them.
    Blocks { released: u64 },
    /// The end of the module.
    End { is_removal: bool },
    /// The ends of others, after which it ends itself.
    Others,
}

/// The waits of one worker for one module. Times are those of `waited`: while the thread that collects waits
/// for whoever takes the output, as a slow reader, no process can do anything about it.
pub(super) struct WorkDeadline {
    waited: Waited,
    /// The time since which the current wait has no progress, and the number of released blocks then.
    since: Option<(Duration, u64)>,
    /// The time when the request to end was first waited for.
    ending: Option<Duration>,
    /// Whether the process knows that the run is stopped.
    is_told: bool,
    /// The time when the run was found to be stopped, and the worker not behind others.
    stopped: Option<Duration>,
    /// The time that the process had for the end of all its modules then.
    last: Duration,
    /// Whether it waits for others.
    awaits_others: bool,
    /// The last look at the process.
    seen: Option<Seen>,
    /// The time that the process slept in all waits.
    idle: Duration,
}

/// A look at a process.
struct Seen {
    at: Instant,
    waited: Duration,
    /// The time for which it has worked or waited for a processor, and its reports were handled.
    busy: Duration,
}

impl WorkDeadline {
    pub(super) fn of(module: &RemoteModule) -> Self {
        Self {
            waited: Waited::without(module.running.stall.clone(), LOOK),
            since: None,
            ending: None,
            is_told: false,
            stopped: None,
            last: Duration::ZERO,
            awaits_others: false,
            seen: None,
            idle: Duration::ZERO,
        }
    }

    /// Ends a wait. The time that the process slept still counts.
    pub(super) fn rest(&mut self) {
        (self.since, self.seen) = (None, None);
    }

    /// Kills the process if it has used up its time.
    pub(super) fn check(&mut self, module: &RemoteModule, wait: Wait, stop: &Stop<'_>) {
        let now = self.waited.look();
        if stop.is_run_stopped() && !std::mem::replace(&mut self.is_told, true) {
            // This one, even if it came later than that.
            module.process.send(Command::Stop, Vec::new());
            module.running.stop();
        }
        if stop.is_set() && self.stopped.is_none() {
            (self.stopped, self.last) = (Some(now), LAST.saturating_add(module.running.last_calls()));
        }
        let awaits_others = matches!(wait, Wait::Others);
        if std::mem::replace(&mut self.awaits_others, awaits_others) && !awaits_others {
            // It has the time for its own end again.
            self.stopped = self.stopped.map(|_| now);
        }
        if awaits_others {
            (self.ending, self.seen) = (None, None);
        }
        let is_over = |since: Option<Duration>, limit| since.is_some_and(|at| now - at > limit);
        let reason = match wait {
            Wait::Blocks { released } => {
                let (since, _) = match self.since {
                    Some((since, before)) if before == released => (since, before),
                    _ => *self.since.insert((now, released)),
                };
                is_over(Some(since), BLOCK).then_some("it released no block for a minute")
            }
            Wait::End { is_removal } => {
                let since = *self.ending.get_or_insert(now);
                let limit = if is_removal { LAST } else { END };
                is_over(Some(since), limit).then_some("it did not end in time")
            }
            Wait::Others => None,
        };
        // Others have the time before it.
        let limit = if awaits_others { self.last.saturating_mul(2) } else { self.last };
        let last = is_over(self.stopped, limit).then_some("it still worked long after the run was stopped");
        let look = || if awaits_others { None } else { self.look(now, module) };
        if let Some(reason) = reason.or(last).or_else(look) {
            module.process.kill(reason);
        }
    }

    /// Adds the time that the process slept since the last look.
    fn look(&mut self, waited: Duration, module: &RemoteModule) -> Option<&'static str> {
        if self.seen.as_ref().is_some_and(|seen| seen.at.elapsed() < POLL_INTERVAL) {
            return None;
        }
        let busy = module.process.busy_time()?;
        if let Some(before) = self.seen.replace(Seen { at: Instant::now(), waited, busy }) {
            self.idle += (waited - before.waited).saturating_sub(busy.saturating_sub(before.busy));
        }
        // Under a share of processor time, a process sleeps with work waiting.
        let may_sleep = module.meters.timed();
        (self.idle > IDLE && !may_sleep).then_some("it slept while a worker waited for it")
    }
}
