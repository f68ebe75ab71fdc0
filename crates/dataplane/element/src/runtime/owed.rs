//! The time that modules of live graphs have taken from the other elements of their thread.
//!
//! Elements of a thread take turns, and some calls of modules are not interrupted. The excess of such a call
//! over a slice is owed to the others: a module that made one rests until they had a multiple of that time.
//! What is owed is common to the modules of a thread, so that several of them, which alternate, do not count
//! the calls of each other as time of the others.

use flame_plan::limits::SLICE;
use nix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The length of a call beyond which the others of the thread have waited for it: a slice may end late.
const LONG: Duration = SLICE.saturating_mul(2);
/// The time that others have for each time that a long call took.
const OTHERS: u32 = 4;
/// The most that is owed without a rest, so that a call that is long once in a while costs no packet.
const UNPAID: Duration = Duration::from_millis(40);
/// The most that is owed.
const MOST: Duration = Duration::from_secs(2);

/// The time that is owed in one thread.
#[derive(Default)]
pub struct Owed {
    time: Cell<Duration>,
    /// The time from which what is owed is repaid: the end of the last call.
    since: Cell<Option<Instant>>,
    /// The processor time of the thread when it was read last, and when that was.
    processor: Cell<Option<(Instant, Duration)>>,
}

/// The beginning of a call: its time, and the processor time of its thread shortly before.
#[derive(Clone, Copy)]
pub struct Begun(Instant, Duration);

/// The end of a call.
#[derive(Clone, Copy)]
pub struct Ended {
    pub at: Instant,
    pub took: Duration,
    /// Whether its module rests until nothing is owed any more.
    pub owes: bool,
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    // Every Linux has this clock.
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    now.map_or(Duration::ZERO, |now| Duration::new(now.tv_sec() as u64, now.tv_nsec() as u32))
}

impl Owed {
    /// Begins a call. The processor time is read by a system call, so it may have been read a slice before.
    pub fn begin(&self) -> Begun {
        let now = Instant::now();
        let is_known = |(at, _): &(Instant, Duration)| now.saturating_duration_since(*at) < SLICE;
        let (_, used) = self.processor.get().filter(is_known).unwrap_or_else(|| self.read(now));
        Begun(now, used)
    }

    fn read(&self, now: Instant) -> (Instant, Duration) {
        let read = (now, processor_time());
        self.processor.set(Some(read));
        read
    }

    /// Ends a call. Time in which the thread waited for a processor is none of it.
    pub fn end(&self, Begun(begun, used): Begun) -> Ended {
        let now = Instant::now();
        let mut took = now.saturating_duration_since(begun);
        if took > LONG {
            took = took.min(self.read(now).1.saturating_sub(used));
        }
        Ended { at: now, took, owes: self.called((begun, now), took) }
    }

    /// Returns the time that is still owed.
    pub fn left(&self, now: Instant) -> Duration {
        let passed = self.since.get().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.time.get().saturating_sub(passed)
    }

    /// Records a call that took a part of the time from `begun` to `ended`. Returns whether its module rests
    /// until nothing is owed any more.
    pub fn called(&self, (begun, ended): (Instant, Instant), took: Duration) -> bool {
        let before = self.left(begun);
        let more = if took > LONG { (took - SLICE) * OTHERS } else { Duration::ZERO };
        self.time.set(before.saturating_add(more).min(MOST));
        self.since.set(Some(ended));
        !more.is_zero() && self.time.get() > UNPAID
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn long_calls_are_repaid_to_all_others() {
        let (owed, begin) = (Owed::default(), Instant::now());
        let at = |ms: u32| begin + MS * ms;
        let called = |from: Instant, to: Instant| owed.called((from, to), to - from);
        // Slices owe nothing, and a call that is long once in a while is no reason to rest.
        assert!((0..1000).all(|ms| !called(at(ms), at(ms) + LONG)));
        assert!(owed.left(at(1000)).is_zero());
        assert!(!called(at(1000), at(1009)));
        assert_eq!(owed.left(at(1009)), 34 * MS);
        assert_eq!(owed.left(at(1029)), 14 * MS);
        // Two in a row are.
        assert!(called(at(1029), at(1038)));
        assert_eq!(owed.left(at(1038)), 48 * MS);
        // The call of another module is no time of the others.
        assert!(called(at(1038), at(1138)));
        assert_eq!(owed.left(at(1138)), 48 * MS + (100 * MS - SLICE) * OTHERS);
        assert!(called(at(2000), at(60_000)) && owed.left(at(60_000)) == MOST);
        assert!(owed.left(at(62_000)).is_zero());
        // What waited for a processor owes nothing.
        assert!(!owed.called((at(63_000), at(64_000)), LONG) && owed.left(at(64_000)).is_zero());
    }
}
