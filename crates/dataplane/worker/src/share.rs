use flame_plan::Share;
use std::time::{Duration, Instant};

/// Measures a module's processor time, a period at a time: the clock is read twice a batch.
pub struct Meter {
    share: Share,
    period: Instant,
    used: Duration,
    batch: Instant,
}

impl Meter {
    pub fn new(share: Share) -> Self {
        let now = Instant::now();
        Self { share, period: now, used: Duration::ZERO, batch: now }
    }

    /// Whether a batch may begin. What a batch took too long is taken from the next periods.
    pub fn begin(&mut self) -> bool {
        self.batch = Instant::now();
        let (slice, period) =
            (Duration::from_nanos(self.share.slice_ns), Duration::from_nanos(self.share.period_ns));
        let past = self.batch.duration_since(self.period);
        if past >= period {
            // Slices that went unused are not saved.
            let periods = (past.as_nanos() / period.as_nanos().max(1)).min(u128::from(u32::MAX)) as u32;
            self.used = self.used.saturating_sub(slice.saturating_mul(periods));
            self.period = self.batch;
        }
        self.used < slice
    }

    pub fn end(&mut self) {
        self.used += self.batch.elapsed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_gets_its_slice_and_no_more() {
        let mut meter = Meter::new(Share { slice_ns: 1_000_000, period_ns: 3_600_000_000_000 });
        assert!(meter.begin());
        std::thread::sleep(Duration::from_millis(2));
        meter.end();
        assert!(!meter.begin(), "used up, and the period is long");
        let mut meter = Meter::new(Share { slice_ns: 1, period_ns: 1_000 });
        assert!(meter.begin());
        std::thread::sleep(Duration::from_micros(50));
        meter.end();
        // What it took beyond a slice of 1 ns takes as many periods to work off.
        std::thread::sleep(Duration::from_micros(50));
        assert!(!meter.begin());
    }
}
