//! The standing threads of a node, beside those of its sources and of its server.
//!
//! | thread    | does                                                             | waits for            |
//! | --------- | ---------------------------------------------------------------- | -------------------- |
//! | `review`  | evicts modules that lost their grant (`review`)                  | the policy's files   |
//! | `checks`  | evaluates Datalog checks (`review`)                              | the evaluation       |
//! | `modules` | looks at instances and processes, takes down, ends intervals     | no module, no disk   |
//! | `storage` | writes rows and states, keeps room for them, removes ledgers     | the disk             |
//!
//! A module whose end or start is waited for has a thread for that time.

use crate::engine::Engine;
use crate::ledgers::QUOTA_CHECK;
use crate::source::SourceRun;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which instances are looked at, and modules taken down.
const INSTANCES: Duration = Duration::from_millis(50);
/// The interval at which rows are written.
const ROWS: Duration = Duration::from_millis(50);
/// The time until rows are written again after a failure.
const ROWS_AGAIN: Duration = Duration::from_secs(1);
/// The interval at which space that was given up is kept again.
const ROOM: Duration = Duration::from_secs(10);

/// Work of a standing thread. Returns the time until it is due again.
type Job = Box<dyn FnMut(&Arc<Engine>) -> Duration + Send>;

/// Returns work that is due once in each interval.
fn each(interval: Duration, mut work: impl FnMut(&Arc<Engine>) + Send + 'static) -> Job {
    Box::new(move |engine| {
        work(engine);
        interval
    })
}

impl Engine {
    /// Starts the thread that looks at the instances of modules until the node stops.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn keep_modules(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let instances = each(INSTANCES, |engine| {
            engine.sources.iter().for_each(|(name, source)| engine.look_at_instances(name, source));
            engine.modules().restarts.sweep(Instant::now());
            engine.mark_evicted_by_workers();
            engine.take_down_apart();
        });
        let interval = self.config().accounting;
        let account = each(interval, |engine| {
            engine.sources.values().for_each(SourceRun::settle);
            engine.accounting.end_interval();
        });
        self.stand("modules", vec![(Duration::ZERO, instances), (interval, account)])
    }

    /// Removes the ledgers of expired credentials, and starts the thread that writes to the disk what waits
    /// for it until the node stops.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn keep_storage(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        self.sweep_ledgers();
        let mut swept = Instant::now();
        let states = self.config().states;
        let rows: Job = Box::new(|engine| if engine.write_rows() { ROWS } else { ROWS_AGAIN });
        let jobs = vec![
            (ROWS, rows),
            (ROOM, each(ROOM, |engine| engine.store.keep_room())),
            (states, each(states, |engine| engine.write_states())),
            (QUOTA_CHECK, each(QUOTA_CHECK, move |engine| engine.keep_ledgers(&mut swept))),
        ];
        self.stand("storage", jobs)
    }

    /// Starts a thread that does work until the node stops, each for the first time after the time beside it.
    /// Intervals that were missed, because the machine slept, are one.
    fn stand(self: &Arc<Self>, name: &str, jobs: Vec<(Duration, Job)>) -> std::io::Result<JoinHandle<()>> {
        let (engine, start) = (self.clone(), Instant::now());
        let mut jobs: Vec<(Instant, Job)> =
            jobs.into_iter().map(|(after, job)| (start + after, job)).collect();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while !engine.is_stopping() {
                for (due, job) in &mut jobs {
                    let now = Instant::now();
                    if *due <= now {
                        let again = job(&engine);
                        *due = now.max(*due + again);
                    }
                }
                let next = jobs.iter().map(|(due, _)| *due).min().unwrap_or(start);
                std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            }
        })
    }
}
