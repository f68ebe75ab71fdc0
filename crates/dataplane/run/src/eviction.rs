use flame_plan::Reason;
use std::sync::{Arc, OnceLock};

/// The request to evict a module, shared by all its workers. All clones are the same request. Instances are
/// dropped before their next calls.
#[derive(Clone, Debug, Default)]
pub struct Eviction(Arc<OnceLock<Reason>>);

impl Eviction {
    /// Evicts the module. If it is evicted more than once, the first reason is kept.
    pub fn evict(&self, reason: Reason) {
        let _ = self.0.set(reason);
    }

    /// Returns the reason if eviction was requested.
    #[inline]
    pub fn reason(&self) -> Option<&Reason> {
        self.0.get()
    }

    /// Returns whether other clones exist.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
