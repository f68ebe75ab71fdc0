//! Modules under a grant. Each is known to the review from before it runs until its end is recorded, however
//! far the change is that begins or ends it.

use crate::held;
use flame_node::{AdmittedModule, Entered, Node};
use flame_plan::ModuleId;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The node as it was for a credential, and the decision on a module.
pub(crate) type Decided = (Arc<Node>, Arc<AdmittedModule>);

/// The grant of one instance of a module.
pub(crate) struct Granted {
    pub node: Arc<Node>,
    pub admitted: Arc<AdmittedModule>,
    pub entered: Entered,
    watched: Arc<Watched>,
}

/// The part of a grant that the review knows.
pub(crate) struct Watched {
    pub source: String,
    /// The numbers of the instance: another process of its principal runs it under another one, and while it
    /// is started there are both.
    ids: Mutex<BTreeSet<ModuleId>>,
    decided: Mutex<Decided>,
    is_evicted: AtomicBool,
}

impl Watched {
    /// Creates what the review knows of the instance `id` on a source.
    pub fn new((source, id): (&str, ModuleId), decided: Decided) -> Arc<Self> {
        let (decided, is_evicted) = (Mutex::new(decided), AtomicBool::new(false));
        Arc::new(Self { source: source.to_owned(), ids: Mutex::new([id].into()), decided, is_evicted })
    }

    /// Returns the numbers under which the instance may run now.
    pub fn ids(&self) -> BTreeSet<ModuleId> {
        held(&self.ids).clone()
    }

    pub fn decided(&self) -> Decided {
        held(&self.decided).clone()
    }

    /// Records that the instance is evicted. Returns whether it was not before.
    pub fn evict(&self) -> bool {
        !self.is_evicted.swap(true, Ordering::Relaxed)
    }
}

impl Granted {
    /// Creates the grant of an instance that is reviewed already.
    pub fn new(watched: Arc<Watched>, entered: Entered) -> Self {
        let (node, admitted) = watched.decided();
        Self { node, admitted, entered, watched }
    }

    /// Replaces the decision by that on a new credential.
    pub fn renew(&mut self, (node, admitted): Decided) {
        *held(&self.watched.decided) = (node.clone(), admitted.clone());
        (self.node, self.admitted) = (node, admitted);
    }

    /// Records that the instance may run under the number `id` as well, before it does.
    pub fn begins_as(&self, id: ModuleId) {
        held(&self.watched.ids).insert(id);
    }

    /// Records that the instance does not run under the number `id` any more.
    pub fn ended_as(&self, id: ModuleId) {
        held(&self.watched.ids).remove(&id);
    }

    /// Returns whether this is the grant of an instance, with this decision.
    pub fn is(&self, watched: &Arc<Watched>, admitted: &Arc<AdmittedModule>) -> bool {
        Arc::ptr_eq(&self.watched, watched) && Arc::ptr_eq(&self.admitted, admitted)
    }
}
