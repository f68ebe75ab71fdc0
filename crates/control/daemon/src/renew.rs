//! Renewals: a running module gets another credential.

use crate::admission::RESERVED;
use crate::engine::{Engine, Live};
use crate::error::of_node;
use crate::reservation::{check_grant, meter};
use crate::store::{Owner, Proof, Stored};
use flame_api::{Code, Module, Problem, RenewRequest, Reservation};
use flame_node::{AdmittedModule, Node};
use flame_quota::Meters;
use std::sync::Arc;

/// The parts of a module that a new credential replaces.
struct Renewed {
    node: Node,
    admitted: AdmittedModule,
    meters: Meters,
}

impl Engine {
    /// Gives a running module a new credential of the same principal, and another reservation if the request
    /// has one. The module continues without a break, with the rights that it has, and counts in the meters
    /// of the new credential.
    ///
    /// # Errors
    ///
    /// Returns an error if the new credential gives less than the module has, or the reservation does not
    /// fit.
    pub fn renew(
        &self,
        owner: &Owner,
        name: &str,
        request: &RenewRequest,
        shown: Proof,
    ) -> Result<Module, Problem> {
        let _changing = self.begin(owner, name)?;
        let before = self.expect(owner, name, request.revision)?;
        Self::stays(self.modules().get(&(owner.clone(), name.to_owned())), name)?;
        let stored = Stored {
            proof: Some(shown),
            reserved: request.reserve.unwrap_or(before.reserved),
            revision: before.revision + 1,
            ..before.clone()
        };
        let is_apart = self.process_for(owner, &stored.reserved) != self.process_for(owner, &before.reserved);
        if is_apart {
            return Err(Problem::new(
                Code::Invalid,
                "modules with and without reserved processor time have processes of their own",
                "begin or end such a reservation with an update (flame update --reserve), which begins \
                 another instance",
            ));
        }
        if stored.reserved.blocks != before.reserved.blocks {
            return Err(Problem::new(
                Code::Invalid,
                format!("the module has {} blocks", before.reserved.blocks),
                "change their number with an update (flame update --reserve), which begins another instance",
            ));
        }
        let (node, admitted) = self.admitted(&stored)?;
        // Before the modules are locked: ledgers of quotas are files.
        let meters = node.meters(&admitted, true).map_err(|e| of_node(&e))?;
        // Before the modules are locked: the policy is locked before them elsewhere.
        let (key, audited) = ((owner.clone(), name.to_owned()), self.audited());
        let mut modules = self.modules();
        let entry = modules.get_mut(&key).ok_or_else(|| Self::missing(name))?;
        Self::stays(Some(&*entry), name)?;
        let revision = before.revision;
        match &mut entry.live {
            Some(live) => {
                let renewed = Renewed { node, admitted, meters };
                let notes = self.renew_live(live, &stored, (revision, before.reserved), renewed, audited)?;
                entry.notes.retain(|note| !note.starts_with(RESERVED));
                entry.notes.extend(notes);
            }
            None => self.stored(self.store.put(&stored, Some(revision), audited))?,
        }
        entry.expires = entry.live.as_ref().and_then(|l| Engine::expiry(&l.granted.as_ref()?.admitted));
        entry.stored = stored;
        entry.note("renewed");
        drop(modules);
        self.show(owner, name)
    }

    /// Stores the renewal of a module that runs, and lets it count in its new meters. Returns the arithmetic
    /// of its reservation. `before` is the revision that it replaces, and `earlier` its reservation.
    fn renew_live(
        &self,
        live: &mut Live,
        stored: &Stored,
        (before, earlier): (u64, Reservation),
        Renewed { node, admitted, meters }: Renewed,
        audited: Option<u64>,
    ) -> Result<Vec<String>, Problem> {
        let Some(granted) = &mut live.granted else { return Err(Self::missing(&stored.name)) };
        let admitted = granted.admitted.renewed(admitted).map_err(|_| {
            Problem::new(
                Code::Forbidden,
                "the new credential gives less than the module has",
                "update the module (flame update) to run it with less, or ask for a wider credential",
            )
        })?;
        check_grant(&stored.reserved, &meters)?;
        let source = self.source(Some(&stored.source))?;
        let mut reserving =
            self.reserve(&(stored.owner.clone(), stored.name.clone()), &stored.reserved, source)?;
        let now = &live.module.meters;
        let charged = now.with(None, None);
        now.renew(&meters.with(meter(&stored.reserved), None)).map_err(|e| {
            Problem::new(
                Code::TooLarge,
                e.to_string(),
                "update the module (flame update), which begins with empty memory",
            )
        })?;
        let plan = live.module.plan.clone();
        let guaranteed = self.guarantee(source, &plan, &stored.reserved);
        let stored_now = guaranteed.and_then(|note| {
            self.stored(self.store.put(stored, Some(before), audited))?;
            Ok(note)
        });
        match stored_now {
            Ok(note) => reserving.notes.extend(note),
            Err(e) => {
                // Both were allowed a moment ago.
                let _ = now.renew(&charged);
                let _ = self.guarantee(source, &plan, &earlier);
                return Err(e);
            }
        }
        source.renewed(live.module.plan.id);
        let notes = std::mem::take(&mut reserving.notes);
        reserving.keep();
        granted.renew((Arc::new(node), Arc::new(admitted)));
        Ok(notes)
    }
}
