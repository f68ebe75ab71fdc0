//! Removes quota ledgers of expired credentials, at the start of the node and once an hour.

use crate::engine::Engine;
use crate::held;
use flame_node::Node;
use std::time::{Duration, Instant};

/// The interval at which ledgers are looked at. They stay for a day after the expiry of their credential.
const SWEEP: Duration = Duration::from_secs(60 * 60);
/// The interval at which the file is read that all of them need.
pub(crate) const QUOTA_CHECK: Duration = Duration::from_secs(2);

/// The subject of faults of ledgers.
const QUOTAS: &str = "quotas";

impl Engine {
    /// Removes the ledgers of expired credentials if they were last removed at `swept` and that is due again.
    /// Otherwise checks whether quotas are known, on which every install depends.
    pub(crate) fn keep_ledgers(&self, swept: &mut Instant) {
        // A sweep also shows whether a fault that it has reported is mended.
        if swept.elapsed() >= SWEEP || held(&self.reports).faults.contains_key(QUOTAS) {
            self.sweep_ledgers();
            *swept = Instant::now();
        } else if let Some(node) = self.with_ledgers()
            && let Err(e) = node.look_at_quotas()
        {
            self.fault(QUOTAS, Some(e.to_string()));
        }
    }

    pub(crate) fn sweep_ledgers(&self) {
        let Some(node) = self.with_ledgers() else { return };
        self.fault(QUOTAS, node.sweep_quotas().err().map(|e| e.to_string()));
    }

    /// Returns the node, if it has a key: without one there are no ledgers.
    fn with_ledgers(&self) -> Option<Node> {
        self.present_node().filter(|node| node.policy().secret().is_some())
    }
}
