//! Changes of modules: install, update, stop and remove.

use crate::build::PrepareRequest;
use crate::engine::{By, Engine};
use crate::kept::{Before, Beginning};
use crate::life::{Entry, Key};
use crate::reconcile::{Candidate, Row, Wish};
use crate::store::states::StoredStates;
use crate::store::{Owner, Proof, Stored};
use flame_api::{Code, InstallRequest, Module, Problem, State, UpdateRequest};
use flame_quota::Usage;
use flame_trust::{Verified, time};
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
        let reserving = self.reserve(&key, &stored.reserved, source)?;
        let usage = Arc::<Usage>::default();
        let (wasm, by) = (&request.wasm, By::Request);
        let mut prepared =
            self.prepare(&PrepareRequest { stored: &stored, wasm, source, usage: &usage, by })?;
        self.fits(&key, prepared.bytes)?;
        self.state_fits(&key, &prepared.module.plan, source)?;
        self.stored(self.store.put_code(&stored.hash, &request.wasm))?;
        let mut entry = Entry::new(stored.clone(), self.config().limits.spool, usage.clone());
        let state = Before::Stored(StoredStates::default());
        let beginning = Beginning::of(&prepared, (source, self.config().states), &entry.log, state, None);
        prepared.begin(&beginning);
        entry.note("installed");
        let (row, reach) = (Row::New(Box::new(entry)), prepared.reach.clone());
        let beginning = &beginning;
        let candidate = Candidate { stored, row, source, prepared, beginning, reserving };
        self.reconcile(&key, Wish::Run(Box::new(candidate)))?;
        self.accounting.add((owner, &name, &source.name), &usage, reach.as_ref());
        drop(pin);
        self.show(owner, &name)
    }

    fn is_new(&self, key: &(Owner, String)) -> Result<(), Problem> {
        match self.modules().contains_key(key) {
            true => Err(Problem::new(
                Code::Conflict,
                format!("module {} is installed already", key.1),
                "update it (flame update), remove it (flame remove), or choose another name (flame install --name)",
            )),
            false => Ok(()),
        }
    }

    /// Decides whether a principal may have `more` modules than it has, with the installs in progress.
    pub(crate) fn has_room(&self, owner: &Owner, more: usize) -> Result<(), Problem> {
        let (limits, tenant) = (self.config().limits, owner.tenant());
        let (mine, all) = {
            let modules = self.modules();
            let coming = modules.coming();
            let mine = coming.iter().filter(|(of, _)| of.tenant() == tenant).count();
            (mine + more, coming.len() + more)
        };
        let most = limits.modules_per_principal;
        if !owner.is_operator() && mine > most {
            return Err(Problem::new(
                Code::TooLarge,
                format!("this principal has {most} modules already"),
                "remove one, or ask the operator for a higher limit (modules_per_principal in [limits])",
            ));
        }
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
        let most = self.config().limits.storage_per_principal;
        let others = self.modules().sum_of_others(key, |entry| entry.known.bytes);
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

    /// Changes code, settings or narrowing of a module. The new instance resumes from the state of the old
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
        let reserving = self.reserve(&key, &stored.reserved, source)?;
        let usage = self.of_module(owner, name, |entry| entry.usage.clone())?;
        let by = By::Request;
        let mut prepared =
            self.prepare(&PrepareRequest { stored: &stored, wasm: &wasm, source, usage: &usage, by })?;
        self.permit_grant(session, prepared.reach.as_ref())?;
        self.fits(&key, prepared.bytes)?;
        self.state_fits(&key, &prepared.module.plan, source)?;
        let interval = self.config().states;
        let (kept, log, reach) = self.of_module(owner, name, |entry| {
            let kept = entry.life.live().and_then(|live| live.kept.clone());
            (kept, entry.log.clone(), entry.known.now.clone())
        })?;
        let why_empty = request.empty.then_some("as requested");
        let state = self.state_before(&before, kept)?;
        let beginning = Beginning::of(&prepared, (source, interval), &log, state, why_empty);
        prepared.begin(&beginning);
        if hash != before.hash || self.store.code(&hash).is_err() {
            self.stored(self.store.put_code(&hash, &wasm))?;
        }
        let row = Row::After(row);
        let candidate = Candidate { stored, row, source, prepared, beginning: &beginning, reserving };
        let account = self.reconcile(&key, Wish::Run(Box::new(candidate)))?;
        let text = format!("updated; the instance before had {} packets", account.offered);
        log.change_of(&text, reach.as_ref());
        if before.hash != hash {
            self.drop_unused_code(&(owner.clone(), before.hash));
        }
        // Without the lock, because the instances before may take their time to end.
        if let Some(note) = self.state_note(&beginning)
            && let Some(entry) = self.modules().get_mut(&key)
        {
            entry.note(note.clone());
            entry.notes.push(note);
        }
        self.show(owner, name)
    }

    /// Stops a module, which stays installed. Its records are kept. It ends whether or not that can be
    /// stored. A module that was stopped or evicted before stays as it is. After a failure it is not run when
    /// the node starts.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing was changed, or why the end is not stored yet.
    pub fn stop(&self, owner: &Owner, name: &str, revision: Option<u64>) -> Result<Module, Problem> {
        let _changing = self.begin(owner, name)?;
        self.expect(owner, name, revision)?;
        let key = (owner.clone(), name.to_owned());
        let reason = "stopped by request: run it again with flame update".to_owned();
        self.reconcile(&key, Wish::End { of: None, state: State::Stopped, reason })?;
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
        let key = (owner.clone(), name.to_owned());
        self.reconcile(&key, Wish::Remove { before: row })?;
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
        match entry.and_then(|entry| entry.life.live()?.why_leaving()) {
            Some(_) => Err(Problem::new(
                Code::Conflict,
                format!("module {name} has just lost its grant"),
                "look at the reason (flame show), and run it again with the new credential (flame update)",
            )),
            None => Ok(()),
        }
    }

    /// Returns the module and the revision of its row, if the module's revision is the expected one.
    pub(crate) fn expect(
        &self,
        owner: &Owner,
        name: &str,
        revision: Option<u64>,
    ) -> Result<(Stored, u64), Problem> {
        let (stored, written) = self.of_module(owner, name, |entry| (entry.stored.clone(), entry.written))?;
        match revision {
            Some(expected) if expected != stored.revision => Err(Problem::new(
                Code::Conflict,
                format!("module {name} has revision {}, the change is for {expected}", stored.revision),
                "another change came first: look at the module (flame show) and repeat the change",
            )),
            _ => Ok((stored, written)),
        }
    }
}
