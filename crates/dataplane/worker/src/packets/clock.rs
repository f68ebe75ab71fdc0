/// Ticks of packet time. They fall on multiples of the period since 1970, each before the first packet that
/// is not older. A gap of several periods gives one tick, at its last multiple.
pub struct Clock {
    period: u64,
    next: Option<u64>,
    /// The latest time so far.
    pub now: u64,
}

impl Clock {
    pub fn new(period_ns: u64) -> Self {
        Self { period: period_ns.max(1), next: None, now: 0 }
    }

    /// Advances to `latest_ns`, the latest time of some packets, and returns true, unless a tick falls before
    /// one of them.
    pub fn quiet(&mut self, latest_ns: u64) -> bool {
        let quiet = self.next.is_some_and(|next| latest_ns < next);
        if quiet {
            self.now = self.now.max(latest_ns);
        }
        quiet
    }

    /// Returns whether [`Clock::advance`] to `ts_ns` would return a tick.
    pub fn is_due(&self, ts_ns: u64) -> bool {
        self.next.is_some_and(|next| ts_ns >= next)
    }

    /// Advances to `ts_ns` and returns the tick that falls before it, if any. Time never goes backwards.
    pub fn advance(&mut self, ts_ns: u64) -> Option<u64> {
        self.now = self.now.max(ts_ns);
        let boundary = ts_ns / self.period * self.period;
        match self.next {
            Some(next) if ts_ns < next => None,
            Some(_) => {
                self.next = Some(boundary.saturating_add(self.period));
                Some(boundary)
            }
            None => {
                self.next = Some(boundary.saturating_add(self.period));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_fall_on_multiples_and_never_back() {
        let mut clock = Clock::new(10);
        let ticks: Vec<_> = [13, 19, 20, 21, 12, 55, 59, 60].map(|t| clock.advance(t)).into();
        assert_eq!(ticks, [None, None, Some(20), None, None, Some(50), None, Some(60)]);
        assert_eq!(clock.now, 60);
        assert!(!clock.quiet(70) && clock.now == 60);
        assert!(clock.quiet(69) && clock.now == 69);
    }
}
