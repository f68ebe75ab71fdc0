//! Evaluations on threads of their own, which are given up once they have taken too much processor time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The processor time of an evaluation. Those within the bounds of their cost end long before.
const MAX_TIME: Duration = Duration::from_millis(500);
/// The time limit on any machine, however busy.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// The interval at which the processor time is looked at.
const LOOK: Duration = Duration::from_millis(250);
pub const TOO_LONG: &str = "evaluating its Datalog takes too long";

/// The evaluations in progress, by those for whom they are, and whether they were given up: one that was goes
/// on, since nothing can end it. So each has at most one thread.
static RUNNING: Mutex<BTreeMap<String, bool>> = Mutex::new(BTreeMap::new());
/// Notified when one has ended or was given up.
static CHANGED: Condvar = Condvar::new();

fn running() -> MutexGuard<'static, BTreeMap<String, bool>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An evaluation in progress.
struct Turn(String);

impl Turn {
    /// Waits for the evaluation in progress, if there is one. Returns nothing if that was given up.
    fn of(whose: &str) -> Option<Self> {
        let mut all = running();
        while let Some(is_given_up) = all.get(whose) {
            if *is_given_up {
                return None;
            }
            all = CHANGED.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
        all.insert(whose.to_owned(), false);
        Some(Self(whose.to_owned()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        running().remove(&self.0);
        CHANGED.notify_all();
    }
}

/// Returns the processor time of a thread by its folder below /proc.
fn used(thread: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(Path::new("/proc").join(thread).join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Runs an evaluation for `whose` and returns its result. A busy machine takes nothing from its time.
///
/// # Errors
///
/// Returns the error of the evaluation, or the reason why it was given up or not begun.
pub fn evaluate(
    whose: &str,
    evaluation: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let turn = Turn::of(whose).ok_or(TOO_LONG)?;
    let (answer, answered) = channel();
    let (thread, begun) = (Arc::<OnceLock<PathBuf>>::default(), Instant::now());
    let of_thread = thread.clone();
    std::thread::Builder::new()
        .name("datalog".to_owned())
        .spawn(move || {
            // Dropped last: after the answer, or after a panic.
            let _turn = turn;
            if let Ok(folder) = std::fs::read_link("/proc/thread-self") {
                let _ = of_thread.set(folder);
            }
            let _ = answer.send(evaluation());
        })
        .map_err(|e| e.to_string())?;
    loop {
        match answered.recv_timeout(LOOK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => return Err("evaluating its Datalog failed".to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Where the kernel does not tell it, the time that has passed counts.
        let time = thread.get().and_then(|thread| used(thread)).unwrap_or_else(|| begun.elapsed());
        if time < MAX_TIME && begun.elapsed() < MAX_WAIT {
            continue;
        }
        let mut all = running();
        // One that ends from now on waits for the lock.
        return answered.try_recv().unwrap_or_else(|_| {
            all.get_mut(whose).into_iter().for_each(|is_given_up| *is_given_up = true);
            CHANGED.notify_all();
            Err(TOO_LONG.to_owned())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// What others do on the machine is nobody's fault.
    #[test]
    fn the_time_in_which_it_does_not_run_is_not_counted() {
        let waits = || {
            std::thread::sleep(3 * MAX_TIME);
            Ok(())
        };
        assert_eq!(evaluate("one that waits", waits), Ok(()));
    }

    /// One that was given up goes on, and its holder gets no second thread.
    #[test]
    fn at_most_one_evaluation_of_each_goes_on_after_it_was_given_up() {
        static STOP: AtomicBool = AtomicBool::new(false);
        static BEGUN: AtomicU32 = AtomicU32::new(0);
        let spins = || {
            BEGUN.fetch_add(1, Ordering::SeqCst);
            while !STOP.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert_eq!(evaluate("one that spins", spins), Err(TOO_LONG.to_owned())));
            }
        });
        assert_eq!(evaluate("one that spins", spins), Err(TOO_LONG.to_owned()));
        assert_eq!(BEGUN.load(Ordering::SeqCst), 1);
        assert_eq!(evaluate("another", || Ok(())), Ok(()));
        // Without checks there is nothing to evaluate, so no thread is asked for.
        let nothing = biscuit_auth::BlockBuilder::new();
        let blocks = std::slice::from_ref(&nothing);
        let of_policy = |checks| super::super::authorize("one that spins", blocks, &nothing, checks);
        assert_eq!((of_policy(""), of_policy("check if true")), (Ok(()), Err(TOO_LONG.to_owned())));
        STOP.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while of_policy("check if true").is_err() && begun.elapsed() < MAX_WAIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(of_policy("check if true"), Ok(()));
    }
}
