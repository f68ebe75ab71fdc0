//! Modules under a grant. Each is known to the review from before it runs until its end is recorded, however
//! far the change is that begins or ends it.

use crate::held;
use flame_node::{AdmittedModule, Entered};
use flame_plan::ModuleId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The grant of one instance of a module.
pub(crate) struct Granted {
    pub admitted: Arc<AdmittedModule>,
    pub entered: Entered,
    pub watched: Arc<Watched>,
}

/// The part of a grant that the review knows.
pub(crate) struct Watched {
    pub source: String,
    /// The numbers of the instance: another process of its principal runs it under another one, and while it
    /// is started there are both.
    ids: Mutex<BTreeSet<ModuleId>>,
    decided: Mutex<Arc<AdmittedModule>>,
    /// The reason for which the instance is evicted, once it is.
    evicted: Mutex<Option<String>>,
}

impl Watched {
    /// Creates what the review knows of the instance `id` on a source.
    pub fn new((source, id): (&str, ModuleId), decided: Arc<AdmittedModule>) -> Arc<Self> {
        let (decided, evicted) = (Mutex::new(decided), Mutex::default());
        Arc::new(Self { source: source.to_owned(), ids: Mutex::new([id].into()), decided, evicted })
    }

    /// Returns the numbers under which the instance may run now.
    pub fn ids(&self) -> BTreeSet<ModuleId> {
        held(&self.ids).clone()
    }

    pub fn decided(&self) -> Arc<AdmittedModule> {
        held(&self.decided).clone()
    }

    /// Records that the instance is evicted. Returns whether it was not before.
    pub fn evict(&self, reason: &str) -> bool {
        let mut evicted = held(&self.evicted);
        let is_first = evicted.is_none();
        evicted.get_or_insert_with(|| reason.to_owned());
        is_first
    }
}

impl Granted {
    /// Creates the grant of an instance that is reviewed already.
    pub fn new(watched: Arc<Watched>, entered: Entered) -> Self {
        Self { admitted: watched.decided(), entered, watched }
    }

    /// Replaces the decision by that on a new credential.
    pub fn renew(&mut self, admitted: Arc<AdmittedModule>) {
        *held(&self.watched.decided) = admitted.clone();
        self.admitted = admitted;
    }

    /// Returns the reason for which the instance is evicted, if it is.
    pub fn evicted(&self) -> Option<String> {
        held(&self.watched.evicted).clone()
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
