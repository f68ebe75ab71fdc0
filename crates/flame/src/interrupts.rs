//! Interrupts of a command: SIGINT and SIGTERM. The first ends its work in order, a further one at once.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The exit status of a command that was interrupted again, as in shells after SIGINT.
pub const INTERRUPTED: i32 = 130;

/// The signals that interrupt.
pub const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// The time, from the first signal on, within which all signals are one interrupt: GNU `timeout` and process
/// managers signal a process and then its group. A later signal is a further interrupt.
const ONE: Duration = Duration::from_secs(1);

/// The interrupts of a command, counted from its signals.
#[derive(Debug, Default)]
pub struct Interrupts {
    first: Option<Instant>,
}

impl Interrupts {
    /// Counts a signal that arrives at `now`. Returns whether it is a further interrupt.
    pub fn is_further(&mut self, now: Instant) -> bool {
        now.duration_since(*self.first.get_or_insert(now)) >= ONE
    }
}

/// Calls `each` in a thread of its own for each signal that interrupts, until a further interrupt ends the
/// process at once.
///
/// # Errors
///
/// Returns an error if signals cannot be received, or no thread can be started.
pub fn watch(each: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new(SIGNALS)?;
    let mut interrupts = Interrupts::default();
    let watching = move || {
        for _ in signals.forever() {
            if interrupts.is_further(Instant::now()) {
                signal_hook::low_level::exit(INTERRUPTED);
            }
            each();
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watching).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_a_second_of_the_first_are_one_interrupt() {
        let (mut interrupts, start) = (Interrupts::default(), Instant::now());
        let mut at = |ms| interrupts.is_further(start + Duration::from_millis(ms));
        assert_eq!(
            [0, 0, 1, 700, 999, 1000, 1001, 9000].map(&mut at),
            [false, false, false, false, false, true, true, true]
        );
    }
}
