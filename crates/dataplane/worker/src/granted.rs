//! What a report tells of modules that run under a grant: nothing of their own making.
//!
//! A module chooses how often it faults and at which packet, how many records it drops and how many it tries
//! to put out: numbers that would carry what it sees past a grant that lets no record out. What is left of
//! them here is what docs/threats.md counts.

use crate::report::Report;
use std::collections::{BTreeSet, HashMap};

/// Faults of one module that are reported one by one; all are counted.
pub const MAX_FAULTS: usize = 16;

/// Takes from a report what the modules under a grant, named by `granted`, could write into it.
pub(crate) fn reduce(granted: &BTreeSet<String>, report: &mut Report) {
    if granted.is_empty() {
        return;
    }
    let is_granted = |name: &str| granted.contains(name);
    let mut seen: HashMap<String, usize> = HashMap::new();
    report.faults.retain_mut(|fault| {
        if !is_granted(&fault.module) {
            return true;
        }
        fault.packet = None;
        // Times of batches are the module's to choose.
        if let Some(reason) = fault.evicted.take() {
            fault.text = format!("evicted: {}", reason.without_measurements());
        }
        let times = seen.entry(fault.module.clone()).or_default();
        *times += 1;
        *times <= MAX_FAULTS
    });
    for (_, account) in report.accounts.iter_mut().filter(|(name, _)| is_granted(name)) {
        account.records_lost = 0;
        account.messages_lost = rounded(account.messages_lost);
        account.withheld = rounded(account.withheld);
    }
    // The kernel drops packets that no grant shows as well.
    report.kernel_drops = rounded(report.kernel_drops);
}

/// Up to the next power of two: how large it is, not how much.
fn rounded(n: u64) -> u64 {
    n.checked_next_power_of_two().filter(|_| n > 0).unwrap_or(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_up() {
        assert_eq!([0, 1, 2, 3, 1000, u64::MAX].map(rounded), [0, 1, 2, 4, 1024, u64::MAX]);
    }
}
