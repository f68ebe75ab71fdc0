//! The use of a credential's quotas: one meter for all its installs, workers and restarts, and, through its
//! ledger, for all runs.

#![forbid(unsafe_code)]

mod allowance;
mod meters;
mod usage;

pub use allowance::{Allowance, Reserved, Spent};
pub use meters::{Exceeded, Meters};
pub use usage::{Level, LevelState, Usage, Used};

use flame_base::{lock, unpoisoned};
use flame_plan::Share;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The numbers of records, of their bytes, and of bytes of written packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub records: u64,
    pub bytes: u64,
    pub transmit: u64,
}

impl Amounts {
    pub const MAX: Self = Self { records: u64::MAX, bytes: u64::MAX, transmit: u64::MAX };

    fn each(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            records: of(self.records, other.records),
            bytes: of(self.bytes, other.bytes),
            transmit: of(self.transmit, other.transmit),
        }
    }

    /// Returns the smaller of each two amounts.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.each(other, u64::min)
    }

    /// Returns the differences, at least 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    /// Returns the sums, up to the largest number.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// Returns whether no amount is smaller than in `other`.
    pub fn covers(self, other: Self) -> bool {
        other.min(self) == other
    }
}

/// The amounts that a meter can give out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The amounts for each second of packet time. The remainder of a second is not saved.
    pub per_second: Amounts,
    /// The additional amounts for each packet. They are saved.
    pub per_packet: Amounts,
    /// The processor time of all workers together.
    pub share: Option<Share>,
    /// The bytes of memory of all instances together.
    pub memory: u64,
}

/// The store of a meter across runs, from which all amounts are drawn.
pub trait Ledger: Send + Sync {
    /// Records that a run begins to use the ledger, at most once per process.
    fn begin(&self) {}
    /// Returns up to `want` of the amounts left in the second of packet time `second`. For an unknown second,
    /// returns from the amounts left over.
    fn draw(&self, second: Option<u64>, want: Amounts) -> Amounts;
    /// Returns unused amounts to the ledger.
    fn give_back(&self, amounts: Amounts);
    /// Records that `over` was used beyond the reserved processor time, and reserves up to `want` more.
    /// Returns the time reserved. It counts as used until it is returned, so that killing a process does not
    /// lower the count.
    fn reserve(&self, over: Duration, want: Duration) -> Duration;
    /// Returns reserved processor time that was not used.
    fn give_back_time(&self, time: Duration);
    /// Returns the time until there is processor time to reserve, or `None` if that is not known.
    fn refilled_in(&self) -> Option<Duration> {
        None
    }
    /// Returns whether all instances of this process may own `bytes` together.
    fn may_own(&self, bytes: u64) -> bool;
}

/// The meter of one credential, or of one link of its chain.
pub struct Meter {
    /// A number that no other meter of this process has.
    id: u64,
    quota: Quota,
    ledger: Box<dyn Ledger>,
    inner: Mutex<Inner>,
    packets: AtomicU64,
}

#[derive(Default)]
struct Inner {
    second: Option<u64>,
    /// The amounts drawn and not used.
    left: Amounts,
    /// Whether the ledger had nothing more in this second.
    dry: bool,
    /// The number of packets already added to `saved`.
    of_packets: u64,
    saved: Amounts,
    memory: u64,
    /// The memory that the ledger refused last, and when: a module can repeat its request at once, and each
    /// accesses a file.
    refused: Option<(u64, Instant)>,
    /// The processor time that is reserved and not used.
    time: Duration,
    /// The time of the last request for processor time that was refused.
    asked: Option<Instant>,
}

/// The number of parts in which the amounts of a second are drawn, so that concurrent runs all receive some.
const PARTS: u64 = 16;
/// The minimum of processor time that is reserved at once, if there is as much: a request accesses a file.
const LEAST_TIME: Duration = Duration::from_millis(5);
/// The range of the time after which a refused request for processor time is repeated, otherwise one period.
const ASK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

impl Meter {
    /// Creates a meter, and records in its ledger that a run begins.
    pub fn new(quota: Quota, ledger: Box<dyn Ledger>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ledger.begin();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id, quota, ledger, inner: Mutex::default(), packets: AtomicU64::new(0) }
    }

    fn take(&self, want: Amounts) -> bool {
        let mut inner = lock(&self.inner);
        let packets = self.packets.load(Ordering::Relaxed);
        let new = packets - std::mem::replace(&mut inner.of_packets, packets);
        let each = self.quota.per_packet;
        inner.saved = inner.saved.plus(Amounts {
            records: each.records.saturating_mul(new),
            bytes: each.bytes.saturating_mul(new),
            transmit: each.transmit.saturating_mul(new),
        });
        let have = inner.left.plus(inner.saved);
        if !have.covers(want) && !inner.dry {
            let each = self.quota.per_second;
            let part = each.each(each, |n, _| n.div_ceil(PARTS));
            let need = want.minus(have);
            let got = self.ledger.draw(inner.second, need.each(part, u64::max));
            inner.left = inner.left.plus(got);
            inner.dry = !got.covers(need);
        }
        if !inner.left.plus(inner.saved).covers(want) {
            return false;
        }
        let of_saved = want.minus(inner.left);
        inner.left = inner.left.minus(want);
        inner.saved = inner.saved.minus(of_saved);
        true
    }

    fn untake(&self, amounts: Amounts) {
        let mut inner = lock(&self.inner);
        inner.left = inner.left.plus(amounts);
    }

    /// Sets packet time to `second`, which may also be earlier. The ledger gives out each second once.
    fn second(&self, second: u64) {
        let mut inner = lock(&self.inner);
        if inner.second != Some(second) {
            let left = std::mem::take(&mut inner.left);
            self.ledger.give_back(left);
            (inner.second, inner.dry) = (Some(second), false);
        }
    }

    fn may_begin(&self) -> bool {
        let Some(share) = self.quota.share else { return true };
        let mut inner = lock(&self.inner);
        let good_for = Duration::from_nanos(share.period_ns).clamp(ASK.0, ASK.1);
        if inner.time.is_zero() && inner.asked.is_none_or(|at| at.elapsed() >= good_for) {
            let slice = Duration::from_nanos(share.slice_ns);
            let part = (slice / PARTS as u32).max(LEAST_TIME).min(slice);
            inner.time = self.ledger.reserve(Duration::ZERO, part);
            inner.asked = inner.time.is_zero().then(Instant::now);
        }
        !inner.time.is_zero()
    }

    fn took(&self, time: Duration) {
        if self.quota.share.is_none() {
            return;
        }
        let mut inner = lock(&self.inner);
        let over = time.saturating_sub(inner.time);
        inner.time = inner.time.saturating_sub(time);
        if !over.is_zero() {
            self.ledger.reserve(over, Duration::ZERO);
        }
    }

    fn own(&self, bytes: u64) -> bool {
        let mut inner = lock(&self.inner);
        let all = inner.memory.saturating_add(bytes);
        let is_refused = |&(least, at): &(u64, Instant)| all >= least && at.elapsed() < ASK.1;
        if all > self.quota.memory || inner.refused.as_ref().is_some_and(is_refused) {
            return false;
        }
        if !self.ledger.may_own(all) {
            inner.refused = Some((all, Instant::now()));
            return false;
        }
        inner.memory = all;
        true
    }

    fn disown(&self, bytes: u64) {
        let mut inner = lock(&self.inner);
        inner.memory = inner.memory.saturating_sub(bytes);
        inner.refused = None;
        // A smaller amount is always allowed.
        let _ = self.ledger.may_own(inner.memory);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let inner = unpoisoned(self.inner.get_mut());
        self.ledger.give_back(inner.left);
        self.ledger.give_back_time(inner.time);
        let _ = self.ledger.may_own(0);
    }
}

/// The limits of time and memory of one meter, for a process in which modules run.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Link {
    /// The meter's number: modules whose links have the same number share the limits.
    pub id: u64,
    pub share: Option<Share>,
    /// The bytes of memory of all instances together.
    pub memory: u64,
}

/// A ledger that ends with the run.
pub struct ThisRun {
    quota: Quota,
    state: Mutex<State>,
    began: Instant,
}

impl ThisRun {
    /// Creates a ledger with the amounts of one second.
    pub fn new(quota: Quota) -> Self {
        Self { quota, state: Mutex::new(State::new(&quota)), began: Instant::now() }
    }
}

impl Ledger for ThisRun {
    fn draw(&self, second: Option<u64>, want: Amounts) -> Amounts {
        lock(&self.state).draw(&self.quota, second, want)
    }

    fn give_back(&self, amounts: Amounts) {
        lock(&self.state).give_back(&self.quota, amounts);
    }

    fn reserve(&self, over: Duration, want: Duration) -> Duration {
        let now = self.began.elapsed().as_nanos() as u64;
        lock(&self.state).reserve(&self.quota, now, over, want)
    }

    fn give_back_time(&self, time: Duration) {
        lock(&self.state).give_back_time(time);
    }

    fn refilled_in(&self) -> Option<Duration> {
        lock(&self.state).refilled_in(&self.quota, self.began.elapsed().as_nanos() as u64)
    }

    fn may_own(&self, _: u64) -> bool {
        true
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The maximum number of stretches of packet time that are remembered. If there are more, the seconds of the
/// shortest gap count as paid.
const MAX_STRETCHES: usize = 64;

/// The state of a ledger, wherever it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The amounts left of the seconds that were paid: records, bytes, bytes of packets.
    pub left: (u64, u64, u64),
    /// The seconds of packet time that were paid for, as first and last of each stretch, in order.
    pub paid: Vec<(u64, u64)>,
    /// The used processor time in nanoseconds that later periods have not yet compensated.
    pub used_ns: u64,
    /// The time up to which processor time was compensated, in nanoseconds since 1970 of the node's clock.
    pub worked_off_ns: u64,
    /// The latest beginning of a run, in nanoseconds since 1970 of the node's clock.
    pub began_ns: u64,
}

impl State {
    /// Creates a state with the amounts of one second.
    pub fn new(quota: &Quota) -> Self {
        let Amounts { records, bytes, transmit } = quota.per_second;
        Self { left: (records, bytes, transmit), ..Self::default() }
    }

    fn left(&self) -> Amounts {
        Amounts { records: self.left.0, bytes: self.left.1, transmit: self.left.2 }
    }

    fn set(&mut self, left: Amounts) {
        self.left = (left.records, left.bytes, left.transmit);
    }

    /// Records the beginning of a run: the amounts left grow with the node's clock, up to those of a second.
    pub fn begin(&mut self, quota: &Quota, now_ns: u64) {
        // After the clock is set back, nothing is added until it has caught up.
        let since = now_ns.saturating_sub(self.began_ns).min(1_000_000_000);
        self.began_ns = self.began_ns.max(now_ns);
        let worth = |n: u64| (u128::from(n) * u128::from(since) / 1_000_000_000) as u64;
        let each = quota.per_second;
        let new = self.left().plus(each.each(each, |n, _| worth(n)));
        self.set(new.min(each));
    }

    /// Returns up to `want` of the amounts left. Each second of packet time adds its amounts once, for the
    /// first run that reaches it, however far it is from the last.
    pub fn draw(&mut self, quota: &Quota, second: Option<u64>, want: Amounts) -> Amounts {
        if second.is_some_and(|second| pay(&mut self.paid, second)) {
            self.set(quota.per_second);
        }
        let got = self.left().min(want);
        self.set(self.left().minus(got));
        got
    }

    /// Takes back amounts that were drawn and not used, up to those of a second.
    pub fn give_back(&mut self, quota: &Quota, amounts: Amounts) {
        self.set(self.left().plus(amounts).min(quota.per_second));
    }

    /// Subtracts the time that periods since the last call allow, adds `over`, and reserves up to `want` of
    /// the rest.
    pub fn reserve(&mut self, quota: &Quota, now_ns: u64, over: Duration, want: Duration) -> Duration {
        let Some(share) = quota.share else { return want };
        let period = share.period_ns.max(1);
        if self.worked_off_ns == 0 {
            self.worked_off_ns = now_ns;
        }
        let periods = now_ns.saturating_sub(self.worked_off_ns) / period;
        self.worked_off_ns = self.worked_off_ns.saturating_add(periods.saturating_mul(period));
        self.used_ns = self.used_ns.saturating_sub(periods.saturating_mul(share.slice_ns));
        self.used_ns = self.used_ns.saturating_add(nanoseconds(over));
        let got = share.slice_ns.saturating_sub(self.used_ns).min(nanoseconds(want));
        self.used_ns += got;
        Duration::from_nanos(got)
    }

    /// Takes back processor time that was reserved and not used.
    pub fn give_back_time(&mut self, time: Duration) {
        self.used_ns = self.used_ns.saturating_sub(nanoseconds(time));
    }

    /// Returns the time until there is processor time to reserve, or `None` if there will never be any.
    pub fn refilled_in(&self, quota: &Quota, now_ns: u64) -> Option<Duration> {
        let Some(share) = quota.share else { return Some(Duration::ZERO) };
        let Some(over) = self.used_ns.checked_sub(share.slice_ns) else { return Some(Duration::ZERO) };
        let periods = over.checked_div(share.slice_ns)?.saturating_add(1);
        let at = self.worked_off_ns.saturating_add(periods.saturating_mul(share.period_ns));
        Some(Duration::from_nanos(at.saturating_sub(now_ns)))
    }

    /// Returns whether the state is consistent, as a check of a state that was read from a file.
    pub fn is_sound(&self) -> bool {
        let in_order = self.paid.windows(2).all(|w| w[0].1 < w[1].0) && self.paid.iter().all(|(a, b)| a <= b);
        self.paid.len() <= MAX_STRETCHES && in_order
    }
}

/// The seconds of packet time whose amounts were given out, as first and last of each stretch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paid(Vec<(u64, u64)>);

impl Paid {
    /// Marks a second as paid and returns whether it was unpaid.
    pub fn pay(&mut self, second: u64) -> bool {
        pay(&mut self.0, second)
    }
}

fn pay(paid: &mut Vec<(u64, u64)>, second: u64) -> bool {
    let at = paid.partition_point(|(_, last)| *last < second);
    if paid.get(at).is_some_and(|(first, _)| *first <= second) {
        return false;
    }
    paid.insert(at, (second, second));
    let joins = |a: (u64, u64), b: (u64, u64)| a.1.saturating_add(1) >= b.0;
    let join = |paid: &mut Vec<(u64, u64)>, at: usize| {
        let (_, last) = paid.remove(at + 1);
        paid[at].1 = last;
    };
    if at + 1 < paid.len() && joins(paid[at], paid[at + 1]) {
        join(paid, at);
    }
    if at > 0 && joins(paid[at - 1], paid[at]) {
        join(paid, at - 1);
    }
    if paid.len() > MAX_STRETCHES {
        let gap = |n: &usize| paid[n + 1].0 - paid[*n].1;
        let shortest = (0..paid.len() - 1).min_by_key(gap).unwrap_or(0);
        join(paid, shortest);
    }
    true
}

#[cfg(test)]
mod tests;
