//! The standing threads of a node, beside those of its sources and of its server.
//!
//! | thread    | does                                                             | waits for            |
//! | --------- | ---------------------------------------------------------------- | -------------------- |
//! | `review`  | evicts modules that lost their grant (`review`)                  | the policy's files   |
//! | `checks`  | evaluates Datalog checks (`review`)                              | the evaluation       |
//! | `modules` | looks at instances and processes, takes down, ends intervals     | no module, no disk   |
//! | `fleet`   | writes rows that leave the node, if it is in a fleet            | the disk             |
//! | `storage` | writes rows and states, keeps room for them, removes ledgers     | the disk             |
//!
//! A module whose end or start is waited for has a thread for that time.

use crate::engine::Engine;
use crate::source::SourceRun;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which the policy's files and the clock are checked. Changes take effect within a second.
const REVIEW_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum time between two evaluations of all checks. Each takes at most half of the time.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which instances are looked at, and modules taken down.
const INSTANCES_INTERVAL: Duration = Duration::from_millis(50);
/// The interval at which rows are written, and after a row that could not be.
const ROWS_INTERVAL: Duration = Duration::from_millis(50);
const ROWS_RETRY: Duration = Duration::from_secs(1);
/// The interval at which space that was given up is kept again.
const ROOM_INTERVAL: Duration = Duration::from_secs(10);
/// The interval at which the file is read that all quota ledgers need.
const QUOTA_INTERVAL: Duration = Duration::from_secs(2);

/// The name of a standing thread, and its work.
pub(crate) type Standing = (&'static str, fn(&Engine) -> Vec<Job>);

/// The time until work is done for the first time, and the work, which returns the time until the next.
type Job = (Duration, Box<dyn FnMut(&Arc<Engine>) -> Duration + Send>);

pub(crate) const STANDING: [Standing; 4] = [REVIEW, CHECKS, MODULES, STORAGE];

pub(crate) const REVIEW: Standing = ("review", |engine| {
    let (mut seen, mut second) = (engine.read_at.clone(), 0);
    vec![each(REVIEW_INTERVAL, move |engine| engine.review(&mut seen, &mut second))]
});

pub(crate) const CHECKS: Standing = ("checks", |_| {
    let checks = |engine: &Arc<Engine>| {
        let begun = Instant::now();
        engine.review_checks();
        CHECK_INTERVAL.max(2 * begun.elapsed())
    };
    vec![(Duration::ZERO, Box::new(checks))]
});

const MODULES: Standing = ("modules", |engine| {
    let instances = each(INSTANCES_INTERVAL, |engine| {
        engine.sources.iter().for_each(|(name, source)| engine.look_at_instances(name, source));
        engine.modules().restarts.sweep(Instant::now());
        engine.mark_evicted_by_workers();
        engine.take_down_apart();
    });
    let account = each(engine.config().accounting, |engine| {
        engine.sources.values().for_each(SourceRun::settle);
        engine.accounting.end_interval();
    });
    vec![instances, account]
});

pub(crate) const STORAGE: Standing = ("storage", |engine| {
    let mut swept = None;
    // Before clients are served.
    engine.keep_ledgers(&mut swept);
    let rows = |engine: &Arc<Engine>| if engine.write_rows() { ROWS_INTERVAL } else { ROWS_RETRY };
    vec![
        (Duration::ZERO, Box::new(rows)),
        each(QUOTA_INTERVAL, move |engine| engine.keep_ledgers(&mut swept)),
        each(ROOM_INTERVAL, |engine| engine.store.keep_room()),
        each(engine.config().states, |engine| engine.write_states()),
    ]
});

/// Of a node in a fleet.
pub(crate) const FLEET: Standing = ("fleet", |_| {
    vec![(Duration::ZERO, Box::new(|engine: &Arc<Engine>| engine.send_rows(Some(Instant::now()))))]
});

/// Returns work that is done once in each interval.
fn each(interval: Duration, mut work: impl FnMut(&Arc<Engine>) + Send + 'static) -> Job {
    let job = move |engine: &Arc<Engine>| {
        work(engine);
        interval
    };
    (interval, Box::new(job))
}

impl Engine {
    /// Starts a standing thread, which works until the node stops. Intervals that were missed, because the
    /// machine slept, are one.
    pub(crate) fn stand(self: &Arc<Self>, (name, jobs): Standing) -> std::io::Result<JoinHandle<()>> {
        let (engine, start) = (self.clone(), Instant::now());
        let mut jobs: Vec<_> = jobs(self).into_iter().map(|(after, work)| (start + after, work)).collect();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while !engine.is_stopping() {
                let now = Instant::now();
                for (due, work) in jobs.iter_mut().filter(|(due, _)| *due <= now) {
                    *due = now.max(*due + work(&engine));
                }
                let next = jobs.iter().map(|(due, _)| *due).min().unwrap_or(now);
                std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            }
        })
    }
}
