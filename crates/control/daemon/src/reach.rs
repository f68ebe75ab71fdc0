//! The rights under which a module runs, and those under which what is kept of it was made.

use flame_node::AdmittedModule;
use flame_trust::{ModuleRequest, Operation, Place, Rights, time};
use std::sync::Arc;

/// The number of different rights, beside those of the latest rows or lines, whose rows and lines are kept
/// for sessions.
pub(crate) const EARLIER: usize = 16;

/// The request of a module, with its narrowing, the place of its packets, and the rights that it has.
#[derive(Debug)]
pub(crate) struct Reach {
    pub module: Arc<ModuleRequest>,
    pub place: Place,
    pub rights: Rights,
}

/// The rights of all modules that rows or lines are of. A session needs each of them to read these, whatever
/// rights the modules have by then. Those of the operator's modules have none.
pub(crate) type Made = Arc<[Arc<Reach>]>;

impl Reach {
    pub fn of(admitted: &AdmittedModule, place: &Place) -> Self {
        let (module, rights) = (Arc::new(admitted.request().clone()), admitted.grant.rights.clone());
        Self { module, place: place.clone(), rights }
    }

    /// Returns an operation on the module, now.
    pub fn operation(&self) -> Operation<'_> {
        Operation { module: &self.module, place: &self.place, rights: &self.rights, now: time::now() }
    }

    /// Returns whether each session that covers one of the two covers the other one.
    pub fn is_like(&self, other: &Self) -> bool {
        self.rights == other.rights
            && self.module.hash == other.module.hash
            && self.module.signers == other.module.signers
            && self.place == other.place
    }
}

/// Adds rights to a list, unless it has them.
pub(crate) fn add_to(all: &mut Vec<Arc<Reach>>, reach: &Arc<Reach>) {
    if !all.iter().any(|known| Arc::ptr_eq(known, reach) || known.is_like(reach)) {
        all.push(reach.clone());
    }
}

/// Returns whether two lists have the same rights in the same order.
pub(crate) fn are_alike(a: &[Arc<Reach>], b: &[Arc<Reach>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b) || a.is_like(b))
}

/// The rights of a module now, which decide who may act on it.
#[derive(Default)]
pub(crate) struct Known {
    /// The module as it was admitted last, once that is known.
    pub now: Option<Arc<Reach>>,
    /// The bytes of its file, of its code and of its row in the store.
    pub bytes: u64,
}
