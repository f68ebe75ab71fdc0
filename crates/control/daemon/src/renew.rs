//! Renewals: a running module gets another credential.

use crate::admission::RESERVED;
use crate::engine::Engine;
use crate::error::of_node;
use crate::life::{Key, Live};
use crate::reconcile::Wish;
use crate::reservation::{check_grant, meter};
use crate::store::{Owner, Proof, Stored};
use flame_api::{Code, Module, Problem, RenewRequest};
use flame_node::{AdmittedModule, Node};
use flame_plan::ModulePlan;
use flame_quota::Meters;
use std::sync::Arc;

/// A module that runs, as it will be with a new credential.
struct Running {
    admitted: AdmittedModule,
    /// Those that it has.
    meters: Meters,
    plan: ModulePlan,
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
        let (before, row) = self.expect(owner, name, request.revision)?;
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
        let key = (owner.clone(), name.to_owned());
        // Before the modules are locked, because settings may have many megabytes.
        let sizes = (before.row_bytes(), stored.row_bytes());
        self.renewal_fits(&key, sizes)?;
        let (node, admitted) = self.admitted(&stored)?;
        let meters = node.meters(&admitted, true).map_err(|e| of_node(&e))?;
        // The modules are not locked while the disk is waited for.
        let running = {
            let modules = self.modules();
            let entry = modules.get(&key).ok_or_else(|| Self::missing(name))?;
            Self::stays(Some(entry), name)?;
            entry.life.live().map(|live| Self::renewable(live, admitted)).transpose()?
        };
        let wish = Wish::Renew { stored: &stored, before: row };
        let renewed = match &running {
            Some(running) => Some(self.renew_live(running, &before, &stored, &meters, wish)?),
            None => {
                self.reconcile(&key, wish)?;
                None
            }
        };
        let mut modules = self.modules();
        let entry = modules.get_mut(&key).ok_or_else(|| Self::missing(name))?;
        let stays = Self::stays(Some(&*entry), name);
        entry.known.bytes = entry.known.bytes.saturating_sub(sizes.0) + sizes.1;
        entry.keep(stored);
        // A module that lost its grant meanwhile ends with this revision.
        stays?;
        if let (Some(live), Some(running)) = (entry.life.live_mut(), running)
            && let Some(granted) = &mut live.granted
        {
            granted.renew(Arc::new(running.admitted));
        }
        if let Some(notes) = renewed {
            entry.notes.retain(|note| !note.starts_with(RESERVED));
            entry.notes.extend(notes);
        }
        let granted = entry.life.live().and_then(|live| live.granted.as_ref());
        let watched = granted.map(|granted| granted.watched.clone());
        entry.expires = granted.and_then(|granted| Engine::expiry(&granted.admitted()));
        entry.note("renewed");
        drop(modules);
        // The review has known the new credential only since then: a revocation of it did not wait.
        if let Some(watched) = watched
            && let Some(problem) = self.why_lost(&watched)
        {
            self.evict_lost_by(Node::lost, vec![watched]);
            return Err(problem);
        }
        self.show(owner, name)
    }

    /// Decides whether a module fits into what its principal may store, with another credential.
    /// Its row takes `after` bytes instead of `before`.
    fn renewal_fits(&self, key: &Key, (before, after): (u64, u64)) -> Result<(), Problem> {
        let bytes = self.modules().get(key).map_or(0, |entry| entry.known.bytes);
        match after > before {
            true => self.fits(key, bytes.saturating_sub(before) + after),
            false => Ok(()),
        }
    }

    /// Returns the parts of a module that runs which its renewal changes. `admitted` is the decision on the
    /// new credential.
    fn renewable(live: &Live, admitted: AdmittedModule) -> Result<Running, Problem> {
        let plan = live.module.plan.clone();
        let Some(granted) = &live.granted else { return Err(Self::missing(&plan.name)) };
        let admitted = granted.admitted().renewed(admitted).map_err(|_| {
            Problem::new(
                Code::Forbidden,
                "the new credential gives less than the module has",
                "update the module (flame update) to run it with less, or ask for a wider credential",
            )
        })?;
        Ok(Running { admitted, meters: live.module.meters.clone(), plan })
    }

    /// Stores the renewal of a module that runs, and lets it count in its new meters. Returns the arithmetic
    /// of its reservation.
    fn renew_live(
        &self,
        Running { meters: now, plan, .. }: &Running,
        before: &Stored,
        stored: &Stored,
        meters: &Meters,
        wish: Wish<'_>,
    ) -> Result<Vec<String>, Problem> {
        check_grant(&stored.reserved, meters)?;
        let source = self.source(Some(&stored.source))?;
        let key = (stored.owner.clone(), stored.name.clone());
        let mut reserving = self.reserve(&key, &stored.reserved, source)?;
        let charged = now.with(None, None);
        now.renew(&meters.with(meter(&stored.reserved), None)).map_err(|e| {
            Problem::new(
                Code::TooLarge,
                e.to_string(),
                "update the module (flame update), which begins with empty memory",
            )
        })?;
        let guaranteed = self.guarantee(source, plan, &stored.reserved);
        let stored_now = guaranteed.and_then(|note| {
            self.reconcile(&key, wish)?;
            Ok(note)
        });
        match stored_now {
            Ok(note) => reserving.notes.extend(note),
            Err(e) => {
                // Both were allowed a moment ago.
                let _ = now.renew(&charged);
                let _ = self.guarantee(source, plan, &before.reserved);
                return Err(e);
            }
        }
        source.renewed(plan.id);
        let notes = std::mem::take(&mut reserving.notes);
        reserving.keep();
        Ok(notes)
    }
}
