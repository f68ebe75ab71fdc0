//! The rights under which a module runs, and those that its rows were made with.

use flame_node::AdmittedModule;
use flame_trust::{ModuleRequest, Operation, Place, Rights, time};
use std::sync::Arc;

/// The number of different rights whose rows a spool holds. With one more, it is emptied.
const EARLIER: usize = 16;

/// The request of a module, with its narrowing, and the rights that it has.
pub(crate) struct Reach {
    pub module: Arc<ModuleRequest>,
    pub rights: Rights,
}

impl Reach {
    pub fn of(admitted: &AdmittedModule) -> Self {
        Self { module: Arc::new(admitted.request().clone()), rights: admitted.grant.rights.clone() }
    }

    /// Returns an operation on the module, now.
    pub fn operation<'a>(&'a self, place: &'a Place) -> Operation<'a> {
        Operation { module: &self.module, place, rights: &self.rights, now: time::now() }
    }
}

/// The rights of a module, now and earlier, which decide who may act on it and read its rows.
#[derive(Default)]
pub(crate) struct Known {
    /// The module as it was admitted last, once that is known.
    pub now: Option<Arc<Reach>>,
    /// Rights that the module had before, of which its spool may hold rows.
    pub earlier: Vec<Arc<Reach>>,
    /// The bytes of its file, of its code and of its row in the store.
    pub bytes: u64,
}

impl Known {
    /// Records what a new instance was admitted with. Returns whether rows of earlier instances have to be
    /// dropped, because they are of too many different rights.
    pub fn admit(&mut self, reach: Option<Reach>, bytes: u64) -> bool {
        self.bytes = bytes;
        let before = std::mem::replace(&mut self.now, reach.map(Arc::new));
        let is_known = |b: &Arc<Reach>| {
            self.earlier
                .iter()
                .chain(&self.now)
                .any(|e| e.rights == b.rights && e.module.hash == b.module.hash)
        };
        self.earlier.extend(before.filter(|before| !is_known(before)));
        let too_many = self.earlier.len() > EARLIER;
        if too_many {
            self.earlier.clear();
        }
        too_many
    }
}

#[cfg(test)]
impl Known {
    /// Returns the number of different rights.
    pub fn count(&self) -> usize {
        self.earlier.len() + usize::from(self.now.is_some())
    }
}
