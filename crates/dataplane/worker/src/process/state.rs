//! The worker's state of a module in a process.

use super::service_time::{Delivered, Paid};
use crate::lock;
use flame_execute::{Begun, Held, Place};
use flame_output::Schema;
use flame_plan::limits::{LAST_CALLS_BUDGETS, LAST_CALLS_MIN, LAST_CALLS_UNITS_PER_NS};
use flame_plan::{Account, FaultReport, ModuleId, ModulePlan, OnFault, Processed};
use flame_quota::{Link, Meters};
use flame_remote::Kept;
use flame_run::{Eviction, Watchdog};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The worker's state of a module in a process.
pub(crate) struct State {
    pub(crate) id: ModuleId,
    pub(crate) name: String,
    pub(crate) schema: Schema,
    /// Whether the module forwards packets.
    pub(super) forwards: bool,
    /// Whether its batches have a time limit, beyond which its process evicts it.
    pub(super) is_timed: bool,
    /// The units of work that one call may cost.
    call_budget: u64,
    /// The maximum number of bytes of the output of one call.
    pub(super) output: usize,
    /// The maximum number of bytes of the state of one instance.
    most_state: usize,
    /// The watchdog to tell of a violation of its bound, and its hash, if it has bounds.
    pub(super) violation: Option<(Watchdog, [u8; 32])>,
    pub(super) meters: Meters,
    /// The bytes of private memory that the process may need for it.
    pub(super) memory: Need,
    pub(crate) eviction: Eviction,
    ticks: Vec<Ticks>,
    /// The reported accounts by worker.
    accounts: Mutex<Vec<Account>>,
    messages_lost: AtomicU64,
    /// Whether the end was requested, by worker.
    requested: Vec<AtomicBool>,
    /// Whether the instance has ended in a fault that no other one follows, by worker.
    dead: Vec<AtomicBool>,
    /// Whether it is being removed while the run continues.
    is_removal: AtomicBool,
    ending: Mutex<Ending>,
    /// Whether the process has reported any work of it.
    has_worked: AtomicBool,
    has_ended: AtomicBool,
    /// Whether its processor time is used up.
    is_held: AtomicBool,
    /// The number of records that were made before the module was evicted and came after.
    records_lost: AtomicU64,
    is_eviction_reported: AtomicBool,
    faults: AtomicU64,
    most_faults: u64,
    /// The bytes of memory that are counted in its use now.
    counted: AtomicU64,
    /// The places of its instances, whose states are kept here.
    held: Mutex<BTreeMap<Place, Held>>,
    /// The calls of its services that were delivered last.
    calls: Mutex<Delivered>,
    /// The memory that was taken from its meters for its process.
    claim: Option<Claim>,
    /// Dropped at its end, after which it needs no place.
    needs_places: Mutex<Option<Arc<()>>>,
}

/// The end of a module whose calls of services have to end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The module has no calls: its instances end without a further request.
    Free,
    /// Its fast instances have not ended.
    Running,
    /// The process has reported that its fast instances have ended. From here on it waits for others.
    Reported,
    /// The collector has the output of its fast instances.
    Drained,
    /// Its calls have ended, and it takes their outcomes.
    Closed { since: Duration },
    /// Its slow instance may end.
    Last,
}

/// Returns the time that the last calls of an instance may need, if one call may cost `call_budget` units.
fn last_calls(call_budget: u64) -> Duration {
    let budgets =
        Duration::from_nanos(call_budget / LAST_CALLS_UNITS_PER_NS).saturating_mul(LAST_CALLS_BUDGETS);
    LAST_CALLS_MIN.max(budgets)
}

/// Returns the number of faults that a module can have: one for each instance that is ever created.
fn most_faults(on_fault: OnFault, workers: usize) -> u64 {
    let restarts = match on_fault {
        OnFault::Stop => 0,
        OnFault::Restart(times) => u64::from(times),
    };
    (restarts + 1) * workers as u64 + 1
}

impl State {
    pub(super) fn new(plan: &ModulePlan, meters: &Meters, workers: usize) -> Self {
        Self {
            id: plan.id,
            name: plan.name.clone(),
            schema: Schema::new(&plan.manifest).forwarding(plan.terms.forward),
            forwards: plan.manifest.ports.is_some(),
            is_timed: plan.terms.time_limit.is_some(),
            call_budget: plan.limits.call_budget,
            output: plan.limits.output_per_call as usize,
            most_state: plan.manifest.state.map_or(0, |state| state.max as usize),
            violation: None,
            meters: meters.clone(),
            memory: Need::of(plan, workers),
            eviction: Eviction::default(),
            ticks: (0..workers).map(|_| Ticks::default()).collect(),
            accounts: Mutex::new(vec![plan.empty_account(); workers]),
            messages_lost: AtomicU64::new(0),
            requested: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            dead: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            is_removal: AtomicBool::new(false),
            ending: Mutex::new(if plan.manifest.has_calls() { Ending::Running } else { Ending::Free }),
            has_worked: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            records_lost: AtomicU64::new(0),
            is_eviction_reported: AtomicBool::new(false),
            faults: AtomicU64::new(0),
            most_faults: most_faults(plan.on_fault, workers),
            counted: AtomicU64::new(0),
            held: Mutex::default(),
            calls: Mutex::default(),
            claim: None,
            needs_places: Mutex::new(Some(Arc::default())),
        }
    }

    /// Takes the memory that its instances may use from its meters: at most an equal part for each of
    /// `sharers`, and less if there is less. Returns false if there is too little for any.
    pub(super) fn claim(&mut self, sharers: usize) -> bool {
        let part = self.meters.memory().0 / sharers.max(1) as u64;
        let halves = std::iter::successors(Some(self.memory.linear.min(part)), |bytes| Some(bytes / 2));
        let mut enough = halves.take_while(|bytes| *bytes >= LEAST);
        let bytes = enough.find(|bytes| self.meters.own(*bytes));
        self.claim = bytes.map(|bytes| Claim { meters: self.meters.clone(), bytes });
        self.claim.is_some()
    }

    /// Returns the limits of its meters for its process, which has no more memory than was taken for it.
    pub(super) fn links(&self) -> Vec<Link> {
        let mut links = self.meters.links();
        if let Some(claim) = &self.claim {
            links.iter_mut().for_each(|link| link.memory = link.memory.min(claim.bytes));
        }
        links
    }

    /// Records that a call of a service is delivered, which `payer` pays for.
    pub(super) fn begin_call(&self, call: u64, payer: &Meters) {
        lock(&self.calls).begin(call, payer.clone(), Instant::now());
    }

    /// Records that the process reports `time` as that of a call.
    pub(super) fn end_call(&self, call: u64, time: Duration) {
        lock(&self.calls).end(call, time, Instant::now());
    }

    /// Returns the times of calls that their callers pay for, since the last call of this function, and what
    /// the call may have taken whose end was not reported.
    pub(super) fn take_paid(&self) -> Paid {
        lock(&self.calls).take(Instant::now())
    }

    /// Forgets the calls that were delivered: their ends will not be reported.
    pub(super) fn forget_calls(&self) {
        lock(&self.calls).forget();
    }

    /// Returns whether the module has ended on all workers, or its process is gone. The collector has
    /// received all its output by then.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) {
        lock(&self.needs_places).take();
        // Those that follow begin with what is stored there.
        let held = {
            let mut held = lock(&self.held);
            self.has_ended.store(true, Ordering::Release);
            std::mem::take(&mut *held)
        };
        drop(held);
    }

    /// Returns a value that lives until the module has ended.
    pub(super) fn needs_places(&self) -> Option<Arc<()>> {
        lock(&self.needs_places).clone()
    }

    /// Takes the place of an instance. Returns false if the module has ended.
    pub(super) fn occupy(&self, place: Place, held: Held) -> bool {
        let mut all = lock(&self.held);
        let is_running = !self.has_ended();
        if is_running {
            all.insert(place, held);
            return true;
        }
        // Dropped without the lock.
        drop(all);
        false
    }

    /// Returns whether other instances wait for the states of these.
    pub(super) fn is_followed(&self) -> bool {
        lock(&self.held).values().any(Held::is_awaited)
    }

    /// Records an event of the state of one instance, which the process reports.
    pub(super) fn kept(&self, place: Place, kept: Kept, state: &[u8]) -> Result<(), String> {
        let mut all = lock(&self.held);
        let Some(held) = all.get_mut(&place) else {
            return Err(format!("a state of {place}, which has none"));
        };
        match kept {
            Kept::Empty => held.begin(Begun::Empty),
            Kept::Taken => held.begin(Begun::Taken),
            Kept::Refused => held.begin(Begun::Refused),
            Kept::Dropped => held.fault(),
            Kept::CutOff => held.cut_off(),
            Kept::Stored if state.len() > self.most_state => {
                return Err(format!(
                    "a state of {} bytes, at most {} are kept",
                    state.len(),
                    self.most_state
                ));
            }
            Kept::Stored => held.store(state),
        }
        Ok(())
    }

    /// Records that its end is requested on a worker.
    pub(super) fn request_end(&self, worker: usize) {
        if let Some(requested) = self.requested.get(worker) {
            requested.store(true, Ordering::Release);
        }
    }

    /// Records that it is being removed while the run continues.
    pub(super) fn remove(&self) {
        self.is_removal.store(true, Ordering::Release);
    }

    /// Returns whether it is being removed while the run continues.
    pub(super) fn is_removal(&self) -> bool {
        self.is_removal.load(Ordering::Acquire)
    }

    /// Returns the progress of its end.
    pub(super) fn ending(&self) -> Ending {
        *lock(&self.ending)
    }

    /// Advances its end to another step, if `is_from` the step before. Returns whether it is.
    pub(super) fn advance(&self, is_from: impl FnOnce(Ending) -> bool, to: Ending) -> bool {
        let mut ending = lock(&self.ending);
        let is_at = is_from(*ending);
        if is_at {
            *ending = to;
        }
        is_at
    }

    /// Returns whether its end was requested on any worker. Its last calls need no share.
    pub(super) fn is_ending(&self) -> bool {
        self.requested.iter().any(|requested| requested.load(Ordering::Relaxed))
    }

    /// Returns whether its processor time is used up.
    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Records whether its processor time is used up. Returns whether that is new.
    pub(super) fn hold(&self, holds: bool) -> bool {
        self.is_held.swap(holds, Ordering::Relaxed) != holds
    }

    /// Records that the process has reported work of the module.
    pub(super) fn work(&self) {
        self.has_worked.store(true, Ordering::Relaxed);
    }

    /// Returns whether its end was requested on all workers.
    pub(super) fn is_requested(&self) -> bool {
        self.requested.iter().all(|requested| requested.load(Ordering::Acquire))
    }

    /// Returns whether the process may report the module's end: that was requested on all workers, or
    /// the module could not be loaded.
    pub(super) fn may_end(&self) -> bool {
        !self.has_worked.load(Ordering::Relaxed) || self.is_requested()
    }

    /// Records that a tick was published on `worker`.
    pub(crate) fn tick(&self, worker: usize, now_ns: u64) {
        self.ticks[worker].published.fetch_max(now_ns, Ordering::Relaxed);
    }

    /// Returns a tick that the process reports to have passed on `worker`, as [`Ticks::next_passed`].
    pub(super) fn next_passed(&self, worker: usize, now_ns: u64) -> Option<u64> {
        self.ticks.get(worker)?.next_passed(now_ns)
    }

    /// Returns the last tick that the process has passed on all workers.
    pub(super) fn all_passed(&self) -> u64 {
        self.ticks.iter().map(|ticks| ticks.passed.load(Ordering::Acquire)).min().unwrap_or(0)
    }

    /// Records the last tick that the process has passed on `worker`. Its event is in the queue.
    pub(super) fn set_passed(&self, worker: usize, now_ns: u64) {
        if let Some(ticks) = self.ticks.get(worker) {
            ticks.passed.store(now_ns, Ordering::Release);
        }
    }

    /// Returns whether the process has passed the last tick that was published on `worker`.
    pub(super) fn has_passed_ticks(&self, worker: usize) -> bool {
        self.ticks.get(worker).is_none_or(Ticks::are_passed)
    }

    pub(super) fn workers(&self) -> usize {
        self.ticks.len()
    }

    /// Counts a fault. Returns false if the module has more than it can have had.
    pub(super) fn count_fault(&self) -> bool {
        self.faults.fetch_add(1, Ordering::Relaxed) < self.most_faults
    }

    /// Counts `bytes` as the memory that it uses now.
    pub(super) fn count_memory(&self, bytes: u64) {
        if let Some(usage) = self.meters.usage() {
            usage.memory.replace(self.counted.swap(bytes, Ordering::Relaxed), bytes);
        }
    }

    /// Counts records that are not passed on.
    pub(super) fn lose(&self, records: u64) {
        self.records_lost.fetch_add(records, Ordering::Relaxed);
    }

    /// Records that the instance on a worker has ended, and no other one follows.
    pub(super) fn die(&self, worker: usize) {
        if let Some(dead) = self.dead.get(worker) {
            dead.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the instance on a worker has ended, and no other one follows.
    pub(super) fn is_dead(&self, worker: usize) -> bool {
        self.dead.get(worker).is_some_and(|dead| dead.load(Ordering::Relaxed))
    }

    /// Returns the number of workers on which that is so, and the number of faults of the module.
    pub(crate) fn halts(&self) -> (usize, u64) {
        let dead = self.dead.iter().filter(|dead| dead.load(Ordering::Relaxed)).count();
        (dead, self.faults.load(Ordering::Relaxed))
    }

    /// Returns the report of the module's eviction, if it was evicted and this is the first call since.
    pub(super) fn eviction_report(&self) -> Option<FaultReport> {
        let reason = self.eviction.reason()?;
        let is_first = !self.is_eviction_reported.swap(true, Ordering::Relaxed);
        is_first.then(|| FaultReport {
            evicted: Some(reason.clone()),
            ..FaultReport::new(self.id, self.name.clone(), format!("evicted: {reason}"))
        })
    }

    pub(super) fn set_account(&self, worker: usize, account: Account) {
        if let Some(known) = lock(&self.accounts).get_mut(worker) {
            *known = account;
        }
    }

    /// Records the packets that are processed on a worker, as far as output tells.
    pub(super) fn raise_processed(&self, worker: usize, processed: Processed) {
        if let Some(known) = lock(&self.accounts).get_mut(worker) {
            known.raise_processed(processed);
        }
    }

    /// Returns the time that the last calls of its instances may need: one for each worker, and the slow one.
    pub(super) fn last_calls(&self) -> Duration {
        let instances = u32::try_from(lock(&self.accounts).len() + 1).unwrap_or(u32::MAX);
        last_calls(self.call_budget).saturating_mul(instances)
    }

    /// Returns the number of messages that were lost, so far that sums with others do not overflow.
    pub(crate) fn messages_lost(&self) -> u64 {
        self.messages_lost.load(Ordering::Relaxed).min(u64::MAX >> 16)
    }

    pub(super) fn set_messages_lost(&self, messages: u64) {
        self.messages_lost.store(messages, Ordering::Relaxed);
    }

    pub(crate) fn account(&self, worker: usize) -> Account {
        let mut account = lock(&self.accounts).get(worker).cloned().unwrap_or_default();
        let of_first = |number: &AtomicU64| if worker == 0 { number.load(Ordering::Relaxed) } else { 0 };
        account.messages_lost = if worker == 0 { self.messages_lost() } else { 0 };
        account.faults = of_first(&self.faults);
        account.records_lost = of_first(&self.records_lost);
        account
    }
}

/// The least memory with which a module begins in a process: one page of linear memory.
const LEAST: u64 = 64 << 10;

/// Memory that was taken from meters, and returns with this.
struct Claim {
    meters: Meters,
    bytes: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.meters.disown(self.bytes);
    }
}

/// The ticks of one worker.
#[derive(Default)]
struct Ticks {
    /// The last one that was published.
    published: AtomicU64,
    /// The last one that the process has passed.
    passed: AtomicU64,
}

impl Ticks {
    /// Returns a tick that the process reports, within those that were published, unless it has passed one as
    /// late before.
    fn next_passed(&self, now_ns: u64) -> Option<u64> {
        let now_ns = now_ns.min(self.published.load(Ordering::Relaxed));
        (self.passed.load(Ordering::Acquire) < now_ns).then_some(now_ns)
    }

    /// Returns whether the process has passed the last one.
    fn are_passed(&self) -> bool {
        self.passed.load(Ordering::Acquire) >= self.published.load(Ordering::Relaxed)
    }
}

/// The bytes of private memory that a process may need for a module.
#[derive(Clone, Copy)]
pub(super) struct Need {
    /// The linear memories of all instances.
    pub(super) linear: u64,
    /// Stacks, output, tables, machine code and the command that brings it.
    pub(super) other: u64,
}

impl Need {
    fn of(plan: &ModulePlan, workers: usize) -> Self {
        let instances = workers as u64 + 1;
        let (limits, code) = (&plan.limits, plan.code.len() as u64);
        let texts = (plan.parameters.len() + plan.texts.len()) as u64;
        let state = plan.manifest.state.map_or(0, |state| u64::from(state.max));
        let each = (4 << 20)
            + 6 * state
            + 4 * u64::from(limits.output_per_call)
            + 32 * u64::from(limits.table_elements);
        Self {
            linear: instances.saturating_mul(u64::from(limits.memory)),
            other: instances * (each + texts) + 4 * (code + texts) + (8 << 20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that does 11 units in a nanosecond needs 2.3 s for each of these budgets.
    #[test]
    fn large_budgets_have_their_time_at_the_end() {
        assert_eq!(last_calls(1_000_000_000), LAST_CALLS_MIN);
        assert!(last_calls(25_000_000_000) > 5 * Duration::from_millis(2300));
        assert!(last_calls(u64::MAX) > Duration::from_secs(1 << 30));
    }

    #[test]
    fn a_tick_is_passed_once_and_not_before_it_was_published() {
        let ticks = Ticks::default();
        let pass =
            |now_ns| ticks.next_passed(now_ns).inspect(|now| ticks.passed.store(*now, Ordering::Release));
        assert_eq!(pass(5), None);
        ticks.published.store(10, Ordering::Relaxed);
        let passed = [4, 4, 3, u64::MAX, 10, 11].map(pass);
        assert_eq!(passed, [Some(4), None, None, Some(10), None, None]);
    }
}
