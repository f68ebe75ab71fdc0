//! The life of one process: its modules, the time and memory that they use there, and its end.

use super::charge::Charged;
use super::kernel::{self, MemoryLimit, Scheduled};
use super::schedule;
use super::state::State;
use crate::lock;
use flame_base::Backoff;
use flame_plan::limits::{PROCESS_ANSWER_PINGS, PROCESS_ANSWER_PINGS_MAX, STRAY_REPORTS_MAX};
use flame_plan::{ModuleId, Share};
use flame_remote::{ChannelError, Stall};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::collections::BTreeMap;
use std::io;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The waits for the end of a killed process.
const REAP: Backoff = Backoff::every(Duration::from_millis(2));

/// A process in which modules run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The name in the plans of its modules.
    pub name: String,
    pub pid: u32,
    pub modules: Vec<ModuleId>,
}

/// A module whose process has ended, although nobody removed or evicted the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostModule {
    pub id: ModuleId,
    /// The process by its name and number.
    pub process: String,
    pub pid: u32,
    /// The reason for its end.
    pub cause: String,
}

/// The shared state of the worker's threads that serve one process.
pub(super) struct Life {
    pub(super) name: String,
    pid: u32,
    pub(super) child: Mutex<Child>,
    modules: Mutex<BTreeMap<ModuleId, Arc<State>>>,
    pub(super) is_gone: AtomicBool,
    /// The numbers of the last ping and of the last one that was answered.
    pings: AtomicU64,
    answered: AtomicU64,
    /// The number of reports that belong to no module.
    stray: AtomicU64,
    /// The thread that reads its reports. Its time counts as the process's.
    reader: AtomicU64,
    /// The time for which its reports are handled, for which it has to wait.
    pub(super) handling: Arc<Stall>,
    /// The reason why the worker killed it.
    reason: Mutex<Option<String>>,
    /// The cause of its end, once it has ended.
    pub(super) cause: Mutex<Option<String>>,
    /// The processor time that its modules have reserved.
    pub(super) reserved: Mutex<BTreeMap<ModuleId, Share>>,
    /// Whether it takes no further module, because it has ended its last one.
    is_closed: AtomicBool,
    /// The number of modules that entered since it was last asked for.
    entered: AtomicU64,
    /// `None` once it has ended: its number may be another process's then.
    alive: Mutex<Option<Alive>>,
}

/// The state of a process that has not been reaped.
#[derive(Default)]
struct Alive {
    charged: Charged,
    memory: MemoryLimit,
}

impl Life {
    /// Creates the life of a process. `handling` is the time for which its reports are handled.
    pub(super) fn new(name: String, child: Child, handling: Arc<Stall>) -> Self {
        Self {
            name,
            pid: child.id(),
            child: Mutex::new(child),
            modules: Mutex::default(),
            is_gone: AtomicBool::new(false),
            pings: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            stray: AtomicU64::new(0),
            reader: AtomicU64::new(0),
            handling,
            reason: Mutex::default(),
            cause: Mutex::default(),
            reserved: Mutex::default(),
            is_closed: AtomicBool::new(false),
            entered: AtomicU64::new(0),
            alive: Mutex::new(Some(Alive::default())),
        }
    }

    /// Kills the process. Of several reasons the first is kept.
    pub(super) fn kill(&self, reason: Option<&str>) {
        if let Some(reason) = reason {
            lock(&self.reason).get_or_insert_with(|| reason.to_owned());
        }
        let _ = lock(&self.child).kill();
    }

    /// Returns the number of the process, to show it. It may be another process's.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Calls `act` with the number of the process, which is its own until `act` returns. Returns `None` if
    /// the process has ended.
    fn while_alive<T>(&self, act: impl FnOnce(u32, &mut Alive) -> T) -> Option<T> {
        lock(&self.alive).as_mut().map(|alive| act(self.pid, alive))
    }

    /// Returns the times of its first thread.
    pub(super) fn scheduled(&self) -> Option<Scheduled> {
        self.while_alive(|pid, _| kernel::scheduled(pid))?
    }

    /// Returns the processor time of all its threads.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        self.while_alive(|pid, _| kernel::processor_time(pid))?
    }

    /// Returns whether it takes no further module, because it has ended its last one.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Records the thread that reads the reports.
    pub(super) fn set_reader(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.reader.store(thread as u64, Ordering::Relaxed);
    }

    /// Charges the processor time of the process, and of the thread that reads its reports. Returns that
    /// time, unless the process is gone.
    pub(super) fn charge(&self) -> Option<Duration> {
        let reader = kernel::thread_time(self.reader.load(Ordering::Relaxed)).unwrap_or_default();
        let modules = self.modules();
        self.while_alive(|pid, alive| {
            let process = kernel::processor_time(pid)?;
            alive.charged.charge((process, reader), &modules);
            Some((process + reader).saturating_sub(alive.charged.of_others()))
        })?
    }

    /// Records that the process has confined itself. Its time so far is not counted in the meters of its
    /// modules, which did nothing yet.
    pub(super) fn begin(&self) {
        self.while_alive(|pid, alive| {
            alive.charged.begin(kernel::processor_time(pid).unwrap_or_default());
        });
    }

    /// Returns the number of modules that entered since the last call.
    pub(super) fn take_entered(&self) -> u64 {
        self.entered.swap(0, Ordering::Relaxed)
    }

    /// Counts the memory of the process in the use of its modules.
    ///
    /// # Errors
    ///
    /// Returns the reason to end the process, if it has more than it may have.
    pub(super) fn count_memory(&self) -> Result<(), String> {
        let modules = self.modules();
        let checked = self.while_alive(|pid, alive| {
            let Some(memory) = kernel::memory_of(pid) else { return Ok(()) };
            let each = memory.private / modules.len().max(1) as u64;
            modules.iter().for_each(|state| state.count_memory(each));
            alive.memory.check(memory)
        });
        checked.unwrap_or(Ok(()))
    }

    /// Reserves processor time for a module, in place of what it has and of what `replaced` has.
    pub(super) fn reserve(
        &self,
        id: ModuleId,
        share: Option<Share>,
        replaced: Option<ModuleId>,
    ) -> io::Result<()> {
        let mut reserved = lock(&self.reserved);
        let mut new = reserved.clone();
        new.retain(|id, _| Some(*id) != replaced);
        match share {
            Some(share) => drop(new.insert(id, share)),
            None => drop(new.remove(&id)),
        }
        if new == *reserved {
            return Ok(());
        }
        let ended = || io::Error::other("it has ended");
        self.while_alive(|pid, _| schedule::schedule(pid, new.values())).ok_or_else(ended)??;
        *reserved = new;
        Ok(())
    }

    /// Returns whether a module has reserved processor time.
    pub(super) fn has_reserved(&self, id: ModuleId) -> bool {
        lock(&self.reserved).contains_key(&id)
    }

    /// Returns the number of intervals without an answer after which the process is killed: more if the
    /// kernel gives it only a part of a processor, since its calls take longer.
    pub(super) fn answer_pings(&self) -> f64 {
        let part: f64 = lock(&self.reserved).values().map(|share| share.part()).sum();
        match part > 0.0 {
            true => (f64::from(PROCESS_ANSWER_PINGS) / part.min(1.0)).min(PROCESS_ANSWER_PINGS_MAX),
            false => PROCESS_ANSWER_PINGS.into(),
        }
    }

    pub(super) fn info(&self) -> ProcessInfo {
        let modules = lock(&self.modules).keys().copied().collect();
        ProcessInfo { name: self.name.clone(), pid: self.pid, modules }
    }

    /// Returns the number of the next ping.
    pub(super) fn ping(&self) -> u64 {
        self.pings.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the numbers of the last ping and of the last answer.
    pub(super) fn pings(&self) -> (u64, u64) {
        (self.pings.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed))
    }

    /// Records the answer to a ping. Returns false if it was not asked for.
    pub(super) fn answer(&self, number: u64) -> bool {
        self.answered.fetch_max(number, Ordering::Relaxed);
        number <= self.pings.load(Ordering::Relaxed)
    }

    /// Counts a report that belongs to no module. Returns false if there are too many.
    pub(super) fn count_stray(&self) -> bool {
        self.stray.fetch_add(1, Ordering::Relaxed) < STRAY_REPORTS_MAX
    }

    /// Kills the process if all its modules were evicted.
    pub(super) fn end_if_evicted(&self) {
        let modules = self.modules();
        if !modules.is_empty() && modules.iter().all(|state| state.eviction.reason().is_some()) {
            self.kill(None);
        }
    }

    pub(super) fn module(&self, id: ModuleId) -> Option<Arc<State>> {
        lock(&self.modules).get(&id).cloned()
    }

    /// Returns the time that the last calls of its modules' instances may need, one after the other.
    pub(super) fn last_calls(&self) -> Duration {
        let each = |sum: Duration, state: &Arc<State>| sum.saturating_add(state.last_calls());
        lock(&self.modules).values().fold(Duration::ZERO, each)
    }

    pub(super) fn modules(&self) -> Vec<Arc<State>> {
        lock(&self.modules).values().cloned().collect()
    }

    /// Registers a module, unless the process is gone, and allows the process the memory for it.
    pub(super) fn enter(&self, state: Arc<State>) -> io::Result<()> {
        let mut modules = lock(&self.modules);
        // Set under this lock, after which nobody would report the end of a module.
        if self.is_gone.load(Ordering::Acquire) || self.is_closed() {
            return Err(io::Error::other("it has ended"));
        }
        modules.insert(state.id, state);
        self.entered.fetch_add(1, Ordering::Relaxed);
        self.limit_memory(&modules)
    }

    /// Removes a module that has ended, and the memory for it. With its last module the process ends: what it
    /// does without one could be charged to nobody.
    pub(super) fn leave(&self, id: ModuleId) {
        if self.close_with(id) {
            self.kill(None);
            self.wait();
        }
        self.module(id).iter().for_each(|state| state.forget_calls());
        self.charge();
        // A smaller sum is always admitted.
        let _ = self.reserve(id, None, None);
        let mut modules = lock(&self.modules);
        if let Some(state) = modules.remove(&id) {
            state.count_memory(0);
        }
        // A lower limit is always possible while the process exists.
        let _ = self.limit_memory(&modules);
    }

    /// Takes no further modules, if `id` is the only one. Returns whether that is so.
    fn close_with(&self, id: ModuleId) -> bool {
        let modules = lock(&self.modules);
        let is_last = modules.len() == 1 && modules.contains_key(&id);
        if is_last {
            self.is_closed.store(true, Ordering::Release);
        }
        is_last
    }

    /// Limits the memory to what the meters of its modules allow now.
    pub(super) fn relimit(&self) {
        let modules = lock(&self.modules);
        // As above.
        let _ = self.limit_memory(&modules);
    }

    fn limit_memory(&self, modules: &BTreeMap<ModuleId, Arc<State>>) -> io::Result<()> {
        let limit = kernel::memory(modules.values().map(|state| &**state));
        let limited = self.while_alive(|pid, alive| {
            alive.memory.set(limit, kernel::memory_of(pid).unwrap_or_default());
            kernel::limit_memory(pid, limit)
        });
        limited.unwrap_or(Ok(()))
    }

    /// Waits until a process that was killed has ended. Its time can be read until it is reaped.
    fn wait(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let left = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let is_left = || matches!(pid.map(|pid| waitid(WaitId::Pid(pid), left)), Some(Ok(None)));
        REAP.sleep_until(|| (!is_left()).then_some(()));
    }

    /// Waits for the end of a process whose connection has ended, and returns its cause.
    pub(super) fn end(&self, error: &ChannelError) -> String {
        self.kill(None);
        self.wait();
        self.modules().iter().for_each(|state| state.forget_calls());
        self.charge();
        lock(&self.alive).take();
        // A process with much memory takes long to end, and others may want to kill it meanwhile.
        let status = REAP.sleep_until(|| lock(&self.child).try_wait().transpose());
        let cause = match (lock(&self.reason).take(), error, status) {
            (Some(reason), ..) => format!("its process was ended: {reason}"),
            (None, ChannelError::Closed, Ok(status)) => format!("its process ended: {status}"),
            (None, ChannelError::Closed, Err(e)) => format!("its process ended: {e}"),
            (None, error, _) => format!("its process was ended: {error}"),
        };
        lock(&self.cause).insert(cause).clone()
    }

    /// Marks the process as gone, and returns the modules that have not ended.
    pub(super) fn take_modules(&self) -> Vec<Arc<State>> {
        let mut modules = lock(&self.modules);
        self.is_gone.store(true, Ordering::Release);
        let modules: Vec<_> = std::mem::take(&mut *modules).into_values().collect();
        modules.iter().for_each(|state| state.count_memory(0));
        modules
    }
}
