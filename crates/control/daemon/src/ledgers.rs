//! The ledgers of quotas that nobody can use any more: removed at the start, and now and then.

use crate::engine::Engine;
use crate::held;
use flame_node::Node;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which ledgers are looked at. They stay for a day after the expiry of their credential.
const SWEEP: Duration = Duration::from_secs(60 * 60);
/// The interval at which the file is read that all of them need.
const LOOK: Duration = Duration::from_secs(2);

/// The subject of faults of ledgers.
const QUOTAS: &str = "quotas";

impl Engine {
    /// Removes the ledgers of expired credentials, and starts the thread that does so until the node stops.
    /// It tells within seconds that no quotas are known, on which every install depends.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn keep_ledgers(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        self.sweep_ledgers();
        let swept = Mutex::new(Instant::now());
        self.every("ledgers", LOOK, move |engine| {
            let mut swept = held(&swept);
            // A sweep also shows whether what it has reported is mended.
            if swept.elapsed() >= SWEEP || held(&engine.faults).contains_key(QUOTAS) {
                engine.sweep_ledgers();
                *swept = Instant::now();
            } else if let Some(node) = engine.with_ledgers()
                && let Err(e) = node.look_at_quotas()
            {
                engine.fault(QUOTAS, Some(e.to_string()));
            }
        })
    }

    fn sweep_ledgers(&self) {
        let Some(node) = self.with_ledgers() else { return };
        self.fault(QUOTAS, node.sweep_quotas().err().map(|e| e.to_string()));
    }

    /// Returns the node, if it has a key: without one there are no ledgers.
    fn with_ledgers(&self) -> Option<Node> {
        self.present_node().filter(|node| node.policy().secret().is_some())
    }
}
