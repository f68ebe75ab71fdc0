//! Changes of modules: install, update, renew, stop and remove.

use crate::build::{Asked, Prepared};
use crate::engine::{Engine, Entry, Live, held};
use crate::error::of_source;
use crate::spool::Spool;
use crate::store::{Owner, Proof, Stored};
use flame_abi::manifest::Manifest;
use flame_api::{Code, InstallRequest, Module, Problem, State, UpdateRequest};
use flame_plan::Account;
use flame_trust::time;
use std::collections::VecDeque;
use std::sync::Arc;

/// A credential and the answer of its holder for the code of a request.
pub type Presented = Option<Proof>;

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
        let name = match &request.name {
            Some(name) => name.clone(),
            None => self.examine(&request.wasm)?.name.clone(),
        };
        if !crate::units::is_name(&name) {
            return Err(Problem::new(
                Code::Invalid,
                format!("name {:?}", name.chars().take(80).collect::<String>()),
                "use a lower-case letter, then up to 31 of letters, digits, _ and -",
            ));
        }
        let _changing = self.begin(owner, &name)?;
        let key = (owner.clone(), name.clone());
        self.has_room(&key)?;
        let stored = Stored {
            owner: owner.clone(),
            name: name.clone(),
            source: source.name.clone(),
            hash: flame_compile::hash_of(&request.wasm),
            signatures: request.signatures.unwrap_or_default(),
            settings: request.settings,
            narrow: request.narrow,
            proof: shown,
            state: State::Running,
            reason: None,
            revision: 1,
            installed: time::now(),
        };
        let prepared = self.prepare(&Asked { stored: &stored, wasm: &request.wasm, source })?;
        let pin = self.pin(stored.hash);
        self.stored(self.store.put_code(&stored.hash, &request.wasm))?;
        if let Err(e) = self.stored(self.store.put(&stored, self.audited())) {
            drop(pin);
            self.drop_unused_code(&stored.hash);
            return Err(e);
        }
        let spool = Arc::new(Spool::new(self.config().limits.spool));
        let manifest = prepared.module.plan.manifest.clone();
        prepared.route(source, &spool);
        if let Err(e) = source.add(&prepared.module) {
            let problem = of_source(&e);
            prepared.unroute(source);
            self.stored(self.store.remove(owner, &name, self.audited()))?;
            drop(pin);
            self.drop_unused_code(&stored.hash);
            return Err(problem);
        }
        let mut entry = entry_of(stored, &manifest, spool);
        entry.note("installed");
        prepared.into_entry(&mut entry);
        self.modules().insert(key, entry);
        self.show(owner, &name)
    }

    fn has_room(&self, key: &(Owner, String)) -> Result<(), Problem> {
        let most = self.config().limits.modules;
        let modules = self.modules();
        if modules.contains_key(key) {
            return Err(Problem::new(
                Code::Conflict,
                format!("module {} is installed already", key.1),
                "update it (flame update), or choose another name (flame install --name)",
            ));
        }
        // Installs in progress count as well.
        let coming = held(&self.changing).iter().filter(|key| !modules.contains_key(*key)).count();
        match modules.len() + coming > most {
            true => Err(Problem::new(
                Code::TooLarge,
                format!("the node holds {} modules, at most {most}", modules.len()),
                "remove one, or ask the operator for a higher limit (modules in [limits])",
            )),
            false => Ok(()),
        }
    }

    /// Changes code, settings or narrowing of a module. The new instance begins empty; every packet is
    /// offered to the old instance or to the new one.
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
    ) -> Result<Module, Problem> {
        let _changing = self.begin(owner, name)?;
        let before = self.expect(owner, name, request.revision)?;
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
            settings: request.settings.unwrap_or_else(|| before.settings.clone()),
            narrow: request.narrow.unwrap_or_else(|| before.narrow.clone()),
            proof: shown.or_else(|| before.proof.clone()),
            state: State::Running,
            reason: None,
            revision: before.revision + 1,
            ..before.clone()
        };
        let prepared = self.prepare(&Asked { stored: &stored, wasm: &wasm, source })?;
        let pin = self.pin(hash);
        self.stored(self.store.put_code(&hash, &wasm))?;
        if let Err(e) = self.stored(self.store.put(&stored, self.audited())) {
            drop(pin);
            self.drop_unused_code(&hash);
            return Err(e);
        }

        let key = (owner.clone(), name.to_owned());
        let (old, spool) = {
            let modules = self.modules();
            let entry = modules.get(&key).ok_or_else(|| Self::missing(name))?;
            (entry.live.as_ref().map(|live| live.module.plan.clone()), entry.spool.clone())
        };
        prepared.route(source, &spool);
        let swapped = match &old {
            Some(old) => source.replace(old.id, &prepared.module),
            None => source.add(&prepared.module).map(|()| Account::default()),
        };
        let account = match swapped {
            Ok(account) => account,
            Err(e) => {
                prepared.unroute(source);
                self.stored(self.store.put(&before, self.audited()))?;
                drop(pin);
                self.drop_unused_code(&hash);
                return Err(of_source(&e));
            }
        };
        {
            let mut modules = self.modules();
            let entry = modules.get_mut(&key).ok_or_else(|| Self::missing(name))?;
            if let Some(live) = entry.live.take() {
                end_of(&live, &account, source);
            }
            entry.past.add(&account);
            entry.version.clone_from(&prepared.module.plan.manifest.version);
            entry.stored = stored;
            entry.note(format!("updated; the instance before had {} packets", account.offered));
            prepared.into_entry(entry);
        }
        if before.hash != hash {
            self.drop_unused_code(&before.hash);
        }
        self.show(owner, name)
    }

    /// Gives a running module a new credential of the same principal. The module continues without a break,
    /// with the rights that it has.
    ///
    /// # Errors
    ///
    /// Returns an error if the new credential gives less than the module has.
    pub fn renew(
        &self,
        owner: &Owner,
        name: &str,
        revision: Option<u64>,
        shown: Proof,
    ) -> Result<Module, Problem> {
        let _changing = self.begin(owner, name)?;
        let before = self.expect(owner, name, revision)?;
        let stored = Stored { proof: Some(shown), revision: before.revision + 1, ..before.clone() };
        let renewed = self.admitted(&stored)?;
        let (key, audited) = ((owner.clone(), name.to_owned()), self.audited());
        let mut modules = self.modules();
        let entry = modules.get_mut(&key).ok_or_else(|| Self::missing(name))?;
        if let Some(granted) = entry.live.as_mut().and_then(|live| live.granted.as_mut()) {
            let (node, admitted) = renewed;
            let expires = Engine::expiry(&admitted);
            let admitted = granted.admitted.renewed(admitted).map_err(|_| {
                Problem::new(
                    Code::Forbidden,
                    "the new credential gives less than the module has",
                    "update the module (flame update) to run it with less, or ask for a wider credential",
                )
            })?;
            self.stored(self.store.put(&stored, audited))?;
            (granted.node, granted.admitted) = (node, admitted);
            entry.expires = expires;
        } else {
            self.stored(self.store.put(&stored, audited))?;
        }
        entry.stored = stored;
        entry.note("renewed");
        drop(modules);
        self.show(owner, name)
    }

    /// Stops a module, which stays installed. Its records are kept.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing was changed.
    pub fn stop(&self, owner: &Owner, name: &str, revision: Option<u64>) -> Result<Module, Problem> {
        let _changing = self.begin(owner, name)?;
        let before = self.expect(owner, name, revision)?;
        let reason = Some("stopped by request: run it again with flame update".to_owned());
        let stored = Stored { state: State::Stopped, reason, revision: before.revision + 1, ..before };
        self.stored(self.store.put(&stored, self.audited()))?;
        self.take_down(&(owner.clone(), name.to_owned()), |entry| {
            entry.stored = stored;
            entry.note("stopped");
        });
        self.show(owner, name)
    }

    /// Removes a module with its records, and returns it as it was at its end.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing was changed.
    pub fn remove(&self, owner: &Owner, name: &str, revision: Option<u64>) -> Result<Module, Problem> {
        let _changing = self.begin(owner, name)?;
        let before = self.expect(owner, name, revision)?;
        self.stored(self.store.remove(owner, name, self.audited()))?;
        let key = (owner.clone(), name.to_owned());
        self.take_down(&key, |_| {});
        let module = self.show(owner, name);
        let entry = self.modules().remove(&key);
        if let Some(entry) = entry {
            entry.spool.close();
        }
        self.drop_unused_code(&before.hash);
        let reason = Some("removed".to_owned());
        module.map(|module| Module { state: State::Stopped, reason, ..module })
    }

    /// Ends the instance of a module and keeps its account. `then` sees the entry without it.
    pub(crate) fn take_down(&self, key: &(Owner, String), then: impl FnOnce(&mut Entry)) {
        let live = self.modules().get_mut(key).and_then(|entry| {
            let source = entry.stored.source.clone();
            entry.live.take().map(|live| (live, source))
        });
        // Without the lock: the module may take its time to end.
        let ended = live.and_then(|(live, source)| {
            let source = self.sources.get(&source)?;
            let account = source.remove(live.module.plan.id);
            end_of(&live, &account, source);
            Some(account)
        });
        if let Some(entry) = self.modules().get_mut(key) {
            entry.past.add(&ended.unwrap_or_default());
            then(entry);
        }
    }

    /// Returns the module as it is stored, if its revision is the expected one.
    fn expect(&self, owner: &Owner, name: &str, revision: Option<u64>) -> Result<Stored, Problem> {
        let modules = self.modules();
        let entry = modules.get(&(owner.clone(), name.to_owned())).ok_or_else(|| Self::missing(name))?;
        match revision {
            Some(expected) if expected != entry.stored.revision => Err(Problem::new(
                Code::Conflict,
                format!("module {name} has revision {}, the change is for {expected}", entry.stored.revision),
                "another change came first: look at the module (flame show) and repeat the change",
            )),
            _ => Ok(entry.stored.clone()),
        }
    }
}

/// Records the end of an instance in the audit log, and closes its way to the spool.
pub(crate) fn end_of(live: &Live, account: &Account, source: &crate::source::SourceRun) {
    held(&source.spools).remove(&live.module.plan.name);
    if let Some(granted) = &live.granted {
        // The module has ended, whether or not its end can be recorded.
        let _ = granted.entered.ended(&[], account);
    }
}

pub(crate) fn entry_of(stored: Stored, manifest: &Manifest, spool: Arc<Spool>) -> Entry {
    Entry {
        stored,
        version: manifest.version.clone(),
        live: None,
        spool,
        past: Account::default(),
        log: VecDeque::new(),
        notes: Vec::new(),
        expires: None,
    }
}

impl Prepared {
    /// Gives the rows of the module to `spool`, under the module's own name.
    pub(crate) fn route(&self, source: &crate::source::SourceRun, spool: &Arc<Spool>) {
        let entry = Arc::new(flame_plan::CatalogEntry {
            name: self.name.clone(),
            ..self.module.plan.catalog_entry()
        });
        held(&source.spools).insert(self.module.plan.name.clone(), (spool.clone(), entry));
    }

    pub(crate) fn unroute(&self, source: &crate::source::SourceRun) {
        held(&source.spools).remove(&self.module.plan.name);
    }

    pub(crate) fn into_entry(self, entry: &mut Entry) {
        entry.notes = self.notes;
        entry.expires = self.granted.as_ref().and_then(|g| Engine::expiry(&g.admitted));
        entry.live = Some(Live { module: self.module, granted: self.granted });
    }
}
