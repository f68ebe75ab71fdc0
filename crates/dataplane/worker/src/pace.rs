//! What a module's calls take, measured: its share of a worker, and the limit that its batches were admitted with.

use flame_plan::{PaceLimit, Share};
use std::time::{Duration, Instant};

/// Batches before a module is judged: the first ones find cold caches and empty tables.
const ENOUGH: u64 = 256;

/// Reads the clock twice a call, or a slice of one; never if nothing is limited.
pub struct Pace {
    share: Option<Used>,
    limit: Option<Judge>,
}

impl Pace {
    pub fn new(share: Option<Share>, limit: Option<PaceLimit>) -> Self {
        Self { share: share.map(Used::new), limit: limit.map(Judge::new) }
    }

    /// Whether a call may begin or go on.
    pub fn may_begin(&mut self) -> bool {
        self.share.as_mut().is_none_or(Used::may_begin)
    }

    pub fn start(&self) -> Option<Instant> {
        (self.share.is_some() || self.limit.is_some()).then(Instant::now)
    }

    /// Charges what was done since `started`; time of batches is also what the limit is about.
    pub fn charge(&mut self, started: Option<Instant>, is_batch: bool) {
        let Some(took) = started.map(|s| s.elapsed()) else { return };
        if let Some(share) = &mut self.share {
            share.used += took;
        }
        if let Some(judge) = self.limit.as_mut().filter(|_| is_batch) {
            judge.so_far += took;
        }
    }

    /// A batch of so many packets is done; returns why the module has to go, if it does.
    pub fn batch(&mut self, packets: u32) -> Option<String> {
        self.limit.as_mut()?.batch(packets)
    }
}

/// Processor time, a period at a time.
struct Used {
    share: Share,
    period: Instant,
    used: Duration,
}

impl Used {
    fn new(share: Share) -> Self {
        Self { share, period: Instant::now(), used: Duration::ZERO }
    }

    /// What a batch took too long is taken from the next periods.
    fn may_begin(&mut self) -> bool {
        let now = Instant::now();
        let (slice, period) =
            (Duration::from_nanos(self.share.slice_ns), Duration::from_nanos(self.share.period_ns));
        let past = now.duration_since(self.period);
        if past >= period {
            // Slices that went unused are not saved.
            let periods = (past.as_nanos() / period.as_nanos().max(1)).min(u128::from(u32::MAX)) as u32;
            self.used = self.used.saturating_sub(slice.saturating_mul(periods));
            self.period = now;
        }
        self.used < slice
    }
}

/// Holds a module to its limit, and remembers how long its batches took.
struct Judge {
    limit: PaceLimit,
    so_far: Duration,
    batches: u64,
    over: u64,
    times: Histogram,
}

impl Judge {
    fn new(limit: PaceLimit) -> Self {
        Self { limit, so_far: Duration::ZERO, batches: 0, over: 0, times: Histogram::default() }
    }

    fn batch(&mut self, packets: u32) -> Option<String> {
        let took = std::mem::take(&mut self.so_far).as_nanos() as u64 / u64::from(packets.max(1));
        self.times.add(took);
        self.batches += 1;
        self.over += u64::from(took > self.limit.packet_ns);
        let allowed = self.batches * u64::from(self.limit.over_per_mille) / 1000;
        if self.batches < ENOUGH || self.over <= allowed {
            return None;
        }
        Some(format!(
            "took more than {} ns a packet in {} of {} batches, {} in 1000 are allowed \
             (half took up to {} ns, 99 % up to {}, the slowest up to {})",
            self.limit.packet_ns,
            self.over,
            self.batches,
            self.limit.over_per_mille,
            self.times.quantile(0.5),
            self.times.quantile(0.99),
            self.times.quantile(1.0),
        ))
    }
}

/// Counts in steps of a quarter of a power of two.
struct Histogram([u64; 256]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl Histogram {
    fn add(&mut self, n: u64) {
        let at = match n.checked_ilog2() {
            Some(e) if e >= 2 => 4 * (e as usize - 1) + (n >> (e - 2)) as usize % 4,
            _ => n as usize,
        };
        self.0[at] += 1;
    }

    /// The largest number of the step that holds the quantile.
    fn quantile(&self, q: f64) -> u64 {
        let all: u64 = self.0.iter().sum();
        let wanted = ((all as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.0.iter().position(|n| {
            seen += n;
            seen >= wanted
        });
        match at.unwrap_or(0) {
            small @ 0..4 => small as u64,
            at => {
                let (e, quarter) = (at / 4 + 1, at % 4);
                ((5 + quarter as u128) << (e - 2)).saturating_sub(1).min(u128::from(u64::MAX)) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(share: Share) -> Pace {
        Pace::new(Some(share), None)
    }

    fn take(pace: &mut Pace, time: Duration) {
        let started = pace.start();
        std::thread::sleep(time);
        pace.charge(started, false);
    }

    #[test]
    fn a_module_gets_its_slice_and_no_more() {
        let mut long = pace(Share { slice_ns: 1_000_000, period_ns: 3_600_000_000_000 });
        assert!(long.may_begin());
        take(&mut long, Duration::from_millis(2));
        assert!(!long.may_begin(), "used up, and the period is long");
        let mut short = pace(Share { slice_ns: 1, period_ns: 1_000 });
        assert!(short.may_begin());
        take(&mut short, Duration::from_micros(50));
        // What it took beyond a slice of 1 ns takes as many periods to work off.
        std::thread::sleep(Duration::from_micros(50));
        assert!(!short.may_begin());
    }

    #[test]
    fn a_module_that_keeps_breaking_its_limit_is_told_with_its_times() {
        let mut judge = Judge::new(PaceLimit { packet_ns: 1000, over_per_mille: 10 });
        let mut batch = |ns: u64| {
            judge.so_far = Duration::from_nanos(ns * 64);
            judge.batch(64)
        };
        for _ in 0..997 {
            assert_eq!(batch(700), None);
        }
        // One in a hundred may be slow, or what the machine does would remove modules.
        for _ in 0..10 {
            assert_eq!(batch(5000), None);
        }
        let why = batch(5000).unwrap();
        assert!(
            why.starts_with("took more than 1000 ns a packet in 11 of 1008 batches, 10 in 1000"),
            "{why}"
        );
        assert!(why.ends_with("(half took up to 767 ns, 99 % up to 5119, the slowest up to 5119)"), "{why}");
    }

    #[test]
    fn no_module_is_judged_by_its_first_batches() {
        let mut judge = Judge::new(PaceLimit { packet_ns: 1, over_per_mille: 0 });
        let mut batch = || {
            judge.so_far = Duration::from_nanos(100);
            judge.batch(1)
        };
        assert!((1..ENOUGH).all(|_| batch().is_none()));
        assert!(batch().is_some());
    }

    #[test]
    fn steps_of_the_histogram_hold_what_is_put_there() {
        let numbers = (0..64).flat_map(|e| [1u64 << e, (1 << e) + (1 << e) / 3, u64::MAX >> e]);
        for n in numbers.chain(0..1000) {
            let mut h = Histogram::default();
            h.add(n);
            let top = h.quantile(0.5);
            assert!(top >= n && top / 5 * 4 <= n, "{n}: {top}");
        }
    }
}
