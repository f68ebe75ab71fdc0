/// The number of ticks that fall between two packets at most. In a longer gap, the first tick ends the
/// interval of the packets before, and the next one is the last multiple: a file of two packets may span
/// decades.
pub const MAX_GAP: u64 = 100;

/// No tick: the largest time, which is no multiple of a second.
const NEVER: u64 = u64::MAX;

/// Ticks of packet time. They fall on multiples of the period since 1970, each before the first packet that
/// is not older. A gap has a tick for each multiple, or two if these were more than [`MAX_GAP`].
pub struct Clock {
    period: u64,
    /// The next tick, [`NEVER`] after the last one.
    next: Option<u64>,
    /// The latest time so far.
    pub now: u64,
    /// The first gap in which some multiples have no tick, from one tick to the next.
    pub gap: Option<(u64, u64)>,
}

impl Clock {
    pub fn new(period_ns: u64) -> Self {
        Self { period: period_ns.max(1), next: None, now: 0, gap: None }
    }

    /// Returns the end of the interval that a capture has reached: the next tick, or its time without any.
    pub fn border(&self) -> u64 {
        self.next.filter(|next| *next != NEVER).unwrap_or(self.now)
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
        self.next.is_some_and(|next| ts_ns >= next && next != NEVER)
    }

    /// Advances to `ts_ns` and returns a tick that falls before it, if any is left. Time never goes
    /// backwards.
    pub fn advance(&mut self, ts_ns: u64) -> Option<u64> {
        self.now = self.now.max(ts_ns);
        let last = ts_ns / self.period * self.period;
        let Some(tick) = self.next else {
            self.next = Some(last.saturating_add(self.period));
            return None;
        };
        if ts_ns < tick || tick == NEVER {
            return None;
        }
        let is_long = (last - tick) / self.period >= MAX_GAP;
        if is_long {
            self.gap.get_or_insert((tick, last));
        }
        self.next = Some(if is_long { last } else { tick.saturating_add(self.period) });
        Some(tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_fall_on_multiples_and_never_back() {
        let mut clock = Clock::new(10);
        let mut ticks = |ts_ns| std::iter::from_fn(|| clock.advance(ts_ns)).collect::<Vec<_>>();
        assert_eq!([13, 19].map(&mut ticks), [[0; 0]; 2]);
        assert_eq!([ticks(20), ticks(21), ticks(12)], [vec![20], vec![], vec![]]);
        assert_eq!([ticks(55), ticks(59), ticks(60)], [vec![30, 40, 50], vec![], vec![60]]);
        assert_eq!(clock.now, 60);
        assert!(!clock.quiet(70) && clock.now == 60);
        assert!(clock.quiet(69) && clock.now == 69);
    }

    #[test]
    fn a_long_gap_has_two_ticks() {
        let ticks = |from: u64, to: u64| {
            let mut clock = Clock::new(10);
            assert_eq!(clock.advance(from), None);
            std::iter::from_fn(|| clock.advance(to)).collect::<Vec<_>>()
        };
        let all: Vec<_> = (1..=MAX_GAP).map(|n| n * 10).collect();
        assert_eq!(ticks(3, MAX_GAP * 10 + 9), all);
        assert_eq!(ticks(3, MAX_GAP * 10 + 10), [10, MAX_GAP * 10 + 10]);
        assert_eq!(ticks(3, u64::MAX), [10, u64::MAX / 10 * 10]);
    }
}
