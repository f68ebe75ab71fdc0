//! What a credential has used: one meter for all its installs, workers and restarts, and, by its ledger, for
//! all runs.

#![forbid(unsafe_code)]

use flame_plan::Share;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Records, their bytes, and bytes of packets written.
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

    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.each(other, u64::min)
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// Whether there is as much of everything as `other` has.
    pub fn covers(self, other: Self) -> bool {
        other.min(self) == other
    }
}

/// What a meter gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// For each second of packet time. What one second leaves over is not saved.
    pub per_second: Amounts,
    /// For each packet beyond that; this is saved.
    pub per_packet: Amounts,
    /// Processor time of all workers together.
    pub share: Option<Share>,
    /// Bytes of all instances together.
    pub memory: u64,
}

/// Where a meter is kept across runs. Everything that may be given out comes from here.
pub trait Ledger: Send + Sync {
    /// A run begins to use it, at most once a process.
    fn begin(&self) {}
    /// Up to `want` of what is left in the second of packet time `second`; an unknown second gives what is
    /// left over.
    fn draw(&self, second: Option<u64>, want: Amounts) -> Amounts;
    /// Gives back what was drawn and not used.
    fn give_back(&self, amounts: Amounts);
    /// Notes that so much processor time was used beyond what was reserved, and reserves up to `want` more,
    /// of which it gives what is left. It counts as used until it is given back: who kills a process takes
    /// nothing out of the count.
    fn reserve(&self, over: Duration, want: Duration) -> Duration;
    fn give_back_time(&self, time: Duration);
    /// Whether this process may own so many bytes in all its instances.
    fn may_own(&self, bytes: u64) -> bool;
}

/// A meter of one credential, or of one link of its chain.
pub struct Meter {
    quota: Quota,
    ledger: Box<dyn Ledger>,
    inner: Mutex<Inner>,
    packets: AtomicU64,
}

#[derive(Default)]
struct Inner {
    second: Option<u64>,
    /// Drawn and not used.
    left: Amounts,
    /// The ledger gave nothing more in this second.
    dry: bool,
    /// Of packets that were counted already.
    of_packets: u64,
    saved: Amounts,
    memory: u64,
    /// Processor time that is reserved and not used.
    time: Duration,
    /// When there was none.
    asked: Option<Instant>,
}

/// Parts in which a second's worth is drawn, so that runs at the same time all get some.
const PARTS: u64 = 16;
/// Processor time that is reserved at once is no less, unless that is all there is: asking takes a file.
const LEAST_TIME: Duration = Duration::from_millis(5);
/// How long nobody asks again for processor time where there was none, within what a period is.
const ASK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

impl Meter {
    pub fn new(quota: Quota, ledger: Box<dyn Ledger>) -> Self {
        ledger.begin();
        Self { quota, ledger, inner: Mutex::default(), packets: AtomicU64::new(0) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, want: Amounts) -> bool {
        let mut inner = self.inner();
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
        let mut inner = self.inner();
        inner.left = inner.left.plus(amounts);
    }

    /// Packet time has come to this second. A second that has been is none.
    fn second(&self, second: u64) {
        let mut inner = self.inner();
        if inner.second.is_none_or(|before| before < second) {
            let left = std::mem::take(&mut inner.left);
            self.ledger.give_back(left);
            (inner.second, inner.dry) = (Some(second), false);
        }
    }

    fn may_begin(&self) -> bool {
        let Some(share) = self.quota.share else { return true };
        let mut inner = self.inner();
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
        let mut inner = self.inner();
        let over = time.saturating_sub(inner.time);
        inner.time = inner.time.saturating_sub(time);
        if !over.is_zero() {
            self.ledger.reserve(over, Duration::ZERO);
        }
    }

    fn own(&self, bytes: u64) -> bool {
        let mut inner = self.inner();
        let all = inner.memory.saturating_add(bytes);
        if all > self.quota.memory || !self.ledger.may_own(all) {
            return false;
        }
        inner.memory = all;
        true
    }

    fn disown(&self, bytes: u64) {
        let mut inner = self.inner();
        inner.memory = inner.memory.saturating_sub(bytes);
        // Less is always allowed.
        let _ = self.ledger.may_own(inner.memory);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.ledger.give_back(inner.left);
        self.ledger.give_back_time(inner.time);
        let _ = self.ledger.may_own(0);
    }
}

/// The meters that an install's use counts in: those of each link of its credential's chain. All must allow
/// it.
#[derive(Clone)]
pub struct Meters {
    chain: Arc<[Arc<Meter>]>,
    granted: bool,
}

/// What the operator's own modules may put out, so that one packet does not fill a disk: far more than any of
/// them does.
const OWN: Quota = Quota {
    per_second: Amounts { records: 65_536, bytes: 16 << 20, transmit: u64::MAX },
    per_packet: Amounts { records: 64, bytes: 64 << 10, transmit: 0 },
    share: None,
    memory: u64::MAX,
};

impl Default for Meters {
    fn default() -> Self {
        let meter = Meter::new(OWN, Box::new(ThisRun::new(OWN)));
        Self { chain: [Arc::new(meter)].into(), granted: false }
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meters({})", self.chain.len())
    }
}

impl Meters {
    /// Of a grant.
    pub fn of_grant(chain: Vec<Arc<Meter>>) -> Self {
        Self { chain: chain.into(), granted: true }
    }

    /// Whether the module runs under a grant: nothing of its making then leaves but records.
    pub fn granted(&self) -> bool {
        self.granted
    }

    /// Takes it of every meter, or of none.
    pub fn take(&self, amounts: Amounts) -> bool {
        for (n, meter) in self.chain.iter().enumerate() {
            if !meter.take(amounts) {
                self.chain[..n].iter().for_each(|m| m.untake(amounts));
                return false;
            }
        }
        true
    }

    /// Packet time has come to `now_ns`.
    pub fn tick(&self, now_ns: u64) {
        self.chain.iter().for_each(|m| m.second(now_ns / 1_000_000_000));
    }

    /// So many packets were processed.
    #[inline]
    pub fn packets(&self, packets: u32) {
        for meter in &*self.chain {
            meter.packets.fetch_add(u64::from(packets), Ordering::Relaxed);
        }
    }

    /// Whether processor time is limited, and has to be measured.
    pub fn timed(&self) -> bool {
        self.chain.iter().any(|m| m.quota.share.is_some())
    }

    /// Whether a call may begin.
    pub fn may_begin(&self) -> bool {
        self.chain.iter().all(|m| m.may_begin())
    }

    pub fn took(&self, time: Duration) {
        self.chain.iter().for_each(|m| m.took(time));
    }

    /// Whether an instance may own so many bytes more.
    pub fn own(&self, bytes: u64) -> bool {
        for (n, meter) in self.chain.iter().enumerate() {
            if !meter.own(bytes) {
                self.chain[..n].iter().for_each(|m| m.disown(bytes));
                return false;
            }
        }
        true
    }

    pub fn disown(&self, bytes: u64) {
        self.chain.iter().for_each(|m| m.disown(bytes));
    }
}

/// A ledger that ends with the run.
pub struct ThisRun {
    quota: Quota,
    state: Mutex<State>,
    began: Instant,
}

impl ThisRun {
    pub fn new(quota: Quota) -> Self {
        Self { quota, state: Mutex::new(State::new(&quota)), began: Instant::now() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger for ThisRun {
    fn draw(&self, second: Option<u64>, want: Amounts) -> Amounts {
        self.state().draw(&self.quota, second, want)
    }

    fn give_back(&self, amounts: Amounts) {
        self.state().give_back(&self.quota, amounts);
    }

    fn reserve(&self, over: Duration, want: Duration) -> Duration {
        let now = self.began.elapsed().as_nanos() as u64;
        self.state().reserve(&self.quota, now, over, want)
    }

    fn give_back_time(&self, time: Duration) {
        self.state().give_back_time(time);
    }

    fn may_own(&self, _: u64) -> bool {
        true
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Stretches of packet time that are remembered, at most. Beyond that the gap that is shortest counts as
/// paid.
const MAX_STRETCHES: usize = 64;

/// What a ledger holds, whatever keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Of what was paid: records, bytes, bytes of packets.
    pub left: (u64, u64, u64),
    /// Seconds of packet time that were paid for, as first and last of each stretch, in order.
    pub paid: Vec<(u64, u64)>,
    /// Processor time that is not worked off yet.
    pub used_ns: u64,
    /// Since 1970, of the node's clock: when processor time was last worked off, and when runs last began.
    pub worked_off_ns: u64,
    pub began_ns: u64,
}

impl State {
    /// With a second's worth to begin with.
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

    /// A run begins: what is left over grows with the node's clock, up to a second's worth.
    pub fn begin(&mut self, quota: &Quota, now_ns: u64) {
        // A clock that was set back gives nothing until it has caught up.
        let since = now_ns.saturating_sub(self.began_ns).min(1_000_000_000);
        self.began_ns = self.began_ns.max(now_ns);
        let worth = |n: u64| (u128::from(n) * u128::from(since) / 1_000_000_000) as u64;
        let each = quota.per_second;
        let new = self.left().plus(each.each(each, |n, _| worth(n)));
        self.set(new.min(each));
    }

    /// A second of packet time pays once, whichever run comes to it first, and however far it is from the
    /// last.
    pub fn draw(&mut self, quota: &Quota, second: Option<u64>, want: Amounts) -> Amounts {
        if second.is_some_and(|second| self.pay(second)) {
            self.set(quota.per_second);
        }
        let got = self.left().min(want);
        self.set(self.left().minus(got));
        got
    }

    pub fn give_back(&mut self, quota: &Quota, amounts: Amounts) {
        self.set(self.left().plus(amounts).min(quota.per_second));
    }

    /// Works off what periods since then allow, adds `over`, and reserves up to `want` of what is left then.
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

    pub fn give_back_time(&mut self, time: Duration) {
        self.used_ns = self.used_ns.saturating_sub(nanoseconds(time));
    }

    /// Marks a second as paid; whether it was not.
    fn pay(&mut self, second: u64) -> bool {
        let at = self.paid.partition_point(|(_, last)| *last < second);
        if self.paid.get(at).is_some_and(|(first, _)| *first <= second) {
            return false;
        }
        self.paid.insert(at, (second, second));
        let joins = |a: (u64, u64), b: (u64, u64)| a.1.saturating_add(1) >= b.0;
        let join = |paid: &mut Vec<(u64, u64)>, at: usize| {
            let (_, last) = paid.remove(at + 1);
            paid[at].1 = last;
        };
        if at + 1 < self.paid.len() && joins(self.paid[at], self.paid[at + 1]) {
            join(&mut self.paid, at);
        }
        if at > 0 && joins(self.paid[at - 1], self.paid[at]) {
            join(&mut self.paid, at - 1);
        }
        if self.paid.len() > MAX_STRETCHES {
            let gap = |n: &usize| self.paid[n + 1].0 - self.paid[*n].1;
            let shortest = (0..self.paid.len() - 1).min_by_key(gap).unwrap_or(0);
            join(&mut self.paid, shortest);
        }
        true
    }

    /// Whether it could have come about: for what was read from a file.
    pub fn is_sound(&self) -> bool {
        let in_order = self.paid.windows(2).all(|w| w[0].1 < w[1].0) && self.paid.iter().all(|(a, b)| a <= b);
        self.paid.len() <= MAX_STRETCHES && in_order
    }
}

#[cfg(test)]
mod tests;
