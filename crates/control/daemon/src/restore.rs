//! The start of a node: sources, and the modules that ran when it ended.

use crate::accounting::Accounting;
use crate::build::PrepareRequest;
use crate::config::{Config, Fleet, Scheduler};
use crate::engine::{By, Engine, Modules};
use crate::error::problem;
use crate::kept::Beginning;
use crate::life::{Entry, Key, label};
use crate::outbox::Outbox;
use crate::reconcile::{Candidate, Row, Wish};
use crate::reserve::Ledger;
use crate::revoke::with_all;
use crate::source::{Opened, SourceRun, open};
use crate::stamps::stamps;
use crate::store::{Store, Stored, code_name};
use flame_api::{Problem, State};
use flame_base::lock;
use flame_compile::Cache;
use flame_node::Node;
use flame_run::Engines;
use flame_trust::{Revoked, time};
use flame_view::Key as ViewKey;
use flame_worker::{Link, LinkError, Runner};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};

/// The reason why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    #[error("policy: {0}")]
    Node(#[from] flame_node::NodeError),
    #[error("source {name}: {error}")]
    Source { name: String, error: crate::source::SourceRunError },
    #[error("engine: {0}")]
    Engine(String),
    #[error("{place}: {error}")]
    Io { place: String, error: std::io::Error },
    #[error(
        "{0}: modules of principals run in processes of this program; without it, set place = \"inline\" in \
         [isolation]"
    )]
    Runner(String),
    #[error("{0}")]
    Other(String),
}

impl Engine {
    /// Starts the sources and restores the modules. `runner` is the program for processes, `opened` has
    /// sources that were opened before, and `note` receives what the operator should know.
    ///
    /// # Errors
    ///
    /// Returns an error if storage, policy or a source cannot be opened. A module that cannot run any longer
    /// is no error, but a note.
    pub fn start(
        config: Config,
        runner: Option<Runner>,
        mut opened: BTreeMap<String, Opened>,
        note: &dyn Fn(&str),
    ) -> Result<Arc<Self>, StartError> {
        let store = Store::open(&config.storage)?;
        let engines = Engines::new().map_err(|e| StartError::Engine(e.to_string()))?;
        let cache = config.storage.join("cache");
        if let Ok(cut_off) = Cache::open(&cache) {
            engines.watchdog().on_cut_off(move |hash, cause| {
                // It is only remembered for later admissions; the module was stopped.
                let _ = cut_off.record_cut_off(hash, cause);
            });
        }
        let mut read_at = Vec::new();
        let node = match &config.policy {
            Some(path) => {
                // The policy names one of its files, so it is read twice.
                let node = Node::open(path)?;
                read_at = stamps(&node);
                Some(node.reopened(path)?)
            }
            None => None,
        };
        let revocations = store.revocations()?;
        let node = node
            .map(|node| with_all(node, &revocations).map_err(|e| StartError::Other(format!("storage: {e}"))))
            .transpose()?;
        let key = node.as_ref().and_then(|node| node.policy().secret());
        let key = key.map(|secret| ViewKey::new(secret.derive("dealing key", b"")));
        let mut links = BTreeMap::new();
        for (name, link) in &config.links {
            let opened = Link::interface(&link.interface, link.bandwidth);
            let of_link = |e: LinkError| format!("link {name}: {e}");
            let opened = opened.map_err(|e| StartError::Other(of_link(e)))?;
            match (config.isolation.scheduler, &opened) {
                (Scheduler::Fair, _) => {}
                (Scheduler::Auto, link) => drop(link.take_time().map_err(|e| note(&of_link(e)))),
                (Scheduler::Deadline, link) => {
                    link.take_time().map_err(|e| StartError::Other(of_link(e)))?;
                }
            }
            links.insert(name.clone(), opened);
        }
        let mut sources = BTreeMap::new();
        for (name, source) in &config.sources {
            let at = |error| StartError::Source { name: name.clone(), error };
            let mut given = opened.remove(name).map_or_else(|| open(source), Ok).map_err(|e| at(e.into()))?;
            if let Some(said) = given.said() {
                note(&format!("source {name}: {said}"));
            }
            let link = source.link.as_ref().and_then(|link| links.get(link)).cloned();
            let (runner, key) = (runner.clone(), key.clone());
            let started = SourceRun::start(name, source.clone(), &engines, runner, key, (given, link));
            sources.insert(name.clone(), started.map_err(at)?);
        }
        let own = sources.iter().map(|(name, source)| (name, source.charging.clone()));
        let accounting = Accounting::new(own).map_err(StartError::Engine)?;
        let ledger = Ledger::new(config.capacity, config.per_principal);
        let of = |fleet: &Fleet| Mutex::new(Outbox::new(fleet.spool.clone(), fleet.bytes, &fleet.labels));
        let engine = Arc::new(Self {
            accounting,
            outbox: config.fleet.as_ref().map(of),
            config: RwLock::new(config),
            store,
            cache,
            sources,
            node: Mutex::new(node),
            read_at,
            modules: Mutex::new(Modules::new(ledger)),
            changed: Condvar::default(),
            pinned: Mutex::default(),
            revocations: Mutex::new(revocations),
            recording: Mutex::default(),
            version: AtomicU64::new(0),
            reports: Mutex::default(),
            stopping: Arc::default(),
            started: time::now(),
        });
        engine.fault("storage", engine.store.read_only().map(str::to_owned));
        let warn = |text: String| {
            note(&text);
            lock(&engine.reports).notes.push(text);
        };
        engine.check_audit(&warn)?;
        let used: BTreeSet<String> = engine.store.modules()?.iter().map(|m| code_name(&m.hash)).collect();
        engine.store.sweep(&|name| used.contains(name));
        if let Ok(cache) = Cache::open(&engine.cache) {
            let all = engine.store.modules()?;
            let used: Vec<_> = all.iter().map(|m| (m.owner.part_of(&cache), m.hash)).collect();
            // A file that stays is removed at the next start.
            let _ = cache.keep_only(&used);
        }
        for stored in engine.store.modules()? {
            engine.restore(stored, &warn);
        }
        engine.write_rows();
        Ok(engine)
    }

    /// Compares the audit log with what was stored of it, and the policy's revocations with those recorded.
    fn check_audit(&self, warn: &dyn Fn(String)) -> Result<(), StartError> {
        if let (Some(before), Some(now)) = (self.store.audited()?, self.audited())
            && now < before
        {
            warn(format!(
                "the audit log has {now} entries, and had {before} at the last change: entries were dropped \
                 (flame audit verify)"
            ));
        }
        let recorded = lock(&self.revocations);
        let node = lock(&self.node);
        let Some(path) = node.as_ref().and_then(|node| node.policy().revocations.clone()) else {
            return Ok(());
        };
        let listed = Revoked::read(&path).unwrap_or_default();
        let lost: Vec<_> =
            recorded.iter().filter(|line| !listed.has_line(line)).map(String::as_str).collect();
        if !lost.is_empty() {
            warn(format!(
                "{}: revocations made here are no longer in it, and stay in force (DELETE /v1/revocations \
                 withdraws one): {}",
                path.display(),
                lost.join("; ")
            ));
        }
        Ok(())
    }

    /// Runs a stored module again. If that is not possible, it remains installed and is not run.
    fn restore(&self, stored: Stored, warn: &dyn Fn(String)) {
        let (owner, hash) = (&stored.owner, &stored.hash);
        let key = (owner.clone(), stored.name.clone());
        let label = format!("module {}", label(&key));
        let mut entry = Entry::new(stored.clone(), self.config().limits.spool, Arc::default());
        let compiled = Cache::open(&self.cache).map_or(0, |cache| owner.part_of(&cache).bytes_of(hash));
        entry.known.bytes = self.store.code_bytes(hash) + compiled + stored.row_bytes();
        entry.state_bytes = self.store.state_bytes(owner, &stored.name);
        self.accounting.add((owner, &stored.name, &stored.source), &entry.usage, None);
        self.modules().insert(key.clone(), entry);
        if !matches!(stored.state, State::Running | State::Failed) {
            let reason = stored.reason.unwrap_or_default();
            return warn(format!("{label} is {}: {reason}", stored.state.name()));
        }
        if self.config().fleet.as_ref().is_some_and(|fleet| fleet.installs(owner)) {
            let reason = "the node was started: the fleet's agent runs it again once it has contact";
            if let Some(entry) = self.modules().get_mut(&key) {
                entry.note(reason.to_owned());
                entry.end(State::Stopped, reason.to_owned());
            }
            return warn(format!("{label} is stopped: {reason}"));
        }
        let Ok(_changing) = self.begin_by(By::Node, &key) else { return };
        let Err(problem) = self.run_stored(&key, &stored) else { return };
        // Its owner learns nothing of the node's files.
        let reason = problem.cause.clone();
        warn(format!("{label} does not run: {}", problem.for_operator().cause));
        let mut modules = self.modules();
        let Some(entry) = modules.get_mut(&key) else { return };
        entry.note(format!("not started again: {reason}"));
        match stored.state {
            // Each start decides it again.
            State::Failed => entry.stored.reason = Some(reason),
            _ => entry.end(State::Failed, reason),
        }
    }

    fn run_stored(&self, key: &Key, stored: &Stored) -> Result<(), Problem> {
        let source = self.source(Some(&stored.source))?;
        let wasm = self.store.code(&stored.hash).map_err(|e| problem(&e))?;
        let mut reserving = self.reserve(key, &stored.reserved, source)?;
        let (usage, log) =
            self.of_module(&key.0, &key.1, |entry| (entry.usage.clone(), entry.log.clone()))?;
        let (wasm, usage, by) = (&wasm, &usage, By::Node);
        let mut prepared = self.prepare(&PrepareRequest { stored, wasm, source, usage, by })?;
        let at = (source, self.config().states);
        let state = self.state_before(stored, None)?;
        let beginning = &Beginning::of(&prepared, at, &log, state, None);
        prepared.begin(beginning);
        reserving.notes.extend(beginning.note.clone());
        let (stored, row) = (stored.clone(), Row::Restored);
        let candidate = Candidate { stored, row, source, prepared, beginning, reserving };
        self.reconcile(key, Wish::Run(Box::new(candidate)))?;
        beginning.note.iter().for_each(|note| log.change(note));
        log.change("started again with the node");
        Ok(())
    }

    /// Ends all sources in order, and records the end of each module in the audit log. The modules remain
    /// installed.
    pub fn finish(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.sources.values().for_each(SourceRun::stop);
        let keys: Vec<Key> = self.modules().keys().cloned().collect();
        for key in keys {
            // Also within a change that is in progress: nothing runs any more. Clients were told that a
            // module which leaves is evicted. None of these ends fails.
            let _ = self.reconcile(&key, Wish::Same).and_then(|_| self.reconcile(&key, Wish::NoInstance));
        }
        self.modules().values().for_each(|entry| entry.spool.close());
        self.accounting.end_interval();
        self.accounting.close();
        self.write_rows();
    }
}
