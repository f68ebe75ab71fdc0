//! Changes of modules: install, update, stop and remove.

use crate::build::{PrepareRequest, Prepared};
use crate::engine::{AUDIT_LOG, By, Ending, Engine, Entry, Key, Live, Past};
use crate::error::of_source;
use crate::granted::Granted;
use crate::held;
use crate::kept::{Before, Beginning};
use crate::log::Log;
use crate::reach::{Known, Reach};
use crate::route::Route;
use crate::source::{Accounts, SourceRun};
use crate::spool::Spool;
use crate::store::states::StoredStates;
use crate::store::{Owner, Proof, Stored};
use flame_api::{Code, InstallRequest, Module, Problem, State, UpdateRequest};
use flame_plan::{Account, Audience, Reason};
use flame_quota::Usage;
use flame_trust::{Verified, time};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A credential and the answer of its holder for the code of a request.
pub type Presented = Option<Proof>;

/// A proposal in the store, which is withdrawn unless its module is stored.
struct Proposal<'a> {
    engine: &'a Engine,
    key: Key,
    is_stored: bool,
}

impl Drop for Proposal<'_> {
    fn drop(&mut self) {
        if !self.is_stored {
            let (owner, name) = &self.key;
            // The fault is reported.
            let _ = self.engine.stored(self.engine.store.withdraw(owner, name));
        }
    }
}

impl Engine {
    /// Installs a module.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing was changed.
    pub fn install(
        &self,
        owner: &Owner,
        request: InstallRequest,
        shown: Presented,
    ) -> Result<Module, Problem> {
        let source = self.source(request.source.as_deref())?;
        // Before the module is examined, which takes time.
        self.has_room(owner, 1)?;
        let is_unnamed = request.name.is_none();
        let mut stored = Stored {
            owner: owner.clone(),
            name: request.name.unwrap_or_default(),
            source: source.name.clone(),
            hash: flame_compile::hash_of(&request.wasm),
            signatures: request.signatures.unwrap_or_default(),
            settings: request.settings.into(),
            narrow: request.narrow,
            proof: shown,
            reserved: request.reserve.unwrap_or_default(),
            state: State::Running,
            reason: None,
            revision: 1,
            installed: time::now(),
        };
        if is_unnamed {
            let applicant = self.applicant(&stored, &source.place)?;
            let examined = self.examine(&stored, &request.wasm, applicant.as_ref(), By::Request)?;
            stored.name.clone_from(&examined.manifest.name);
        }
        let name = stored.name.clone();
        if !crate::units::is_name(&name) {
            return Err(Problem::new(
                Code::Invalid,
                format!("name {:?}", name.chars().take(80).collect::<String>()),
                "use a lower-case letter, then up to 31 of letters, digits, _ and -",
            ));
        }
        let _changing = self.begin(owner, &name)?;
        let key = (owner.clone(), name.clone());
        self.is_new(&key)?;
        // The change in progress is counted.
        self.has_room(owner, 0)?;
        let pin = self.pin(owner, stored.hash);
        let mut reserving = self.reserve(&key, &stored.reserved, source)?;
        let usage = Arc::<Usage>::default();
        let (wasm, by) = (&request.wasm, By::Request);
        let mut prepared =
            self.prepare(&PrepareRequest { stored: &stored, wasm, source, usage: &usage, by })?;
        self.fits(&key, prepared.bytes)?;
        self.state_fits(&key, &prepared.module.plan, source)?;
        self.stored(self.store.put_code(&stored.hash, &request.wasm))?;
        let mut proposal = self.propose(&stored, None)?;
        let mut entry = entry_of(stored, self.config().limits.spool, usage);
        entry.version.clone_from(&prepared.module.plan.manifest.version);
        prepared.begin(&Beginning::of(
            &prepared,
            (source, self.config().states),
            &entry.log,
            Before::Stored(StoredStates::default()),
            None,
        ));
        entry.state_bytes = self.state_need(&prepared.module.plan, &source.name);
        reserving.notes.extend(self.launch(source, &mut prepared, &entry)?);
        self.stored(self.store.put(&entry.stored, None, self.audited())).inspect_err(|_| {
            let account = source.remove(prepared.module.plan.id);
            self.record_end(prepared.granted.as_ref(), &[], &account);
            prepared.unroute(source);
        })?;
        proposal.is_stored = true;
        entry.note("installed");
        prepared.into_entry(&mut entry, std::mem::take(&mut reserving.notes));
        reserving.keep();
        let made = entry.known.now.as_ref();
        self.accounting.add((owner, &name, &entry.stored.source), &entry.usage, made);
        self.enter(key, entry);
        drop(pin);
        self.show(owner, &name)
    }

    fn propose(&self, stored: &Stored, before: Option<u64>) -> Result<Proposal<'_>, Problem> {
        self.stored(self.store.propose(stored, before))?;
        Ok(Proposal { engine: self, key: (stored.owner.clone(), stored.name.clone()), is_stored: false })
    }

    fn is_new(&self, key: &(Owner, String)) -> Result<(), Problem> {
        match self.modules().contains_key(key) {
            true => Err(Problem::new(
                Code::Conflict,
                format!("module {} is installed already", key.1),
                "update it (flame update), or choose another name (flame install --name)",
            )),
            false => Ok(()),
        }
    }

    /// Decides whether a principal may have `more` modules than it has, with the installs in progress.
    pub(crate) fn has_room(&self, owner: &Owner, more: usize) -> Result<(), Problem> {
        let limits = self.config().limits;
        let mut taken: BTreeSet<Key> = self.modules().keys().cloned().collect();
        taken.extend(held(&self.changing).keys().cloned());
        let tenant = owner.tenant();
        let mine = taken.iter().filter(|(of, _)| of.tenant() == tenant).count() + more;
        let most = limits.modules_per_principal;
        if !owner.is_operator() && mine > most {
            return Err(Problem::new(
                Code::TooLarge,
                format!("this principal has {most} modules already"),
                "remove one, or ask the operator for a higher limit (modules_per_principal in [limits])",
            ));
        }
        let all = taken.len() + more;
        match all > limits.modules {
            true => Err(Problem::new(
                Code::TooLarge,
                "the node has no place for another module",
                "remove one, or ask the operator for a higher limit (modules in [limits])",
            )
            .with_detail(format!("it would be number {all} of {}", limits.modules))),
            false => Ok(()),
        }
    }

    /// Decides whether a module of `bytes` bytes fits into what its principal may store.
    pub(crate) fn fits(&self, key: &Key, bytes: u64) -> Result<(), Problem> {
        if key.0.is_operator() {
            return Ok(());
        }
        let (tenant, most) = (key.0.tenant(), self.config().limits.storage_per_principal);
        let others: u64 = {
            let modules = self.modules();
            let others = modules.iter().filter(|(other, _)| *other != key && other.0.tenant() == tenant);
            others.map(|(_, entry)| entry.known.bytes).sum()
        };
        match others.saturating_add(bytes) > most {
            true => Err(Problem::new(
                Code::TooLarge,
                format!(
                    "the module takes {bytes} bytes with its compiled code and its settings, beside {others} of \
                     this principal's others; it may store {most}"
                ),
                "remove another one, make it smaller, or ask the operator for a higher limit \
                 (storage_per_principal in [limits])",
            )),
            false => Ok(()),
        }
    }

    /// Changes code, settings or narrowing of a module. The new instance goes on with the state of the old
    /// one if its state has the same version and it has the same rights, and begins empty otherwise; every
    /// packet is offered to the old instance or to the new one. Under a credential, `session` has to cover
    /// what the module gets: its rights may be those of another credential, with which it was installed.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing was changed.
    pub fn update(
        &self,
        owner: &Owner,
        name: &str,
        request: UpdateRequest,
        shown: Presented,
        session: Option<&Verified>,
    ) -> Result<Module, Problem> {
        let _changing = self.begin(owner, name)?;
        let (before, row) = self.expect(owner, name, request.revision)?;
        let source = self.source(Some(&before.source))?;
        let wasm = match request.wasm {
            Some(wasm) => wasm,
            None => self.stored(self.store.code(&before.hash))?,
        };
        let hash = flame_compile::hash_of(&wasm);
        let stored = Stored {
            hash,
            signatures: match request.signatures {
                Some(signatures) => signatures,
                None if hash == before.hash => before.signatures.clone(),
                None => String::new(),
            },
            settings: request.settings.map_or_else(|| before.settings.clone(), Arc::new),
            narrow: request.narrow.unwrap_or_else(|| before.narrow.clone()),
            proof: shown.or_else(|| before.proof.clone()),
            reserved: request.reserve.unwrap_or(before.reserved),
            state: State::Running,
            reason: None,
            revision: before.revision + 1,
            ..before.clone()
        };
        let key = (owner.clone(), name.to_owned());
        let _pin = self.pin(owner, hash);
        let mut reserving = self.reserve(&key, &stored.reserved, source)?;
        let usage = self.modules().get(&key).map(|entry| entry.usage.clone());
        let usage = usage.ok_or_else(|| Self::missing(name))?;
        let by = By::Request;
        let mut prepared =
            self.prepare(&PrepareRequest { stored: &stored, wasm: &wasm, source, usage: &usage, by })?;
        self.permit_grant(session, prepared.reach.as_ref())?;
        self.fits(&key, prepared.bytes)?;
        self.state_fits(&key, &prepared.module.plan, source)?;
        let interval = self.config().states;
        let (kept, log) = {
            let modules = self.modules();
            let entry = modules.get(&key).ok_or_else(|| Self::missing(name))?;
            (entry.live.as_ref().and_then(|live| live.kept.clone()), entry.log.clone())
        };
        let why_empty = request.empty.then_some("as requested");
        let state = self.state_before(&before, kept)?;
        let beginning = Beginning::of(&prepared, (source, interval), &log, state, why_empty);
        prepared.begin(&beginning);
        if hash != before.hash || self.store.code(&hash).is_err() {
            self.stored(self.store.put_code(&hash, &wasm))?;
        }
        let mut proposal = self.propose(&stored, Some(row))?;

        let old = {
            let modules = self.modules();
            let entry = modules.get(&key).ok_or_else(|| Self::missing(name))?;
            self.route(source, entry, &prepared.module, prepared.reach.as_ref());
            entry.live.as_ref().map(|live| live.module.plan.clone())
        };
        self.show_ending(&key);
        let started = self.run_on(source, &mut prepared, old.map(|old| old.id));
        let (account, note) = started.inspect_err(|_| {
            prepared.unroute(source);
            self.modules().get_mut(&key).into_iter().for_each(|entry| entry.ending = None);
        })?;
        let account = self.show_ended(&key, account);
        let put = match beginning.is_empty {
            // What is stored is of the instances before, which cannot write any more.
            true => self.store.put_empty(&stored, Some(row), self.audited()),
            false => self.store.put(&stored, Some(row), self.audited()),
        };
        if let Err(problem) = self.stored(put) {
            self.bring_back(&key, source, &prepared, &account);
            return Err(problem);
        }
        proposal.is_stored = true;
        reserving.notes.extend(note);
        let (ended, log) = {
            let mut modules = self.modules();
            let entry = modules.get_mut(&key).ok_or_else(|| Self::missing(name))?;
            let ended = (entry.live.take(), entry.log.clone());
            entry.past.add(&account);
            entry.ending = None;
            let text = format!("updated; the instance before had {} packets", account.offered);
            entry.log.change_of(&text, entry.known.now.as_ref());
            entry.version.clone_from(&prepared.module.plan.manifest.version);
            entry.keep(stored);
            entry.state_bytes = self.state_need(&prepared.module.plan, &source.name);
            prepared.into_entry(entry, std::mem::take(&mut reserving.notes));
            self.leave_if_evicted(&key, entry);
            reserving.keep();
            ended
        };
        // Without the lock: the audit log waits for the disk.
        if let Some(live) = ended {
            self.end_of(&live, &account, source, &log);
        }
        if before.hash != hash {
            self.drop_unused_code(&(owner.clone(), before.hash));
        }
        // Without the lock: the instances before may take their time to end.
        if let Some(note) = self.state_note(&beginning)
            && let Some(entry) = self.modules().get_mut(&key)
        {
            entry.note(note.clone());
            entry.notes.push(note);
        }
        self.show(owner, name)
    }

    /// Ends an instance that may not stay, and runs the module as it was before: its instance has ended with
    /// `account`, so another one begins.
    fn bring_back(&self, key: &Key, source: &SourceRun, failed: &Prepared, account: &Account) {
        let id = failed.module.plan.id;
        let before = self.modules().get(key).and_then(|entry| entry.live.as_ref().map(|l| l.module.plan.id));
        let again = before.and_then(|before| self.anew(key, source, before));
        let ended = match &again {
            None => Ok(source.remove(id)),
            Some(module) => source.replace(id, module),
        };
        failed.unroute(source);
        // Without the lock: the instance may take its time to end.
        let (of_failed, error) = match ended {
            Ok(account) => (account, None),
            Err(e) => (source.remove(id), Some(of_source(&e))),
        };
        self.record_end(failed.granted.as_ref(), &[], &of_failed);
        let mut modules = self.modules();
        let Some(entry) = modules.get_mut(key) else { return };
        entry.past.add(account);
        entry.past.add_other(&of_failed);
        entry.ending = None;
        match (error, again) {
            (None, again) => {
                let Some(live) = &mut entry.live else { return };
                live.earlier.add(account);
                // One that was evicted meanwhile leaves.
                let Some(module) = again else { return };
                source.routes.remove(&live.module.plan.name);
                let earlier = std::mem::replace(&mut live.module, module).plan.id;
                live.granted.iter().for_each(|granted| granted.ended_as(earlier));
                // It ran with this before.
                let _ = self.guarantee(source, &live.module.plan, &entry.stored.reserved);
                // One that was evicted before its source had it, too.
                if let Some(reason) = &live.leaving {
                    source.evict(live.module.plan.id, Reason::denied(reason));
                }
                entry.note("an update failed: another instance of the module as it was before runs, empty but for a state that it keeps");
            }
            (Some(problem), again) => {
                if let Some(module) = again {
                    source.routes.remove(&module.plan.name);
                }
                let reason = format!("an update failed, and so did its undoing: {}", problem.cause);
                let (ended, log) = (entry.live.take(), entry.log.clone());
                entry.note(&reason);
                entry.end(State::Failed, reason);
                self.is_behind.store(true, Ordering::SeqCst);
                drop(modules);
                if let Some(live) = ended {
                    self.end_of(&live, account, source, &log);
                }
            }
        }
    }

    /// Stops a module, which stays installed. Its records are kept. It ends whether or not that can be
    /// stored. One that was stopped or evicted before stays as it is; one that failed is not run again when
    /// the node starts.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing was changed, or why the end is not stored yet.
    pub fn stop(&self, owner: &Owner, name: &str, revision: Option<u64>) -> Result<Module, Problem> {
        let _changing = self.begin(owner, name)?;
        self.expect(owner, name, revision)?;
        let key = (owner.clone(), name.to_owned());
        // One that was evicted has ended: it is stored as that, with its reason.
        if !self.end_leaving(&key) {
            let reason = "stopped by request: run it again with flame update";
            let has_ended = self.end_live_as(&key, |_| Some((State::Stopped, reason.to_owned())));
            if !has_ended
                && let Some(entry) = self.modules().get_mut(&key)
                && !matches!(entry.stored.state, State::Stopped | State::Evicted)
            {
                entry.note("stopped");
                let before =
                    entry.stored.reason.take().map_or(String::new(), |r| format!("; it had ended: {r}"));
                entry.end(State::Stopped, format!("{reason}{before}"));
                self.is_behind.store(true, Ordering::SeqCst);
            }
        }
        self.write_row(&key, self.audited()).map_err(|problem| Problem {
            cause: format!(
                "the module has ended, but a restart finds it as before: {}; the node tries again",
                problem.cause
            ),
            ..problem
        })?;
        self.show(owner, name)
    }

    /// Removes a module with its records, and returns it as it was at its end.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing was changed.
    pub fn remove(&self, owner: &Owner, name: &str, revision: Option<u64>) -> Result<Module, Problem> {
        let _changing = self.begin(owner, name)?;
        let (before, row) = self.expect(owner, name, revision)?;
        self.stored(self.store.remove(owner, name, row, self.audited()))?;
        let key = (owner.clone(), name.to_owned());
        self.take_down(&key);
        let module = self.show(owner, name);
        let entry = self.modules().remove(&key);
        if let Some(entry) = entry {
            entry.spool.close();
        }
        self.drop_unused_code(&(owner.clone(), before.hash));
        let reason = Some("removed".to_owned());
        module.map(|module| Module { state: State::Stopped, reason, ..module })
    }

    /// Checks that a module was not evicted. Otherwise its instances have ended, and a new credential would
    /// continue nothing.
    pub(crate) fn stays(entry: Option<&Entry>, name: &str) -> Result<(), Problem> {
        match entry.and_then(|entry| entry.live.as_ref()) {
            Some(live) if live.leaving.is_some() => Err(Problem::new(
                Code::Conflict,
                format!("module {name} has just lost its grant"),
                "look at the reason (flame show), and run it again with the new credential (flame update)",
            )),
            _ => Ok(()),
        }
    }

    /// Ends the instance of a module and keeps its account.
    fn take_down(&self, key: &Key) {
        let account = self.present_account(key);
        let live = self.modules().get_mut(key).and_then(|entry| {
            let live = entry.take_live(account, |_| true)?;
            Some((live, entry.stored.source.clone(), entry.log.clone()))
        });
        // Without the lock: the module may take its time to end.
        let ended = live.and_then(|(live, source, log)| self.end_live(key, live, &source, &log));
        if let Some(entry) = self.modules().get_mut(key) {
            entry.past.add(&ended.unwrap_or_default());
            entry.ending = None;
        }
    }

    /// Returns the account of the present instance of a module. The workers are waited for, so the caller
    /// must not hold the lock of the modules.
    pub(crate) fn present_account(&self, key: &Key) -> Option<Accounts> {
        let (source, name) = {
            let modules = self.modules();
            let entry = modules.get(key)?;
            (entry.stored.source.clone(), entry.live.as_ref()?.module.plan.name.clone())
        };
        self.sources.get(&source)?.accounts_of(&name)
    }

    /// Lets clients see the account of a module's instance while it is being replaced, until `ending` is
    /// cleared.
    pub(crate) fn show_ending(&self, key: &Key) {
        let account = self.present_account(key);
        if let Some(entry) = self.modules().get_mut(key)
            && let Some((live, account)) = entry.live.as_ref().zip(account)
        {
            let (name, state) = (live.module.plan.name.clone(), entry.state());
            entry.ending = Some(Ending::new(name, account, state, live.module.plan.view.has_steps()));
        }
    }

    /// Lets clients see the last account of an instance. Returns it: of a source that has just ended, the one
    /// that was known before.
    pub(crate) fn show_ended(&self, key: &Key, account: Account) -> Account {
        match self.modules().get(key).and_then(|entry| entry.ending.as_ref()) {
            Some(ending) => {
                ending.ended(&account);
                ending.account(Audience::Operator)
            }
            None => account,
        }
    }

    /// Removes an instance from its source, and records its end.
    pub(crate) fn end_live(&self, key: &Key, mut live: Live, source: &str, log: &Log) -> Option<Account> {
        let source = self.sources.get(source)?;
        let account = self.show_ended(key, source.remove(live.module.plan.id));
        self.end_of(&live, &account, source, log);
        self.write_last_state(key, &mut live);
        Some(account)
    }

    /// Returns the module and the revision of its row, if the module's revision is the expected one.
    pub(crate) fn expect(
        &self,
        owner: &Owner,
        name: &str,
        revision: Option<u64>,
    ) -> Result<(Stored, u64), Problem> {
        let modules = self.modules();
        let entry = modules.get(&(owner.clone(), name.to_owned())).ok_or_else(|| Self::missing(name))?;
        match revision {
            Some(expected) if expected != entry.stored.revision => Err(Problem::new(
                Code::Conflict,
                format!("module {name} has revision {}, the change is for {expected}", entry.stored.revision),
                "another change came first: look at the module (flame show) and repeat the change",
            )),
            _ => Ok((entry.stored.clone(), entry.row)),
        }
    }
}

impl Engine {
    /// Records the end of an instance in the audit log, and closes its way to the spool.
    pub(crate) fn end_of(&self, live: &Live, account: &Account, source: &SourceRun, log: &Log) {
        source.routes.remove(&live.module.plan.name);
        if let Some(kept) = &live.kept {
            kept.end();
        }
        let mut all = live.earlier.clone();
        all.add(account);
        self.record_end(live.granted.as_ref(), &log.take_faults(), &all);
    }

    /// Records the end of an instance in the audit log. It has ended, whether or not that can be written: the
    /// operator learns of it.
    pub(crate) fn record_end(&self, granted: Option<&Granted>, faults: &[String], account: &Account) {
        let recorded = granted.map_or(Ok(()), |granted| granted.entered.ended(faults, account));
        if let Err(e) = recorded {
            self.fault(AUDIT_LOG, Some(e.to_string()));
        }
    }
}

/// Returns a module that does not run, with a spool of at most `spool` bytes.
pub(crate) fn entry_of(stored: Stored, spool: u64, usage: Arc<Usage>) -> Entry {
    Entry {
        row: stored.revision,
        stored,
        version: String::new(),
        live: None,
        spool: Arc::new(Spool::new(spool, usage.clone())),
        past: Past::default(),
        ending: None,
        log: Arc::default(),
        usage,
        notes: Vec::new(),
        expires: None,
        known: Known::default(),
        state_bytes: 0,
    }
}

impl Engine {
    /// Gives the rows and events of `module` to `entry`, under the module's own name, with the rights under
    /// which they are made. Nothing of a module comes before that.
    pub(crate) fn route(
        &self,
        source: &SourceRun,
        entry: &Entry,
        module: &flame_worker::Module,
        reach: Option<&Arc<Reach>>,
    ) {
        let (spool, log) = (entry.spool.clone(), entry.log.clone());
        let audience = entry.stored.owner.audience();
        let name = entry.stored.name.clone();
        let catalog = Arc::new(flame_plan::CatalogEntry { name, ..module.plan.catalog_entry() });
        let made = reach.cloned().into_iter().collect();
        self.accounting.begins(&entry.usage, reach);
        source.routes.insert(&module.plan.name, Route { spool, log, entry: catalog, made, audience });
    }
}

impl Prepared {
    pub(crate) fn unroute(&self, source: &SourceRun) {
        source.routes.remove(&self.module.plan.name);
    }

    /// Makes the module the one that runs. `more` are further notes for its owner.
    pub(crate) fn into_entry(self, entry: &mut Entry, more: Vec<String>) {
        entry.notes = self.notes;
        entry.notes.extend(more);
        entry.expires = self.granted.as_ref().and_then(|g| Engine::expiry(&g.admitted));
        if let (Some(before), Some(now)) = (&entry.known.now, &self.reach)
            && !before.is_like(now)
        {
            entry.past.turn();
        }
        entry.known = Known { now: self.reach, bytes: self.bytes };
        let earlier = Account::default();
        let Self { module, granted, kept, .. } = self;
        entry.live = Some(Live { module, granted, kept, earlier, leaving: None });
    }
}
