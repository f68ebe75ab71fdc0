//! The one place that decides whether a session may act on a module.
//!
//! A principal's sessions may have credentials of different width. Each acts only on modules whose rights its
//! own credential covers, at the time of the operation, with all checks of the credential and of the policy.

use crate::engine::Engine;
use crate::error::{denied, of_source};
use crate::identity::Caller;
use crate::life::{Entry, Key};
use crate::reach::Reach;
use crate::spool::Spool;
use crate::store::{Owner, Stored};
use flame_abi::output::{MAX_REQUEST, Outcome};
use flame_api::{Account, Code, LogLine, Module, Problem, Question, Served, State};
use flame_trust::{Credential, ModuleRequest, Rights, Verified};
use std::sync::Arc;

/// What a session may learn about a module on which it may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Whole,
    /// That the module was evicted, and why. Its account is about packets that the session may not see any
    /// more.
    Outline,
}

/// The permission for one operation.
pub(crate) struct Permit {
    pub owner: Owner,
    sight: Sight,
    /// The revision that was decided on, for a session under a credential. A change of another one is
    /// refused.
    pub revision: Option<u64>,
}

impl Permit {
    /// Returns the revision that a change is for.
    pub fn revision(&self, stated: Option<u64>) -> Option<u64> {
        stated.or(self.revision)
    }

    /// Returns what the session may learn of the module.
    pub fn shown(&self, module: Module) -> Module {
        match self.sight {
            Sight::Whole => module,
            Sight::Outline => outline(module),
        }
    }
}

/// Returns the outline of a module.
fn outline(module: Module) -> Module {
    let note = "its rights exceed what this session has now: its account, settings and records are not shown; \
                flame remove forgets them, then install it again";
    Module {
        settings: Default::default(),
        narrow: Vec::new(),
        account: Account::default(),
        usage: Default::default(),
        reserved: Default::default(),
        spool: Default::default(),
        notes: vec![note.to_owned()],
        ..module
    }
}

impl Engine {
    /// Decides whether a caller may act on a module: its own, or for the operator a module of `principal`. If
    /// `rows`, it is about the records that are kept, also from earlier instances.
    ///
    /// # Errors
    ///
    /// Returns the reason why not.
    pub(crate) fn permit(
        &self,
        caller: &Caller,
        principal: Option<&str>,
        name: &str,
        rows: bool,
    ) -> Result<Permit, Problem> {
        let owner = caller.of(self, principal)?;
        let Some(session) = caller.session() else {
            return Ok(Permit { owner, sight: Sight::Whole, revision: None });
        };
        let key = (owner, name.to_owned());
        let (revision, now, spool) = self.reach_now(&key)?;
        self.decide(session, &now)?;
        if rows {
            self.permit_made(caller, spool.rights().iter().map(|reach| &**reach))?;
        }
        Ok(Permit { owner: key.0, sight: Sight::Whole, revision: Some(revision) })
    }

    /// Decides whether a caller may see that a module has ended, stop it and remove it. Beside
    /// [`Engine::permit`], a session may do so whose credential covers what an evicted module would have now:
    /// since its policy became stricter, no session covers its former rights.
    ///
    /// # Errors
    ///
    /// Returns the reason why not.
    pub(crate) fn permit_end(
        &self,
        caller: &Caller,
        principal: Option<&str>,
        name: &str,
    ) -> Result<Permit, Problem> {
        self.permit(caller, principal, name, false).or_else(|problem| {
            let outline = || {
                let owner = caller.of(self, principal).ok()?;
                let ended = |entry: &Entry| (entry.state() == State::Evicted).then(|| entry.stored.clone());
                let stored = self.of_module(&owner, name, ended).ok()??;
                self.decide(caller.session()?, &self.reach(&stored).ok()?).ok()?;
                Some(Permit { owner, sight: Sight::Outline, revision: Some(stored.revision) })
            };
            outline().ok_or(problem)
        })
    }

    /// Returns the modules of a caller that were evicted, and whose outline is all that it may see.
    pub(crate) fn outlines(&self, caller: &Caller) -> Vec<Module> {
        let owner = caller.owner();
        let mine: Vec<Key> = self.modules().keys().filter(|(of, _)| *of == owner).cloned().collect();
        let outlined = |(owner, name): &Key| {
            let permit = self.permit_end(caller, None, name).ok()?;
            let module = (permit.sight == Sight::Outline).then(|| self.show(owner, name).ok())??;
            Some(permit.shown(module))
        };
        mine.iter().filter_map(outlined).collect()
    }

    /// Returns the lines of a module's log that a caller has, the oldest first. The caller may act on the
    /// module.
    ///
    /// # Errors
    ///
    /// Returns an error if the owner has no module of this name.
    pub(crate) fn log(&self, owner: &Owner, name: &str, caller: &Caller) -> Result<Vec<LogLine>, Problem> {
        let log = self.of_module(owner, name, |entry| entry.log.clone())?;
        Ok(log.lines(caller.audience(), |made| self.permit_made(caller, [made]).is_ok()))
    }

    /// Asks a service of a module, and waits for its reply, which the module pays for.
    ///
    /// # Errors
    ///
    /// Returns the reason why it has not replied.
    pub(crate) fn ask(&self, owner: &Owner, name: &str, question: &Question) -> Result<Served, Problem> {
        let Question { service, request } = question;
        if request.len() > MAX_REQUEST {
            let found = format!("request: {} bytes, at most {MAX_REQUEST} are passed on", request.len());
            return Err(Problem::new(Code::TooLarge, found, "ask for less at once"));
        }
        let live = |entry: &Entry| {
            let id = entry.life.live().map(|live| live.module.plan.id);
            (id, entry.stored.source.clone())
        };
        let (id, source) = self.of_module(owner, name, live)?;
        let none = |cause: &str, remedy| {
            Problem::new(Code::Unavailable, format!("service {service} of {name}: {cause}"), remedy)
        };
        let id = id.ok_or_else(|| none("the module does not run", "update it, or install it again"))?;
        let asked = self.source(Some(&source))?.ask(id, service, request);
        match asked.map_err(|error| of_source(&error))? {
            Ok(reply) => Ok(Served { reply }),
            Err(Outcome::Nobody) => Err(Problem::new(
                Code::NotFound,
                format!("{name} offers no service {service}"),
                "name one of `[[services]]` in its manifest; `flame inspect` lists them",
            )),
            Err(Outcome::Ended) => Err(none("the module has ended", "ask again once it runs")),
            Err(Outcome::Late) => Err(none("no reply within a second", "ask again, or for less")),
            Err(Outcome::Refused | Outcome::Replied) => {
                let cause = "too many questions wait, or no processor time or memory is left for them";
                Err(none(cause, "ask more slowly, or have a larger share"))
            }
        }
    }

    /// Decides whether a caller may have what was made under these rights.
    ///
    /// # Errors
    ///
    /// Returns the reason why not.
    pub(crate) fn permit_made<'a>(
        &self,
        caller: &Caller,
        made: impl IntoIterator<Item = &'a Reach>,
    ) -> Result<(), Problem> {
        let Some(session) = caller.session() else { return Ok(()) };
        made.into_iter().try_for_each(|reach| self.decide(session, reach))
    }

    /// Returns the keys of the modules that a caller may act on, or nothing for the operator, who may act on
    /// all.
    pub(crate) fn permitted(&self, caller: &Caller) -> Option<Vec<Key>> {
        caller.session()?;
        let owner = caller.owner();
        let mine: Vec<Key> = self.modules().keys().filter(|(of, _)| *of == owner).cloned().collect();
        Some(mine.into_iter().filter(|(_, name)| self.permit(caller, None, name, false).is_ok()).collect())
    }

    /// Decides whether a caller may act on all modules that it has, and returns the rows of the accounting,
    /// which are about all of them and about those that it had.
    ///
    /// # Errors
    ///
    /// Returns the reason why not.
    pub(crate) fn permit_all(&self, caller: &Caller) -> Result<Arc<Spool>, Problem> {
        let owner = caller.owner();
        if caller.session().is_some() {
            let mine: Vec<Key> = self.modules().keys().filter(|(of, _)| *of == owner).cloned().collect();
            for (_, name) in mine {
                match self.permit(caller, None, &name, true) {
                    // It was removed meanwhile.
                    Err(problem) if problem.code == Code::NotFound => {}
                    decided => drop(decided?),
                }
            }
        }
        let spool = self.accounting.spool(&owner);
        self.permit_made(caller, spool.rights().iter().map(|reach| &**reach))?;
        Ok(spool)
    }

    /// Decides whether a session may give a module the rights that it was just admitted with.
    ///
    /// # Errors
    ///
    /// Returns the reason why not.
    pub(crate) fn permit_grant(
        &self,
        session: Option<&Verified>,
        reach: Option<&Arc<Reach>>,
    ) -> Result<(), Problem> {
        match (session, reach) {
            (Some(session), Some(reach)) => self.decide(session, reach),
            _ => Ok(()),
        }
    }

    fn decide(&self, session: &Verified, reach: &Reach) -> Result<(), Problem> {
        let remedy = "present a credential that covers the module (flame --credential)";
        let policy =
            self.policy().ok_or_else(|| Problem::new(Code::Forbidden, "the node has no policy", remedy))?;
        let admitted = policy.admit_operation(session, &reach.operation());
        admitted.map_err(|e| denied(e.to_string(), e.operator(), remedy))
    }

    /// Returns the revision of a module, the rights that it was admitted with last, and its rows.
    fn reach_now(&self, key: &Key) -> Result<(u64, Arc<Reach>, Arc<Spool>), Problem> {
        let missing = || Self::missing(&key.1);
        let stored = {
            let modules = self.modules();
            let entry = modules.get(key).ok_or_else(missing)?;
            if let Some(now) = &entry.known.now {
                return Ok((entry.stored.revision, now.clone(), entry.spool.clone()));
            }
            entry.stored.clone()
        };
        // It was not run since the node was started.
        let reach = Arc::new(self.reach(&stored)?);
        let mut modules = self.modules();
        let entry = modules.get_mut(key).ok_or_else(missing)?;
        if entry.known.now.is_none() && entry.stored.revision == stored.revision {
            entry.known.now = Some(reach.clone());
        }
        Ok((stored.revision, entry.known.now.clone().unwrap_or(reach), entry.spool.clone()))
    }

    /// Returns what a module that does not run would be admitted with. If that cannot be found out, it is
    /// taken to have all rights.
    fn reach(&self, stored: &Stored) -> Result<Reach, Problem> {
        let module = self.request_of(stored).unwrap_or_else(|| ModuleRequest {
            name: stored.name.clone(),
            hash: stored.hash,
            signers: Vec::new(),
            fields: Vec::new(),
            calls: Default::default(),
            uses: Vec::new(),
            services: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
        });
        let rights = || {
            let credential = Credential::parse(&stored.proof.as_ref()?.credential).ok()?;
            self.policy()?.rights_of(&credential, &module).ok()
        };
        let rights = rights().unwrap_or_else(Rights::all);
        let place = self.source(Some(&stored.source))?.place.clone();
        Ok(Reach { module: Arc::new(module), place, rights })
    }
}
