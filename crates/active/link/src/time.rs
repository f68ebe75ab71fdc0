//! Time that never goes back.

/// The most by which the clocks of two nodes may differ, in milliseconds.
pub const TOLERANCE: u64 = 30_000;

/// The clocks of a node in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Since 1970, as the machine states it. It may be wrong, and go back.
    pub wall: u64,
    /// Since the start of the machine, or any other moment. It never goes back.
    pub steady: u64,
}

/// The time of a node: the latest that it has had, and what the steady clock added since.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    now: u64,
    steady: u64,
}

impl Time {
    /// Begins at the clock, or at the time that was stored before a restart if that is later.
    #[must_use]
    pub fn begin(stored: u64, clock: Clock) -> Self {
        Self { now: clock.wall.max(stored), steady: clock.steady }
    }

    /// Returns the time in milliseconds since 1970.
    pub fn advance(&mut self, clock: Clock) -> u64 {
        let passed = clock.steady.saturating_sub(self.steady);
        self.steady = self.steady.max(clock.steady);
        self.now = self.now.saturating_add(passed).max(clock.wall);
        self.now
    }

    /// Returns the latest time, which a node stores for its next start.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.now
    }
}
