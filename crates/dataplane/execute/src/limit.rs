//! Measures the time of a module's calls: its share of a worker, and the limit with which its batches were
//! admitted.

use flame_plan::limits::{CALL_DEADLINE_MAX, OVERRUN_MAX};
use flame_plan::{Overrun, Reason, TimeLimit};
use flame_quota::{Meters, Usage};
use nix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of batches before their number over the limit counts: the first ones find cold caches and empty
/// tables. Their time counts from the first one on.
const ENOUGH: u64 = 256;

/// The processor time that a module's calls besides batches have taken. All clones are of the same module:
/// its instances have one share together.
#[derive(Clone, Debug, Default)]
pub struct OtherCalls(Arc<AtomicU64>);

impl OtherCalls {
    fn add(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn time(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// A monitor of a module's processor time. It reads the clock twice per call or slice, and never if nothing
/// is limited.
pub struct CpuMonitor {
    /// The processor time of the credential, over all its installs and workers.
    share: Option<Meters>,
    limit: Option<OverrunMonitor>,
    /// The use, in which the time of other threads counts that make calls.
    usage: Option<Arc<Usage>>,
}

impl CpuMonitor {
    /// Creates a monitor of one instance. A time limit comes with the time of the module's other calls.
    pub fn new(meters: &Meters, limit: Option<(TimeLimit, OtherCalls)>) -> Self {
        let share = Some(meters.clone()).filter(Meters::timed);
        let limit = limit.map(|(limit, others)| OverrunMonitor::new(limit, others));
        Self { share, limit, usage: meters.usage().cloned() }
    }

    /// Returns whether a call may begin or continue.
    pub fn may_begin(&mut self) -> bool {
        self.share.as_ref().is_none_or(Meters::may_begin)
    }

    pub fn start(&self) -> Option<Started> {
        let is_measured = self.share.is_some() || self.limit.is_some();
        // The kernel's clock takes long to read, so the other one is read within.
        is_measured.then(|| Started { used: thread_time(), at: Instant::now() })
    }

    /// Returns whether no call may begin, whatever the share.
    pub fn is_held(&self) -> bool {
        self.share.as_ref().is_some_and(Meters::is_held)
    }

    /// Charges the time since `started`: processor time to the share, since the thread may have waited for
    /// the processor, and to the limit, which only applies to batches, all time as well.
    /// Returns the processor time, or zero if it is not measured.
    pub fn charge(&mut self, started: Option<Started>, is_batch: bool) -> Duration {
        let Some(Started { at, used }) = started else { return Duration::ZERO };
        let now = Instant::now();
        let took = thread_time().saturating_sub(used);
        if let Some(share) = &self.share {
            share.took(took);
        }
        if let Some(monitor) = &mut self.limit {
            monitor.took(at, now, took, is_batch);
        }
        took
    }

    /// Adds processor time of another thread to the use, while it makes a call.
    pub fn count_apart(&self, time: Duration) {
        self.usage.iter().for_each(|usage| usage.add_cpu(time.as_nanos() as u64));
    }

    /// Charges the processor time that another thread took for a call that is no batch. Returns it.
    pub fn charge_apart(&mut self, time: Duration) -> Duration {
        if !time.is_zero() {
            self.limit.iter().for_each(|monitor| monitor.others.add(time));
            self.share.iter().for_each(|share| share.took(time));
        }
        time
    }

    /// Records a finished call, a batch of `packets` or another one; returns the reason for eviction if the
    /// limit was exceeded.
    pub fn finish(&mut self, packets: Option<u32>) -> Option<Reason> {
        let monitor = self.limit.as_mut()?;
        match packets {
            Some(packets) => monitor.batch(packets),
            None => monitor.too_many_others(),
        }
    }
}

/// Charges the processor time of this thread to a module until it is dropped: work for output of calls that
/// another thread or process makes.
pub struct Charge {
    meters: Meters,
    used: Duration,
}

impl Charge {
    /// Begins to charge, if the module's time is limited.
    pub fn begin(meters: &Meters) -> Option<Self> {
        meters.timed().then(|| Self { meters: meters.clone(), used: thread_time() })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meters.took(thread_time().saturating_sub(self.used));
    }
}

/// The beginning of a call or slice.
#[derive(Clone, Copy)]
pub struct Started {
    at: Instant,
    /// The processor time that the thread had used.
    used: Duration,
}

/// Returns the processor time that this thread has used.
fn thread_time() -> Duration {
    // Every Linux has this clock.
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    now.map_or(Duration::ZERO, |now| Duration::new(now.tv_sec() as u64, now.tv_nsec() as u32))
}

/// Enforces a module's limit, and records the times of its batches.
struct OverrunMonitor {
    limit: TimeLimit,
    so_far: Duration,
    /// The processor time of the batch so far.
    used: Duration,
    /// The processor time of all batches beyond the limit. Time within the limit is not saved.
    excess: Duration,
    /// The processor time of all other calls, also of other instances.
    others: OtherCalls,
    /// The beginning of the first call, and the time since then.
    since: Option<Instant>,
    elapsed: Duration,
    batches: u64,
    over: u64,
    times: Histogram,
}

impl OverrunMonitor {
    fn new(limit: TimeLimit, others: OtherCalls) -> Self {
        let (so_far, used, excess, since, elapsed, batches, over, times) = Default::default();
        Self { limit, so_far, used, excess, others, since, elapsed, batches, over, times }
    }

    /// Adds a part of a call that took from `at` until `now`, and `used` of processor time.
    fn took(&mut self, at: Instant, now: Instant, used: Duration, is_batch: bool) {
        if is_batch {
            self.so_far += now - at;
            self.used += used;
        } else {
            self.others.add(used);
        }
        self.elapsed = now - *self.since.get_or_insert(at);
    }

    /// Returns the reason for eviction if calls that are no batches took too long together.
    fn too_many_others(&self) -> Option<Reason> {
        let share_per_mille = self.limit.share_per_mille;
        let allowed = self.elapsed.as_nanos() / 1000 * u128::from(share_per_mille);
        let others = self.others.time();
        let is_more = others.as_nanos() > CALL_DEADLINE_MAX.as_nanos() + allowed;
        let [used_ms, elapsed_ms] = [others, self.elapsed].map(|time| time.as_millis() as u64);
        is_more.then_some(Reason::Calls { used_ms, elapsed_ms, share_per_mille })
    }

    /// Returns whether batches took too long together: a few of them may stop all others.
    fn has_stood_still(&self) -> bool {
        let allowed = self.elapsed.as_nanos() / 1000 * u128::from(self.limit.over_per_mille);
        self.excess.as_nanos() > OVERRUN_MAX.as_nanos() + allowed
    }

    fn batch(&mut self, packets: u32) -> Option<Reason> {
        let took = std::mem::take(&mut self.so_far).as_nanos() as u64 / u64::from(packets.max(1));
        self.times.add(took);
        self.batches += 1;
        self.over += u64::from(took > self.limit.packet_ns);
        let within = Duration::from_nanos(self.limit.packet_ns.saturating_mul(packets.into()));
        self.excess += std::mem::take(&mut self.used).saturating_sub(within);
        let allowed = self.batches * u64::from(self.limit.over_per_mille) / 1000;
        if (self.batches < ENOUGH || self.over <= allowed) && !self.has_stood_still() {
            return None;
        }
        Some(Reason::Overrun(Overrun {
            limit_ns: self.limit.packet_ns,
            over: self.over,
            batches: self.batches,
            allowed_per_mille: self.limit.over_per_mille,
            median_ns: self.times.quantile(0.5),
            p99_ns: self.times.quantile(0.99),
            max_ns: self.times.quantile(1.0),
        }))
    }
}

/// A histogram with steps of a quarter of a power of two.
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

    /// Returns the largest number of the step that contains the quantile.
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
    use flame_plan::Share;
    use flame_quota::{Amounts, Meter, Quota, ThisRun};

    impl OverrunMonitor {
        fn alone(limit: TimeLimit) -> Self {
            Self::new(limit, OtherCalls::default())
        }
    }

    fn take(cpu: &mut CpuMonitor, time: Duration) {
        let started = cpu.start();
        let end = thread_time() + time;
        while thread_time() < end {}
        cpu.charge(started, false);
    }

    #[test]
    fn installs_of_a_credential_have_one_slice_and_no_more() {
        let share = Some(Share { slice_ns: 1_000_000, period_ns: 3_600_000_000_000 });
        let quota = Quota { per_second: Amounts::MAX, per_packet: Amounts::MAX, share, memory: u64::MAX };
        let meters = Meters::of_grant(vec![Arc::new(Meter::new(quota, Box::new(ThisRun::new(quota))))]);
        let (mut one, mut other) = (CpuMonitor::new(&meters, None), CpuMonitor::new(&meters, None));
        assert!(one.may_begin() && other.may_begin());
        take(&mut one, Duration::from_millis(2));
        assert!(!one.may_begin() && !other.may_begin(), "used up, and the period is long");
        let meters = Meters::of_grant(vec![Arc::new(Meter::new(quota, Box::new(ThisRun::new(quota))))]);
        let charge = Charge::begin(&meters);
        assert!(meters.may_begin());
        let end = thread_time() + Duration::from_millis(2);
        while thread_time() < end {}
        drop(charge);
        assert!(!meters.may_begin(), "the work of another thread for its output counts");
        assert!(Charge::begin(&Meters::default()).is_none());
        assert!(
            CpuMonitor::new(&Meters::default(), None).start().is_none(),
            "nothing is limited, so nothing is measured"
        );
    }

    #[test]
    fn a_module_that_keeps_breaking_its_limit_is_told_with_its_times() {
        let mut monitor =
            OverrunMonitor::alone(TimeLimit { packet_ns: 1000, over_per_mille: 10, share_per_mille: 500 });
        let mut batch = |ns: u64| {
            monitor.so_far = Duration::from_nanos(ns * 64);
            monitor.batch(64)
        };
        for _ in 0..997 {
            assert_eq!(batch(700), None);
        }
        // One batch in a hundred may be slow, because delays of the machine would evict modules otherwise.
        for _ in 0..10 {
            assert_eq!(batch(5000), None);
        }
        let why = batch(5000).unwrap().to_string();
        assert!(
            why.starts_with("took more than 1000 ns a packet in 11 of 1008 batches, 10 in 1000"),
            "{why}"
        );
        assert!(why.ends_with("(half took up to 767 ns, 99 % up to 5119, the slowest up to 5119)"), "{why}");
    }

    #[test]
    fn no_module_is_judged_by_its_first_batches() {
        let mut monitor =
            OverrunMonitor::alone(TimeLimit { packet_ns: 1, over_per_mille: 0, share_per_mille: 500 });
        let mut batch = || {
            monitor.so_far = Duration::from_nanos(100);
            monitor.batch(1)
        };
        assert!((1..ENOUGH).all(|_| batch().is_none()));
        assert!(batch().is_some());
    }

    /// A batch of a hundred times the others' time is an exception, but not one of half a second.
    #[test]
    fn time_beyond_the_limit_counts_from_the_first_batch_on() {
        let ms = Duration::from_millis;
        let batches = |times: &[Duration], pause: Duration| {
            let mut monitor = OverrunMonitor::alone(TimeLimit {
                packet_ns: 1000,
                over_per_mille: 10,
                share_per_mille: 500,
            });
            let mut now = Instant::now();
            let evicted = times.iter().position(|time| {
                // The thread had the processor for half of the time.
                monitor.took(now, now + 2 * *time, *time, true);
                now += 2 * *time + pause;
                monitor.batch(256).is_some()
            });
            evicted.map(|at| at + 1)
        };
        assert_eq!(batches(&[ms(550)], ms(0)), Some(1));
        assert_eq!(batches(&[ms(40); 8], ms(0)), Some(2));
        assert_eq!(batches(&[&[ms(40)][..], &[ms(0); 300]].concat(), ms(1)), None);
        assert_eq!(batches(&[ms(40); 200], ms(4000)), None, "1 % of the time is allowed");
        assert_eq!(batches(&[ms(48); 200], ms(1000)), Some(2));
    }

    /// Ticks, messages and what other threads make for them count beyond the first long call.
    #[test]
    fn calls_besides_batches_have_their_share_of_a_processor() {
        let ms = Duration::from_millis;
        let limit = TimeLimit { packet_ns: 1000, over_per_mille: 10, share_per_mille: 500 };
        // Every second a call of this length, by this thread or another one.
        let seconds = |length: Duration, is_apart: bool| {
            let mut cpu = CpuMonitor::new(&Meters::default(), Some((limit, OtherCalls::default())));
            let mut now = Instant::now();
            (1..100).find(|_| {
                let monitor = cpu.limit.as_mut().unwrap();
                monitor.took(now, now + length, if is_apart { ms(0) } else { length }, false);
                now += ms(1000);
                cpu.charge_apart(if is_apart { length } else { ms(0) });
                cpu.finish(None).is_some()
            })
        };
        for is_apart in [false, true] {
            assert_eq!(seconds(ms(500), is_apart), None);
            assert_eq!(seconds(ms(850), is_apart), Some(3));
            assert_eq!(seconds(ms(2000), is_apart), Some(1));
        }
        // Two instances, each with three tenths of a processor.
        let others = OtherCalls::default();
        let mut both = [(); 2].map(|()| CpuMonitor::new(&Meters::default(), Some((limit, others.clone()))));
        let mut now = Instant::now();
        let evicted = (1..100).find(|_| {
            let is_over = both.iter_mut().any(|cpu| {
                cpu.limit.as_mut().unwrap().took(now, now + ms(300), ms(300), false);
                cpu.finish(None).is_some()
            });
            now += ms(1000);
            is_over
        });
        assert_eq!(evicted, Some(6), "they have one share together");
        let why = Reason::Calls { used_ms: 1700, elapsed_ms: 1850, share_per_mille: 500 };
        assert_eq!(why.to_string(), "calls besides batches took 1700 of 1850 ms, 50 % are allowed");
        assert!(!why.without_measurements().contains("1700"));
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
