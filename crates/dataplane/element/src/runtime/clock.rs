//! Time: that of the machine, at another speed, or simulated.

use flame_click::Nanos;
use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time at which simulated time begins.
const SIMULATED_START: Nanos = Nanos(1_000_000_000 * 1_000_000_000);

/// A clock. Simulated time stands still while there is work, then jumps to the next timer.
pub struct Clock {
    is_simulated: bool,
    /// The time at `anchor`.
    base: Cell<Nanos>,
    anchor: Cell<Instant>,
    warp: Cell<f64>,
}

impl Clock {
    /// Creates a clock that follows the machine's.
    pub fn real() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let base = Nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX));
        Self {
            is_simulated: false,
            base: Cell::new(base),
            anchor: Cell::new(Instant::now()),
            warp: Cell::new(1.0),
        }
    }

    /// Creates a clock that only [`Clock::jump`] advances, from a fixed time.
    pub fn simulated() -> Self {
        Self { is_simulated: true, base: Cell::new(SIMULATED_START), ..Self::real() }
    }

    pub fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// Returns the time since 1970.
    pub fn now(&self) -> Nanos {
        if self.is_simulated {
            return self.base.get();
        }
        let passed = self.anchor.get().elapsed().as_secs_f64() * self.warp.get();
        self.base.get() + Nanos::from_secs(passed)
    }

    /// Lets time run `warp` times as fast.
    pub fn set_warp(&self, warp: f64) {
        self.base.set(self.now());
        self.anchor.set(Instant::now());
        self.warp.set(warp);
    }

    /// Returns the factor by which time runs faster than the machine's.
    pub fn warp(&self) -> f64 {
        self.warp.get()
    }

    /// Lets simulated time pass. Returns false for a real clock.
    pub fn jump(&self, to: Nanos) -> bool {
        if self.is_simulated && to > self.base.get() {
            self.base.set(to);
        }
        self.is_simulated
    }

    /// Returns how long to sleep until a time.
    pub fn until(&self, time: Nanos) -> Duration {
        let secs = (time - self.now()).secs() / self.warp.get();
        Duration::try_from_secs_f64(secs.max(0.0)).unwrap_or(Duration::MAX)
    }
}
