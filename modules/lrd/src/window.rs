//! Counts of the intervals that may still get packets.
//!
//! Ticks occur in packet time, at the same point for every worker. Intervals that end `lateness` before a
//! tick are complete, so whether a packet counts as late does not depend on the distribution of packets to
//! workers.
//!
//! Before the first tick, each worker begins at its own first packet. The first of all packets lies at or
//! after the last tick's multiple at which any worker begins, since a later packet makes a tick first. The
//! slow path omits what lies before that.

use crate::{Counts, SERIES};

/// The largest number of intervals, 24 bytes each.
pub const MOST: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Window {
    interval_ns: u64,
    tick_ns: u64,
    lateness_ns: u64,
    /// The index of `slots[0]`: intervals since 1970.
    base: u64,
    slots: Box<[Counts]>,
    /// The first of the slots that are all empty.
    used: usize,
    /// The start of the last packet's interval in nanoseconds, and its slot: most packets belong to the same
    /// interval as the one before.
    start_ns: u64,
    end_ns: u64,
    slot: usize,
    started: bool,
}

impl Window {
    /// Creates a window for the intervals between two ticks and for late packets.
    ///
    /// # Panics
    /// Panics if these are more than [`MOST`] intervals.
    pub fn new(interval_ns: u64, tick_ns: u64, lateness_ns: u64) -> Self {
        let interval_ns = interval_ns.max(1);
        let intervals = tick_ns.saturating_add(lateness_ns).div_ceil(interval_ns).saturating_add(2);
        assert!(
            intervals <= MOST,
            "parameter interval: {intervals} intervals of {interval_ns} ns lie between two ticks (--interval, \
             {tick_ns} ns) and lateness ({lateness_ns} ns), at most {MOST} are kept: make interval longer"
        );
        Self {
            interval_ns,
            tick_ns,
            lateness_ns,
            base: 0,
            slots: vec![[0; SERIES]; intervals as usize].into(),
            used: 0,
            start_ns: u64::MAX,
            end_ns: 0,
            slot: 0,
            started: false,
        }
    }

    pub fn interval_of(&self, ts_ns: u64) -> u64 {
        ts_ns / self.interval_ns
    }

    /// Returns the first interval that is not complete after the tick at `now_ns`.
    pub fn closed_at(&self, now_ns: u64) -> u64 {
        self.interval_of(now_ns.saturating_sub(self.lateness_ns))
    }

    /// Begins the intervals at the first packet.
    #[inline]
    pub fn begin(&mut self, ts_ns: u64) {
        if !self.started {
            // The state is as after a tick before the first packet.
            self.started = true;
            self.base = self.begin_at(ts_ns);
        }
    }

    /// Returns the first interval that is counted if a packet of this time is the first of all.
    pub fn begin_at(&self, ts_ns: u64) -> u64 {
        self.closed_at(ts_ns / self.tick_ns.max(1) * self.tick_ns.max(1))
    }

    /// Returns the first interval that is counted: 0 before the first packet.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns whether a packet lies after all intervals. As the host's tick comes first, another worker has
    /// the first of all packets then.
    pub fn is_beyond(&self, ts_ns: u64) -> bool {
        self.interval_of(ts_ns) >= self.base.saturating_add(self.slots.len() as u64)
    }

    /// Counts a packet; returns false if its interval is complete, or lies beyond all.
    #[inline]
    pub fn add(&mut self, ts_ns: u64, counts: Counts) -> bool {
        if !(self.start_ns..self.end_ns).contains(&ts_ns) && !self.find(ts_ns) {
            return false;
        }
        for (sum, n) in self.slots[self.slot].iter_mut().zip(counts) {
            *sum += n;
        }
        true
    }

    #[inline(never)]
    fn find(&mut self, ts_ns: u64) -> bool {
        // Executed once per interval.
        flame_module::cold();
        let index = self.interval_of(ts_ns);
        let Some(slot) = index.checked_sub(self.base).map(|slot| slot as usize) else { return false };
        if slot >= self.slots.len() {
            return false;
        }
        self.used = self.used.max(slot + 1);
        self.slot = slot;
        self.start_ns = index * self.interval_ns;
        self.end_ns = self.start_ns.saturating_add(self.interval_ns);
        true
    }

    /// Returns the index and counts of the first nonempty interval at or after `from`.
    pub fn next(&self, from: u64) -> Option<(u64, Counts)> {
        let first = usize::try_from(from.saturating_sub(self.base)).ok()?;
        let slots = self.slots[..self.used].iter().enumerate().skip(first);
        slots.clone().find(|(_, c)| **c != [0; SERIES]).map(|(slot, c)| (self.base + slot as u64, *c))
    }

    /// Drops the intervals below `until`; later packets for them are late.
    pub fn forget(&mut self, until: u64) {
        if until <= self.base && self.started {
            return;
        }
        let gone = usize::try_from(until - self.base).unwrap_or(usize::MAX).min(self.used);
        self.slots.copy_within(gone..self.used, 0);
        self.slots[self.used - gone..self.used].fill([0; SERIES]);
        self.used -= gone;
        self.base = until;
        self.started = true;
        (self.start_ns, self.end_ns) = (u64::MAX, 0);
    }

    /// Sets all counts to 0.
    pub fn clear(&mut self) {
        self.slots[..self.used].fill([0; SERIES]);
        self.used = 0;
        (self.start_ns, self.end_ns) = (u64::MAX, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(window: &Window) -> Vec<(u64, u64)> {
        let mut from = 0;
        std::iter::from_fn(|| {
            let (index, counts) = window.next(from)?;
            from = index + 1;
            Some((index, counts[0]))
        })
        .collect()
    }

    #[test]
    fn packets_out_of_order_count_where_they_belong_until_the_tick() {
        // Intervals of 10, ticks of 100, lateness of 30.
        let mut w = Window::new(10, 100, 30);
        w.begin(1234);
        for ts in [1234, 1239, 1201, 1170, 1299] {
            assert!(w.add(ts, [1, 1, 0]), "{ts}");
        }
        assert!(!w.add(1169, [1, 1, 0]));
        assert_eq!(all(&w), [(117, 1), (120, 1), (123, 2), (129, 1)]);
        w.forget(w.closed_at(1300));
        assert_eq!(all(&w), [(129, 1)]);
        assert!(w.add(1270, [1, 1, 0]) && !w.add(1269, [1, 1, 0]) && w.add(1399, [1, 1, 0]));
        assert_eq!(all(&w), [(127, 1), (129, 1), (139, 1)]);
        // A gap of many ticks.
        w.forget(w.closed_at(900_000));
        assert_eq!(all(&w), []);
        assert!(w.add(899_970, [1, 1, 0]) && !w.add(899_969, [1, 1, 0]));
    }

    #[test]
    fn wild_times_are_late_not_fatal() {
        let mut w = Window::new(1, 1, 0);
        w.begin(u64::MAX - 5);
        assert!(w.add(u64::MAX - 5, [1, 1, 0]));
        assert!(!w.add(0, [1, 1, 0]));
        w.forget(w.closed_at(u64::MAX));
        assert!(w.add(u64::MAX, [1, 1, 0]));
    }

    #[test]
    #[should_panic(expected = "make interval longer")]
    fn too_many_intervals_are_refused() {
        Window::new(1000, 3_600_000_000_000, 0);
    }
}
