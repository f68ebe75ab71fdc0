//! The processor time that the holders of a credential may use for the compilation of their modules. It is
//! apart from the time that the modules use.

use crate::Ledger;
use flame_plan::Share;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The allowance of a credential: those of each link of its chain, all of which must suffice.
pub struct Allowance(Vec<(Share, Arc<dyn Ledger>)>);

/// Processor time that is reserved. It counts as used until [`Reserved::used`] corrects it, so a process that
/// is killed meanwhile has used all of it.
#[must_use = "it counts as used"]
pub struct Reserved<'a> {
    allowance: &'a Allowance,
    time: Duration,
}

/// The reason why nothing is reserved: an allowance is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    pub share: Share,
    /// The time until there is more, if that is known.
    pub wait: Option<Duration>,
}

impl std::error::Error for Spent {}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the credential's allowance of compilation ({}) ", self.share)?;
        match self.wait {
            Some(wait) => write!(f, "is used up for about {} s", wait.as_secs() + 1),
            None => f.write_str("gives nothing"),
        }
    }
}

impl Allowance {
    /// Creates the allowance of a chain.
    pub fn new(links: Vec<(Share, Arc<dyn Ledger>)>) -> Self {
        Self(links)
    }

    /// Reserves up to `want` of what all links have left.
    ///
    /// # Errors
    ///
    /// Returns an error if one has nothing left.
    pub fn reserve(&self, want: Duration) -> Result<Reserved<'_>, Spent> {
        let mut time = want;
        for (n, (share, ledger)) in self.0.iter().enumerate() {
            let part = ledger.reserve(Duration::ZERO, time);
            // Those before have more.
            let rest = time.saturating_sub(part);
            self.0[..n].iter().for_each(|(_, before)| before.give_back_time(rest));
            if part.is_zero() {
                return Err(Spent { share: *share, wait: ledger.refilled_in() });
            }
            time = part;
        }
        Ok(Reserved { allowance: self, time })
    }

    /// Returns the smallest share of the chain, if there is any.
    pub fn smallest(&self) -> Option<Share> {
        self.0.iter().map(|(share, _)| *share).min_by_key(|share| share.slice_ns)
    }
}

impl Reserved<'_> {
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Returns the share of which this is all that it gives in one period, if there is one.
    pub fn is_all_of(&self) -> Option<Share> {
        self.allowance.smallest().filter(|share| self.time >= Duration::from_nanos(share.slice_ns))
    }

    /// Records the processor time that was used, which may be more than was reserved.
    pub fn used(self, used: Duration) {
        for (_, ledger) in &self.allowance.0 {
            match used.checked_sub(self.time) {
                Some(over) if over.is_zero() => {}
                Some(over) => drop(ledger.reserve(over, Duration::ZERO)),
                None => ledger.give_back_time(self.time - used),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Amounts, Quota, ThisRun};

    const S: fn(u64) -> Duration = Duration::from_secs;
    const HOUR: u64 = 3_600_000_000_000;

    fn link(seconds: u64) -> (Share, Arc<ThisRun>) {
        let share = Share { slice_ns: seconds * 1_000_000_000, period_ns: HOUR };
        let (amounts, memory) = (Amounts::default(), u64::MAX);
        let quota = Quota { per_second: amounts, per_packet: amounts, share: Some(share), memory };
        (share, Arc::new(ThisRun::new(quota)))
    }

    fn allowance(links: &[&(Share, Arc<ThisRun>)]) -> Allowance {
        Allowance::new(
            links.iter().map(|(share, ledger)| (*share, ledger.clone() as Arc<dyn Ledger>)).collect(),
        )
    }

    #[test]
    fn all_links_of_a_chain_pay() {
        let (wide, narrow) = (link(10), link(3));
        let (alice, bob) = (allowance(&[&wide]), allowance(&[&wide, &narrow]));
        let reserved = bob.reserve(S(5)).unwrap();
        assert_eq!((reserved.time(), reserved.is_all_of().is_some()), (S(3), true));
        // The rest of what was reserved of the wider one is there for others.
        let of_alice = alice.reserve(S(20)).unwrap();
        assert_eq!((of_alice.time(), of_alice.is_all_of()), (S(7), None));
        of_alice.used(S(2));
        let spent = bob.reserve(S(1)).map(|r| r.time()).unwrap_err();
        assert_eq!(spent.share, narrow.0);
        assert!(spent.wait.is_some_and(|wait| wait > S(3590) && wait <= S(3600)), "{spent:?}");
        // A reservation that one link refuses is charged to no other link.
        reserved.used(S(1));
        assert_eq!(alice.reserve(S(20)).unwrap().time(), S(7));
        assert_eq!(bob.reserve(S(1)).map(|r| r.time()).unwrap_err().share, wide.0);
    }

    #[test]
    fn what_is_used_beyond_is_worked_off_by_later_periods() {
        let only = link(3);
        let mine = allowance(&[&only]);
        mine.reserve(S(3)).unwrap().used(S(7));
        let spent = mine.reserve(S(1)).map(|r| r.time()).unwrap_err();
        assert!(spent.to_string().contains("compilation (3s/1h) is used up for about 7"), "{spent}");
        let wait = spent.wait.unwrap();
        assert!(wait > S(7190) && wait <= S(7200), "{wait:?}");
        let never = link(0);
        let spent = allowance(&[&never]).reserve(S(1)).map(|r| r.time()).unwrap_err();
        assert!(spent.wait.is_none() && spent.to_string().ends_with("(0ns/1h) gives nothing"), "{spent}");
        assert_eq!(Allowance::new(Vec::new()).reserve(S(9)).unwrap().time(), S(9), "no link limits");
    }
}
