//! The time of calls of services in a process, which their callers pay for.

use flame_quota::Meters;
use std::time::{Duration, Instant};

/// The calls that were delivered to one module. They are few: it has to report the end of one before it is
/// given more.
#[derive(Default)]
pub(super) struct Delivered {
    calls: Vec<(u64, Meters, Instant)>,
    /// The time when the end of the last one was reported.
    ended: Option<Instant>,
    /// The times to charge, with the meters of those who pay.
    paid: Vec<(Meters, Duration)>,
}

/// The times of the calls of one module, as far as they are known.
pub(super) struct Paid {
    /// The times to charge, with the meters of those who pay.
    pub(super) paid: Vec<(Meters, Duration)>,
    /// The most that the call can have taken whose end was not reported.
    pub(super) open: Duration,
}

impl Delivered {
    pub(super) fn begin(&mut self, call: u64, payer: Meters, now: Instant) {
        self.calls.push((call, payer, now));
    }

    /// Returns the times that are known at `now`. Each time to charge is returned once.
    pub(super) fn take(&mut self, now: Instant) -> Paid {
        // They are made one after the other: the first one began after the one before it had ended.
        let began =
            self.calls.first().map(|(.., begun)| self.ended.map_or(*begun, |ended| ended.max(*begun)));
        let open = began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        Paid { paid: std::mem::take(&mut self.paid), open }
    }

    /// Forgets the calls whose end was not reported.
    pub(super) fn forget(&mut self) {
        self.calls.clear();
    }

    /// Records the reported time of a call, which is at most the time since it was delivered. Does nothing if
    /// the call is not there: its time was reported, or it was not delivered.
    pub(super) fn end(&mut self, call: u64, time: Duration, now: Instant) {
        let Some(at) = self.calls.iter().position(|(number, ..)| *number == call) else { return };
        let (_, payer, begun) = self.calls.remove(at);
        self.ended = Some(now);
        self.paid.push((payer, time.min(now.saturating_duration_since(begun))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_paid_once_and_for_no_longer_than_it_took() {
        let (mut delivered, hour) = (Delivered::default(), Duration::from_secs(3600));
        let (begun, minute) = (Instant::now(), Duration::from_secs(60));
        delivered.begin(3, Meters::default(), begun);
        delivered.end(4, hour, begun + minute);
        assert!(delivered.paid.is_empty(), "it was not delivered");
        delivered.end(3, hour, begun + minute);
        delivered.end(3, hour, begun + hour);
        let Paid { paid, open } = delivered.take(begun + hour);
        assert_eq!((paid.len(), open), (1, Duration::ZERO));
        assert_eq!(paid[0].1, minute);
    }

    #[test]
    fn a_call_has_taken_no_more_than_the_time_since_the_one_before() {
        let (mut delivered, moment) = (Delivered::default(), Duration::from_millis(20));
        let begun = Instant::now();
        delivered.begin(1, Meters::default(), begun);
        delivered.begin(2, Meters::default(), begun);
        assert_eq!(delivered.take(begun + moment).open, moment);
        delivered.end(1, moment, begun + moment);
        assert_eq!(delivered.take(begun + 3 * moment).open, 2 * moment, "since the end of the first");
        delivered.end(2, moment, begun + 4 * moment);
        assert_eq!(delivered.take(begun + 5 * moment).open, Duration::ZERO);
    }
}
