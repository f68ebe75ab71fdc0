//! The node's modules: what runs on which source, for whom, and what of it is stored.
//!
//! A change has one order: examine, admit and compile; write the code; store the change; tell the workers.
//! What is stored runs after a restart, so a change that the workers refuse is taken back. One change of a
//! module at a time is made; another one is told so.

use crate::config::Config;
use crate::error::problem;
use crate::source::SourceRun;
use crate::spool::Spool;
use crate::store::{Owner, Store, Stored};
use flame_api as api;
use flame_api::{Code, Problem, State};
use flame_node::{AdmittedModule, Entered, Node};
use flame_plan::{Account, ModuleClass, Shed};
use flame_worker::Module;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The number of entries of a module's log that are kept.
const LOG: usize = 200;

/// The key of a module.
pub type Key = (Owner, String);

/// An installed module.
pub(crate) struct Entry {
    pub stored: Stored,
    pub version: String,
    pub live: Option<Live>,
    pub spool: Arc<Spool>,
    /// The account of instances that ended, since the node was started.
    pub past: Account,
    pub log: VecDeque<api::LogLine>,
    pub notes: Vec<String>,
    pub expires: Option<u64>,
}

/// A module on a worker.
pub(crate) struct Live {
    pub module: Module,
    /// The node as it was for the module's credential, and the decision on it.
    pub granted: Option<Granted>,
}

pub(crate) struct Granted {
    pub node: Node,
    pub admitted: AdmittedModule,
    pub entered: Entered,
}

impl Entry {
    pub fn note(&mut self, text: impl Into<String>) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(api::LogLine { time: flame_trust::time::now(), text: text.into() });
    }
}

pub struct Engine {
    pub(crate) config: RwLock<Config>,
    pub(crate) store: Store,
    pub(crate) cache: PathBuf,
    pub(crate) sources: BTreeMap<String, SourceRun>,
    pub(crate) node: Mutex<Option<Node>>,
    pub(crate) modules: Mutex<BTreeMap<Key, Entry>>,
    /// The modules that are being changed.
    pub(crate) changing: Mutex<BTreeSet<Key>>,
    /// The code of changes in progress, which is stored before the module that has it.
    pub(crate) pinned: Mutex<Vec<[u8; 32]>>,
    /// Reasons why something does not work, by subject.
    pub(crate) faults: Mutex<BTreeMap<String, String>>,
    pub(crate) notes: Mutex<Vec<String>>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub started: u64,
}

/// A module that is being changed by one client, until this value is dropped.
pub(crate) struct Changing<'a> {
    engine: &'a Engine,
    key: Key,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        held(&self.engine.changing).remove(&self.key);
    }
}

/// Code that is not removed while this value lives.
pub(crate) struct Pin<'a> {
    engine: &'a Engine,
    hash: [u8; 32],
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut pinned = held(&self.engine.pinned);
        if let Some(at) = pinned.iter().position(|hash| *hash == self.hash) {
            pinned.swap_remove(at);
        }
    }
}

pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    pub fn config(&self) -> Config {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn modules(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        held(&self.modules)
    }

    /// Begins a change of a module.
    pub(crate) fn begin(&self, owner: &Owner, name: &str) -> Result<Changing<'_>, Problem> {
        let key = (owner.clone(), name.to_owned());
        match held(&self.changing).insert(key.clone()) {
            true => Ok(Changing { engine: self, key }),
            false => Err(Problem::new(
                Code::Conflict,
                format!("module {name} is being changed by another request"),
                "wait for it, look at the result (flame show), and repeat the change if it is still wanted",
            )),
        }
    }

    /// Keeps code, from before it is stored until a module has it.
    pub(crate) fn pin(&self, hash: [u8; 32]) -> Pin<'_> {
        held(&self.pinned).push(hash);
        Pin { engine: self, hash }
    }

    /// Removes code that no module has and no change in progress needs.
    pub(crate) fn drop_unused_code(&self, hash: &[u8; 32]) {
        // Held to the end: a change that pins it later stores it again.
        let pinned = held(&self.pinned);
        if !pinned.contains(hash) && !self.modules().values().any(|entry| entry.stored.hash == *hash) {
            self.store.drop_code(hash);
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

    /// Returns the modules of `owner`, or all of them.
    pub fn list(&self, owner: Option<&Owner>) -> Vec<api::Module> {
        let accounts: BTreeMap<_, _> = self.sources.iter().map(|(name, s)| (name, s.snapshot().1)).collect();
        let modules = self.modules();
        let mine = modules.iter().filter(|((of, _), _)| owner.is_none_or(|owner| of == owner));
        mine.map(|(_, entry)| shown(entry, accounts.get(&entry.stored.source))).collect()
    }

    /// Returns one module.
    pub fn show(&self, owner: &Owner, name: &str) -> Result<api::Module, Problem> {
        let key = (owner.clone(), name.to_owned());
        let source = self.modules().get(&key).map(|e| e.stored.source.clone());
        let source = source.ok_or_else(|| Self::missing(name))?;
        // Without the lock: the workers answer between two blocks.
        let accounts = self.sources.get(&source).map(|s| s.snapshot().1);
        let modules = self.modules();
        modules.get(&key).map(|entry| shown(entry, accounts.as_ref())).ok_or_else(|| Self::missing(name))
    }

    pub fn log(&self, owner: &Owner, name: &str) -> Result<Vec<api::LogLine>, Problem> {
        let modules = self.modules();
        let entry = modules.get(&(owner.clone(), name.to_owned())).ok_or_else(|| Self::missing(name))?;
        Ok(entry.log.iter().cloned().collect())
    }

    pub fn spool(&self, owner: &Owner, name: &str) -> Result<Arc<Spool>, Problem> {
        let modules = self.modules();
        let entry = modules.get(&(owner.clone(), name.to_owned())).ok_or_else(|| Self::missing(name))?;
        Ok(entry.spool.clone())
    }

    /// Returns the sources, with totals for the operator only: they include packets that grants hide.
    pub fn sources(&self, operator: bool) -> Vec<api::Source> {
        let of = |s: &SourceRun| {
            let (totals, _) = s.snapshot();
            let (kind, from, method) = match &s.config.from {
                crate::config::From::Interface { name, .. } => {
                    ("interface", Some(name.clone()), "AF_PACKET (TPACKET_V3)")
                }
                crate::config::From::File { path, .. } => {
                    ("file", operator.then(|| path.display().to_string()), "file, paced")
                }
            };
            let reason = s.failed();
            api::Source {
                name: s.name.clone(),
                kind: kind.to_owned(),
                from,
                method: method.to_owned(),
                workers: s.config.workers,
                running: reason.is_none(),
                reason,
                packets: operator.then_some(totals.packets),
                bytes: operator.then_some(totals.bytes),
                kernel_drops: operator.then_some(totals.kernel_drops),
            }
        };
        self.sources.values().map(of).collect()
    }

    pub fn status(&self) -> api::Status {
        let modules = self.modules();
        let running = modules.values().filter(|e| e.stored.state == State::Running).count() as u64;
        let count = modules.len() as u64;
        drop(modules);
        let mut notes = held(&self.notes).clone();
        notes.extend(held(&self.faults).iter().map(|(subject, reason)| format!("{subject}: {reason}")));
        api::Status {
            name: held(&self.node).as_ref().map(|node| node.policy().name.clone()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started,
            modules: count,
            running,
            sources: self.sources(true),
            notes,
        }
    }

    pub fn health(&self) -> api::Health {
        let faults = held(&self.faults)
            .iter()
            .map(|(subject, reason)| format!("{subject}: {reason}"))
            .collect::<Vec<_>>();
        let down = self.sources.values().filter_map(|s| Some(format!("source {}: {}", s.name, s.failed()?)));
        let reasons: Vec<String> = faults.into_iter().chain(down).collect();
        api::Health { ok: reasons.is_empty(), reasons }
    }

    /// Applies limits that were changed to what is kept already.
    pub(crate) fn apply_limits(&self) {
        let most = self.config().limits.spool;
        self.modules().values().for_each(|entry| entry.spool.limit(most));
    }

    /// Records that something does not work, or works again.
    pub(crate) fn fault(&self, subject: &str, reason: Option<String>) {
        let mut faults = held(&self.faults);
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
        held(&self.node).as_ref().and_then(|node| node.policy().log()?.entries().ok())
    }
}

/// Returns a module as clients see it. Under a grant, counts that the module chooses are rounded as in the
/// reports of `flame run`.
fn shown(entry: &Entry, accounts: Option<&BTreeMap<String, Account>>) -> api::Module {
    let Stored { owner, name, source, hash, settings, narrow, state, reason, revision, installed, .. } =
        &entry.stored;
    let mut account = entry.past.clone();
    if let Some(live) = &entry.live
        && let Some(now) = accounts.and_then(|accounts| accounts.get(&live.module.plan.name))
    {
        account.add(now);
    }
    let class = entry.live.as_ref().map(|live| match live.module.plan.class {
        ModuleClass::Bounded => "bounded".to_owned(),
        ModuleClass::Metered => "metered".to_owned(),
    });
    let filled = entry.spool.filled();
    let cursor = |row| api::Cursor { epoch: entry.spool.epoch, row }.to_string();
    api::Module {
        name: name.clone(),
        principal: owner.shown(),
        source: source.clone(),
        state: *state,
        reason: reason.clone(),
        version: entry.version.clone(),
        hash: crate::store::hex(hash),
        class,
        revision: *revision,
        installed: *installed,
        expires: entry.expires,
        settings: settings.clone(),
        narrow: narrow.clone(),
        account: account_of(&account, !owner.is_operator()),
        spool: api::Spool {
            first: cursor(filled.first),
            next: cursor(filled.next),
            rows: filled.next - filled.first,
            bytes: filled.bytes,
            dropped: filled.dropped,
        },
        notes: entry.notes.clone(),
    }
}

fn account_of(account: &Account, granted: bool) -> api::Account {
    let rounded = |n: u64| match granted && n > 0 {
        true => n.checked_next_power_of_two().unwrap_or(n),
        false => n,
    };
    let shed = Shed::ALL.into_iter().map(|cause| (cause.name().to_owned(), account.shed_by(cause)));
    api::Account {
        offered: account.offered,
        processed: account.processed,
        filtered: account.filtered,
        shed: shed.filter(|(_, packets)| *packets > 0).collect(),
        records: account.records,
        records_lost: if granted { 0 } else { account.records_lost },
        messages_lost: rounded(account.messages_lost),
        withheld: rounded(account.withheld),
        faults: account.faults,
        adds_up: account.adds_up(),
    }
}
