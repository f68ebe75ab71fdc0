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
    pub(super) fn begin(&mut self, call: u64, payer: Meters) {
        self.calls.push((call, payer, Instant::now()));
    }

    /// Returns what is known. Each time to charge is returned once.
    pub(super) fn take(&mut self) -> Paid {
        // They are made one after the other: the first one began after the one before it had ended.
        let began =
            self.calls.first().map(|(.., begun)| self.ended.map_or(*begun, |ended| ended.max(*begun)));
        let open = began.map_or(Duration::ZERO, |began| began.elapsed());
        Paid { paid: std::mem::take(&mut self.paid), open }
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
        self.ended = Some(Instant::now());
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
        let Paid { paid, open } = delivered.take();
        assert_eq!((paid.len(), open), (1, Duration::ZERO));
        assert!(paid[0].1 < Duration::from_secs(60));
    }

    #[test]
    fn a_call_has_taken_no_more_than_the_time_since_the_one_before() {
        let (mut delivered, moment) = (Delivered::default(), Duration::from_millis(20));
        delivered.begin(1, Meters::default());
        delivered.begin(2, Meters::default());
        std::thread::sleep(moment);
        assert!(delivered.take().open >= moment);
        delivered.end(1, moment);
        let since = Instant::now();
        let open = delivered.take().open;
        assert!(open <= since.elapsed() + moment / 2, "{open:?}");
        delivered.end(2, moment);
        assert_eq!(delivered.take().open, Duration::ZERO);
    }
}
