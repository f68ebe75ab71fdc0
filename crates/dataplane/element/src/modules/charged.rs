//! The time of all calls of a module with a limit: batches, ticks, messages and the begin of instances, with
//! the host's work on them.

use flame_abi::MAX_BATCH;
use flame_plan::TimeLimit;
use std::time::{Duration, Instant};

/// The time of the host's work on a packet: it is shown, and what the module makes of it is delivered.
const HOST_NS: i128 = 1000;
/// The time that calls may take beyond what packets and time give.
const GRACE_NS: i128 = 250_000_000;

/// The time that is left to a module. Each packet gives its limit, and as much is given while time passes as
/// the batches that may exceed their limit may take: ticks are made without packets, too.
#[derive(Debug)]
pub(super) struct Charged {
    limit: TimeLimit,
    left_ns: i128,
    since: Option<Instant>,
    /// All packets and all time.
    packets: u64,
    took: Duration,
}

impl Charged {
    pub(super) fn new(limit: TimeLimit) -> Self {
        Self { limit, left_ns: 0, since: None, packets: 0, took: Duration::ZERO }
    }

    /// Charges work that took a time until `now`, for which the module was given packets. Returns the reason
    /// to evict it, if it has used up all that is left to it.
    pub(super) fn worked(&mut self, now: Instant, took: Duration, packets: usize) -> Option<String> {
        let passed = now.saturating_duration_since(self.since.replace(now).unwrap_or(now)).as_nanos() as i128;
        let each = i128::from(self.limit.packet_ns) + HOST_NS;
        let given = each * packets as i128 + passed * i128::from(self.limit.over_per_mille) / 1000;
        // Two batches are saved: a call may come in several slices, and packets come before it.
        let most = each * 2 * MAX_BATCH as i128;
        self.left_ns = (self.left_ns + given).min(most) - took.as_nanos() as i128;
        self.packets += packets as u64;
        self.took += took;
        (self.left_ns < -GRACE_NS).then(|| {
            format!(
                "all calls took {} ms for {} packets, and LIMIT allows {} ns for each",
                self.took.as_millis(),
                self.packets,
                self.limit.packet_ns
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_calls_are_charged_to_the_limit() {
        let limit = TimeLimit { packet_ns: 100_000, over_per_mille: 10, share_per_mille: 1000 };
        let (begin, ms) = (Instant::now(), Duration::from_millis(1));
        // Returns the millisecond in which a module is evicted, with 1,000 packets and such a tick a second.
        let evicted = |tick: Duration, packet: Duration| {
            let mut charged = Charged::new(limit);
            (0..100_000_u32).find(|at| {
                let took = packet + if at % 1000 == 0 { tick } else { Duration::ZERO };
                charged.worked(begin + ms * *at, took, 1).is_some()
            })
        };
        assert_eq!(evicted(Duration::ZERO, ms / 10), None, "within the limit");
        assert_eq!(evicted(50 * ms, ms / 20), None, "a tick takes what packets leave");
        assert_eq!(evicted(550 * ms, Duration::ZERO), Some(0));
        assert_eq!(evicted(230 * ms, Duration::ZERO), Some(1000));
        assert!(evicted(Duration::ZERO, ms / 5).is_some_and(|at| at < 5000));
        let mut idle = Charged::new(limit);
        assert!((0..1000).all(|at| idle.worked(begin + 1000 * ms * at, 10 * ms, 0).is_none()));
        let mut one = Charged::new(limit);
        let text = one.worked(begin, 300 * ms, 7).unwrap();
        assert_eq!(text, "all calls took 300 ms for 7 packets, and LIMIT allows 100000 ns for each");
    }
}
