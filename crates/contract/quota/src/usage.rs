//! The use of one install, for its owner's bill: counted by all of its instances on all workers.
//!
//! | number | unit | counted |
//! | --- | --- | --- |
//! | processor time | ns | by the threads that work for the install, in this process and in others |
//! | packets | packets | when the module has returned from them |
//! | blocks | blocks, and their integral over time | while they wait for the module or are read by it |
//! | memory | bytes, and their integral | of the instances' own memory |
//! | kept | bytes, and their integral | of records that wait for their reader |
//! | records, record bytes | | when the grant has let them out |
//! | sent | bytes | when they were given to a connection |
//!
//! Sums wrap after 2^64 ns, which is 584 years.

use flame_base::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The counters of one install.
#[derive(Debug, Default)]
pub struct Usage {
    cpu_ns: AtomicU64,
    apart_ns: AtomicU64,
    packets: AtomicU64,
    records: AtomicU64,
    record_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    /// Bytes of frames that left by a link, which its thread adds.
    pub transmitted: Arc<AtomicU64>,
    pub blocks: Level,
    pub memory: Level,
    pub kept: Level,
    /// The numbers as of the last tick of the grant, while an instance runs under one.
    released: Mutex<Option<Used>>,
}

/// An amount that is held for some time.
#[derive(Debug, Default)]
pub struct Level(Mutex<Held>);

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    now: u64,
    peak: u64,
    /// The time of the last change.
    since: Option<Instant>,
    /// The amount multiplied by nanoseconds, up to that time.
    integral: u128,
}

/// The state of a [`Level`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelState {
    pub now: u64,
    pub peak: u64,
    /// The amount multiplied by nanoseconds.
    pub integral: u128,
}

/// The numbers of a [`Usage`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub cpu_ns: u64,
    /// The part of `cpu_ns` that other processes used.
    pub apart_ns: u64,
    pub packets: u64,
    pub records: u64,
    pub record_bytes: u64,
    pub sent_bytes: u64,
    pub transmitted_bytes: u64,
    pub blocks: LevelState,
    pub memory: LevelState,
    pub kept: LevelState,
}

impl Level {
    /// Adds to the amount that is held from now on.
    pub fn add(&self, amount: u64) {
        lock(&self.0).change(|now| now.saturating_add(amount));
    }

    /// Subtracts from the amount that is held from now on.
    pub fn subtract(&self, amount: u64) {
        lock(&self.0).change(|now| now.saturating_sub(amount));
    }

    /// Replaces an amount that was added by another one.
    pub fn replace(&self, before: u64, after: u64) {
        lock(&self.0).change(|now| now.saturating_sub(before).saturating_add(after));
    }

    /// Returns the amount, its peak and its integral up to now.
    pub fn state(&self) -> LevelState {
        let mut held = lock(&self.0);
        held.change(|now| now);
        LevelState { now: held.now, peak: held.peak, integral: held.integral }
    }
}

impl Held {
    fn change(&mut self, to: impl FnOnce(u64) -> u64) {
        // While nothing is held, the time does not matter.
        let now = Instant::now();
        if let Some(since) = self.since.replace(now) {
            self.integral += u128::from(self.now) * now.saturating_duration_since(since).as_nanos();
        }
        self.now = to(self.now);
        self.peak = self.peak.max(self.now);
    }
}

impl Usage {
    /// Adds processor time in nanoseconds.
    pub fn add_cpu(&self, ns: u64) {
        self.cpu_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Adds processor time of another process.
    pub fn add_cpu_apart(&self, ns: u64) {
        self.apart_ns.fetch_add(ns, Ordering::Relaxed);
        self.add_cpu(ns);
    }

    /// Adds packets from which the module has returned.
    pub fn add_packets(&self, packets: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
    }

    /// Adds bytes that were sent to clients.
    pub fn add_sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_records(&self, records: u64, bytes: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
        self.record_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records that an instance runs: from now on, the holder has the numbers as of ticks.
    pub fn begin(&self) {
        let now = self.used();
        lock(&self.released).get_or_insert(now);
    }

    /// Makes the numbers now those that the holder of the grant has, until the next call.
    pub fn release(&self) {
        let now = self.used();
        *lock(&self.released) = Some(now);
    }

    /// Records that no instance runs any more: the holder has the numbers as they are.
    pub fn rest(&self) {
        *lock(&self.released) = None;
    }

    /// Returns the numbers that the holder of the grant has.
    pub fn shown(&self) -> Used {
        let released = *lock(&self.released);
        released.unwrap_or_else(|| self.used())
    }

    /// Returns the numbers now. Those of a call that has not ended are not in them.
    pub fn used(&self) -> Used {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Used {
            cpu_ns: load(&self.cpu_ns),
            apart_ns: load(&self.apart_ns),
            packets: load(&self.packets),
            records: load(&self.records),
            record_bytes: load(&self.record_bytes),
            sent_bytes: load(&self.sent_bytes),
            transmitted_bytes: load(&self.transmitted),
            blocks: self.blocks.state(),
            memory: self.memory.state(),
            kept: self.kept.state(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_holder_has_the_numbers_of_the_last_tick() {
        let usage = Usage::default();
        usage.add_packets(1);
        assert_eq!(usage.shown().packets, 1, "nothing runs");
        usage.begin();
        usage.add_packets(2);
        usage.begin();
        assert_eq!((usage.shown().packets, usage.used().packets), (1, 3));
        usage.release();
        assert_eq!(usage.shown().packets, 3);
        usage.add_packets(4);
        usage.rest();
        assert_eq!(usage.shown().packets, 7);
    }

    #[test]
    fn a_level_is_integrated_over_time() {
        let level = Level::default();
        let start = Instant::now();
        level.add(3);
        std::thread::sleep(Duration::from_millis(5));
        level.add(4);
        level.subtract(7);
        let state = level.state();
        assert_eq!((state.now, state.peak), (0, 7));
        let most = 7 * start.elapsed().as_nanos();
        assert!((3 * 5_000_000..=most).contains(&state.integral), "{state:?}");
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(level.state().integral, state.integral, "nothing is held");
        level.subtract(9);
        assert_eq!(level.state().now, 0, "a release of more than is held");
    }
}
