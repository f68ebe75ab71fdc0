//! Limits the rate of requests: one bucket for each principal, and for each peer that has none yet.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The number of buckets above which full ones are forgotten.
const MANY: usize = 4096;

#[derive(Default)]
pub struct Rates(Mutex<HashMap<String, Bucket>>);

struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Rates {
    /// Takes one request of `who`, who may make `per_second`, and as many at once.
    ///
    /// # Errors
    ///
    /// Returns the time after which a request would be accepted.
    pub fn take(&self, who: &str, per_second: u32) -> Result<(), Duration> {
        self.take_at(who, per_second, Instant::now())
    }

    fn take_at(&self, who: &str, per_second: u32, now: Instant) -> Result<(), Duration> {
        let rate = f64::from(per_second);
        let mut buckets = flame_base::lock(&self.0);
        if buckets.len() >= MANY {
            buckets.retain(|_, b| b.tokens + now.duration_since(b.at).as_secs_f64() * rate < rate);
        }
        let bucket = buckets.entry(who.to_owned()).or_insert(Bucket { tokens: rate, at: now });
        bucket.tokens =
            (bucket.tokens + now.saturating_duration_since(bucket.at).as_secs_f64() * rate).min(rate);
        bucket.at = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - bucket.tokens) / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_its_rate_and_takes_none_of_anothers() {
        let rates = Rates::default();
        let start = Instant::now();
        let taken = (0..20).filter(|_| rates.take_at("alice", 10, start).is_ok()).count();
        assert_eq!(taken, 10);
        assert!(rates.take_at("bob", 10, start).is_ok());
        let later = start + Duration::from_millis(500);
        let taken = (0..20).filter(|_| rates.take_at("alice", 10, later).is_ok()).count();
        assert_eq!(taken, 5);
        let wait = rates.take_at("alice", 10, later).unwrap_err();
        assert!(wait > Duration::ZERO && wait <= Duration::from_millis(100), "{wait:?}");
    }

    #[test]
    fn buckets_of_peers_that_went_away_are_forgotten() {
        let rates = Rates::default();
        let start = Instant::now();
        for peer in 0..2 * MANY {
            let _ = rates.take_at(&peer.to_string(), 10, start + Duration::from_millis(peer as u64));
        }
        assert!(rates.0.lock().unwrap().len() <= MANY + 1);
    }
}
