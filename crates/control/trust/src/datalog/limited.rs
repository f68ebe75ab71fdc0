//! Evaluations on threads of their own, which are given up once they have taken too much processor time.

use flame_base::lock;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// The processor time of an evaluation. Those within the bounds of their cost end long before.
const MAX_TIME: Duration = Duration::from_millis(500);
/// The time limit on any machine, however busy.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// Interval of checks of the processor time.
const TIME_CHECK: Duration = Duration::from_millis(250);
pub const TOO_LONG: &str = "evaluating its Datalog takes too long";
const FAILED: &str = "evaluating its Datalog failed";

/// The numbers of evaluations that were given up and go on, since nothing can end them, by those for whom
/// they are. Those have no further ones meanwhile.
static GIVEN_UP: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

fn given_up() -> MutexGuard<'static, BTreeMap<String, usize>> {
    lock(&GIVEN_UP)
}

/// An evaluation in progress. While `GIVEN_UP` is locked, it is not dropped.
struct Running {
    whose: String,
    is_given_up: Arc<AtomicBool>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut all = given_up();
        if self.is_given_up.load(Ordering::Relaxed)
            && let Some(count) = all.get_mut(&self.whose)
        {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.whose);
            }
        }
    }
}

/// Returns the processor time of a thread by its folder below /proc.
fn used(thread: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(Path::new("/proc").join(thread).join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// A thread that evaluates: since when it runs, and its folder below /proc if that is known.
struct Started {
    at: Instant,
    folder: Option<PathBuf>,
}

impl Started {
    /// Returns its processor time. Where the kernel does not tell it, the time that has passed counts.
    fn used(&self) -> Duration {
        self.folder.as_deref().and_then(used).unwrap_or_else(|| self.at.elapsed())
    }
}

/// Runs an evaluation for `whose` and returns its result. A busy machine takes nothing from its time. It
/// waits for no other evaluation.
///
/// # Errors
///
/// Returns the error of the evaluation, or the reason why it was given up or not begun.
pub fn evaluate<T: Send + 'static>(
    whose: &str,
    evaluation: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    if given_up().contains_key(whose) {
        return Err(TOO_LONG.to_owned());
    }
    let is_given_up = Arc::<AtomicBool>::default();
    let running = Running { whose: whose.to_owned(), is_given_up: is_given_up.clone() };
    let (answer, answered) = channel();
    let (thread, begun) = (Arc::<OnceLock<Started>>::default(), Instant::now());
    let work = Arc::new(Mutex::new(Some((running, answer, evaluation))));
    loop {
        let (work, of_thread) = (work.clone(), thread.clone());
        let spawned = std::thread::Builder::new().name("datalog".to_owned()).spawn(move || {
            let work = lock(&work).take();
            // In this order, so that it is dropped after the answer, also by a panic.
            let Some((_running, answer, evaluation)) = work else { return };
            let folder = std::fs::read_link("/proc/thread-self").ok();
            let _ = of_thread.set(Started { at: Instant::now(), folder });
            let _ = answer.send(evaluation());
        });
        match spawned {
            Ok(_) => break,
            // Others have all the threads that the user may have.
            Err(e) if e.kind() == ErrorKind::WouldBlock && begun.elapsed() < MAX_WAIT => {
                std::thread::sleep(TIME_CHECK / 5);
            }
            Err(e) => return Err(e.to_string()),
        }
    }
    loop {
        match answered.recv_timeout(TIME_CHECK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => return Err(FAILED.to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let time = thread.get().map_or(Duration::ZERO, Started::used);
        if time < MAX_TIME && begun.elapsed() < MAX_WAIT {
            continue;
        }
        let mut all = given_up();
        return match answered.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Disconnected) => Err(FAILED.to_owned()),
            Err(TryRecvError::Empty) => {
                is_given_up.store(true, Ordering::Relaxed);
                *all.entry(whose.to_owned()).or_default() += 1;
                Err(TOO_LONG.to_owned())
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// A busy machine is no fault of the evaluation.
    #[test]
    fn the_time_in_which_it_does_not_run_is_not_counted() {
        let waits = || {
            std::thread::sleep(3 * MAX_TIME);
            Ok(())
        };
        assert_eq!(evaluate("one that waits", waits), Ok(()));
    }

    /// The node's reviews stand behind no requests.
    #[test]
    fn no_evaluation_waits_for_another_of_the_same() {
        let (go_on, may_go_on) = channel::<()>();
        let waits = move || may_go_on.recv_timeout(MAX_WAIT).map_err(|e| e.to_string());
        std::thread::scope(|scope| {
            let first = scope.spawn(|| evaluate("one with requests", waits));
            std::thread::sleep(TIME_CHECK / 5);
            assert_eq!(evaluate("one with requests", || Ok(())), Ok(()));
            assert!(!first.is_finished());
            go_on.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Ok(()));
        });
    }

    /// A panicking evaluation frees its slot.
    #[test]
    fn a_panic_does_not_block_later_evaluations() {
        let panics = || panic!("as a defect would");
        assert_eq!(evaluate::<()>("one that fails", panics), Err(FAILED.to_owned()));
        assert_eq!(evaluate("one that fails", || Ok(())), Ok(()));
    }

    /// An evaluation that was given up keeps its slot until it ends.
    #[test]
    fn no_evaluation_begins_while_one_goes_on_that_was_given_up() {
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
            for _ in 0..2 {
                scope.spawn(|| assert_eq!(evaluate("one that spins", spins), Err(TOO_LONG.to_owned())));
            }
        });
        assert_eq!(given_up().get("one that spins"), Some(&2));
        assert_eq!(evaluate("one that spins", spins), Err(TOO_LONG.to_owned()));
        assert_eq!(BEGUN.load(Ordering::SeqCst), 2);
        assert_eq!(evaluate("another", || Ok(())), Ok(()));
        // Without checks there is nothing to evaluate, so no thread is asked for.
        let nothing = biscuit_auth::BlockBuilder::new();
        let blocks = std::slice::from_ref(&nothing);
        let authorize = super::super::authorize;
        let of_policy =
            |checks| authorize("one that spins", blocks, &nothing, checks).map_err(|e| e.to_string());
        assert_eq!((of_policy(""), of_policy("check if true")), (Ok(()), Err(TOO_LONG.to_owned())));
        STOP.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while of_policy("check if true").is_err() && begun.elapsed() < MAX_WAIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(of_policy("check if true"), Ok(()));
        assert!(!given_up().contains_key("one that spins"));
    }
}
