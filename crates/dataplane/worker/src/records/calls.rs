//! The calls of services between the modules of a run: which one is delivered next, and its outcome.
//!
//! This type has no clock and knows no instances. Each call that is let out has exactly one outcome, unless
//! its caller leaves first. A module is given few calls and outcomes at a time, and further ones only once it
//! has made those: so they wait here, where they are late and counted, and not in the queues of instances.

use crossbeam_channel::Sender;
use flame_abi::output::{MAX_REQUEST, Outcome};
use flame_plan::ModuleId;
use flame_plan::limits::{SERVICE_DELIVERED_MAX, SERVICE_OPEN_MAX, SERVICE_REPLY_MAX};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// [`SERVICE_REPLY_MAX`] in packet time.
const REPLY_MAX_NS: u64 = SERVICE_REPLY_MAX.as_nanos() as u64;
/// The bytes of memory that a call takes in addition to its request and its reply.
const ENTRY: usize = 128;

/// The calls of a run. A value of `C` holds the memory of one call, from the time when it is let out until
/// its outcome is taken.
pub(crate) struct Calls<C> {
    parties: BTreeMap<ModuleId, Party<C>>,
    /// The module that offers each service, and its number there.
    offers: BTreeMap<String, (ModuleId, u16)>,
    /// The calls that were not delivered, by the modules that serve and call.
    waiting: BTreeMap<(ModuleId, ModuleId), VecDeque<Waiting<C>>>,
    /// The calls that were delivered and have no outcome, by the module that serves and their number there.
    serving: BTreeMap<(ModuleId, u64), Open<C>>,
    outcomes: BTreeMap<ModuleId, VecDeque<Done<C>>>,
    /// The modules whose replies wait for the ends of intervals. Calls of their services are late then only:
    /// that a call has no reply yet would time what the module sees.
    in_steps: BTreeSet<ModuleId>,
    /// A time before which no call is late.
    due_ns: u64,
    /// The modules that were served last: of those that serve, and of those that receive outcomes.
    server: Option<ModuleId>,
    receiver: Option<ModuleId>,
}

/// The name of a tenant, or `None` for modules of the operator.
type Tenant = Option<String>;

/// A module that calls services or offers them.
struct Party<C> {
    /// The one to which the module belongs.
    tenant: Tenant,
    uses: Vec<String>,
    /// The number of the next call that is delivered to it.
    next: u64,
    /// The tenant whose call was delivered to it last.
    turn: Option<Tenant>,
    /// The module of each tenant whose call was delivered to it last.
    turns: BTreeMap<Tenant, ModuleId>,
    /// The calls that were delivered to it and that it has not made.
    making: BTreeSet<u64>,
    /// The memory of the calls whose outcomes were delivered to it and that it has not taken.
    taking: VecDeque<C>,
    /// The number of its calls whose outcome it has not taken.
    open: usize,
    /// The number of its calls that were not let out since its last outcome.
    lost: u32,
    /// Whether no more calls of it are let out.
    is_closed: bool,
}

/// The way of an outcome.
enum To {
    /// To the caller, which gave the call this number.
    Caller(u64),
    /// Out of the run, to the asker, which waits.
    Outside(Sender<Answer>),
}

/// The outcome of a question from outside of the run, with the bytes of the reply.
pub(crate) type Answer = (Outcome, Vec<u8>);

/// A question to a service of a module from outside of the run.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) service: String,
    pub(crate) request: Vec<u8>,
    pub(crate) answer: Sender<Answer>,
}

/// A call without an outcome.
struct Open<C> {
    /// The module that pays: of a question from outside, its server. No module calls its own
    /// services.
    caller: ModuleId,
    to: To,
    due_ns: u64,
    held: C,
}

struct Waiting<C> {
    service: u16,
    request: Vec<u8>,
    open: Open<C>,
}

/// A call on its way to the module that serves it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) caller: ModuleId,
    pub(crate) server: ModuleId,
    pub(crate) call: u64,
    pub(crate) service: u16,
    pub(crate) bytes: Vec<u8>,
}

/// An outcome that waits for the caller.
struct Done<C> {
    token: u64,
    outcome: Outcome,
    reply: Vec<u8>,
    held: C,
}

/// An outcome that is delivered.
pub(crate) struct Delivery {
    pub(crate) caller: ModuleId,
    pub(crate) token: u64,
    pub(crate) outcome: Outcome,
    /// The number of calls before this outcome that were not let out.
    pub(crate) lost: u32,
    pub(crate) reply: Vec<u8>,
}

impl<C> Default for Calls<C> {
    fn default() -> Self {
        Self {
            parties: BTreeMap::new(),
            offers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            serving: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            in_steps: BTreeSet::new(),
            due_ns: u64::MAX,
            server: None,
            receiver: None,
        }
    }
}

impl<C> Calls<C> {
    /// Adds a module of a tenant. Services that another one offers so far are its own from now on, with
    /// the calls that wait for them.
    pub(crate) fn join(
        &mut self,
        (id, tenant): (ModuleId, Option<&str>),
        uses: Vec<String>,
        services: Vec<String>,
    ) {
        for (number, service) in services.iter().enumerate() {
            let offer = (id, number as u16);
            if let Some((before, old)) = self.offers.insert(service.clone(), offer)
                && before != id
            {
                self.pass_on((before, old), offer);
            }
        }
        let party = Party {
            tenant: tenant.map(str::to_owned),
            uses,
            next: 0,
            turn: None,
            turns: BTreeMap::new(),
            making: BTreeSet::new(),
            taking: VecDeque::new(),
            open: 0,
            lost: 0,
            is_closed: false,
        };
        self.parties.insert(id, party);
    }

    /// Lets the calls of a module's services be late at the ends of intervals only.
    pub(crate) fn set_steps(&mut self, id: ModuleId) {
        self.in_steps.insert(id);
    }

    /// Returns whether there is a module that calls services or offers them.
    pub(crate) fn has_parties(&self) -> bool {
        !self.parties.is_empty()
    }

    /// Moves the calls that wait for a service to the one that replaces it.
    fn pass_on(&mut self, (before, old): (ModuleId, u16), (id, new): (ModuleId, u16)) {
        let keys: Vec<_> = self.waiting.keys().filter(|(server, _)| *server == before).copied().collect();
        for key in keys {
            let all = self.waiting.remove(&key).unwrap_or_default();
            let (moved, kept): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(|w| w.service == old);
            let moved = moved.into_iter().map(|w| Waiting { service: new, ..w });
            let queue = self.waiting.entry((id, key.1)).or_default();
            queue.extend(moved);
            // Those of several services were one queue in the order of their times.
            queue.make_contiguous().sort_by_key(|waiting| waiting.open.due_ns);
            self.waiting.insert(key, kept);
        }
        self.waiting.retain(|_, queue| !queue.is_empty());
    }

    /// Removes a module. The calls of its services end, and its own calls are forgotten. Does nothing if it
    /// has left.
    pub(crate) fn leave(&mut self, id: ModuleId) {
        if self.parties.remove(&id).is_none() {
            return;
        }
        self.in_steps.remove(&id);
        self.offers.retain(|_, (server, _)| *server != id);
        self.parties.values_mut().for_each(|party| party.turns.retain(|_, last| *last != id));
        self.outcomes.remove(&id);
        self.waiting.retain(|(_, caller), _| *caller != id);
        let own: Vec<_> = self.serving.iter().filter(|(_, o)| o.caller == id).map(|(key, _)| *key).collect();
        own.into_iter().for_each(|key| drop(self.serving.remove(&key)));
        self.end(|server, _| server == id);
    }

    /// Closes a module that is about to end: its services and its own calls end, and no more are let out. It
    /// still takes outcomes.
    pub(crate) fn close(&mut self, id: ModuleId) {
        if let Some(party) = self.parties.get_mut(&id) {
            party.is_closed = true;
            self.offers.retain(|_, (server, _)| *server != id);
            self.end(|server, caller| server == id || caller == id);
        }
    }

    /// Closes all modules.
    pub(crate) fn close_all(&mut self) {
        self.parties.values_mut().for_each(|party| party.is_closed = true);
        self.offers.clear();
        self.end(|_, _| true);
    }

    /// Forgets the outcomes that a closed module has not taken. Returns how many they were.
    pub(crate) fn forget(&mut self, id: ModuleId) -> usize {
        self.outcomes.remove(&id);
        let Some(party) = self.parties.get_mut(&id).filter(|party| party.is_closed) else { return 0 };
        party.taking.clear();
        std::mem::take(&mut party.open)
    }

    /// Ends the calls from the second module to the first that have no outcome, where `of` returns true.
    fn end(&mut self, of: impl Fn(ModuleId, ModuleId) -> bool) {
        let ended = self.serving.extract_if(.., |(server, _), open| of(*server, open.caller));
        let mut ended: Vec<_> = ended.map(|(_, open)| open).collect();
        let waiting = self.waiting.extract_if(.., |(server, caller), _| of(*server, *caller));
        ended.extend(waiting.flat_map(|(_, queue)| queue).map(|waiting| waiting.open));
        ended.into_iter().for_each(|open| self.finish(open, Outcome::Ended, &[]));
    }

    /// Returns whether a module has no call whose outcome it has not taken.
    pub(crate) fn is_settled(&self, id: ModuleId) -> bool {
        self.parties.get(&id).is_none_or(|party| party.open == 0)
    }

    /// Returns whether no call waits or is made, and no outcome waits or is taken. A service may still owe
    /// replies.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_idle = |party: &Party<C>| party.making.is_empty() && party.taking.is_empty();
        self.waiting.is_empty() && self.outcomes.is_empty() && self.parties.values().all(is_idle)
    }

    /// Lets a call out, unless too many of the caller are open or `hold` returns no memory for it. Returns
    /// whether it was let out.
    pub(crate) fn call(
        &mut self,
        (caller, used, token): (ModuleId, u16, u64),
        request: &[u8],
        now_ns: u64,
        hold: impl FnOnce(u64) -> Option<C>,
    ) -> bool {
        let Some(party) = self.parties.get_mut(&caller) else { return false };
        let Some(service) = party.uses.get(usize::from(used)) else { return false };
        let bytes = (ENTRY + request.len() + MAX_REQUEST) as u64;
        let is_let_out = party.open < SERVICE_OPEN_MAX && !party.is_closed;
        let Some(held) = is_let_out.then(|| hold(bytes)).flatten() else {
            party.lost = party.lost.saturating_add(1);
            return false;
        };
        party.open += 1;
        let due_ns = now_ns.saturating_add(REPLY_MAX_NS);
        let open = Open { caller, to: To::Caller(token), due_ns, held };
        let Some((server, service)) = self.offers.get(service).copied() else {
            self.finish(open, Outcome::Nobody, &[]);
            return true;
        };
        if !self.in_steps.contains(&server) {
            self.due_ns = self.due_ns.min(due_ns);
        }
        let waiting = Waiting { service, request: request.to_vec(), open };
        self.waiting.entry((server, caller)).or_default().push_back(waiting);
        true
    }

    /// Lets a question from outside out to a module, which pays for it. It has an outcome at once if the
    /// module does not offer the service, if too many wait for it, or if `hold` returns no memory.
    pub(crate) fn ask(
        &mut self,
        server: ModuleId,
        question: Question,
        now_ns: u64,
        hold: impl FnOnce(u64) -> Option<C>,
    ) {
        let Question { service, request, answer } = question;
        let is_here = |(by, _): &&(ModuleId, u16)| *by == server;
        let Some((_, service)) = self.offers.get(&service).filter(is_here).copied() else {
            // This fails only if the asker waits no more.
            let _ = answer.send((Outcome::Nobody, Vec::new()));
            return;
        };
        let key = (server, server);
        let open = self.serving.iter().filter(|((by, _), open)| (*by, open.caller) == key).count();
        let waiting = self.waiting.get(&key).map_or(0, VecDeque::len);
        let bytes = (ENTRY + request.len() + MAX_REQUEST) as u64;
        let has_room = open + waiting < SERVICE_OPEN_MAX;
        let Some(held) = has_room.then(|| hold(bytes)).flatten() else {
            let _ = answer.send((Outcome::Refused, Vec::new()));
            return;
        };
        let due_ns = now_ns.saturating_add(REPLY_MAX_NS);
        if !self.in_steps.contains(&server) {
            self.due_ns = self.due_ns.min(due_ns);
        }
        let open = Open { caller: server, to: To::Outside(answer), due_ns, held };
        self.waiting.entry(key).or_default().push_back(Waiting { service, request, open });
    }

    /// Records the reply to a call that was delivered to `server`. Returns false if there is no such call, or
    /// if it has an outcome.
    pub(crate) fn reply(&mut self, server: ModuleId, call: u64, reply: &[u8]) -> bool {
        self.outcome(server, call, Outcome::Replied, reply)
    }

    /// Refuses a call that was delivered to `server`, which does not make it.
    pub(crate) fn refuse(&mut self, server: ModuleId, call: u64) {
        self.made(server, call);
        self.outcome(server, call, Outcome::Refused, &[]);
    }

    /// Records that `server` has made a call that was delivered to it, or will not make it. It may reply
    /// later.
    pub(crate) fn made(&mut self, server: ModuleId, call: u64) {
        if let Some(party) = self.parties.get_mut(&server) {
            party.making.remove(&call);
        }
    }

    /// Records that `caller` has taken the first of the outcomes that were delivered to it.
    pub(crate) fn taken(&mut self, caller: ModuleId) {
        if let Some(party) = self.parties.get_mut(&caller)
            && party.taking.pop_front().is_some()
        {
            party.open -= 1;
        }
    }

    fn outcome(&mut self, server: ModuleId, call: u64, outcome: Outcome, reply: &[u8]) -> bool {
        let open = self.serving.remove(&(server, call));
        open.map(|open| self.finish(open, outcome, reply)).is_some()
    }

    fn finish(&mut self, open: Open<C>, outcome: Outcome, reply: &[u8]) {
        match open.to {
            // This fails only if the asker waits no more.
            To::Outside(answer) => drop(answer.send((outcome, reply.to_vec()))),
            To::Caller(token) if self.parties.contains_key(&open.caller) => {
                let done = Done { token, outcome, reply: reply.to_vec(), held: open.held };
                self.outcomes.entry(open.caller).or_default().push_back(done);
            }
            To::Caller(_) => {}
        }
    }

    /// Gives calls an outcome that are late, but for those whose outcomes wait for an interval.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        if now_ns < self.due_ns {
            return;
        }
        let in_steps = std::mem::take(&mut self.in_steps);
        let waits = |server: &ModuleId| in_steps.contains(server);
        self.expire_of(now_ns, |server| !waits(server));
        let waiting =
            self.waiting.iter().flat_map(|((server, _), all)| all.iter().map(|w| (*server, &w.open)));
        let open = self.serving.iter().map(|((server, _), open)| (*server, open)).chain(waiting);
        let timed = open.filter(|(server, _)| !waits(server));
        self.due_ns = timed.map(|(_, open)| open.due_ns).min().unwrap_or(u64::MAX);
        self.in_steps = in_steps;
    }

    /// Gives the calls an outcome that are late, of a module of which an interval has ended.
    pub(crate) fn end_interval(&mut self, id: ModuleId, now_ns: u64) {
        self.expire_of(now_ns, |server| *server == id);
    }

    fn expire_of(&mut self, now_ns: u64, of: impl Fn(&ModuleId) -> bool) {
        let is_late = |open: &Open<C>| open.due_ns <= now_ns;
        let serving = self.serving.extract_if(.., |(server, _), open| of(server) && is_late(open));
        let mut late: Vec<_> = serving.map(|(_, open)| open).collect();
        for (_, queue) in self.waiting.iter_mut().filter(|((server, _), _)| of(server)) {
            // Those of one queue are in the order of their times.
            while let Some(waiting) = queue.pop_front_if(|waiting| is_late(&waiting.open)) {
                late.push(waiting.open);
            }
        }
        self.waiting.retain(|_, queue| !queue.is_empty());
        late.into_iter().for_each(|open| self.finish(open, Outcome::Late, &[]));
    }

    /// Returns whether a call would be late at this time.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// Returns whether a call or an outcome can be delivered to a module that takes one. `takes` learns
    /// whether it is a call.
    pub(crate) fn can_deliver(&self, takes: impl Fn(ModuleId, bool) -> bool) -> bool {
        self.outcomes.keys().any(|id| self.may_take(*id) && takes(*id, false))
            || self.waiting.keys().any(|(server, _)| self.may_make(*server) && takes(*server, true))
    }

    fn may_make(&self, server: ModuleId) -> bool {
        self.parties.get(&server).is_some_and(|party| party.making.len() < SERVICE_DELIVERED_MAX)
    }

    fn may_take(&self, caller: ModuleId) -> bool {
        self.parties.get(&caller).is_some_and(|party| party.taking.len() < SERVICE_DELIVERED_MAX)
    }

    /// Returns the module whose call is delivered to `server` next: tenants in turn, and of one its
    /// modules. So the part of one does not grow with the number of its modules.
    fn next_caller(&self, server: ModuleId) -> Option<ModuleId> {
        let Party { turn, turns, .. } = self.parties.get(&server)?;
        let callers = self.waiting.range((server, ModuleId(0))..=(server, ModuleId(u32::MAX)));
        callers
            .filter_map(|((_, caller), _)| Some((&self.parties.get(caller)?.tenant, *caller)))
            .min_by_key(|(tenant, caller)| {
                let had_turn = turn.as_ref().is_some_and(|last| *tenant <= last);
                let had_own = turns.get(*tenant).is_some_and(|last| caller <= last);
                (had_turn, *tenant, had_own, *caller)
            })
            .map(|(_, caller)| caller)
    }

    /// Returns the next call to deliver to a module that takes one, modules in turn.
    pub(crate) fn next_request(&mut self, mut takes: impl FnMut(ModuleId) -> bool) -> Option<Request> {
        let servers: Vec<_> = self.waiting.keys().map(|(server, _)| *server).collect();
        let after = servers.iter().filter(|id| Some(**id) > self.server);
        let server = after.chain(&servers).copied().find(|id| self.may_make(*id) && takes(*id))?;
        let caller = self.next_caller(server)?;
        let tenant = self.parties.get(&caller)?.tenant.clone();
        let key = (server, caller);
        let queue = self.waiting.get_mut(&key)?;
        let Waiting { service, request, open } = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&key);
        }
        let party = self.parties.get_mut(&server)?;
        party.turns.insert(tenant.clone(), caller);
        (party.turn, self.server) = (Some(tenant), Some(server));
        let call = party.next;
        party.next += 1;
        party.making.insert(call);
        self.serving.insert((server, call), open);
        Some(Request { caller, server, call, service, bytes: request })
    }

    /// Returns the next outcome to deliver to a module that takes one, modules in turn.
    pub(crate) fn next_outcome(&mut self, mut takes: impl FnMut(ModuleId) -> bool) -> Option<Delivery> {
        let after = self.outcomes.keys().filter(|id| Some(**id) > self.receiver);
        let caller =
            after.chain(self.outcomes.keys()).copied().find(|id| self.may_take(*id) && takes(*id))?;
        let queue = self.outcomes.get_mut(&caller)?;
        let Done { token, outcome, reply, held } = queue.pop_front()?;
        if queue.is_empty() {
            self.outcomes.remove(&caller);
        }
        self.receiver = Some(caller);
        let party = self.parties.get_mut(&caller)?;
        party.taking.push_back(held);
        Some(Delivery { caller, token, outcome, lost: std::mem::take(&mut party.lost), reply })
    }
}

#[cfg(test)]
mod tests;
