use flame_plan::Reason;
use std::sync::{Arc, OnceLock};

/// Tells the workers that a module has to go. All clones are one; instances are dropped before their next
/// calls.
#[derive(Clone, Debug, Default)]
pub struct Eviction(Arc<OnceLock<Reason>>);

impl Eviction {
    /// Evicts the module. The first reason counts.
    pub fn evict(&self, reason: Reason) {
        let _ = self.0.set(reason);
    }

    #[inline]
    pub fn reason(&self) -> Option<&Reason> {
        self.0.get()
    }

    /// Whether anything else can still look at it.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
