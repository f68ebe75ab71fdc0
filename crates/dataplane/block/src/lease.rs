//! The use of the parts of a region.

use std::sync::{Arc, Mutex, PoisonError};

/// Whether each part is in use, and whether it was.
pub(crate) struct Parts(pub(crate) Vec<(bool, bool)>);

impl Parts {
    /// Finds `count` successive parts that are not in use.
    pub(crate) fn find(&self, count: usize) -> Option<usize> {
        self.0.windows(count).position(|window| window.iter().all(|(used, _)| !used))
    }
}

/// Successive parts of a region that are in use until this is dropped.
pub(crate) struct Lease {
    pub(crate) parts: Arc<Mutex<Parts>>,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.0[self.first..][..self.count].iter_mut().for_each(|(used, _)| *used = false);
    }
}
