//! The reader of everything that is reported about packets, and the numbers of a run as each reader has them.

use crate::account::{Account, rounded};

/// The reader of a report, account, error, warning, metric or line of a log about packets.
///
/// It is decided in one place: for a run where the policy in force is known, on a node by the session. What
/// is reported about packets has a method that takes the audience, and no other one that formats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Trusted with all packets.
    Operator,
    /// The holder of a grant, who learns of the packets that the grant shows, and of nothing between two of
    /// its ticks.
    Holder,
}

impl Audience {
    /// Returns the audience where a policy is in force, if `policy` is there, and where none is.
    pub fn under<P>(policy: Option<&P>) -> Self {
        policy.map_or(Self::Operator, |_| Self::Holder)
    }

    pub fn is_operator(self) -> bool {
        self == Self::Operator
    }
}

/// The packets and the accounts of a run, as the operator may know them.
#[derive(Clone, Debug, Default)]
pub struct RunTotals {
    /// The number of packets that the source delivered.
    pub packets: u64,
    /// The number of packets that the kernel dropped because they were not taken in time, or `None` if no
    /// kernel was asked, as with a file.
    pub kernel_drops: Option<u64>,
    /// The account of each module by its name in the plan.
    pub accounts: Vec<(String, Account)>,
}

impl RunTotals {
    /// Returns the numbers that `audience` may know.
    pub fn shown_to(self, audience: Audience) -> ShownTotals {
        if audience.is_operator() {
            return ShownTotals { totals: self, audience };
        }
        let reduced = |(name, account): (String, Account)| (name, account.without_sampled());
        let accounts: Vec<_> = self.accounts.into_iter().map(reduced).collect();
        // Those of the widest view, to which alone all others add nothing.
        let packets = accounts.iter().map(|(_, account)| account.offered).max().unwrap_or(0);
        ShownTotals {
            totals: Self { packets, kernel_drops: self.kernel_drops.map(rounded), accounts },
            audience,
        }
    }
}

/// The packets and the accounts of a run without what their reader may not know: made by
/// [`RunTotals::shown_to`] alone.
#[derive(Clone, Debug)]
pub struct ShownTotals {
    totals: RunTotals,
    audience: Audience,
}

impl ShownTotals {
    /// Returns the number of packets of the source, for a holder of those that were shown.
    pub fn packets(&self) -> u64 {
        self.totals.packets
    }

    /// Returns the number of packets that the kernel dropped, for a holder the next power of two.
    pub fn kernel_drops(&self) -> Option<u64> {
        self.totals.kernel_drops
    }

    pub fn accounts(&self) -> &[(String, Account)] {
        &self.totals.accounts
    }

    pub fn audience(&self) -> Audience {
        self.audience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_has_the_packets_that_were_shown() {
        let account = |offered, sampled| {
            let mut account = Account::default();
            (account.offered, account.processed, account.sampled) = (offered, offered - sampled, sampled);
            account
        };
        let accounts = vec![("a".to_owned(), account(1000, 989)), ("b".to_owned(), account(1000, 995))];
        let totals = RunTotals { packets: 1245, kernel_drops: Some(1000), accounts };
        let of = |audience| totals.clone().shown_to(audience);
        let (operator, holder) = (of(Audience::Operator), of(Audience::Holder));
        assert_eq!((operator.packets(), operator.kernel_drops()), (1245, Some(1000)));
        assert_eq!(operator.accounts()[0].1.sampled, 989);
        assert_eq!((holder.packets(), holder.kernel_drops()), (11, Some(1024)));
        assert!(holder.accounts().iter().all(|(_, account)| account.sampled == 0 && account.adds_up()));
        assert_eq!(RunTotals::default().shown_to(Audience::Holder).packets(), 0);
    }

    #[test]
    fn a_policy_in_force_decides() {
        assert_eq!(Audience::under::<()>(None), Audience::Operator);
        assert_eq!(Audience::under(Some(&())), Audience::Holder);
    }
}
