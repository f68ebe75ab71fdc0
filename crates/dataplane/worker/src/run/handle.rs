//! Commands to a run that is in progress.

use crate::error::RunError;
use crate::lock;
use crate::packets::closing::Intervals;
use crate::packets::commands::{Command, Progress};
use crate::packets::sorting;
use crate::process::{LostModule, ProcessInfo, Processes, StartedProcess};
use crate::records::calls::{Answer, Question};
use crate::records::channels::Filters;
use crate::records::event::{Event, EventSender};
use crate::records::onset::Onset;
use crate::records::placed::{Evictor, Placed, Site};
use crate::records::report::Snapshot;
use crate::run::numbers::Numbers;
use crossbeam_channel::{Receiver, RecvTimeoutError, SendError, Sender, bounded, unbounded};
use flame_abi::manifest::Manifest;
use flame_abi::output::Outcome;
use flame_execute::{LoadedModule, Module, Shape, Slices};
use flame_plan::limits::REMOVAL_MAX;
use flame_plan::{Account, ModuleClass, ModuleId, ModulePlan, Reason, Share};
use flame_run::Engines;
use flame_view::Key;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::Thread;
use std::time::Duration;

/// The modules that offer services, by the names of these.
type Offers = BTreeMap<String, ModuleId>;

/// Commands a run in progress: adds, removes and evicts modules, and reads accounts. Every command takes
/// effect between two blocks of each pipeline; no packet waits for a lock. All clones command the same run.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

pub(crate) struct Shared {
    engines: Engines,
    processes: Option<Arc<Processes>>,
    key: Option<Key>,
    shape: Shape,
    /// Whether the end of the run is requested. It follows once it falls within no interval that a view shows
    /// whole.
    stop: Arc<AtomicBool>,
    /// Whether a run on live sources ends.
    pub(crate) ended: AtomicBool,
    pub(crate) progress: Progress,
    /// The slices of the calls that this run makes itself.
    pub(crate) slices: Slices,
    pipelines: Vec<Inlet>,
    /// The queue of the collector, or `None` if the only pipeline's thread also collects.
    collector: Option<EventSender>,
    modules: Mutex<BTreeMap<ModuleId, Known>>,
    /// The numbers of all modules of this run, those that were removed included.
    used: Mutex<Numbers>,
    services: Mutex<Offers>,
}

/// The way of commands to a pipeline.
struct Inlet {
    commands: Sender<Command>,
    /// The thread that may sleep until packets arrive, and must not let a command wait.
    sleeper: OnceLock<Thread>,
}

impl Inlet {
    /// Sends a command. Fails if the pipeline has ended.
    fn send(&self, command: Command) -> Result<(), SendError<Command>> {
        self.commands.send(command)?;
        self.sleeper.get().into_iter().for_each(Thread::unpark);
        Ok(())
    }
}

impl Shared {
    /// Lets commands of a worker's pipeline wake this thread.
    pub(crate) fn wakes_me(&self, worker: usize) {
        // A worker has one thread.
        let set = |inlet: &Inlet| inlet.sleeper.set(std::thread::current());
        let _ = self.pipelines.get(worker).map(set);
    }

    /// Lets slices be ended from now on, if the calls of a module need that. A process ends its own slices.
    fn note_class(&self, plan: &ModulePlan) {
        if plan.class == ModuleClass::Metered && plan.process.is_none() {
            self.slices.need(true);
        }
    }
}

impl Intervals for Shared {
    fn is_open(&self) -> bool {
        lock(&self.modules).values().any(|known| !known.is_leaving && known.evictor.is_open())
    }
}

/// A module without an instance on some workers, where its last one ended in a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaltedModule {
    pub id: ModuleId,
    /// The number of these workers.
    pub workers: usize,
    /// The number of its faults, which its account has as well.
    pub faults: u64,
}

/// A module of the run, until its end is complete.
struct Known {
    name: String,
    evictor: Evictor,
    /// Whether it is being removed. It can still be evicted.
    is_leaving: bool,
}

impl Known {
    fn new(module: &Placed) -> Self {
        Self { name: module.plan().name.clone(), evictor: module.evictor(), is_leaving: false }
    }
}

/// The receiving ends of the command channels, for the threads of a run.
pub(crate) struct Inboxes {
    pub(crate) pipelines: Vec<Receiver<Command>>,
}

impl Handle {
    pub(crate) fn new(
        engines: &Engines,
        key: Option<Key>,
        shape: Shape,
        stop: Arc<AtomicBool>,
        modules: &[Placed],
        collector: Option<EventSender>,
        processes: Option<Arc<Processes>>,
    ) -> Result<(Self, Inboxes), RunError> {
        let inlet = |_| {
            let (commands, inbox) = unbounded();
            (Inlet { commands, sleeper: OnceLock::new() }, inbox)
        };
        let (pipelines, inboxes) = (0..shape.workers).map(inlet).unzip();
        let (mut known, mut services) = (BTreeMap::new(), BTreeMap::new());
        for m in modules {
            let id = m.plan().id;
            if known.insert(id, Known::new(m)).is_some() {
                return Err(RunError::Duplicate(id));
            }
            offer(&mut services, m.plan(), None).map_err(|(service, by)| {
                let by = known.get(&by).map_or_else(String::new, |known| known.name.clone());
                RunError::Service { module: m.plan().name.clone(), service, by }
            })?;
        }
        let shared = Shared {
            engines: engines.clone(),
            processes,
            key,
            shape,
            stop,
            ended: AtomicBool::new(false),
            progress: Progress::default(),
            slices: Slices::default(),
            pipelines,
            collector,
            used: Mutex::new(known.keys().copied().collect()),
            modules: Mutex::new(known),
            services: Mutex::new(services),
        };
        modules.iter().for_each(|module| shared.note_class(module.plan()));
        Ok((Self(Arc::new(shared)), Inboxes { pipelines: inboxes }))
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Lets go of the processes of a run that has ended. They end with their modules.
    pub(crate) fn let_go(&self) {
        if let Some(processes) = &self.0.processes {
            processes.clear();
        }
        self.modules().values_mut().for_each(|known| known.evictor.let_go());
    }

    fn modules(&self) -> MutexGuard<'_, BTreeMap<ModuleId, Known>> {
        lock(&self.0.modules)
    }

    /// Begins the removal of a module. It is known, and can be evicted, until [`Handle::ended`].
    fn begin_removal(&self, id: ModuleId) -> Result<(), RunError> {
        match self.modules().get_mut(&id).filter(|known| !known.is_leaving) {
            Some(known) => {
                known.is_leaving = true;
                Ok(())
            }
            None => Err(RunError::Unknown(id)),
        }
    }

    /// Waits for the end of a module that is being removed, and returns its account. One that takes too long
    /// is evicted, wherever it runs.
    fn ended(&self, id: ModuleId, account: &Receiver<Account>, limit: Duration) -> Result<Account, RunError> {
        let account = account.recv_timeout(limit).or_else(|e| match e {
            RecvTimeoutError::Timeout => {
                self.evict(id, Reason::Unfinished)?;
                account.recv().map_err(|_| RunError::Ended)
            }
            RecvTimeoutError::Disconnected => Err(RunError::Ended),
        });
        self.modules().remove(&id);
        account
    }

    /// Sends a command to every pipeline. If one has ended, the others execute it nevertheless: a module must
    /// not continue on some workers because the source of another one ended.
    fn send(&self, command: &Command) -> Result<(), RunError> {
        let mut sent = Ok(());
        for (worker, pipeline) in self.0.pipelines.iter().enumerate() {
            if pipeline.send(command.clone()).is_err() {
                command.abandon(worker);
                sent = Err(RunError::Ended);
            }
        }
        sent
    }

    /// Adds a module, which receives packets from the next block on. Its code is loaded on the caller's
    /// thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the run has ended, the module's number is taken, its resolution does not divide
    /// the tick, its view cannot be created, or its code was compiled for another engine.
    pub fn add(&self, module: &Module) -> Result<(), RunError> {
        self.launch(module, None, Command::Add)
    }

    /// Adds `module` in place of the module `old`: on each pipeline every packet is offered to exactly one of
    /// the two. Returns the account of `old`, once it has ended on all workers.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Handle::add`] and [`Handle::remove`].
    pub fn replace(&self, old: ModuleId, module: &Module) -> Result<Account, RunError> {
        self.begin_removal(old)?;
        let (reply, account) = bounded(1);
        match self.launch(module, Some(old), |loaded| Command::Replace(loaded, old, reply)) {
            Ok(()) => self.ended(old, &account, REMOVAL_MAX),
            Err(e) => {
                // It was not removed, unless the run has ended.
                self.modules().get_mut(&old).into_iter().for_each(|known| known.is_leaving = false);
                Err(e)
            }
        }
    }

    /// Takes the names of the services that a module offers, and those of `replaced`, which are returned.
    fn offer(&self, plan: &ModulePlan, replaced: Option<ModuleId>) -> Result<Offers, RunError> {
        let offered = offer(&mut lock(&self.0.services), plan, replaced);
        offered.map_err(|(service, by)| {
            let name = self.modules().get(&by).map_or_else(String::new, |known| known.name.clone());
            RunError::Service { module: plan.name.clone(), service, by: name }
        })
    }

    /// Gives up the names of the services of a module, and gives those back that it replaced.
    fn withdraw(&self, id: ModuleId, before: Offers) {
        let mut services = lock(&self.0.services);
        services.retain(|_, by| *by != id);
        services.extend(before);
    }

    fn launch(
        &self,
        module: &Module,
        replaced: Option<ModuleId>,
        command: impl FnOnce(Box<Placed>) -> Command,
    ) -> Result<(), RunError> {
        let (id, resolution_ns) = (module.plan.id, module.plan.view.resolution_ns.max(1));
        let tick_ns = self.0.shape.tick_ns;
        if !tick_ns.is_multiple_of(resolution_ns) {
            return Err(RunError::Resolution { resolution_ns, tick_ns });
        }
        check_joins(&module.plan.manifest, &module.plan.name)?;
        // Reported here, because in a pipeline it would end the run.
        sorting::check(&module.plan, self.0.key.as_ref())?;
        // Nothing is locked while other threads are waited for: they may command the run as well. The number
        // is taken before a process hears of the module.
        let used = || lock(&self.0.used);
        if !used().insert(id) {
            return Err(RunError::Duplicate(id));
        }
        let before = self.offer(&module.plan, replaced).inspect_err(|_| {
            used().remove(id);
        })?;
        let placed = place(&self.0.engines, self.0.processes.as_deref(), (module, replaced), self.0.shape);
        let placed = placed.inspect_err(|_| {
            used().remove(id);
            self.withdraw(id, before);
        })?;
        self.0.note_class(&module.plan);
        // Before it runs, so that it can be evicted from the first packet on.
        self.modules().insert(id, Known::new(&placed));
        // The collector must know a module before any pipeline sends output of it.
        if let Some(collector) = &self.0.collector {
            let (done, wait) = bounded(1);
            let event = Event::Add(Box::new(placed.clone()), done);
            collector.send(event).map_err(|_| RunError::Ended)?;
            wait.recv().map_err(|_| RunError::Ended)?;
        }
        // Known even if a pipeline has ended: on the others it would run, while its caller does not know it.
        self.send(&command(Box::new(placed))).inspect_err(|_| {
            let reason = Reason::denied("a worker of the run has ended");
            let _ = self.evict(id, reason);
        })
    }

    /// Ends a module after the blocks that it already has, waits until it has ended on all workers, and
    /// returns its account.
    ///
    /// # Errors
    ///
    /// Returns an error if the run has ended, or no module has this number.
    pub fn remove(&self, id: ModuleId) -> Result<Account, RunError> {
        self.remove_within(id, REMOVAL_MAX)
    }

    /// Ends a module as [`Handle::remove`], and evicts it after `limit`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Handle::remove`].
    pub fn remove_within(&self, id: ModuleId, limit: Duration) -> Result<Account, RunError> {
        self.begin_removal(id)?;
        self.withdraw(id, Offers::new());
        let (reply, account) = bounded(1);
        // If a pipeline has ended, no reply comes.
        self.send(&Command::Remove(id, reply)).inspect_err(|_| drop(self.modules().remove(&id)))?;
        self.ended(id, &account, limit)
    }

    /// Makes `modules` the ones that run: removes the others, adds the new ones, and leaves the rest
    /// unchanged.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Handle::add`] and [`Handle::remove`]. Changes made before the error stay.
    pub fn apply(&self, modules: &[Module]) -> Result<(), RunError> {
        let stays = |(id, known): (&ModuleId, &Known)| (!known.is_leaving).then_some(*id);
        let now: Vec<ModuleId> = self.modules().iter().filter_map(stays).collect();
        let wanted = |id: &ModuleId| modules.iter().any(|m| m.plan.id == *id);
        now.iter().filter(|id| !wanted(id)).try_for_each(|id| self.remove(*id).map(drop))?;
        modules.iter().filter(|m| !now.contains(&m.plan.id)).try_for_each(|m| self.add(m))
    }

    /// Drops a module's instances on all workers, before their next calls. If it is evicted more than once,
    /// the first reason is kept.
    ///
    /// # Errors
    ///
    /// Returns an error if no module has this number.
    pub fn evict(&self, id: ModuleId, reason: Reason) -> Result<(), RunError> {
        match self.modules().get(&id) {
            Some(known) => {
                known.evictor.evict(reason);
                Ok(())
            }
            None => Err(RunError::Unknown(id)),
        }
    }

    /// Returns the process `name`, which is started if it does not run: a module that is added while the
    /// value is kept need not wait for the start.
    ///
    /// # Errors
    ///
    /// Returns an error if the run has ended or has no processes, or if the process cannot be started.
    pub fn start_process(&self, name: &str) -> Result<StartedProcess, RunError> {
        let processes = self.0.processes.as_ref().ok_or_else(|| RunError::NoProcess(name.to_owned()))?;
        processes.process(name).map(StartedProcess::new)
    }

    /// Returns the processes in which modules run.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.0.processes.as_ref().map(|processes| processes.list()).unwrap_or_default()
    }

    /// Returns whether a module has this number, also while it is being removed.
    pub fn has(&self, id: ModuleId) -> bool {
        self.modules().contains_key(&id)
    }

    /// Returns the modules whose process has ended. They receive no packets until they are replaced.
    pub fn lost(&self) -> Vec<LostModule> {
        self.modules()
            .values()
            .filter(|known| !known.is_leaving)
            .filter_map(|known| known.evictor.lost())
            .collect()
    }

    /// Returns the modules that have no instance on some workers, and get none there: the packets of these
    /// workers are shed.
    pub fn halted(&self) -> Vec<HaltedModule> {
        let modules = self.modules();
        let of = |(id, known): (&ModuleId, &Known)| {
            let (workers, faults) = known.evictor.halts();
            (workers > 0).then_some(HaltedModule { id: *id, workers, faults })
        };
        modules.iter().filter_map(of).collect()
    }

    /// Charges the processor time of all processes so far.
    pub fn settle(&self) {
        if let Some(processes) = &self.0.processes {
            processes.settle();
        }
    }

    /// Reserves processor time for a module in a process, in place of what it has: the kernel guarantees the
    /// sum of all reservations to the process. Does nothing for a module that runs in this process.
    ///
    /// # Errors
    ///
    /// Returns [`RunError::Time`] if the kernel refuses it. The module then keeps what it has.
    pub fn reserve(&self, id: ModuleId, share: Option<Share>) -> Result<(), RunError> {
        let remote = self.modules().get(&id).and_then(|known| known.evictor.remote().cloned());
        let Some(remote) = remote else { return Ok(()) };
        remote.process.reserve(id, share).map_err(RunError::Time)?;
        remote.process.renew(id, &remote.meters);
        Ok(())
    }

    /// Brings the limits of a module's meters, which were renewed, to its process, if it has one.
    pub fn renewed(&self, id: ModuleId) {
        if let Some(remote) = self.modules().get(&id).and_then(|known| known.evictor.remote()) {
            remote.process.renew(id, &remote.meters);
        }
    }

    /// Asks a service of a module, and waits for the reply, for at most `limit`. The module serves it between
    /// its batches, as it serves calls of other modules, and pays for it.
    ///
    /// # Errors
    ///
    /// Returns an error if the run has ended. An outcome says why there is no reply.
    pub fn ask(
        &self,
        id: ModuleId,
        service: &str,
        request: &[u8],
        limit: Duration,
    ) -> Result<Result<Vec<u8>, Outcome>, RunError> {
        let (answer, wait) = bounded::<Answer>(1);
        let question = Question { service: service.to_owned(), request: request.to_vec(), answer };
        match &self.0.collector {
            Some(collector) => collector.send(Event::Ask(id, question)).map_err(|_| RunError::Ended)?,
            None => self.send(&Command::Ask(id, question))?,
        }
        Ok(match wait.recv_timeout(limit) {
            Ok((Outcome::Replied, reply)) => Ok(reply),
            Ok((outcome, _)) => Err(outcome),
            Err(RecvTimeoutError::Timeout) => Err(Outcome::Late),
            Err(RecvTimeoutError::Disconnected) => Err(Outcome::Ended),
        })
    }

    /// Returns the accounts of the running modules, as of the last block of each pipeline.
    ///
    /// # Errors
    ///
    /// Returns an error if the run has ended; its report has the final accounts.
    pub fn snapshot(&self) -> Result<Snapshot, RunError> {
        let (reply, parts) = unbounded();
        self.send(&Command::Accounts(reply.clone()))?;
        if let Some(collector) = &self.0.collector {
            collector.send(Event::Accounts(reply)).map_err(|_| RunError::Ended)?;
        } else {
            drop(reply);
        }
        // One chunk of each pipeline, one of the collector.
        let mut accounts: BTreeMap<ModuleId, Account> = BTreeMap::new();
        for _ in 0..=self.0.shape.workers {
            for (id, account) in parts.recv().map_err(|_| RunError::Ended)? {
                accounts.entry(id).or_default().add(&account);
            }
        }
        let modules = self.modules();
        let named = accounts.into_iter().filter_map(|(id, a)| Some((id, modules.get(&id)?.name.clone(), a)));
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let Progress { packets, bytes, kernel_drops } = &self.0.progress;
        Ok(Snapshot {
            packets: load(packets),
            bytes: load(bytes),
            kernel_drops: load(kernel_drops),
            accounts: named.collect(),
        })
    }

    /// Ends the run at once. All packets that were read are still processed and reported, but for those of an
    /// interval that a view shows whole: nothing of it leaves.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

/// Checks that a module of this manifest and name can be added to a run while packets flow.
///
/// # Errors
///
/// Returns an error if it forwards packets, or shares memory with others.
pub fn check_joins(manifest: &Manifest, name: &str) -> Result<(), RunError> {
    if manifest.ports.is_some() {
        return Err(RunError::Forwards(name.to_owned()));
    }
    // Modules of different principals come and go, each with a life of its own.
    if manifest.shared.is_empty() { Ok(()) } else { Err(RunError::Shares(name.to_owned())) }
}

/// Records the services that a module offers, unless another one than `replaced` offers one of them. Returns
/// those of `replaced`, or the service and the module that offers it.
fn offer(
    services: &mut Offers,
    plan: &ModulePlan,
    replaced: Option<ModuleId>,
) -> Result<Offers, (String, ModuleId)> {
    let names = || plan.manifest.services.iter().map(|service| &service.name);
    let by_other = |name: &&String| services.get(*name).is_some_and(|by| Some(*by) != replaced);
    if let Some(name) = names().find(by_other) {
        return Err((name.clone(), services[name]));
    }
    let before = services.extract_if(.., |_, by| Some(*by) == replaced).collect();
    services.extend(names().map(|name| (name.clone(), plan.id)));
    Ok(before)
}

/// Loads a module here, or starts it in its process, where it takes the place of `replaced`.
pub(crate) fn place(
    engines: &Engines,
    processes: Option<&Processes>,
    (module, replaced): (&Module, Option<ModuleId>),
    shape: Shape,
) -> Result<Placed, RunError> {
    let filters = Arc::new(Filters::new(&module.plan)?);
    let site = match (&module.plan.process, processes) {
        (None, _) => Site::Local(Box::new(LoadedModule::new(engines, module)?)),
        (Some(name), Some(processes)) => Site::Remote(processes.install(name, (module, replaced), shape)?),
        (Some(_), None) => return Err(RunError::NoProcess(module.plan.name.clone())),
    };
    let has_steps = module.plan.view.has_steps();
    let onset = has_steps.then(|| Onset::new(shape.tick_ns, shape.workers));
    Ok(Placed { site, filters, onset })
}
