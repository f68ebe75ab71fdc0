//! The one place that starts and ends modules, and writes their rows: it makes the life of a module what is
//! wished. Requests, the review, the ends of processes, the start and the end of the node state their wish.
//!
//! A module that is to run is prepared before. Then it is proposed to the store, when it can still be refused
//! for want of space; its source takes it; it is stored. What is stored runs after a restart, so a change
//! that cannot be stored is undone. An end does not depend on the store: its row is written later, and again
//! until that succeeds. Until then a restart finds the module as it was before; if its owner did not stop it,
//! it is denied again then, or fails again.

mod rows;

use crate::admission::Reserving;
use crate::build::Prepared;
use crate::engine::{AUDIT_LOG, By, Engine};
use crate::error::of_source;
use crate::granted::Granted;
use crate::keep::need;
use crate::kept::Beginning;
use crate::life::{Entry, Key, Life, Live};
use crate::log::Log;
use crate::reach::{Known, Reach};
use crate::route::Route;
use crate::source::{Accounts, SourceRun};
use crate::store::{Owner, Stored};
use flame_api::{Problem, Reservation, State};
use flame_plan::{Account, Audience, ModuleId, ModulePlan, Reason};
use flame_worker::Module;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The number of further attempts to reserve processor time for a process that was started again, and the
/// time between two.
const GUARANTEES: usize = 20;
const GUARANTEE_RETRY: Duration = Duration::from_millis(100);

/// A wish for a module, of which the caller has begun a change.
pub(crate) enum Wish<'a> {
    /// This instance runs, in place of one before.
    Run(Box<Candidate<'a>>),
    /// Another instance runs in place of this one, whose process has ended.
    RunAgain(ModuleId),
    /// It runs as it does, with this row in place of the one with the revision `before`.
    Renew { stored: &'a Stored, before: u64 },
    /// It ends with this state and reason. With a number, only if this is its instance, and it has one.
    End { of: Option<ModuleId>, state: State, reason: String },
    /// It is removed, with its row of the revision `before`.
    Remove { before: u64 },
    /// It has no instance, because the node ends. Its row stays as it is.
    NoInstance,
    /// It stays as it is, except that a module which leaves is taken down.
    Same,
}

/// A module that is ready to run.
pub(crate) struct Candidate<'a> {
    pub stored: Stored,
    pub row: Row,
    pub source: &'a SourceRun,
    pub prepared: Prepared,
    pub beginning: &'a Beginning,
    pub reserving: Reserving<'a>,
}

/// The way in which a module that runs is stored.
pub(crate) enum Row {
    /// It is new to the node, which does not have it before it runs.
    New(Box<Entry>),
    /// It takes the place of the row with this revision.
    After(u64),
    /// It is stored already. If it is stored as failed, that is corrected if possible.
    Restored,
}

impl Engine {
    /// Makes the life of a module what is wished. Returns the account of the instance that ended by it.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing was changed. An end has none.
    pub(crate) fn reconcile(&self, key: &Key, wish: Wish<'_>) -> Result<Account, Problem> {
        match wish {
            Wish::Run(candidate) => self.run(key, *candidate),
            Wish::RunAgain(id) => self.run_again(key, id),
            Wish::Renew { stored, before } => {
                self.stored(self.store.put(stored, Some(before), self.audited()))?;
                Ok(Account::default())
            }
            Wish::Remove { before } => {
                self.stored(self.store.remove(&key.0, &key.1, before, self.audited()))?;
                Ok(self.take_down(key, Wish::NoInstance))
            }
            Wish::End { .. } | Wish::NoInstance | Wish::Same => Ok(self.take_down(key, wish)),
        }
    }

    fn run(&self, key: &Key, candidate: Candidate<'_>) -> Result<Account, Problem> {
        let Candidate { stored, row, source, mut prepared, beginning, mut reserving } = candidate;
        let missing = || Self::missing(&key.1);
        let (new, before, is_restored) = match row {
            Row::New(entry) => (Some(*entry), None, false),
            Row::After(revision) => (None, Some(revision), false),
            Row::Restored => (None, None, true),
        };
        if !is_restored {
            self.stored(self.store.propose(&stored, before))?;
        }
        let withdraw = |_: &Problem| {
            // The fault is reported.
            let _ = (!is_restored).then(|| self.stored(self.store.withdraw(&key.0, &key.1)));
        };
        // Kept until the module is there.
        let _started = prepared.starting.take().and_then(|starting| starting.join().ok());
        let old = {
            let modules = self.modules();
            let entry = new.as_ref().or_else(|| modules.get(key)).ok_or_else(missing)?;
            self.route(source, entry, &prepared.module, prepared.reach.as_ref());
            entry.life.live().map(|live| live.module.plan.id)
        };
        self.show_replacing(key);
        let started = self.run_on(source, &mut prepared, old);
        let (account, note) = started.inspect_err(withdraw).inspect_err(|_| {
            source.routes.remove(&prepared.module.plan.name);
            self.modules().get_mut(key).and_then(|e| e.life.live_mut()).into_iter().for_each(Live::replaced);
        })?;
        let account = self.show_ended(key, account);
        if !is_restored {
            let put = match beginning.is_empty {
                // What is stored is of the instances before, which cannot write any more.
                true => self.store.put_empty(&stored, before, self.audited()),
                false => self.store.put(&stored, before, self.audited()),
            };
            let put = self.stored(put).inspect_err(|_| self.undo(key, source, &prepared, &account));
            put.inspect_err(withdraw)?;
        }
        reserving.notes.extend(note);
        let (state_bytes, _) = need(&prepared.module.plan, source);
        let (ended, log) = {
            let mut modules = self.modules();
            if let Some(entry) = new {
                modules.insert(key.clone(), entry);
            }
            let entry = modules.get_mut(key).ok_or_else(missing)?;
            let ended = entry.life.take_live();
            entry.past.add(&account);
            if !is_restored {
                entry.keep(stored);
            }
            entry.state_bytes = state_bytes;
            prepared.enter(entry, std::mem::take(&mut reserving.notes));
            (ended, entry.log.clone())
        };
        reserving.keep();
        // Without the lock, because the audit log waits for the disk.
        if let Some(live) = ended {
            self.end_of(&live, &account, source, &log);
        }
        if is_restored {
            self.correct_row(key);
        }
        Ok(account)
    }

    /// Stores that a module runs which is stored as failed. If that is not possible, the next start tries to
    /// run it again, as this one did.
    fn correct_row(&self, key: &Key) {
        let Some(stored) = self.modules().get(key).map(|entry| entry.stored.clone()) else { return };
        if stored.state == State::Running {
            return;
        }
        let now = Stored { state: State::Running, reason: None, ..stored };
        let next = Stored { revision: now.revision + 1, ..now.clone() };
        let is_stored = self.stored(self.store.put(&next, Some(now.revision), None)).is_ok();
        if let Some(entry) = self.modules().get_mut(key) {
            entry.keep(if is_stored { next } else { now });
        }
    }

    /// Ends an instance that may not stay, and runs the module as it was before, if it ran: its instance has
    /// ended with `account`, so another one begins.
    fn undo(&self, key: &Key, source: &SourceRun, failed: &Prepared, account: &Account) {
        let id = failed.module.plan.id;
        let before = self.modules().get(key).and_then(|entry| Some(entry.life.live()?.module.plan.id));
        let again = before.and_then(|before| self.copy(key, source, before));
        let ended = match &again {
            None => Ok(source.remove(id)),
            Some(module) => source.replace(id, module),
        };
        source.routes.remove(&failed.module.plan.name);
        // Without the lock, because the instance may take its time to end.
        let (of_failed, error) = match ended {
            Ok(account) => (account, None),
            Err(e) => (source.remove(id), Some(of_source(&e))),
        };
        self.record_end(failed.granted.as_ref(), &[], &of_failed);
        let mut modules = self.modules();
        let Some(entry) = modules.get_mut(key) else { return };
        entry.past.add_other(&of_failed);
        match (error, again) {
            (None, Some(module)) => {
                continue_as(entry, source, module.clone(), account);
                entry.note("an update failed: another instance of the module as it was before runs, empty but for a state that it keeps");
                let reserved = entry.stored.reserved;
                drop(modules);
                // It ran with this before.
                let _ = self.guarantee(source, &module.plan, &reserved);
            }
            // It did not run, or was evicted meanwhile.
            (None, None) => {
                entry.past.add(account);
                if let Some(live) = entry.life.live_mut() {
                    live.earlier.add(account);
                    live.replaced();
                }
            }
            (Some(problem), again) => {
                if let Some(module) = again {
                    source.routes.remove(&module.plan.name);
                }
                let reason = format!("an update failed, and so did its undoing: {}", problem.cause);
                let (ended, log) = (entry.life.take_live(), entry.log.clone());
                entry.past.add(account);
                entry.note(&reason);
                entry.end(State::Failed, reason);
                drop(modules);
                if let Some(live) = ended {
                    self.end_of(&live, account, source, &log);
                }
            }
        }
    }

    /// Starts a module again in a new process of its principal, with the meters that it has.
    fn run_again(&self, key: &Key, id: ModuleId) -> Result<Account, Problem> {
        let (source, reserved) =
            self.of_module(&key.0, &key.1, |entry| (entry.stored.source.clone(), entry.stored.reserved))?;
        let source = self.source(Some(&source))?;
        // It was changed or evicted meanwhile.
        let Some(module) = self.copy(key, source, id) else { return Ok(Account::default()) };
        self.show_replacing(key);
        // Without the lock, because the process may take its time to start.
        let replaced = source.replace(id, &module).map(|account| self.show_ended(key, account));
        let guaranteed = match &replaced {
            Ok(_) => self.guarantee_again(source, &module.plan, &reserved),
            Err(_) => Ok(None),
        };
        let mut modules = self.modules();
        let entry = modules.get_mut(key).ok_or_else(|| Self::missing(&key.1))?;
        let account = match replaced {
            Ok(account) => account,
            Err(e) => {
                source.routes.remove(&module.plan.name);
                if let Some(live) = entry.life.live_mut() {
                    live.granted.iter().for_each(|granted| granted.ended_as(module.plan.id));
                    live.replaced();
                }
                // The detail names files of the node.
                let problem = of_source(&e);
                entry.note(format!("no other process could be started: {}", problem.cause));
                return Err(problem);
            }
        };
        let new = module.plan.id;
        continue_as(entry, source, module, &account);
        entry.note(
            "another process was started: a new instance runs in it, empty but for a state that it keeps",
        );
        drop(modules);
        if let Err(problem) = guaranteed {
            let reason = format!("its reservation is refused in another process: {}", problem.cause);
            self.take_down(key, Wish::End { of: Some(new), state: State::Failed, reason });
        }
        Ok(account)
    }

    /// Returns a copy of a module whose instance `id` stays, with a number of its own and the meters that it
    /// has, and opens the way of its rows.
    pub(crate) fn copy(&self, key: &Key, source: &SourceRun, id: ModuleId) -> Option<Module> {
        let new = source.number();
        let modules = self.modules();
        let entry = modules.get(key)?;
        let live = entry.life.live().filter(|live| live.module.plan.id == id && live.stays())?;
        let name = format!("{}#{}", entry.stored.name, new.0);
        let plan = ModulePlan { id: new, name, ..live.module.plan.clone() };
        let (meters, keep) = (live.module.meters.clone(), live.module.keep.clone());
        let module = Module { plan, meters, keep, areas: Vec::new(), time: None };
        self.route(source, entry, &module, entry.known.now.as_ref());
        // A review finds it under this number from its first packet on.
        live.granted.iter().for_each(|granted| granted.begins_as(new));
        Some(module)
    }

    /// Lets the kernel guarantee a reservation in another process. The kernel gives up the time of the ended
    /// one a little later.
    fn guarantee_again(
        &self,
        source: &SourceRun,
        plan: &ModulePlan,
        reserved: &Reservation,
    ) -> Result<Option<String>, Problem> {
        let again = |refused: Result<_, _>, _| match refused {
            Err(_) => {
                std::thread::sleep(GUARANTEE_RETRY);
                self.guarantee(source, plan, reserved)
            }
            guaranteed => guaranteed,
        };
        (0..GUARANTEES).fold(self.guarantee(source, plan, reserved), again)
    }

    /// Ends the instance of a module as `wish` states, and returns its account. A module that leaves ends as
    /// evicted in any case, for the reason that its clients see already.
    fn take_down(&self, key: &Key, wish: Wish<'_>) -> Account {
        let account = self.present_account(key).unwrap_or_default();
        let (mut live, source, log) = {
            let mut modules = self.modules();
            let Some(entry) = modules.get_mut(key) else { return Account::default() };
            let end = match (entry.life.live().and_then(Live::why_leaving), wish) {
                (_, Wish::NoInstance) => None,
                (Some(why), _) => Some((State::Evicted, why.clone())),
                (None, Wish::End { of, state, reason }) => {
                    let id = entry.life.live().map(|live| live.module.plan.id);
                    if of.is_some() && of != id {
                        return Account::default();
                    }
                    Some((state, reason))
                }
                (None, _) => return Account::default(),
            };
            let live = entry.take_live(account);
            match (end, &live) {
                (Some((state, reason)), Some(_)) => {
                    entry.note(format!("{}: {reason}", state.name()));
                    entry.end(state, reason);
                }
                // It has ended already, and is not run again when the node starts.
                (Some((state, reason)), None)
                    if !matches!(entry.stored.state, State::Stopped | State::Evicted) =>
                {
                    entry.note(state.name());
                    let before = entry.stored.reason.take();
                    let before = before.map_or_else(String::new, |r| format!("; it had ended: {r}"));
                    entry.end(state, format!("{reason}{before}"));
                }
                (Some(_) | None, _) => {}
            }
            let Some(live) = live else { return Account::default() };
            (live, entry.stored.source.clone(), entry.log.clone())
        };
        // Without the lock, because the module may take its time to end.
        let ended = self.sources.get(&source).map(|source| {
            let account = self.show_ended(key, source.remove(live.module.plan.id));
            self.end_of(&live, &account, source, &log);
            self.write_last_state(key, &mut live);
            account
        });
        let ended = ended.unwrap_or_default();
        if let Some(entry) = self.modules().get_mut(key) {
            entry.has_ended(&ended);
        }
        ended
    }

    /// Takes down the modules that leave and that no change is made of.
    pub(crate) fn take_down_leaving(&self) {
        self.leaving().iter().for_each(|key| self.end_leaving(key));
    }

    fn end_leaving(&self, key: &Key) {
        // The end of the change gives up the module's reservation.
        if let Ok(_changing) = self.begin_by(By::Node, key) {
            self.take_down(key, Wish::Same);
        }
    }

    /// Takes down the modules that leave like [`Engine::take_down_leaving`], with threads for each owner: the
    /// end of one owner's module delays the end of no other's.
    pub(crate) fn take_down_apart(self: &Arc<Self>) {
        let owners: BTreeSet<Owner> = self.leaving().into_iter().map(|(owner, _)| owner).collect();
        for owner in owners {
            let engine = self.clone();
            let end = move || {
                let all = engine.leaving();
                all.iter().filter(|key| key.0 == owner).for_each(|key| engine.end_leaving(key));
            };
            // Without a thread, the next pass tries again.
            let _ = std::thread::Builder::new().name("end".to_owned()).spawn(end);
        }
    }

    /// Returns the modules that leave, once the audit log has their evictions.
    fn leaving(&self) -> Vec<Key> {
        let modules = self.modules();
        let is_due = |live: &Live| {
            live.why_leaving().is_some() && live.granted.as_ref().is_none_or(|granted| !granted.is_unlogged())
        };
        let due = modules.iter().filter(|(key, entry)| {
            entry.life.live().is_some_and(is_due) && !modules.changing.contains_key(key)
        });
        due.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the account of the present instance of a module. The workers are waited for, so the caller
    /// must not hold the lock of the modules.
    fn present_account(&self, key: &Key) -> Option<Accounts> {
        let part =
            |entry: &Entry| Some((entry.stored.source.clone(), entry.life.live()?.module.plan.name.clone()));
        let (source, name) = self.modules().get(key).and_then(part)?;
        self.sources.get(&source)?.accounts_of(&name)
    }

    /// Lets clients see the account of a module's instance while it is being replaced.
    fn show_replacing(&self, key: &Key) {
        let account = self.present_account(key);
        if let Some((entry, account)) = self.modules().get_mut(key).zip(account) {
            entry.replace(account);
        }
    }

    /// Lets clients see the last account of an instance. Returns it: of a source that has just ended, the
    /// last known account.
    pub(crate) fn show_ended(&self, key: &Key, account: Account) -> Account {
        match self.modules().get(key).and_then(|entry| entry.life.ending()) {
            Some(ending) => {
                ending.ended(&account);
                ending.account(Audience::Operator)
            }
            None => account,
        }
    }

    /// Gives the rows and events of `module` to `entry`, under the module's own name, with the rights under
    /// which they are made. Nothing of an instance comes before that.
    fn route(&self, source: &SourceRun, entry: &Entry, module: &Module, reach: Option<&Arc<Reach>>) {
        let (spool, log) = (entry.spool.clone(), entry.log.clone());
        let (name, audience) = (entry.stored.name.clone(), entry.stored.owner.audience());
        let catalog = Arc::new(flame_plan::CatalogEntry { name, ..module.plan.catalog_entry() });
        let made = reach.cloned().into_iter().collect();
        self.accounting.begins(&entry.usage, reach);
        source.routes.insert(&module.plan.name, Route { spool, log, entry: catalog, made, audience });
    }

    /// Records the end of an instance in the audit log, and closes its way to the spool.
    fn end_of(&self, live: &Live, account: &Account, source: &SourceRun, log: &Log) {
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

/// Makes `module` the instance of `entry`, after the instance before has ended with `account`. If the module
/// was evicted meanwhile, its source may not have had this instance by then.
fn continue_as(entry: &mut Entry, source: &SourceRun, module: Module, account: &Account) {
    entry.past.add(account);
    if let Some(live) = entry.life.live_mut() {
        source.routes.remove(&live.module.plan.name);
        live.earlier.add(account);
        let before = std::mem::replace(&mut live.module, module).plan.id;
        live.granted.iter().for_each(|granted| granted.ended_as(before));
        live.replaced();
        if let Some(why) = live.why_leaving() {
            source.evict(live.module.plan.id, Reason::denied(why));
        }
    }
}

impl Prepared {
    /// Makes this the instance of `entry`. `more` are further notes for its owner.
    fn enter(self, entry: &mut Entry, more: Vec<String>) {
        let Self { module, granted, reach, notes, bytes, kept, .. } = self;
        entry.version.clone_from(&module.plan.manifest.version);
        entry.notes = notes;
        entry.notes.extend(more);
        entry.expires = granted.as_ref().and_then(|granted| Engine::expiry(&granted.admitted()));
        if let (Some(before), Some(now)) = (&entry.known.now, &reach)
            && !before.is_like(now)
        {
            entry.past.turn();
        }
        entry.known = Known { now: reach, bytes };
        entry.life = Life::begun(module, granted, kept);
    }
}
