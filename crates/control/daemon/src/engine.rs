//! The node: its sources and modules, what of them is stored, and what is decided about them.
//!
//! One change of a module at a time is made. Another request for it is refused; it waits for a change that
//! the node itself makes, because these are short.

use crate::accounting::Accounting;
use crate::config::Config;
use crate::error::problem;
use crate::granted::Watched;
use crate::life::{Entry, Key};
use crate::locked::Locked;
use crate::outbox::Outbox;
use crate::refusals::Refusals;
use crate::reserve::Ledger;
use crate::restarts::Restarts;
use crate::source::SourceRun;
use crate::stamps::Stamp;
use crate::store::{Owner, Store};
use flame_api::{Code, Problem};
use flame_base::{lock, unpoisoned};
use flame_compile::Cache;
use flame_node::Node;
use flame_plan::ModuleId;
use flame_plan::limits::NODE_CHANGE_MAX;
use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock, Weak};

/// The subject of faults of the audit log.
pub(crate) const AUDIT_LOG: &str = "audit log";

/// The modules, and what is decided about all of them together.
pub(crate) struct Modules {
    installed: BTreeMap<Key, Entry>,
    /// The modules that are being changed, and by whom: also those that are not installed yet.
    pub changing: BTreeMap<Key, By>,
    /// The grants of all instances.
    pub watched: Vec<Weak<Watched>>,
    /// The reservations of the modules that run.
    pub ledger: Ledger<Key>,
    /// The ends of principals' processes.
    pub restarts: Restarts,
}

impl Modules {
    pub fn new(ledger: Ledger<Key>) -> Self {
        let (installed, changing, watched, restarts) = Default::default();
        Self { installed, changing, watched, ledger, restarts }
    }

    /// Returns the module that has the instance `id` on a source.
    pub fn of_instance(&mut self, source: &str, id: ModuleId) -> Option<(&Key, &mut Entry)> {
        self.installed.iter_mut().find(|(_, entry)| {
            let plan = entry.life.live().map(|live| &live.module.plan);
            entry.stored.source == source && plan.is_some_and(|plan| plan.id == id)
        })
    }

    /// Returns the sum of what the other modules of the principal of `key` take.
    pub fn sum_of_others(&self, key: &Key, of: impl Fn(&Entry) -> u64) -> u64 {
        let tenant = key.0.tenant();
        let others = self.iter().filter(|(other, _)| *other != key && other.0.tenant() == tenant);
        others.map(|(_, entry)| of(entry)).sum()
    }

    /// Returns the keys of all modules, those that are being installed included.
    pub fn coming(&self) -> BTreeSet<&Key> {
        self.installed.keys().chain(self.changing.keys()).collect()
    }
}

impl Deref for Modules {
    type Target = BTreeMap<Key, Entry>;

    fn deref(&self) -> &BTreeMap<Key, Entry> {
        &self.installed
    }
}

impl DerefMut for Modules {
    fn deref_mut(&mut self) -> &mut BTreeMap<Key, Entry> {
        &mut self.installed
    }
}

/// The reports of the node to its operator.
#[derive(Default)]
pub(crate) struct Reports {
    /// Reasons why something does not work, by subject.
    pub faults: BTreeMap<String, String>,
    pub notes: Vec<String>,
    /// The sessions that were refused lately, for the log.
    pub refusals: Refusals,
}

/// A node's state: its sources, modules and storage, shared by the server's requests and the threads that
/// review it.
pub struct Engine {
    pub(crate) config: RwLock<Config>,
    pub(crate) store: Store,
    pub(crate) cache: PathBuf,
    pub(crate) sources: BTreeMap<String, SourceRun>,
    pub(crate) node: Mutex<Option<Node>>,
    /// The stamps of the policy's files before they were read at the start. A change since then is found by
    /// the review.
    pub(crate) read_at: Vec<Stamp>,
    pub(crate) modules: Mutex<Modules>,
    /// Notified when a change of a module has ended.
    pub(crate) changed: Condvar,
    /// The code of changes in progress with its owners, which is stored before the module that has it.
    pub(crate) pinned: Mutex<Vec<(Owner, [u8; 32])>>,
    /// The revocations that were made here, as lines of the policy's list, in force whether or not it has
    /// them. It is held while the policy is exchanged.
    pub(crate) revocations: Mutex<Vec<String>>,
    /// It is held while revocations and withdrawals are written, which wait for the disk.
    pub(crate) recording: Mutex<()>,
    /// The number of changes of policy and configuration, on which all authority rests.
    pub(crate) version: AtomicU64,
    pub(crate) reports: Mutex<Reports>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub accounting: Accounting,
    /// The way of records into a fleet, if the node is in one.
    pub(crate) outbox: Option<Mutex<Outbox>>,
    pub started: u64,
}

/// The origin of a change of a module.
#[derive(Clone, Copy)]
pub(crate) enum By {
    Request,
    /// The node itself, which starts its process again, ends it or stores its end.
    Node,
}

/// A module that is being changed by one client or by the node, until this value is dropped.
pub(crate) struct Changing<'a> {
    engine: &'a Engine,
    key: Key,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.engine.end_change(&self.key);
    }
}

/// Code that is not removed while this value lives, and that is removed afterwards if no module has it.
pub(crate) struct Pin<'a> {
    engine: &'a Engine,
    code: (Owner, [u8; 32]),
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut pinned = lock(&self.engine.pinned);
        if let Some(at) = pinned.iter().position(|code| *code == self.code) {
            pinned.swap_remove(at);
        }
        drop(pinned);
        self.engine.drop_unused_code(&self.code);
    }
}

impl Engine {
    /// Returns a copy of the configuration as it is now; a reload replaces it.
    pub fn config(&self) -> Config {
        unpoisoned(self.config.read()).clone()
    }

    pub(crate) fn modules(&self) -> Locked<'_, Modules> {
        Locked::new(&self.modules)
    }

    /// Returns a part of an installed module.
    ///
    /// # Errors
    ///
    /// Returns an error if the owner has no module of this name.
    pub(crate) fn of_module<T>(
        &self,
        owner: &Owner,
        name: &str,
        part: impl FnOnce(&Entry) -> T,
    ) -> Result<T, Problem> {
        let modules = self.modules();
        modules.get(&(owner.clone(), name.to_owned())).map(part).ok_or_else(|| Self::missing(name))
    }

    /// Returns whether the node ends.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Returns the version of policy and configuration. A decision is valid under one version.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Ends all decisions, because policy or configuration have changed.
    pub(crate) fn end_decisions(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Begins a change of a module for a request.
    ///
    /// # Errors
    ///
    /// Returns an error if another request changes the module, or the node does for too long.
    pub(crate) fn begin(&self, owner: &Owner, name: &str) -> Result<Changing<'_>, Problem> {
        let key = (owner.clone(), name.to_owned());
        let is_by_node = |modules: &mut Modules| matches!(modules.changing.get(&key), Some(By::Node));
        drop(self.changed.wait_timeout_while(lock(&self.modules), NODE_CHANGE_MAX, is_by_node));
        self.begin_by(By::Request, &key).map_err(|by| {
            let who = match by {
                By::Request => "another request",
                By::Node => "the node, which starts its process again, ends it or stores its end",
            };
            Problem::new(
                Code::Conflict,
                format!("module {name} is being changed by {who}"),
                "wait for it, look at the result (flame show), and repeat the change if it is still wanted",
            )
        })
    }

    /// Begins a change of a module. If it is being changed already, returns by whom.
    pub(crate) fn begin_by(&self, by: By, key: &Key) -> Result<Changing<'_>, By> {
        match self.modules().changing.entry(key.clone()) {
            Slot::Vacant(free) => {
                free.insert(by);
                Ok(Changing { engine: self, key: key.clone() })
            }
            Slot::Occupied(taken) => Err(*taken.get()),
        }
    }

    /// Ends a change of a module. A module without an instance has no reservation then.
    fn end_change(&self, key: &Key) {
        let mut modules = self.modules();
        modules.changing.remove(key);
        if let Some(entry) = modules.get(key) {
            self.accounting.settled(&entry.usage, entry.known.now.as_ref());
        }
        if modules.get(key).is_none_or(|entry| entry.life.live().is_none()) {
            modules.ledger.release(key);
        }
        self.changed.notify_all();
    }

    /// Keeps the code of an owner's module, from before it is stored until a module has it.
    pub(crate) fn pin(&self, owner: &Owner, hash: [u8; 32]) -> Pin<'_> {
        let code = (owner.clone(), hash);
        lock(&self.pinned).push(code.clone());
        Pin { engine: self, code }
    }

    /// Removes an owner's code that none of its modules has and none of its changes in progress needs: the
    /// compiled code, and the file unless others have it, too.
    pub(crate) fn drop_unused_code(&self, (owner, hash): &(Owner, [u8; 32])) {
        // Held to the end: a change that pins it later stores it again.
        let pinned = lock(&self.pinned);
        let owners: Vec<Owner> = {
            let modules = self.modules();
            let installed = modules.values().map(|entry| (&entry.stored.owner, &entry.stored.hash));
            let all = installed.chain(pinned.iter().map(|(owner, hash)| (owner, hash)));
            all.filter(|(_, of)| *of == hash).map(|(owner, _)| owner.clone()).collect()
        };
        if owners.is_empty() {
            self.store.drop_code(hash);
        }
        if !owners.contains(owner)
            && let Ok(cache) = Cache::open(&self.cache)
        {
            owner.part_of(&cache).forget(hash);
        }
    }

    /// Returns the only source, or the one with this name.
    pub(crate) fn source(&self, name: Option<&str>) -> Result<&SourceRun, Problem> {
        let list = || self.sources.keys().cloned().collect::<Vec<_>>().join(", ");
        let mut all = self.sources.values();
        match (name, all.next(), all.next()) {
            (Some(name), ..) => self.sources.get(name).ok_or_else(|| {
                Problem::new(
                    Code::NotFound,
                    format!("no source {name:?}"),
                    format!("this node has {}", list()),
                )
            }),
            (None, Some(only), None) => Ok(only),
            _ => Err(Problem::new(
                Code::Invalid,
                "the request names no source",
                format!("choose one of {}", list()),
            )),
        }
    }

    /// Returns the owner that an operator means by a principal's name.
    ///
    /// # Errors
    ///
    /// Returns an error if no module belongs to the principal, or if principals of several roots have this
    /// name.
    pub fn owner_of(&self, principal: &str) -> Result<Owner, Problem> {
        let modules = self.modules();
        let mut owners: Vec<&Owner> = modules.keys().map(|(owner, _)| owner).collect();
        owners.retain(|o| o.shown().as_deref() == Some(principal));
        owners.dedup();
        match owners.as_slice() {
            [owner] => Ok((*owner).clone()),
            [] => Err(Problem::new(
                Code::NotFound,
                format!("no module belongs to {principal:?}"),
                "list the modules (flame list) for the names of their principals",
            )),
            _ => Err(Problem::new(
                Code::Conflict,
                format!("{principal:?} is a principal of more than one root"),
                "let the roots use different names",
            )),
        }
    }

    pub(crate) fn missing(name: &str) -> Problem {
        Problem::new(Code::NotFound, format!("no module {name:?}"), "list the modules (flame list)")
    }

    /// Applies limits that were changed to what is kept already.
    pub(crate) fn apply_limits(&self) {
        let config = self.config();
        let mut modules = self.modules();
        modules.ledger.set_capacity(config.capacity, config.per_principal);
        modules.values().for_each(|entry| entry.spool.limit(config.limits.spool));
    }

    /// Records that something does not work, or works again.
    pub(crate) fn fault(&self, subject: &str, reason: Option<String>) {
        let faults = &mut lock(&self.reports).faults;
        match reason {
            Some(reason) => drop(faults.insert(subject.to_owned(), reason)),
            None => drop(faults.remove(subject)),
        }
    }

    /// Returns the result of a write to the store, and remembers whether it works.
    pub(crate) fn stored<T>(&self, result: Result<T, crate::store::StoreError>) -> Result<T, Problem> {
        self.fault("storage", result.as_ref().err().map(ToString::to_string));
        result.map_err(|e| problem(&e))
    }

    /// Returns the number of entries of the audit log, for the store.
    pub(crate) fn audited(&self) -> Option<u64> {
        lock(&self.node).as_ref().and_then(|node| node.policy().log()?.entries().ok())
    }

    /// Returns the policy, which stays as it is while the value is held.
    pub(crate) fn policy(&self) -> Option<Arc<flame_trust::Policy>> {
        lock(&self.node).as_ref().map(Node::shared_policy)
    }
}
