//! A source of packets with its workers: started again when it fails, with the modules that it had.

mod launch;

use crate::config;
use crate::route::Routes;
use flame_abi::LinkType;
use flame_abi::output::Outcome;
use flame_base::lock;
use flame_plan::{Account, Audience, ModuleId, Reason, Share};
use flame_run::Engines;
use flame_source::SourceError;
use flame_source::live::{self};
use flame_trust::Place;
use flame_view::Key;
use flame_worker::{
    Bandwidth, Charging, HaltedModule, Handle, Link, LostModule, Module, ProcessInfo, Report, RunError,
    Runner, Snapshot, StartedProcess, reserved_rate,
};
use launch::{Launch, pin, supervise};
pub use launch::{Opened, open};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time that the removal of a module waits for the report of a run that has ended. It comes when the last
/// worker has ended.
const REPORT: Duration = Duration::from_secs(10);
/// The longest wait for the reply of a service: a second, and the end of an interval that a view shows whole.
const ASK: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum SourceRunError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("a thread: {0}")]
    Thread(std::io::Error),
    /// The name in the configuration is another interface's by now, which modules may not see.
    #[error("its interface was {before} and is {now}: start the node again")]
    Moved { before: String, now: String },
    #[error("source {source_name} does not run: {reason}")]
    Down { source_name: String, reason: String },
}

/// The totals of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub packets: u64,
    pub bytes: u64,
    pub kernel_drops: u64,
}

/// The account of a module's instance: as it is, for the operator, and as of the last tick of its grant, for
/// its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    pub live: Account,
    pub released: Account,
}

/// The start of a process. An error is one of the module that needs the process.
pub type Starting = JoinHandle<Option<StartedProcess>>;

/// A running source.
pub struct SourceRun {
    pub name: String,
    pub config: config::Source,
    /// The place from which its packets come, for grants.
    pub place: Place,
    pub routes: Routes,
    /// The measurement of its threads, and the use of the source's own work: capture, decoding, views.
    pub charging: Arc<Charging>,
    link: Option<Arc<Link>>,
    /// The bandwidth of the link that each installed module has, whether the source runs or not.
    bandwidth: Mutex<BTreeMap<ModuleId, Bandwidth>>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    /// Notified when the report of a run that has ended is among the past accounts.
    reported: Condvar,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Inner {
    handle: Option<Handle>,
    /// The number of times that the source was started.
    starts: u64,
    modules: BTreeMap<ModuleId, Module>,
    /// Modules that are being removed or have just been added, by their names in the plan. Their accounts are
    /// kept as those of `modules` are.
    changing: BTreeSet<String>,
    /// The number of the next module.
    next: u32,
    failed: Option<String>,
    /// The way in which the packets come, as it was when the source was last started.
    method: String,
    /// The totals and accounts of runs that ended.
    past: Totals,
    past_accounts: BTreeMap<String, Account>,
    /// The latest totals and accounts of the run that are known, for the time between its end and its report.
    last: Known,
}

/// Totals and accounts of the run that was started as this one, without earlier runs.
#[derive(Clone, Default)]
struct Known {
    starts: u64,
    totals: Totals,
    accounts: BTreeMap<String, Account>,
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Waits until the accounts of a run, if it has ended, are among the past ones: between its end and its
    /// report, they are not known.
    fn wait_for_report(&self, handle: &Handle, starts: u64) {
        if handle.snapshot().is_ok() {
            return;
        }
        let is_missing = |inner: &mut Inner| inner.handle.is_some() && inner.starts == starts;
        // Without a report in that time, the accounts stay as they were.
        drop(self.reported.wait_timeout_while(self.inner(), REPORT, is_missing));
    }

    /// Adds what a run that has ended counted to the past accounts. Returns the reason of its end.
    fn ended(&self, ended: Result<Report, RunError>, routes: &Routes) -> String {
        let mut inner = self.inner();
        inner.handle = None;
        // With the lock, because the accounts as of ticks go where the accounts of the run come.
        routes.forget_run();
        let reason = match ended {
            Ok(report) => {
                inner.past.packets += report.packets;
                inner.past.bytes += report.bytes;
                inner.past.kernel_drops += report.kernel_drops.unwrap_or(0);
                for (name, account) in report.accounts {
                    inner.past_accounts.entry(name).or_default().add(&account);
                }
                report.failed.unwrap_or_else(|| "it ended".to_owned())
            }
            Err(e) => e.to_string(),
        };
        inner.failed = Some(reason.clone());
        // Modules that were removed have given up their accounts.
        let Inner { modules, changing, past_accounts, .. } = &mut *inner;
        past_accounts
            .retain(|name, _| changing.contains(name) || modules.values().any(|m| m.plan.name == *name));
        self.reported.notify_all();
        reason
    }
}

impl SourceRun {
    /// Starts the workers of a source that was opened, with the link on which its modules send frames.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be started. Later faults are retried.
    pub fn start(
        name: &str,
        config: config::Source,
        engines: &Engines,
        runner: Option<Runner>,
        dispatch_key: Option<Key>,
        (opened, link): (Opened, Option<Arc<Link>>),
    ) -> Result<Self, SourceRunError> {
        let (routes, charging) = (Routes::default(), Arc::<Charging>::default());
        let place = opened.place.clone();
        let launch = Launch {
            config: config.clone(),
            place: place.clone(),
            engines: engines.clone(),
            runner,
            dispatch_key,
            link: link.as_ref().map(|link| link.for_owner()),
            routes: routes.clone(),
            charging: charging.clone(),
        };
        let shared = Arc::<Shared>::default();
        let (of_thread, cores) = (shared.clone(), config.cores.clone());
        let (started, wait) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("source-{name}")).spawn(move || {
            // The workers' threads inherit the cores.
            let pinned = pin(&cores);
            let first = pinned.and_then(|()| launch.start(&mut of_thread.inner(), opened));
            let (worker, result) = match first {
                Ok(worker) => (Some(worker), Ok(())),
                Err(e) => (None, Err(e)),
            };
            let failed = result.is_err();
            let _ = started.send(result);
            if !failed {
                supervise(&launch, &of_thread, worker);
            }
        });
        let thread = thread.map_err(SourceRunError::Thread)?;
        match wait.recv() {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(e),
            Err(_) => return Err(RunError::Broken.into()),
        }
        let (name, thread) = (name.to_owned(), Mutex::new(Some(thread)));
        let bandwidth = Mutex::default();
        Ok(Self { name, config, place, routes, charging, link, bandwidth, shared, thread })
    }

    /// Returns the way in which the packets come.
    pub fn method(&self) -> String {
        self.shared.inner().method.clone()
    }

    /// Returns whether frames leave by a link whose channels have their rates while a processor is free, and
    /// not whatever else works on the machine.
    pub fn sends_without_time(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.has_time())
    }

    /// Returns the link types of the packets, as far as they are known before these come.
    pub fn links(&self) -> Vec<LinkType> {
        let link = match &self.config.from {
            config::From::File { path, .. } => flame_source::first_link(path),
            config::From::Interface { name, .. } => live::may_open(name).ok(),
        };
        link.into_iter().collect()
    }

    /// Returns a number for a new module, which no other module of this source had.
    pub fn number(&self) -> ModuleId {
        let mut inner = self.shared.inner();
        inner.next += 1;
        ModuleId(inner.next)
    }

    /// Starts the process `name` unless it runs, and returns the thread that waits for it. A module finds the
    /// process as long as the result of the thread is kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the source does not run now, or the thread cannot be started.
    pub fn start_process(&self, name: String) -> Result<Starting, SourceRunError> {
        let (handle, _) = self.handle()?;
        let start = move || handle.start_process(&name).ok();
        let thread = std::thread::Builder::new().name("flame-start".to_owned());
        thread.spawn(start).map_err(SourceRunError::Thread)
    }

    /// Adds a module, whose number is of [`SourceRun::number`].
    ///
    /// # Errors
    ///
    /// Returns an error if the source does not run now, or the module cannot run on it.
    pub fn add(&self, module: &Module) -> Result<(), SourceRunError> {
        self.add_by(module, |handle| handle.add(module))
    }

    /// Adds a module by `attempt`, which is repeated if the source is started again without it meanwhile.
    fn add_by(
        &self,
        module: &Module,
        mut attempt: impl FnMut(&Handle) -> Result<(), RunError>,
    ) -> Result<(), SourceRunError> {
        let bandwidth = self.reserve_bandwidth(module, 0)?;
        let name = &module.plan.name;
        self.shared.inner().changing.insert(name.clone());
        loop {
            // The lock is not held: the command waits for the workers.
            let added = self.handle().and_then(|(handle, starts)| Ok((attempt(&handle)?, starts)));
            let mut inner = self.shared.inner();
            if added.as_ref().is_ok_and(|((), starts)| inner.starts != *starts) {
                continue;
            }
            inner.changing.remove(name);
            match &added {
                Ok(_) => {
                    inner.modules.insert(module.plan.id, again(module));
                    self.keep(module, None, bandwidth);
                }
                Err(_) => drop(inner.past_accounts.remove(name)),
            }
            return added.map(|_| ());
        }
    }

    fn bandwidth(&self) -> MutexGuard<'_, BTreeMap<ModuleId, Bandwidth>> {
        lock(&self.bandwidth)
    }

    /// Reserves the bandwidth for a module's channels, beyond the `freed` bits per second that it takes over.
    fn reserve_bandwidth(&self, module: &Module, freed: u64) -> Result<Option<Bandwidth>, RunError> {
        let rate = reserved_rate(&module.plan);
        let Some(link) = self.link.as_ref().filter(|_| rate > 0) else { return Ok(None) };
        Ok(Some(link.reserve(rate.saturating_sub(freed))?))
    }

    /// Gives a module the bandwidth that was reserved for it, with the bandwidth of `old`.
    fn keep(&self, module: &Module, old: Option<ModuleId>, reserved: Option<Bandwidth>) {
        let mut all = self.bandwidth();
        let old = old.and_then(|old| all.remove(&old));
        let Some(reserved) = reserved else { return };
        let whole = match old {
            Some(old) => old.and(reserved, reserved_rate(&module.plan)),
            None => reserved,
        };
        all.insert(module.plan.id, whole);
    }

    /// Adds a module in place of `old`, and returns the account of `old`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`SourceRun::add`]. The old module then continues, with the account of the new
    /// one if that had packets.
    pub fn replace(&self, old: ModuleId, module: &Module) -> Result<Account, SourceRunError> {
        self.replace_by(old, module, |handle| match handle.replace(old, module) {
            // Its process could not be started when the source was.
            Err(RunError::Unknown(_)) => handle.add(module).map(|()| Account::default()),
            replaced => replaced,
        })
    }

    /// Replaces a module by `attempt`, which is repeated if the source is started again with the old one
    /// meanwhile.
    fn replace_by(
        &self,
        old: ModuleId,
        module: &Module,
        mut attempt: impl FnMut(&Handle) -> Result<Account, RunError>,
    ) -> Result<Account, SourceRunError> {
        let had = self.bandwidth().get(&old).map_or(0, Bandwidth::rate);
        let bandwidth = self.reserve_bandwidth(module, had)?;
        let name = &module.plan.name;
        self.shared.inner().changing.insert(name.clone());
        loop {
            let replaced = self.handle().and_then(|(handle, starts)| match attempt(&handle) {
                Ok(account) => Ok((account, starts)),
                Err(e) => {
                    self.shared.wait_for_report(&handle, starts);
                    Err(e.into())
                }
            });
            let mut inner = self.shared.inner();
            let of_old = inner.modules.get(&old).map(|module| module.plan.name.clone());
            let (mut account, starts) = match replaced {
                Ok(replaced) => replaced,
                Err(e) => {
                    inner.changing.remove(name);
                    // What was offered to the new one only was offered to the module.
                    if let Some((of_new, of_old)) = inner.past_accounts.remove(name).zip(of_old) {
                        inner.past_accounts.entry(of_old).or_default().add(&of_new);
                    }
                    return Err(e);
                }
            };
            if inner.starts != starts
                && let Some(of_old) = of_old
            {
                // The source was started again with the old module meanwhile, which may stay.
                inner.past_accounts.entry(of_old).or_default().add(&account);
                continue;
            }
            inner.changing.remove(name);
            inner.modules.remove(&old);
            let past = of_old.and_then(|name| inner.past_accounts.remove(&name));
            account.add(&past.unwrap_or_default());
            inner.modules.insert(module.plan.id, again(module));
            self.keep(module, Some(old), bandwidth);
            return Ok(account);
        }
    }

    /// Ends a module and returns its account. If the source ends at the moment, it waits for the account.
    pub fn remove(&self, id: ModuleId) -> Account {
        let (handle, starts, removed, past) = {
            let mut inner = self.shared.inner();
            let removed = inner.modules.remove(&id).map(|module| module.plan.name);
            let past = removed.as_ref().and_then(|name| inner.past_accounts.remove(name));
            inner.changing.extend(removed.clone());
            (inner.handle.clone(), inner.starts, removed, past)
        };
        let mut account = past.unwrap_or_default();
        let now = handle.and_then(|handle| {
            let removed = handle.remove(id);
            if removed.is_err() {
                self.shared.wait_for_report(&handle, starts);
            }
            removed.ok()
        });
        let reported = removed.and_then(|name| {
            let mut inner = self.shared.inner();
            inner.changing.remove(&name);
            inner.past_accounts.remove(&name)
        });
        // The one or the other has it.
        account.add(&now.or(reported).unwrap_or_default());
        // Its channels are closed.
        self.bandwidth().remove(&id);
        account
    }

    /// Drops a module's instances before their next calls. It remains to be removed.
    pub fn evict(&self, id: ModuleId, reason: Reason) {
        if let Some(handle) = self.shared.inner().handle.clone() {
            // A module that has ended needs no eviction.
            let _ = handle.evict(id, reason);
        }
    }

    /// Asks a service of a module, and waits for the reply. An outcome says why it is missing.
    ///
    /// # Errors
    ///
    /// Returns an error if the source does not run now.
    pub fn ask(
        &self,
        id: ModuleId,
        service: &str,
        request: &[u8],
    ) -> Result<Result<Vec<u8>, Outcome>, SourceRunError> {
        let (handle, _) = self.handle()?;
        Ok(handle.ask(id, service, request, ASK)?)
    }

    fn handle(&self) -> Result<(Handle, u64), SourceRunError> {
        let inner = self.shared.inner();
        let handle = inner.handle.clone().ok_or_else(|| SourceRunError::Down {
            source_name: self.name.clone(),
            reason: inner.failed.clone().unwrap_or_else(|| "it was stopped".to_owned()),
        })?;
        Ok((handle, inner.starts))
    }

    /// Returns the totals, and the accounts of the modules by their names in the plan.
    pub fn snapshot(&self) -> (Totals, BTreeMap<String, Account>) {
        let (handle, mut totals, mut accounts, starts) = {
            let inner = self.shared.inner();
            (inner.handle.clone(), inner.past, inner.past_accounts.clone(), inner.starts)
        };
        let Some(handle) = handle else { return (totals, accounts) };
        let now = handle.snapshot().map(|Snapshot { packets, bytes, kernel_drops, accounts: all }| {
            let mut accounts: BTreeMap<String, Account> = BTreeMap::new();
            all.iter().for_each(|(_, name, account)| accounts.entry(name.clone()).or_default().add(account));
            Known { starts, totals: Totals { packets, bytes, kernel_drops }, accounts }
        });
        let now = {
            let last = &mut self.shared.inner().last;
            match now {
                Ok(now) => {
                    if last.starts != starts || now.totals.packets >= last.totals.packets {
                        last.clone_from(&now);
                    }
                    now
                }
                // It has ended, and its report follows.
                Err(_) if last.starts == starts => last.clone(),
                Err(_) => Known::default(),
            }
        };
        totals.packets += now.totals.packets;
        totals.bytes += now.totals.bytes;
        totals.kernel_drops += now.totals.kernel_drops;
        for (name, account) in now.accounts {
            accounts.entry(name).or_default().add(&account);
        }
        (totals, accounts)
    }

    /// Returns the accounts of the modules that `audience` has, by their names in the plan. Those of holders
    /// do not change between two ticks.
    pub fn accounts(&self, audience: Audience) -> BTreeMap<String, Account> {
        if audience.is_operator() {
            return self.snapshot().1;
        }
        let inner = self.shared.inner();
        let mut accounts = inner.past_accounts.clone();
        self.routes.add_released(&mut accounts);
        accounts
    }

    /// Returns the account of a module's instance by its name in the plan.
    pub fn accounts_of(&self, name: &str) -> Option<Accounts> {
        let of = |audience| self.accounts(audience).remove(name);
        Some(Accounts { released: of(Audience::Holder).unwrap_or_default(), live: of(Audience::Operator)? })
    }

    /// Returns the processes in which modules run.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.shared.inner().handle.clone().map(|handle| handle.processes()).unwrap_or_default()
    }

    /// Returns the modules whose process has ended or could not be started, while the source runs.
    pub fn lost(&self) -> Vec<LostModule> {
        let (handle, modules) = {
            let inner = self.shared.inner();
            let Some(handle) = inner.handle.clone() else { return Vec::new() };
            let apart = inner.modules.values().filter_map(|m| Some((m.plan.id, m.plan.process.clone()?)));
            (handle, apart.collect::<Vec<_>>())
        };
        let mut lost = handle.lost();
        let unknown = modules.into_iter().filter(|(id, _)| !handle.has(*id));
        lost.extend(unknown.map(|(id, process)| {
            let cause = "its process could not be started".to_owned();
            LostModule { id, process, pid: 0, cause }
        }));
        lost
    }

    /// Returns the modules that have no instance on some workers, and get none there, while the source runs.
    pub fn halted(&self) -> Vec<HaltedModule> {
        self.shared.inner().handle.clone().map(|handle| handle.halted()).unwrap_or_default()
    }

    /// Charges the processor time of all processes so far.
    pub fn settle(&self) {
        if let Some(handle) = self.shared.inner().handle.clone() {
            handle.settle();
        }
    }

    /// Reserves processor time for a module in a process with the kernel.
    ///
    /// # Errors
    ///
    /// Returns the kernel's error. The module then keeps what it has.
    pub fn reserve(&self, id: ModuleId, share: Option<Share>) -> Result<(), SourceRunError> {
        let handle = self.shared.inner().handle.clone();
        Ok(handle.map_or(Ok(()), |handle| handle.reserve(id, share))?)
    }

    /// Brings the limits of a module's meters, which were renewed, to its process, if it has one.
    pub fn renewed(&self, id: ModuleId) {
        if let Some(handle) = self.shared.inner().handle.clone() {
            handle.renewed(id);
        }
    }

    /// Returns the reason why the source does not run, if it does not.
    pub fn failed(&self) -> Option<String> {
        let inner = self.shared.inner();
        match inner.handle {
            Some(_) => None,
            None => Some(inner.failed.clone().unwrap_or_else(|| "it was stopped".to_owned())),
        }
    }

    /// Returns the reason why no packets come, if the source does not run or its interface is down.
    pub fn silent(&self) -> Option<String> {
        self.failed().or_else(|| self.routes.down())
    }

    /// Returns a note for each module that loses packets to an overload.
    pub fn overloads(&self) -> Vec<String> {
        let of = |(module, worker, since): (String, usize, u64)| {
            let since = flame_trust::time::show(since);
            format!("source {}: worker {worker} is behind: {module} loses packets since {since}", self.name)
        };
        self.routes.overloaded().into_iter().map(of).collect()
    }

    /// Ends the source in order: all packets that were read are processed, and all records are in the spools.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        if let Some(handle) = self.shared.inner().handle.clone() {
            handle.stop();
        }
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Returns a module as it is started again with the source. Its processor time is guaranteed once the kernel
/// has given up the time of the ended process.
fn again(module: &Module) -> Module {
    Module { time: None, ..module.clone() }
}

#[cfg(test)]
mod tests;
