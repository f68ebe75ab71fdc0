//! Removes information that modules under a grant could put into a report.
//!
//! A module chooses how often it faults and at which packet, how many records it drops and how many it tries
//! to emit: numbers that could reveal what it sees although its grant releases no record. docs/threats.md
//! quantifies the information that is left.

use crate::records::report::Report;
use flame_plan::FaultReport;
use std::collections::BTreeSet;

/// The maximum number of faults of one module that are reported individually. All are counted.
pub const MAX_FAULTS: usize = 16;

/// Removes from a fault of a module under a grant what the module could choose. The reason for an eviction
/// remains, for the owner of the run.
pub(crate) fn without_choices(fault: &mut FaultReport) {
    fault.packet = None;
    // The module chooses the times of its batches.
    if let Some(reason) = &fault.evicted {
        fault.text = format!("evicted: {}", reason.without_measurements());
    }
}

/// Removes from a report the numbers that the modules under a grant, named by `granted`, could choose. Their
/// faults were reduced when they happened.
pub(crate) fn reduce(granted: &BTreeSet<String>, report: &mut Report) {
    if granted.is_empty() {
        return;
    }
    let is_granted = |name: &str| granted.contains(name);
    for (_, account) in report.accounts.iter_mut().filter(|(name, _)| is_granted(name)) {
        *account = account.without_choices();
    }
}
