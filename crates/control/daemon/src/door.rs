//! The one place that decides whether a session may act on a module.
//!
//! A principal's sessions may have credentials of different width. Each acts only on modules whose rights its
//! own credential covers, at the time of the operation, with all checks of the credential and of the policy.

use crate::engine::Engine;
use crate::error::denied;
use crate::identity::Caller;
use crate::life::{Entry, Key};
use crate::reach::Reach;
use crate::store::{Owner, Stored};
use flame_api::{Code, Problem};
use flame_node::AdmittedModule;
use flame_trust::{Credential, ModuleRequest, Rights, Verified};
use std::sync::Arc;

/// The permission for one operation.
pub(crate) struct Permit {
    pub owner: Owner,
    /// The revision that was decided on, for a session under a credential. A change of another one is
    /// refused.
    pub revision: Option<u64>,
}

impl Permit {
    /// Returns the revision that a change is for.
    pub fn revision(&self, stated: Option<u64>) -> Option<u64> {
        stated.or(self.revision)
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
        let Some(session) = caller.session() else { return Ok(Permit { owner, revision: None }) };
        let key = (owner, name.to_owned());
        let (stored, mut reaches) = self.reaches(&key)?;
        if !rows {
            reaches.truncate(1);
        }
        for reach in reaches {
            self.decide(session, &stored.source, &reach)?;
        }
        Ok(Permit { owner: key.0, revision: Some(stored.revision) })
    }

    /// Returns the keys of the modules that a caller may act on, or nothing for the operator, who may act on
    /// all.
    pub(crate) fn permitted(&self, caller: &Caller) -> Option<Vec<Key>> {
        caller.session()?;
        let owner = caller.owner();
        let mine: Vec<Key> = self.modules().keys().filter(|(of, _)| *of == owner).cloned().collect();
        Some(mine.into_iter().filter(|(_, name)| self.permit(caller, None, name, false).is_ok()).collect())
    }

    /// Decides whether a caller may act on all modules that it has, and returns their owner. Rows about all
    /// of them, such as the rows of the accounting, are for such a caller only.
    ///
    /// # Errors
    ///
    /// Returns the reason why not.
    pub(crate) fn permit_all(&self, caller: &Caller) -> Result<Owner, Problem> {
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
        Ok(owner)
    }

    /// Decides whether a session may give a module the rights that it was just admitted with.
    ///
    /// # Errors
    ///
    /// Returns the reason why not.
    pub(crate) fn permit_grant(
        &self,
        session: Option<&Verified>,
        source: &str,
        admitted: Option<&AdmittedModule>,
    ) -> Result<(), Problem> {
        match (session, admitted) {
            (Some(session), Some(admitted)) => self.decide(session, source, &Reach::of(admitted)),
            _ => Ok(()),
        }
    }

    fn decide(&self, session: &Verified, source: &str, reach: &Reach) -> Result<(), Problem> {
        let remedy = "present a credential that covers the module (flame --credential)";
        let policy =
            self.policy().ok_or_else(|| Problem::new(Code::Forbidden, "the node has no policy", remedy))?;
        let place = &self.source(Some(source))?.place;
        let admitted = policy.admit_operation(session, &reach.operation(place));
        admitted.map_err(|e| denied(e.to_string(), e.operator(), remedy))
    }

    /// Returns a module as it is stored, what it was admitted with last, and before.
    fn reaches(&self, key: &Key) -> Result<(Stored, Vec<Arc<Reach>>), Problem> {
        let missing = || Self::missing(&key.1);
        let known = |entry: &Entry| {
            let now = entry.known.now.clone()?;
            Some(std::iter::once(now).chain(entry.known.earlier.iter().cloned()).collect())
        };
        let stored = {
            let modules = self.modules();
            let entry = modules.get(key).ok_or_else(missing)?;
            if let Some(reaches) = known(entry) {
                return Ok((entry.stored.clone(), reaches));
            }
            entry.stored.clone()
        };
        // It was not run since the node was started.
        let reach = Arc::new(self.reach(&stored));
        let mut modules = self.modules();
        let entry = modules.get_mut(key).ok_or_else(missing)?;
        if entry.known.now.is_none() && entry.stored.revision == stored.revision {
            entry.known.now = Some(reach.clone());
        }
        Ok((stored, known(entry).unwrap_or_else(|| vec![reach])))
    }

    /// Returns what a module that does not run would be admitted with. If that cannot be found out, it is
    /// taken to have all rights.
    fn reach(&self, stored: &Stored) -> Reach {
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
        Reach { module: Arc::new(module), rights }
    }
}
