//! The use of the parts of a region.

use flame_base::lock;
use std::sync::{Arc, Mutex};

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
        let mut parts = lock(&self.parts);
        parts.0[self.first..][..self.count].iter_mut().for_each(|(used, _)| *used = false);
    }
}
