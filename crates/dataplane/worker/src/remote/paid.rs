//! The time of calls of services in a process, which their callers pay for.

use flame_quota::Meters;
use std::time::{Duration, Instant};

/// The calls that were delivered to one module. They are few: it has to report the end of one before it is
/// given more.
#[derive(Default)]
pub(super) struct Delivered {
    calls: Vec<(u64, Meters, Instant)>,
    /// The times to charge, with the meters of those who pay.
    paid: Vec<(Meters, Duration)>,
}

impl Delivered {
    pub(super) fn begin(&mut self, call: u64, payer: Meters) {
        self.calls.push((call, payer, Instant::now()));
    }

    /// Returns the times to charge, with the meters of those who pay, once, and whether no call is left.
    pub(super) fn take(&mut self) -> (Vec<(Meters, Duration)>, bool) {
        (std::mem::take(&mut self.paid), self.calls.is_empty())
    }

    /// Forgets the calls whose end was not reported.
    pub(super) fn forget(&mut self) {
        self.calls.clear();
    }

    /// Records the reported time of a call, which is at most the time since it was delivered. Does nothing if
    /// the call is not there: its time was reported, or it was not delivered.
    pub(super) fn end(&mut self, call: u64, time: Duration) {
        let Some(at) = self.calls.iter().position(|(number, ..)| *number == call) else { return };
        let (_, payer, begun) = self.calls.remove(at);
        self.paid.push((payer, time.min(begun.elapsed())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_paid_once_and_for_no_longer_than_it_took() {
        let (mut delivered, hour) = (Delivered::default(), Duration::from_secs(3600));
        delivered.begin(3, Meters::default());
        delivered.end(4, hour);
        assert!(delivered.paid.is_empty(), "it was not delivered");
        delivered.end(3, hour);
        delivered.end(3, hour);
        assert_eq!(delivered.paid.len(), 1);
        assert!(delivered.paid[0].1 < Duration::from_secs(60));
    }
}
