//! The one way to wait for what gives no notice.

use std::time::Duration;

/// The lengths of the waits between two checks: the first, and each of the others `factor` times as long as
/// the one before it, up to `longest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
    pub factor: u32,
}

impl Backoff {
    /// Creates waits of one length.
    pub const fn every(length: Duration) -> Self {
        Self { first: length, longest: length, factor: 1 }
    }

    /// Creates waits that become twice as long each time.
    pub const fn doubling(first: Duration, longest: Duration) -> Self {
        Self { first, longest, factor: 2 }
    }

    /// Returns the length of the wait that follows `number` others.
    pub fn after(self, number: u32) -> Duration {
        self.first.saturating_mul(self.factor.saturating_pow(number)).min(self.longest)
    }

    /// Calls `check` until it returns a value, and `wait` between two calls.
    pub fn until<T>(self, mut check: impl FnMut() -> Option<T>, mut wait: impl FnMut(Duration)) -> T {
        let mut number = 0;
        loop {
            if let Some(found) = check() {
                return found;
            }
            wait(self.after(number));
            number = number.saturating_add(1);
        }
    }

    /// Calls `check` until it returns a value, and sleeps between two calls.
    pub fn sleep_until<T>(self, check: impl FnMut() -> Option<T>) -> T {
        self.until(check, std::thread::sleep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the waits in milliseconds until the check after them finds something.
    fn waits(backoff: Backoff, number: usize) -> Vec<u128> {
        let waited = std::cell::RefCell::new(Vec::new());
        let check = || (waited.borrow().len() == number).then_some(number);
        assert_eq!(backoff.until(check, |length| waited.borrow_mut().push(length.as_millis())), number);
        waited.into_inner()
    }

    #[test]
    fn waits_grow_up_to_the_longest() {
        let ms = Duration::from_millis;
        assert_eq!(waits(Backoff::doubling(ms(3), ms(20)), 5), [3, 6, 12, 20, 20]);
        assert_eq!(waits(Backoff { first: ms(1), longest: ms(100), factor: 10 }, 4), [1, 10, 100, 100]);
        assert_eq!(waits(Backoff::every(ms(7)), 3), [7, 7, 7]);
        assert_eq!(waits(Backoff::every(ms(7)), 0), [0; 0], "what is there is not waited for");
        assert_eq!(Backoff::doubling(ms(1), Duration::MAX).after(u32::MAX), ms(1) * u32::MAX);
    }
}
