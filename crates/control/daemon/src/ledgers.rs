//! The ledgers of quotas that nobody can use any more: removed at the start, and now and then.

use crate::engine::Engine;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The interval at which ledgers are looked at. They stay for a day after the expiry of their credential.
const SWEEP: Duration = Duration::from_secs(60 * 60);

impl Engine {
    /// Removes the ledgers of expired credentials, and starts the thread that does so until the node stops.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn keep_ledgers(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        self.sweep_ledgers();
        self.every("ledgers", SWEEP, Self::sweep_ledgers)
    }

    fn sweep_ledgers(&self) {
        // Without a key there are none.
        let Some(node) = self.present_node().filter(|node| node.policy().secret().is_some()) else { return };
        self.fault("quotas", node.sweep_quotas().err().map(|e| e.to_string()));
    }
}
