//! The node's modules: what runs on which source, for whom, and what of it is stored.
//!
//! A change has one order: examine, admit and compile; write the code; store the change; send it to the
//! workers. What is stored runs after a restart, so a change that the workers refuse is taken back. One
//! change of a module at a time is made; another request is refused, or waits for a change by the node.

use crate::accounting::{Accounting, Amounts};
use crate::config::Config;
use crate::error::problem;
use crate::granted::{Granted, Watched};
use crate::held;
use crate::kept::Kept;
use crate::locked::Locked;
use crate::log::Log;
use crate::reach::Known;
use crate::refusals::Refusals;
use crate::reserve::Ledger;
use crate::restarts::Restarts;
use crate::source::{Accounts, SourceRun};
use crate::spool::Spool;
use crate::stamps::Stamp;
use crate::store::{Owner, Store, Stored};
use flame_api as api;
use flame_api::{Code, Problem, State};
use flame_compile::Cache;
use flame_node::Node;
use flame_plan::{Account, Audience, ModuleClass, QueueAccount, Shed, Unsent};
use flame_quota::{Usage, Used};
use flame_worker::Module;
use std::cell::RefCell;
use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// The longest time for which a request waits for a change by the node.
const OF_NODE: Duration = Duration::from_secs(3);
/// The subject of faults of the audit log.
pub(crate) const AUDIT_LOG: &str = "audit log";

/// Returns a text for each subject with a reason.
pub(crate) fn texts(reasons: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    reasons.iter().map(|(subject, reason)| format!("{subject}: {reason}"))
}

/// The key of a module.
pub type Key = (Owner, String);

/// An installed module.
pub(crate) struct Entry {
    pub stored: Stored,
    pub version: String,
    pub live: Option<Live>,
    pub spool: Arc<Spool>,
    /// The account of instances that ended, since the node was started.
    pub past: Past,
    pub ending: Option<Ending>,
    pub log: Arc<Log>,
    /// The use since it was installed or the node was started.
    pub usage: Arc<Usage>,
    pub notes: Vec<String>,
    pub expires: Option<u64>,
    pub known: Known,
    /// The most bytes of state that it can keep.
    pub state_bytes: u64,
    /// The revision of its row, which is an earlier one until the end of the module could be written.
    pub row: u64,
}

/// The accounts of the instances of a module that have ended.
#[derive(Default)]
pub(crate) struct Past {
    /// Those that had the rights that the module has now.
    same: Account,
    other: Account,
}

impl Past {
    pub fn add(&mut self, account: &Account) {
        self.same.add(account);
    }

    /// Adds the account of an instance that had other rights.
    pub fn add_other(&mut self, account: &Account) {
        self.other.add(account);
    }

    /// Records that the module has other rights from now on.
    pub fn turn(&mut self) {
        self.other.add(&std::mem::take(&mut self.same));
    }

    /// Adds the accounts that `audience` has to one. A holder has those of the rights that a session has to
    /// cover.
    fn add_to(&self, account: &mut Account, audience: Audience) {
        account.add(&self.same);
        if audience.is_operator() {
            account.add(&self.other);
        }
    }
}

/// An instance that is being removed from its source, as clients see it until its last account is there.
pub(crate) struct Ending {
    /// The name in its plan.
    pub name: String,
    /// The last account that is known.
    account: RefCell<Accounts>,
    /// The module's state before. A client that waits for the next one finds a complete account with it.
    pub state: State,
    /// Whether its last account may be smaller: packets of an interval that did not end count no more.
    pub may_fall: bool,
}

impl Ending {
    pub fn new(name: String, account: Accounts, state: State, may_fall: bool) -> Self {
        Self { name, account: RefCell::new(account), state, may_fall }
    }

    /// Returns the account that `audience` has.
    pub fn account(&self, audience: Audience) -> Account {
        let account = self.account.borrow();
        match audience {
            Audience::Operator => account.live.clone(),
            Audience::Holder => account.released.clone(),
        }
    }

    /// Records the last account of the instance, which has ended.
    pub fn ended(&self, account: &Account) {
        self.note(account);
        let mut last = self.account.borrow_mut();
        last.released = last.live.clone();
    }

    /// Records a later account, which the operator has seen.
    pub fn note(&self, account: &Account) {
        let last = &mut self.account.borrow_mut().live;
        if self.may_fall || account.offered >= last.offered {
            last.clone_from(account);
        }
    }
}

/// A module on a worker.
pub(crate) struct Live {
    pub module: Module,
    /// The account of its instances in processes that have ended.
    pub earlier: Account,
    /// The state of its instances, if the module keeps one.
    pub kept: Option<Kept>,
    /// The reason of its eviction, if it is only to be taken down.
    pub leaving: Option<String>,
    /// The node as it was for the module's credential, and the decision on it.
    pub granted: Option<Granted>,
}

impl Live {
    /// Returns whether it was not evicted.
    pub fn stays(&self) -> bool {
        self.leaving.is_none() && self.granted.as_ref().is_none_or(|granted| granted.evicted().is_none())
    }
}

impl Entry {
    /// Returns the state as clients see it. A module that is only to be taken down does not run, whatever its
    /// row says until then.
    pub fn state(&self) -> State {
        match &self.ending {
            _ if self.is_leaving() => State::Evicted,
            Some(ending) => ending.state,
            None => self.stored.state,
        }
    }

    /// Takes the instance out, if it is one that `is_it` accepts. Until `ending` is cleared, clients see the
    /// state as before and `account`, so that no counter falls.
    pub fn take_live(
        &mut self,
        account: Option<Accounts>,
        is_it: impl FnOnce(&mut Live) -> bool,
    ) -> Option<Live> {
        let state = self.state();
        let live = self.live.take_if(is_it)?;
        let (name, may_fall) = (live.module.plan.name.clone(), live.module.plan.view.has_steps());
        self.ending = Some(Ending::new(name, account.unwrap_or_default(), state, may_fall));
        Some(live)
    }

    fn is_leaving(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.leaving.is_some())
    }

    /// Records the end of the module, which is written later.
    pub fn end(&mut self, state: State, reason: String) {
        (self.stored.state, self.stored.reason) = (state, Some(reason));
        self.stored.revision += 1;
    }

    /// Replaces the module by what its row is now.
    pub fn keep(&mut self, stored: Stored) {
        self.row = stored.revision;
        self.stored = stored;
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.log.change(&text.into());
    }
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
    pub(crate) read_at: Mutex<Vec<Stamp>>,
    pub(crate) modules: Mutex<BTreeMap<Key, Entry>>,
    /// The grants of all instances.
    pub(crate) watched: Mutex<Vec<Weak<Watched>>>,
    /// The modules that are being changed, and by whom.
    pub(crate) changing: Mutex<BTreeMap<Key, By>>,
    /// The code of changes in progress with its owners, which is stored before the module that has it.
    pub(crate) pinned: Mutex<Vec<(Owner, [u8; 32])>>,
    /// Modules that are to be taken down, once no other change of them is in progress.
    pub(crate) evictions: Mutex<BTreeSet<Key>>,
    /// Whether rows may be behind their modules.
    pub(crate) is_behind: AtomicBool,
    /// The revocations that were made here, as lines of the policy's list, in force whether or not it has
    /// them. It is held while the policy is exchanged.
    pub(crate) revocations: Mutex<Vec<String>>,
    /// It is held while revocations and withdrawals are written, which wait for the disk.
    pub(crate) recording: Mutex<()>,
    /// The number of changes of policy and configuration, on which all authority rests.
    pub(crate) version: AtomicU64,
    /// Reasons why something does not work, by subject. They are for the operator.
    pub(crate) faults: Mutex<BTreeMap<String, String>>,
    pub(crate) notes: Mutex<Vec<String>>,
    /// The sessions that were refused lately, for the log.
    pub(crate) refusals: Mutex<Refusals>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub accounting: Accounting,
    /// The ends of principals' processes.
    pub(crate) restarts: Mutex<Restarts>,
    /// The reservations of the modules that run.
    pub(crate) ledger: Mutex<Ledger<Key>>,
    pub started: u64,
}

/// The one who changes a module.
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
        let mut pinned = held(&self.engine.pinned);
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
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn modules(&self) -> Locked<'_, BTreeMap<Key, Entry>> {
        Locked::new(&self.modules)
    }

    /// Returns the version of policy and configuration. A decision is valid under one version.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Ends all decisions, because policy or configuration have changed.
    pub(crate) fn decide_anew(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Begins a change of a module for a request.
    pub(crate) fn begin(&self, owner: &Owner, name: &str) -> Result<Changing<'_>, Problem> {
        let key = (owner.clone(), name.to_owned());
        let since = Instant::now();
        let mut begun = self.begin_by(By::Request, &key);
        // The node's own changes are short: nobody has to repeat a request because of them.
        while matches!(begun, Err(By::Node)) && since.elapsed() < OF_NODE {
            std::thread::sleep(Duration::from_millis(10));
            begun = self.begin_by(By::Request, &key);
        }
        begun.map_err(|by| {
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
        match held(&self.changing).entry(key.clone()) {
            Slot::Vacant(free) => {
                free.insert(by);
                Ok(Changing { engine: self, key: key.clone() })
            }
            Slot::Occupied(taken) => Err(*taken.get()),
        }
    }

    /// Keeps the code of an owner's module, from before it is stored until a module has it.
    pub(crate) fn pin(&self, owner: &Owner, hash: [u8; 32]) -> Pin<'_> {
        let code = (owner.clone(), hash);
        held(&self.pinned).push(code.clone());
        Pin { engine: self, code }
    }

    /// Removes an owner's code that none of its modules has and none of its changes in progress needs: the
    /// compiled code, and the file unless others have it, too.
    pub(crate) fn drop_unused_code(&self, (owner, hash): &(Owner, [u8; 32])) {
        // Held to the end: a change that pins it later stores it again.
        let pinned = held(&self.pinned);
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

    /// Returns the modules with these keys, or all of them.
    pub fn list(&self, of: Option<&[Key]>, audience: Audience) -> Vec<api::Module> {
        let accounts: BTreeMap<_, _> =
            self.sources.iter().map(|(name, s)| (name, s.accounts(audience))).collect();
        let processes = self.running_processes();
        let modules = self.modules();
        let mine = modules.iter().filter(|(key, _)| of.is_none_or(|of| of.contains(key)));
        let shown = |entry: &Entry| api::Module {
            process: processes.iter().find(|p| audience.is_operator() && p.has(entry)).map(|p| p.pid),
            ..self.shown(entry, accounts.get(&entry.stored.source), audience)
        };
        mine.map(|(_, entry)| shown(entry)).collect()
    }

    /// Returns one module, for its owner.
    ///
    /// # Errors
    ///
    /// Returns an error if the owner has no module of this name.
    pub fn show(&self, owner: &Owner, name: &str) -> Result<api::Module, Problem> {
        self.show_to(owner, name, owner.audience())
    }

    /// Returns one module as `audience` sees it.
    ///
    /// # Errors
    ///
    /// Returns an error if the owner has no module of this name.
    pub fn show_to(&self, owner: &Owner, name: &str, audience: Audience) -> Result<api::Module, Problem> {
        let key = (owner.clone(), name.to_owned());
        let source = self.modules().get(&key).map(|e| e.stored.source.clone());
        let source = source.ok_or_else(|| Self::missing(name))?;
        // Without the lock: the workers answer between two blocks.
        let accounts = self.sources.get(&source).map(|s| s.accounts(audience));
        let processes = if audience.is_operator() { self.running_processes() } else { Vec::new() };
        let modules = self.modules();
        let entry = modules.get(&key).ok_or_else(|| Self::missing(name))?;
        let process = processes.iter().find(|p| p.has(entry)).map(|p| p.pid);
        Ok(api::Module { process, ..self.shown(entry, accounts.as_ref(), audience) })
    }

    /// Returns the spool of a module. It is shared, so a reader may hold it after the module's removal.
    ///
    /// # Errors
    ///
    /// Returns an error if the owner has no module of this name.
    pub fn spool(&self, owner: &Owner, name: &str) -> Result<Arc<Spool>, Problem> {
        let modules = self.modules();
        let entry = modules.get(&(owner.clone(), name.to_owned())).ok_or_else(|| Self::missing(name))?;
        Ok(entry.spool.clone())
    }

    /// Returns the sources, with totals for the operator only: they include packets that grants hide.
    pub fn sources(&self, audience: Audience) -> Vec<api::Source> {
        let operator = audience.is_operator();
        let of = |s: &SourceRun| {
            let totals = operator.then(|| s.snapshot().0);
            let (kind, from) = match &s.config.from {
                crate::config::From::Interface { .. } => ("interface", Some(s.place.name().to_owned())),
                crate::config::From::File { path, .. } => {
                    ("file", operator.then(|| path.display().to_string()))
                }
            };
            api::Source {
                name: s.name.clone(),
                kind: kind.to_owned(),
                from,
                method: s.method(),
                workers: s.config.workers,
                running: s.failed().is_none(),
                // It may name files.
                reason: s.silent().filter(|_| operator),
                packets: totals.map(|totals| totals.packets),
                bytes: totals.map(|totals| totals.bytes),
                kernel_drops: totals.map(|totals| totals.kernel_drops),
            }
        };
        self.sources.values().map(of).collect()
    }

    /// Returns the state of the node for the operator, with the totals of its sources. The notes include
    /// present faults.
    pub fn status(&self) -> api::Status {
        let modules = self.modules();
        let running = modules.values().filter(|e| e.state() == State::Running).count() as u64;
        let count = modules.len() as u64;
        drop(modules);
        let mut notes = held(&self.notes).clone();
        notes.extend(self.sources.values().flat_map(SourceRun::overloads));
        notes.extend(texts(&held(&self.faults)));
        api::Status {
            name: held(&self.node).as_ref().map(|node| node.policy().name.clone()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started,
            modules: count,
            running,
            sources: self.sources(Audience::Operator),
            notes,
        }
    }

    /// Returns what does not work at present, each with the reason: faults, and sources that have failed or
    /// whose interface is down.
    pub(crate) fn troubles(&self) -> BTreeMap<String, String> {
        let mut all = held(&self.faults).clone();
        all.extend(self.sources.values().filter_map(|s| Some((format!("source {}", s.name), s.silent()?))));
        all
    }

    /// Returns whether the node is healthy, and what does not work.
    pub fn health(&self) -> api::Health {
        let reasons: Vec<String> = texts(&self.troubles()).collect();
        api::Health { ok: reasons.is_empty(), reasons }
    }

    /// Applies limits that were changed to what is kept already.
    pub(crate) fn apply_limits(&self) {
        let config = self.config();
        held(&self.ledger).set_capacity(config.capacity, config.per_principal);
        let most = config.limits.spool;
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

impl Engine {
    /// Returns a module as `audience` sees it, with its accounts for that audience. Under a grant, counts
    /// that the module chooses are rounded as in the reports of `flame run`.
    fn shown(
        &self,
        entry: &Entry,
        accounts: Option<&BTreeMap<String, Account>>,
        audience: Audience,
    ) -> api::Module {
        let Stored { owner, name, source, hash, settings, narrow, reason, revision, installed, .. } =
            &entry.stored;
        let leaving = entry.live.as_ref().and_then(|live| live.leaving.as_ref());
        let reason = leaving.or(reason.as_ref()).cloned();
        // Queues of the present instance come first, so that they have their names.
        let live = entry.live.as_ref().map(|live| &live.module.plan.name);
        let ending = entry.ending.as_ref();
        let instance = live.or(ending.map(|ending| &ending.name));
        let now = instance.and_then(|name| accounts?.get(name));
        let mut account = match ending {
            Some(ending) => {
                // While it is removed, the source knows a part of its account.
                now.iter().filter(|_| audience.is_operator()).for_each(|now| ending.note(now));
                ending.account(audience)
            }
            None => now.cloned().unwrap_or_default(),
        };
        entry.past.add_to(&mut account, audience);
        let class = entry.live.as_ref().map(|live| match live.module.plan.class {
            ModuleClass::Bounded => "bounded".to_owned(),
            ModuleClass::Metered => "metered".to_owned(),
        });
        let place = entry.live.as_ref().map(|live| match live.module.plan.process {
            Some(_) => "process".to_owned(),
            None => "inline".to_owned(),
        });
        let filled = entry.spool.filled();
        let cursor = |row| api::Cursor { epoch: entry.spool.epoch, row }.to_string();
        api::Module {
            name: name.clone(),
            principal: owner.shown(),
            source: source.clone(),
            state: entry.state(),
            reason,
            version: entry.version.clone(),
            hash: flame_trust::hex(hash),
            class,
            place,
            process: None,
            revision: *revision,
            installed: *installed,
            expires: entry.expires,
            settings: settings.iter().map(|(name, value)| (name.clone(), excerpt(value))).collect(),
            narrow: narrow.clone(),
            account: account_of(&account, !owner.is_operator()),
            usage: self.usage_of(entry, audience),
            reserved: entry.stored.reserved,
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

    fn usage_of(&self, entry: &Entry, audience: Audience) -> api::Usage {
        let now = entry.usage.used();
        let used = match audience {
            Audience::Operator => Amounts::between(&Used::default(), &now),
            Audience::Holder => self.accounting.shown(&entry.usage),
        };
        let is_exact = audience.is_operator();
        api::Usage {
            cpu_ns: used.cpu_ns,
            block_ns: used.block_ns,
            blocks: is_exact.then_some(now.blocks.now),
            memory: is_exact.then_some(now.memory.now),
            memory_byte_seconds: used.memory_byte_seconds,
            record_bytes: used.record_bytes,
            sent_bytes: used.sent_bytes,
            transmitted_bytes: used.transmitted_bytes,
        }
    }
}

/// The most bytes of a setting that are shown: one can have megabytes.
const MOST_SHOWN: usize = 1024;

/// Returns a text, or its beginning and its size.
fn excerpt(text: &str) -> String {
    let Some(end) = (text.len() > MOST_SHOWN).then(|| text.floor_char_boundary(MOST_SHOWN)) else {
        return text.to_owned();
    };
    format!("{}... ({} bytes)", &text[..end], text.len())
}

fn account_of(account: &Account, granted: bool) -> api::Account {
    // The API has the account of the packets that a grant shows.
    let account = match granted {
        true => account.without_sampled().without_choices(),
        false => account.without_sampled(),
    };
    let shed = Shed::ALL.into_iter().map(|cause| (cause.name().to_owned(), account.shed_by(cause)));
    let of_cause = |cause: Unsent| (cause.name().to_owned(), account.unsent_by(cause));
    let unsent = Unsent::ALL.into_iter().map(of_cause);
    api::Account {
        offered: account.offered,
        processed: account.processed,
        filtered: account.filtered,
        shed: shed.filter(|(_, packets)| *packets > 0).collect(),
        cut: account.cut,
        records: account.records,
        records_lost: account.records_lost,
        messages_lost: account.messages_lost,
        withheld: account.withheld,
        sent: account.sent,
        unsent: unsent.filter(|(_, frames)| *frames > 0).collect(),
        calls: account.calls,
        calls_lost: account.calls_lost,
        replies: account.replies,
        replies_lost: account.replies_lost,
        faults: account.faults,
        adds_up: account.adds_up(),
        queues: account.queues.iter().map(queue_of).collect(),
    }
}

fn queue_of(queue: &QueueAccount) -> api::QueueAccount {
    let QueueAccount { name, packets, processed, overrun } = queue.clone();
    api::QueueAccount { name, packets, processed, overrun }
}
