//! The one place where tests wait.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The time after which a test gives up. It ends only tests that hang, so it is more than anything takes on a
/// busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The first and the longest pause between two looks.
const SHORTEST: Duration = Duration::from_micros(500);
const LONGEST: Duration = Duration::from_millis(8);

/// The result of a look at something that a test waits for: `true` or a value, once it is there.
pub trait Look {
    /// The value that is waited for.
    type Value;

    /// Returns the value, if it is there.
    fn value(self) -> Option<Self::Value>;
}

impl Look for bool {
    type Value = ();

    fn value(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Look for Option<T> {
    type Value = T;

    fn value(self) -> Option<T> {
        self
    }
}

/// Looks until `what` is there, and returns it.
///
/// # Panics
///
/// Panics if it is not there within [`PATIENCE`].
#[track_caller]
pub fn eventually<L: Look>(what: impl Display, mut look: impl FnMut() -> L) -> L::Value {
    let (begun, mut pause) = (Instant::now(), SHORTEST);
    loop {
        let looked = Instant::now();
        if let Some(value) = look().value() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "waited for {what} in vain");
        // A look that takes long, as a command does, leaves others as much time.
        std::thread::sleep(pause.max(looked.elapsed()));
        pause = (2 * pause).min(LONGEST);
    }
}
