//! The decision when a process that ended by itself is started again, and when its modules fail.

use flame_base::Backoff;
use flame_plan::limits::{RESTART_FIRST, RESTART_MAX, RESTART_WINDOW};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The waits until a process is started again.
const RESTARTS: Backoff = Backoff::doubling(RESTART_FIRST, RESTART_MAX);

/// A process on a source.
pub(crate) type ProcessKey = (String, String);

/// The ends of processes by themselves.
#[derive(Default)]
pub(crate) struct Restarts {
    ends: BTreeMap<ProcessKey, Ends>,
    /// The number of ends on each source since the node was started.
    pub total: BTreeMap<String, u64>,
    /// The processes that are being started again.
    pub starting: BTreeSet<ProcessKey>,
}

#[derive(Default)]
struct Ends {
    /// The times of the ends within the window.
    times: VecDeque<Instant>,
    /// The process whose end was counted last.
    pid: u32,
    /// The time of the next start.
    due: Option<Instant>,
}

/// The decision on a process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is started again at that time. The time is in `Some` if this is a new end.
    Wait(Option<Duration>),
    Start,
    /// It has ended this many times.
    Fail(usize),
}

impl Restarts {
    /// Counts the end of process `pid`, or of an attempt to start one if it is 0, and decides.
    pub fn decide(&mut self, key: &ProcessKey, pid: u32, most: u32, now: Instant) -> Decision {
        let ends = self.ends.entry(key.clone()).or_default();
        ends.forget(now);
        let is_new = match ends.due {
            None => true,
            Some(_) => pid != 0 && pid != ends.pid,
        };
        if is_new {
            *self.total.entry(key.0.clone()).or_default() += 1;
            ends.pid = pid;
            ends.times.push_back(now);
            let doubled = RESTARTS.after((ends.times.len() - 1) as u32);
            ends.due = Some(now + doubled);
            if ends.times.len() > most as usize {
                let count = ends.times.len();
                // A change by its owner begins again.
                self.ends.remove(key);
                return Decision::Fail(count);
            }
            return Decision::Wait(Some(doubled));
        }
        match ends.due {
            Some(due) if now < due => Decision::Wait(None),
            _ => Decision::Start,
        }
    }

    /// Records that a process was started again, or that this failed: then the attempt counts as an end.
    pub fn started(&mut self, key: &ProcessKey, is_running: bool) {
        self.starting.remove(key);
        if let Some(ends) = self.ends.get_mut(key)
            && !is_running
        {
            ends.due = None;
        }
    }

    /// Returns how often a process ended by itself within the window.
    pub fn count(&self, key: &ProcessKey, now: Instant) -> u64 {
        let times = self.ends.get(key).map(|ends| &ends.times);
        times.map_or(0, |times| times.iter().filter(|at| now - **at < RESTART_WINDOW).count() as u64)
    }

    /// Forgets processes that have not ended for long.
    pub fn sweep(&mut self, now: Instant) {
        self.ends.retain(|_, ends| {
            ends.forget(now);
            !ends.times.is_empty()
        });
    }
}

impl Ends {
    fn forget(&mut self, now: Instant) {
        while self.times.front().is_some_and(|at| now - *at >= RESTART_WINDOW) {
            self.times.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_started_again_later_and_later_and_then_fails() {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        let key = ("tap".to_owned(), "root alice".to_owned());
        for (pid, wait) in [(10, 100), (11, 200), (12, 400)] {
            let wait = Duration::from_millis(wait);
            assert_eq!(restarts.decide(&key, pid, 3, now), Decision::Wait(Some(wait)));
            assert_eq!(restarts.decide(&key, pid, 3, now), Decision::Wait(None), "counted once");
            now += wait;
            assert_eq!(restarts.decide(&key, pid, 3, now), Decision::Start);
            restarts.started(&key, true);
            // Modules that were being changed are left from before.
            assert_eq!(restarts.decide(&key, pid, 3, now), Decision::Start);
        }
        assert_eq!((restarts.count(&key, now), restarts.total["tap"]), (3, 3));
        assert_eq!(restarts.decide(&key, 13, 3, now), Decision::Fail(4));
        assert_eq!(restarts.count(&key, now), 0, "a change by the owner begins anew");
    }

    #[test]
    fn attempts_count_and_old_ends_do_not() {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        let key = ("tap".to_owned(), "root alice".to_owned());
        for n in 0..3 {
            assert!(matches!(restarts.decide(&key, 0, 3, now), Decision::Wait(Some(_))), "{n}");
            now += RESTART_MAX;
            assert_eq!(restarts.decide(&key, 0, 3, now), Decision::Start);
            restarts.started(&key, false);
        }
        now += RESTART_WINDOW;
        assert_eq!(restarts.decide(&key, 0, 3, now), Decision::Wait(Some(RESTART_FIRST)));
        restarts.sweep(now + RESTART_WINDOW);
        assert!(restarts.ends.is_empty());
        // A limit of none: the first end is the last.
        assert_eq!(restarts.decide(&key, 20, 0, now), Decision::Fail(1));
    }
}
