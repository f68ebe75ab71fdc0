//! Removes quota ledgers of expired credentials, at the start of the node and once an hour.

use crate::engine::Engine;
use flame_base::lock;
use std::time::{Duration, Instant};

/// The interval at which ledgers are looked at. They stay for a day after the expiry of their credential.
const SWEEP: Duration = Duration::from_secs(60 * 60);

/// The subject of faults of ledgers.
const QUOTAS: &str = "quotas";

impl Engine {
    /// Removes the ledgers of expired credentials if they were last removed at `swept` and that is due again.
    /// Otherwise checks whether quotas are known, on which every install depends.
    pub(crate) fn keep_ledgers(&self, swept: &mut Option<Instant>) {
        // Without a key there are no ledgers.
        let Some(node) = self.present_node().filter(|node| node.policy().secret().is_some()) else { return };
        // A sweep also shows whether a fault that it has reported is mended.
        let is_mended = !lock(&self.reports).faults.contains_key(QUOTAS);
        if is_mended && swept.is_some_and(|swept| swept.elapsed() < SWEEP) {
            if let Err(e) = node.look_at_quotas() {
                self.fault(QUOTAS, Some(e.to_string()));
            }
        } else {
            self.fault(QUOTAS, node.sweep_quotas().err().map(|e| e.to_string()));
            *swept = Some(Instant::now());
        }
    }
}
