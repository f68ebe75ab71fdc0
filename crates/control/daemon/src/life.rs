//! The life of a module on the node: one state, from which follows everything that clients see of it.
//!
//! ```text
//! (none), Ended       install, update, start of the node    Running
//! Running             update, another process               Replacing, then Running
//! Running, Replacing  it loses its grant                    Leaving
//! Running, Leaving    stop, failure, removal, taken down    Ending, then Ended
//! ```
//!
//! The row of a module states how it is to be, and has a revision. Its life states how it is now. The file
//! `reconcile` alone makes the one follow the other.

use crate::granted::Granted;
use crate::kept::Kept;
use crate::log::Log;
use crate::reach::Known;
use crate::source::Accounts;
use crate::spool::Spool;
use crate::store::{Owner, Stored};
use flame_api::State;
use flame_plan::{Account, Audience, ModuleId};
use flame_quota::Usage;
use flame_worker::{HaltedModule, LostModule, Module};
use std::cell::RefCell;
use std::sync::Arc;

/// The key of a module.
pub type Key = (Owner, String);

/// Returns the name of a module with its principal, for the operator.
pub(crate) fn label((owner, name): &Key) -> String {
    owner.shown().map_or_else(|| name.clone(), |principal| format!("{name} of {principal}"))
}

/// An installed module.
pub(crate) struct Entry {
    /// The module as it is to be, with its revision.
    pub stored: Stored,
    /// The revision that the storage has: an earlier one until the end of the module could be written.
    pub written: u64,
    pub life: Life,
    pub version: String,
    pub spool: Arc<Spool>,
    /// The account of instances that ended, since the node was started.
    pub past: Past,
    pub log: Arc<Log>,
    /// The use since it was installed or the node was started.
    pub usage: Arc<Usage>,
    pub notes: Vec<String>,
    pub expires: Option<u64>,
    pub known: Known,
    /// The most bytes of state that it can keep.
    pub state_bytes: u64,
}

/// The accounts of the instances of a module that have ended.
#[derive(Default)]
pub(crate) struct Past {
    /// The accounts of those that had the rights which the module has now.
    same: Account,
    other: Account,
}

/// The life of a module.
#[derive(Default)]
pub(crate) enum Life {
    /// It has no instance. Its row has the reason.
    #[default]
    Ended,
    Live(Box<Live>),
    /// Its instance is being removed from its source.
    Ending(Box<Ending>),
}

/// A module with an instance, which its source has.
pub(crate) struct Live {
    pub phase: Phase,
    pub module: Module,
    /// The account of its instances in processes that have ended.
    pub earlier: Account,
    /// The state of its instances, if the module keeps one.
    pub kept: Option<Kept>,
    /// The node as it was for the module's credential, and the decision on it.
    pub granted: Option<Granted>,
}

/// The phase in the life of a module that has an instance.
pub(crate) enum Phase {
    Running(Works),
    /// Another instance takes the place of this one. Clients see it as it was until then.
    Replacing(Box<Ending>),
    /// It was evicted: it is called no more, and is to be taken down. Its instance may just be replaced.
    Leaving {
        why: String,
        replaced: Option<Box<Ending>>,
    },
}

/// The part of the workers on which a module that runs receives packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Works {
    #[default]
    Everywhere,
    /// It receives none on this number of workers, where its last instance has ended in a fault.
    Partly { halted: usize, faults: u64 },
    /// It receives none at all, after this number of faults. It keeps its place, so that its packets are
    /// accounted for.
    Nowhere { faults: u64 },
    /// Its process has ended for this cause, and another one is to be started.
    Waiting(String),
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
    pub fn add_to(&self, account: &mut Account, audience: Audience) {
        account.add(&self.same);
        if audience.is_operator() {
            account.add(&self.other);
        }
    }
}

impl Works {
    /// Returns the reason why the module receives no packets, or not all, if that is so.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Everywhere => None,
            Self::Partly { halted, .. } => Some(format!(
                "no instance is started again on {halted} of its workers, whose packets are shed"
            )),
            Self::Nowhere { faults } => Some(format!(
                "its instances have ended in {faults} faults, and no instance is started again: its packets are \
                 shed until it is updated"
            )),
            Self::Waiting(cause) => Some(format!("{cause}; another process is to be started")),
        }
    }

    /// Returns the part for a module that may be lost with its process, or have no instance on some of the
    /// source's `workers`.
    pub fn of(lost: Option<&LostModule>, halted: Option<&HaltedModule>, workers: usize) -> Self {
        match (lost, halted) {
            (Some(lost), _) => Self::Waiting(lost.cause.clone()),
            (None, None) => Self::Everywhere,
            (None, Some(halted)) if halted.workers < workers => {
                Self::Partly { halted: halted.workers, faults: halted.faults }
            }
            (None, Some(halted)) => Self::Nowhere { faults: halted.faults },
        }
    }

    /// Returns the number of faults that led to it.
    fn faults(&self) -> u64 {
        match self {
            Self::Partly { faults, .. } | Self::Nowhere { faults } => *faults,
            Self::Everywhere | Self::Waiting(_) => 0,
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

impl Live {
    /// Returns the reason of the eviction of a module that is to be taken down.
    pub fn why_leaving(&self) -> Option<&String> {
        if let Phase::Leaving { why, .. } = &self.phase { Some(why) } else { None }
    }

    /// Returns whether the instance was not evicted.
    pub fn stays(&self) -> bool {
        self.why_leaving().is_none() && matches!(Phase::of(self.granted.as_ref()), Phase::Running(_))
    }

    /// Lets the module leave for the reason `why`, unless it does so already.
    pub fn leave(&mut self, why: String) {
        if self.why_leaving().is_none() {
            let before = std::mem::take(&mut self.phase);
            let replaced = if let Phase::Replacing(ending) = before { Some(ending) } else { None };
            self.phase = Phase::Leaving { why, replaced };
        }
    }

    /// Records that the instance is not replaced any more: it runs.
    pub fn replaced(&mut self) {
        match &mut self.phase {
            Phase::Leaving { replaced, .. } => *replaced = None,
            phase => *phase = Phase::of(self.granted.as_ref()),
        }
    }

    /// Returns what clients see of the instance while it is removed or replaced.
    fn ending(&self, account: Accounts, state: State) -> Box<Ending> {
        let (name, may_fall) = (self.module.plan.name.clone(), self.module.plan.view.has_steps());
        Box::new(Ending { name, account: RefCell::new(account), state, may_fall })
    }
}

impl Default for Phase {
    fn default() -> Self {
        Self::Running(Works::Everywhere)
    }
}

impl Phase {
    /// Returns the phase of an instance that begins: if it was evicted meanwhile, it leaves.
    fn of(granted: Option<&Granted>) -> Self {
        let why = granted.and_then(Granted::evicted);
        why.map_or_else(Self::default, |why| Self::Leaving { why, replaced: None })
    }
}

impl Life {
    /// Returns the life of a module whose instance begins.
    pub fn begun(module: Module, granted: Option<Granted>, kept: Option<Kept>) -> Self {
        let (earlier, phase) = (Account::default(), Phase::of(granted.as_ref()));
        Self::Live(Box::new(Live { phase, module, earlier, kept, granted }))
    }

    pub fn live(&self) -> Option<&Live> {
        if let Self::Live(live) = self { Some(live.as_ref()) } else { None }
    }

    pub fn live_mut(&mut self) -> Option<&mut Live> {
        if let Self::Live(live) = self { Some(live.as_mut()) } else { None }
    }

    /// Takes the instance out.
    pub fn take_live(&mut self) -> Option<Box<Live>> {
        match std::mem::take(self) {
            Self::Live(live) => Some(live),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Returns the instance that is being removed or replaced, as clients see it.
    pub fn ending(&self) -> Option<&Ending> {
        match (self, self.live().map(|live| &live.phase)) {
            (Self::Ending(ending), _) | (_, Some(Phase::Replacing(ending))) => Some(ending),
            (_, Some(Phase::Leaving { replaced, .. })) => replaced.as_deref(),
            (_, Some(Phase::Running(_)) | None) => None,
        }
    }
}

impl Entry {
    /// Returns a module that has no instance, with a spool of at most `spool` bytes.
    pub fn new(stored: Stored, spool: u64, usage: Arc<Usage>) -> Self {
        Self {
            written: stored.revision,
            stored,
            life: Life::Ended,
            version: String::new(),
            spool: Arc::new(Spool::new(spool, usage.clone())),
            past: Past::default(),
            log: Arc::default(),
            usage,
            notes: Vec::new(),
            expires: None,
            known: Known::default(),
            state_bytes: 0,
        }
    }

    /// Returns the state of the module for the operator.
    pub fn state(&self) -> State {
        match (&self.life, self.phase()) {
            (_, Some(Phase::Leaving { .. })) => State::Evicted,
            (_, Some(Phase::Replacing(ending))) | (Life::Ending(ending), _) => ending.state,
            (_, Some(Phase::Running(Works::Nowhere { .. }))) => State::Failed,
            (_, Some(Phase::Running(_))) => State::Running,
            (_, None) => self.stored.state,
        }
    }

    /// Returns the reason of that state.
    pub fn reason(&self) -> Option<String> {
        match self.phase() {
            Some(Phase::Leaving { why, .. }) => Some(why.clone()),
            Some(Phase::Running(works)) => works.reason(),
            Some(Phase::Replacing(_)) | None => self.stored.reason.clone(),
        }
    }

    /// Returns state and reason for clients that have this account of the present instance. The holder of a
    /// grant learns at the next tick that faults have ended its instances, when it learns of the faults.
    pub fn shown(&self, account: &Account) -> (State, Option<String>) {
        match self.phase() {
            Some(Phase::Running(works)) if account.faults < works.faults() => (State::Running, None),
            _ => (self.state(), self.reason()),
        }
    }

    fn phase(&self) -> Option<&Phase> {
        self.life.live().map(|live| &live.phase)
    }

    /// Lets clients see the state as before and `account` while the instance is replaced, so that no counter
    /// falls.
    pub fn replace(&mut self, account: Accounts) {
        let state = self.state();
        let Some(live) = self.life.live_mut() else { return };
        let ending = live.ending(account, state);
        match &mut live.phase {
            Phase::Leaving { replaced, .. } => *replaced = Some(ending),
            phase => *phase = Phase::Replacing(ending),
        }
    }

    /// Takes the instance out, to be removed. Clients see the state as before and `account` until
    /// [`Entry::has_ended`].
    pub fn take_live(&mut self, account: Accounts) -> Option<Box<Live>> {
        let state = self.state();
        let live = self.life.take_live()?;
        self.life = Life::Ending(live.ending(account, state));
        Some(live)
    }

    /// Records that the instance which was removed has ended with this account.
    pub fn has_ended(&mut self, account: &Account) {
        self.past.add(account);
        self.life = Life::Ended;
    }

    /// Records on which workers the instance of this number receives packets, as `works` states it. The
    /// holder of a grant does not have the last faults, so that its log states the failure.
    pub fn works(&mut self, works: impl Fn(&ModuleId) -> Works) {
        let Some(live) = self.life.live_mut() else { return };
        let Phase::Running(now) = &mut live.phase else { return };
        let before = std::mem::replace(now, works(&live.module.plan.id));
        if let Works::Nowhere { .. } = now
            && *now != before
            && live.granted.is_some()
        {
            let reason = now.reason().unwrap_or_default();
            let text = format!("{}: {reason}", State::Failed.name());
            self.log.caused(&text, self.known.now.as_ref());
        }
    }

    /// Records the end of the module, which is written later.
    pub fn end(&mut self, state: State, reason: String) {
        (self.stored.state, self.stored.reason) = (state, Some(reason));
        self.stored.revision += 1;
    }

    /// Returns whether the storage has an earlier revision.
    pub fn is_behind(&self) -> bool {
        self.written != self.stored.revision
    }

    /// Replaces the module by what its row is now.
    pub fn keep(&mut self, stored: Stored) {
        self.written = stored.revision;
        self.stored = stored;
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.log.change(&text.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::{NAME, plan, stored};

    fn entry() -> Entry {
        let mut entry = Entry::new(stored(0), 1 << 20, Arc::default());
        entry.life = Life::begun(Module::from(plan(ModuleId(1), NAME)), None, None);
        entry
    }

    fn account(faults: u64) -> Account {
        let mut account = Account::default();
        account.faults = faults;
        account
    }

    #[test]
    fn a_module_that_receives_no_packets_has_failed() {
        let halted = |workers| HaltedModule { id: ModuleId(1), workers, faults: 34 };
        let lost =
            LostModule { id: ModuleId(1), process: "p".to_owned(), pid: 7, cause: "killed".to_owned() };
        for (lost, halted, state, reason) in [
            (None, None, State::Running, ""),
            (None, Some(halted(1)), State::Running, "on 1 of its workers"),
            (None, Some(halted(2)), State::Failed, "34 faults"),
            (Some(&lost), Some(halted(2)), State::Running, "killed; another process"),
        ] {
            let mut entry = entry();
            entry.works(|_| Works::of(lost, halted.as_ref(), 2));
            assert_eq!(entry.state(), state, "{reason}");
            assert!(entry.reason().unwrap_or_default().contains(reason), "{:?}", entry.reason());
            // While it is replaced it is shown as before, and then as its new instance.
            entry.replace(Accounts::default());
            assert_eq!(entry.state(), state, "{reason}");
            entry.life.live_mut().unwrap().replaced();
            entry.works(|_| Works::Everywhere);
            assert_eq!((entry.state(), entry.reason()), (State::Running, None));
        }
    }

    /// Otherwise the time of the failure would show when the packets came that caused it.
    #[test]
    fn a_holder_learns_of_the_failure_when_it_learns_of_the_faults() {
        let mut entry = entry();
        entry.works(|_| Works::Nowhere { faults: 17 });
        assert_eq!(entry.shown(&account(16)), (State::Running, None));
        let (state, reason) = entry.shown(&account(17));
        assert!(state == State::Failed && reason.is_some_and(|reason| reason.contains("17 faults")));
        entry.works(|_| Works::Partly { halted: 1, faults: 17 });
        assert_eq!(entry.shown(&account(16)), (State::Running, None));
        assert!(entry.shown(&account(17)).1.is_some());
    }

    #[test]
    fn a_module_that_leaves_is_evicted_until_it_has_ended() {
        for is_replaced in [false, true] {
            let mut entry = entry();
            entry.works(|_| Works::Nowhere { faults: 1 });
            if is_replaced {
                entry.replace(Accounts::default());
            }
            let live = entry.life.live_mut().unwrap();
            ["revoked", "again"].iter().for_each(|why| live.leave((*why).to_owned()));
            assert!(!live.stays());
            live.replaced();
            let seen = (State::Evicted, Some("revoked".to_owned()));
            assert_eq!((entry.state(), entry.reason()), seen);
            entry.take_live(Accounts::default()).unwrap();
            assert!(entry.state() == State::Evicted && entry.life.live().is_none());
            entry.end(State::Evicted, "revoked".to_owned());
            entry.has_ended(&account(1));
            let mut past = Account::default();
            entry.past.add_to(&mut past, Audience::Holder);
            assert_eq!(((entry.state(), entry.reason()), past.faults), (seen, 1));
        }
    }
}
