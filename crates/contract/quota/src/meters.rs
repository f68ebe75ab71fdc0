use crate::{Amounts, Link, Meter, Quota, ThisRun, Usage};
use arc_swap::ArcSwap;
use flame_base::lock;
use flame_plan::Share;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The meters in which the use of an install counts: those of each link of its credential's chain. All must
/// allow it. All clones count in the same meters, also after a renewal.
#[derive(Clone)]
pub struct Meters {
    shared: Arc<Shared>,
    granted: bool,
}

type Chain = Vec<Arc<Meter>>;

struct Shared {
    chain: ArcSwap<Chain>,
    /// The bytes of memory of the install, which change while `owning` is locked.
    owned: AtomicU64,
    /// The chain is replaced while this is locked.
    owning: Mutex<()>,
    usage: Option<Arc<Usage>>,
    /// Whether no call may begin, whatever the meters allow.
    held: AtomicBool,
}

/// The reason why an install cannot count in other meters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the instances own {owned} bytes of memory, which the meters of the new credential do not allow")]
pub struct Exceeded {
    pub owned: u64,
}

/// The quota of the operator's own modules, which keeps one packet from filling a disk. It is far more than
/// any of them needs. Their memory has limits of its own, for each instance.
const OWN: Quota = Quota {
    // Packets are counted after the output of their batch, which may write 256 of the largest again.
    per_second: Amounts { records: 65_536, bytes: 16 << 20, transmit: 64 << 20 },
    // A packet of the largest size, and its block in a file.
    per_packet: Amounts { records: 64, bytes: 64 << 10, transmit: (64 << 10) + 64 },
    share: None,
    memory: u64::MAX,
};

impl Default for Meters {
    fn default() -> Self {
        let meter = Meter::new(OWN, Box::new(ThisRun::new(OWN)));
        Self::of(vec![Arc::new(meter)], false, None)
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meters({})", self.shared.chain.load().len())
    }
}

fn own_all(chain: &[Arc<Meter>], bytes: u64) -> bool {
    for (n, meter) in chain.iter().enumerate() {
        if !meter.own(bytes) {
            chain[..n].iter().for_each(|m| m.disown(bytes));
            return false;
        }
    }
    true
}

/// Returns the meters of `chain` that are not in `other`.
fn not_in(chain: &[Arc<Meter>], other: &[Arc<Meter>]) -> Chain {
    chain.iter().filter(|meter| !other.iter().any(|o| Arc::ptr_eq(meter, o))).cloned().collect()
}

impl Meters {
    fn of(chain: Chain, granted: bool, usage: Option<Arc<Usage>>) -> Self {
        let shared = Shared {
            chain: ArcSwap::from_pointee(chain),
            owned: AtomicU64::new(0),
            owning: Mutex::new(()),
            usage,
            held: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), granted }
    }

    /// Creates the meters of a grant.
    pub fn of_grant(chain: Vec<Arc<Meter>>) -> Self {
        Self::of(chain, true, None)
    }

    /// Returns these meters with `more` at their end, for an install that has not begun. Its use is counted
    /// in `usage`, too.
    #[must_use]
    pub fn with(&self, more: Option<Arc<Meter>>, usage: Option<Arc<Usage>>) -> Self {
        let chain = self.shared.chain.load().iter().cloned().chain(more).collect();
        Self::of(chain, self.granted, usage)
    }

    /// Counts all further use of the install in the meters of `new`: of its running instances, too. Their
    /// memory moves to these meters. The counters of use remain.
    ///
    /// # Errors
    ///
    /// Returns an error, and changes nothing, if the new meters do not allow the memory that the instances
    /// own.
    pub fn renew(&self, new: &Self) -> Result<(), Exceeded> {
        // Nothing is owned by halves: `own` and `disown` wait for this lock.
        let _owning = lock(&self.shared.owning);
        let owned = self.shared.owned.load(Ordering::Relaxed);
        let (before, after) = (self.shared.chain.load_full(), new.shared.chain.load_full());
        if !own_all(&not_in(&after, &before), owned) {
            return Err(Exceeded { owned });
        }
        self.shared.chain.store(after.clone());
        not_in(&before, &after).iter().for_each(|m| m.disown(owned));
        Ok(())
    }

    /// Returns whether the module runs under a grant. If so, data it makes leaves only in records.
    pub fn granted(&self) -> bool {
        self.granted
    }

    /// Returns the counters of use, if the owner of the run has any.
    pub fn usage(&self) -> Option<&Arc<Usage>> {
        self.shared.usage.as_ref()
    }

    /// Returns the limits of time and memory of each meter, by which a process shares them among its modules.
    pub fn links(&self) -> Vec<Link> {
        let link = |m: &Arc<Meter>| Link { id: m.id, share: m.quota.share, memory: m.quota.memory };
        self.shared.chain.load().iter().map(link).collect()
    }

    /// Returns the limits of time and memory that all meters of the chain allow.
    pub fn limits(&self) -> (Option<Share>, u64) {
        let chain = self.shared.chain.load();
        let shares = chain.iter().filter_map(|m| m.quota.share);
        (shares.min_by(|a, b| a.part().total_cmp(&b.part())), self.memory().0)
    }

    /// Returns the bytes of memory that the install may own, and those of them that it does not own. The
    /// memory of others that count in the same meters is left out, so they may not all be available.
    #[inline]
    pub fn memory(&self) -> (u64, u64) {
        let most = self.shared.chain.load().iter().map(|m| m.quota.memory).min().unwrap_or(u64::MAX);
        (most, most.saturating_sub(self.shared.owned.load(Ordering::Relaxed)))
    }

    /// Takes the amounts from every meter and returns whether that succeeded. If not, takes nothing.
    pub fn take(&self, amounts: Amounts) -> bool {
        let chain = self.shared.chain.load();
        for (n, meter) in chain.iter().enumerate() {
            if !meter.take(amounts) {
                chain[..n].iter().for_each(|m| m.untake(amounts));
                return false;
            }
        }
        if let Some(usage) = &self.shared.usage {
            usage.add_records(amounts.records, amounts.bytes);
        }
        true
    }

    /// Advances packet time to `now_ns`.
    pub fn tick(&self, now_ns: u64) {
        self.shared.chain.load().iter().for_each(|m| m.second(now_ns / 1_000_000_000));
    }

    /// Counts `packets` that were processed.
    #[inline]
    pub fn packets(&self, packets: u32) {
        for meter in self.shared.chain.load().iter() {
            meter.packets.fetch_add(u64::from(packets), Ordering::Relaxed);
        }
        if let Some(usage) = &self.shared.usage {
            usage.add_packets(packets.into());
        }
    }

    /// Returns whether processor time is limited, or may become limited by a renewal, and must be measured.
    pub fn timed(&self) -> bool {
        self.shared.usage.is_some() || self.shared.chain.load().iter().any(|m| m.quota.share.is_some())
    }

    /// Returns whether a call may begin.
    pub fn may_begin(&self) -> bool {
        !self.shared.held.load(Ordering::Relaxed) && self.shared.chain.load().iter().all(|m| m.may_begin())
    }

    /// Returns whether all meters but the last have time left.
    pub fn may_begin_without_last(&self) -> bool {
        let chain = self.shared.chain.load();
        chain.iter().rev().skip(1).all(|m| m.may_begin())
    }

    /// Decides whether calls may begin at all, besides what the meters allow.
    pub fn hold(&self, holds: bool) {
        self.shared.held.store(holds, Ordering::Relaxed);
    }

    /// Returns whether no call may begin, whatever the meters allow.
    pub fn is_held(&self) -> bool {
        self.shared.held.load(Ordering::Relaxed)
    }

    /// Charges the processor time of a call to all meters of the chain.
    pub fn took(&self, time: Duration) {
        self.shared.chain.load().iter().for_each(|m| m.took(time));
    }

    /// Adds `bytes` to the memory of the install, and returns whether that is allowed. If not, adds nothing.
    pub fn own(&self, bytes: u64) -> bool {
        let _owning = lock(&self.shared.owning);
        if !own_all(&self.shared.chain.load(), bytes) {
            return false;
        }
        let owned = self.shared.owned.load(Ordering::Relaxed);
        self.shared.owned.store(owned.saturating_add(bytes), Ordering::Relaxed);
        if let Some(usage) = &self.shared.usage {
            usage.memory.add(bytes);
        }
        true
    }

    /// Subtracts `bytes` from the memory of the install.
    pub fn disown(&self, bytes: u64) {
        let _owning = lock(&self.shared.owning);
        let owned = self.shared.owned.load(Ordering::Relaxed);
        self.shared.owned.store(owned.saturating_sub(bytes), Ordering::Relaxed);
        self.shared.chain.load().iter().for_each(|m| m.disown(bytes));
        if let Some(usage) = &self.shared.usage {
            usage.memory.subtract(bytes);
        }
    }
}
