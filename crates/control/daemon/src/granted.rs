//! Modules under a grant. The review knows each instance from before it runs until its end is recorded,
//! however far the change is that begins or ends it.

use flame_base::lock;
use flame_node::{AdmittedModule, Entered};
use flame_plan::ModuleId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The grant of one instance of a module, which the review knows already.
pub(crate) struct Granted {
    pub entered: Entered,
    pub watched: Arc<Watched>,
}

/// The part of a grant that the review knows.
pub(crate) struct Watched {
    pub source: String,
    inner: Mutex<Inner>,
}

struct Inner {
    /// The numbers of the instance: another process of its principal runs it under another one, and while it
    /// is started there are both.
    ids: BTreeSet<ModuleId>,
    decided: Arc<AdmittedModule>,
    eviction: Eviction,
}

/// The eviction of an instance.
enum Eviction {
    None,
    /// It is evicted for this reason, which the audit log does not have yet.
    Unlogged(String),
    Logged(String),
}

impl Watched {
    /// Creates what the review knows of the instance `id` on a source.
    pub fn new((source, id): (&str, ModuleId), decided: Arc<AdmittedModule>) -> Arc<Self> {
        let inner = Inner { ids: [id].into(), decided, eviction: Eviction::None };
        Arc::new(Self { source: source.to_owned(), inner: Mutex::new(inner) })
    }

    /// Returns the numbers under which the instance may run now.
    pub fn ids(&self) -> BTreeSet<ModuleId> {
        lock(&self.inner).ids.clone()
    }

    pub fn decided(&self) -> Arc<AdmittedModule> {
        lock(&self.inner).decided.clone()
    }

    /// Records that the instance is evicted, and returns whether it was not before. Its end waits for
    /// [`Watched::logged`] then.
    pub fn evict(&self, reason: &str) -> bool {
        let mut inner = lock(&self.inner);
        let is_first = matches!(inner.eviction, Eviction::None);
        if is_first {
            inner.eviction = Eviction::Unlogged(reason.to_owned());
        }
        is_first
    }

    /// Records that the audit log has the eviction of the instance, or that it cannot be written.
    pub fn logged(&self) {
        let mut inner = lock(&self.inner);
        if let Eviction::Unlogged(reason) = &mut inner.eviction {
            inner.eviction = Eviction::Logged(std::mem::take(reason));
        }
    }
}

impl Granted {
    /// Returns the decision on the module.
    pub fn admitted(&self) -> Arc<AdmittedModule> {
        self.watched.decided()
    }

    /// Replaces the decision by the decision on a new credential.
    pub fn renew(&self, admitted: Arc<AdmittedModule>) {
        lock(&self.watched.inner).decided = admitted;
    }

    /// Returns the reason for which the instance is evicted, if it is.
    pub fn evicted(&self) -> Option<String> {
        match &lock(&self.watched.inner).eviction {
            Eviction::None => None,
            Eviction::Unlogged(reason) | Eviction::Logged(reason) => Some(reason.clone()),
        }
    }

    /// Returns whether the audit log is to have an eviction of the instance first, before its end.
    pub fn is_unlogged(&self) -> bool {
        matches!(lock(&self.watched.inner).eviction, Eviction::Unlogged(_))
    }

    /// Records that the instance may run under the number `id` as well, before it does.
    pub fn begins_as(&self, id: ModuleId) {
        lock(&self.watched.inner).ids.insert(id);
    }

    /// Records that the instance does not run under the number `id` any more.
    pub fn ended_as(&self, id: ModuleId) {
        lock(&self.watched.inner).ids.remove(&id);
    }

    /// Returns whether this is the grant of an instance, with this decision.
    pub fn is(&self, watched: &Arc<Watched>, admitted: &Arc<AdmittedModule>) -> bool {
        Arc::ptr_eq(&self.watched, watched) && Arc::ptr_eq(&self.admitted(), admitted)
    }
}
