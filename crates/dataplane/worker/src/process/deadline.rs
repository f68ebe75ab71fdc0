//! The limits of the time for which a worker waits for a process.
//!
//! Two detectors find a process that does nothing. [`Progress`] finds a process that does not do the
//! next thing in time: release a block, answer a ping, end. A process that does a little before each limit
//! passes it, so its sleep counts in all waits together.

use super::module::RemoteModule;
use flame_execute::{Phase, Stop};
use flame_plan::limits::{PROCESS_CLOCK_STEP_MAX, PROCESS_END_MAX, PROCESS_MEASURE, ProcessLimits};
use flame_remote::{Command, PausableClock};
use std::time::{Duration, Instant};

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

/// The waits of one worker for one module.
pub(super) struct WorkDeadline {
    /// The time of all waits, without the stalls of the thread that collects: a process can do nothing about
    /// a slow reader of the output.
    clock: PausableClock,
    /// Whether the process knows that the run is stopped.
    is_told: bool,
    waits: Waits,
}

impl WorkDeadline {
    pub(super) fn of(module: &RemoteModule) -> Self {
        let clock = PausableClock::new(module.running.stall.clone(), PROCESS_CLOCK_STEP_MAX);
        Self { clock, is_told: false, waits: Waits::new(module.running.limits) }
    }

    /// Ends a wait. The time that the process slept still counts.
    pub(super) fn rest(&mut self) {
        self.waits.rest();
    }

    /// Kills the process if it has used up its time.
    pub(super) fn check(&mut self, module: &RemoteModule, wait: Wait, stop: &Stop<'_>) {
        let now = self.clock.read(Instant::now());
        let phase = stop.phase();
        if phase != Phase::Running && !std::mem::replace(&mut self.is_told, true) {
            // This one, even if it came later than that.
            module.process.send(Command::Stop, Vec::new());
            module.running.stop();
        }
        if phase.is_last() {
            self.waits.stop(now, || module.running.last_calls());
        }
        // Under a share of processor time, a process sleeps with work waiting.
        let measure = || Some(Use { busy: module.process.busy_time()?, may_sleep: module.meters.timed() });
        if let Some(reason) = self.waits.look(now, wait, measure) {
            module.process.kill(reason);
        }
    }
}

/// The use of processor time by a process.
#[derive(Clone, Copy)]
struct Use {
    /// The time for which it has worked or waited for a processor, and its reports were handled.
    busy: Duration,
    /// Whether it may sleep although it is waited for.
    may_sleep: bool,
}

/// Detects that a process makes no progress while it is waited for.
#[derive(Default)]
pub(super) struct Progress(Option<(Duration, u64)>);

impl Progress {
    /// Returns whether the number of things `done` has not changed for longer than `limit` until `now`.
    pub(super) fn is_late(&mut self, now: Duration, done: u64, limit: Duration) -> bool {
        let since = match self.0 {
            Some((since, before)) if before == done => since,
            _ => self.0.insert((now, done)).0,
        };
        now - since > limit
    }
}

/// The times of waits, without a clock.
struct Waits {
    limits: ProcessLimits,
    /// The release of blocks in the current wait.
    blocks: Progress,
    /// The end, from the first wait for it.
    end: Progress,
    /// The time when the run was found to be stopped, and the worker not behind others.
    stopped: Option<Duration>,
    /// The time that the process had for the end of all its modules then.
    last: Duration,
    /// Whether it waits for others.
    awaits_others: bool,
    /// The last time at which the process was measured, and its busy time then.
    measured: Option<(Duration, Duration)>,
    /// The time that the process slept in all waits.
    asleep: Duration,
}

impl Waits {
    fn new(limits: ProcessLimits) -> Self {
        Self {
            limits,
            blocks: Progress::default(),
            end: Progress::default(),
            stopped: None,
            last: Duration::ZERO,
            awaits_others: false,
            measured: None,
            asleep: Duration::ZERO,
        }
    }

    fn rest(&mut self) {
        (self.blocks, self.measured) = (Progress::default(), None);
    }

    /// Records that the run is stopped, and the time that the last calls of all modules may need then.
    fn stop(&mut self, now: Duration, last_calls: impl FnOnce() -> Duration) {
        if self.stopped.is_none() {
            (self.stopped, self.last) = (Some(now), self.limits.last.saturating_add(last_calls()));
        }
    }

    /// Returns the reason to end a process that was waited for until `now`, if it has used up its time.
    fn look(
        &mut self,
        now: Duration,
        wait: Wait,
        measure: impl FnOnce() -> Option<Use>,
    ) -> Option<&'static str> {
        let awaits_others = matches!(wait, Wait::Others);
        if std::mem::replace(&mut self.awaits_others, awaits_others) && !awaits_others {
            // It has the time for its own end again.
            self.stopped = self.stopped.map(|_| now);
        }
        if awaits_others {
            (self.end, self.measured) = (Progress::default(), None);
        }
        let reason = match wait {
            Wait::Blocks { released } => {
                let is_late = self.blocks.is_late(now, released, self.limits.block);
                is_late.then_some("it released no block for a minute")
            }
            Wait::End { is_removal } => {
                let limit = if is_removal { self.limits.last } else { PROCESS_END_MAX };
                self.end.is_late(now, 0, limit).then_some("it did not end in time")
            }
            Wait::Others => None,
        };
        // Others have the time before it.
        let limit = if awaits_others { self.last.saturating_mul(2) } else { self.last };
        let is_over = self.stopped.is_some_and(|at| now - at > limit);
        let last = is_over.then_some("it still worked long after the run was stopped");
        let slept = || if awaits_others { None } else { self.measure(now, measure) };
        reason.or(last).or_else(slept)
    }

    /// Adds the time that the process slept since it was measured last.
    fn measure(&mut self, now: Duration, measure: impl FnOnce() -> Option<Use>) -> Option<&'static str> {
        if self.measured.is_some_and(|(at, _)| now - at < PROCESS_MEASURE) {
            return None;
        }
        let Use { busy, may_sleep } = measure()?;
        if let Some((at, before)) = self.measured.replace((now, busy)) {
            self.asleep += (now - at).saturating_sub(busy.saturating_sub(before));
        }
        (self.asleep > self.limits.asleep && !may_sleep).then_some("it slept while a worker waited for it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BLOCKS: Wait = Wait::Blocks { released: 0 };

    /// Looks at a process that works for a part of the time, once a second, until there is a reason to end
    /// it. Returns the seconds until then, and the reason.
    fn ended(waits: &mut Waits, from: u32, part: f64, wait: impl Fn(u32) -> Wait) -> (u32, &'static str) {
        let after = |second: u32| {
            let busy = Use { busy: (second * SECOND).mul_f64(part), may_sleep: false };
            waits.look(second * SECOND, wait(second), || Some(busy)).map(|reason| (second - from, reason))
        };
        (from..from + 10_000).find_map(after).expect("a reason")
    }

    #[test]
    fn progress_begins_the_limit_again() {
        let mut answers = Progress::default();
        let mut is_late = |second: u32, answered| answers.is_late(second * SECOND, answered, 10 * SECOND);
        // The limit begins with the first wait, whatever was done before.
        assert!(!is_late(100, 7) && !is_late(110, 7) && is_late(111, 7));
        assert!(!is_late(112, 8) && !is_late(122, 8) && !is_late(123, 9) && is_late(134, 9));
    }

    #[test]
    fn a_process_that_releases_no_block_is_ended() {
        let (after, reason) = ended(&mut Waits::new(ProcessLimits::default()), 5, 1.0, |_| BLOCKS);
        assert_eq!((after, reason), (61, "it released no block for a minute"));
        // Each block that it releases begins another minute, and so does each wait.
        let released = |second: u32| Wait::Blocks { released: u64::from(second.min(200) / 50) };
        assert_eq!(ended(&mut Waits::new(ProcessLimits::default()), 0, 1.0, released).0, 200 + 61);
        let mut waits = Waits::new(ProcessLimits::default());
        for second in 0..1000 {
            if second % 50 == 0 {
                waits.rest();
            }
            let busy = Use { busy: second * SECOND, may_sleep: false };
            assert_eq!(waits.look(second * SECOND, BLOCKS, || Some(busy)), None);
        }
    }

    #[test]
    fn a_process_that_sleeps_where_it_has_work_is_ended() {
        let slept = "it slept while a worker waited for it";
        assert_eq!(ended(&mut Waits::new(ProcessLimits::default()), 0, 0.0, |_| BLOCKS), (31, slept));
        // In all waits together, also if it releases blocks.
        let released = |second: u32| Wait::Blocks { released: second.into() };
        assert_eq!(ended(&mut Waits::new(ProcessLimits::default()), 0, 0.75, released), (121, slept));
        let mut waits = Waits::new(ProcessLimits::default());
        let asleep = || Some(Use { busy: Duration::ZERO, may_sleep: false });
        for wait in 0..3_u32 {
            for second in 0..10 {
                assert_eq!(waits.look((100 * wait + second) * SECOND, released(wait), asleep), None);
            }
            waits.rest();
        }
        assert_eq!(waits.asleep, 27 * SECOND, "the time between waits is no wait");
        // With a share of processor time, a process may sleep.
        let mut waits = Waits::new(ProcessLimits::default());
        let share = || Some(Use { busy: Duration::ZERO, may_sleep: true });
        assert!((0..60).all(|second| waits.look(second * SECOND, BLOCKS, share).is_none()));
        // A process that is gone is not measured, and others seldom.
        let mut waits = Waits::new(ProcessLimits::default());
        assert!((0..60).all(|second| waits.look(second * SECOND, BLOCKS, || None).is_none()));
        let (mut waits, mut times) = (Waits::new(ProcessLimits::default()), 0);
        for ms in 0..1000 {
            let measure = || {
                times += 1;
                asleep()
            };
            waits.look(Duration::from_millis(ms), BLOCKS, measure);
        }
        assert_eq!(times, 5);
    }

    #[test]
    fn an_end_has_its_time() {
        let (removal, end) = (Wait::End { is_removal: true }, Wait::End { is_removal: false });
        let late = "it did not end in time";
        assert_eq!(ended(&mut Waits::new(ProcessLimits::default()), 7, 1.0, |_| removal), (11, late));
        assert_eq!(ended(&mut Waits::new(ProcessLimits::default()), 7, 1.0, |_| end), (601, late));
        // Once the run was stopped, all ends have little time besides the last calls.
        let still = "it still worked long after the run was stopped";
        for (calls, expected) in [(0, 11), (5, 16)] {
            let mut waits = Waits::new(ProcessLimits::default());
            waits.stop(7 * SECOND, || calls * SECOND);
            waits.stop(9 * SECOND, || 100 * SECOND);
            assert_eq!(ended(&mut waits, 7, 1.0, |_| end), (expected, still));
        }
        // Others have the time before it. Then it has its own again.
        let mut waits = Waits::new(ProcessLimits::default());
        waits.stop(Duration::ZERO, || Duration::ZERO);
        assert_eq!(ended(&mut waits, 0, 0.0, |_| Wait::Others), (21, still));
        let mut waits = Waits::new(ProcessLimits::default());
        waits.stop(Duration::ZERO, || Duration::ZERO);
        let others = |second| if second < 15 { Wait::Others } else { end };
        assert_eq!(ended(&mut waits, 0, 1.0, others), (15 + 11, still));
    }
}
