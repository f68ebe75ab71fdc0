use crate::error::RunError;
use crate::outlet::Event;
use crossbeam_channel::{Receiver as Inbox, RecvTimeoutError, Sender as Outbox, unbounded};
use flame_execute::{Module, Origin, Shape, Stop};
use flame_output::Schema;
use flame_plan::{Account, FaultReport, ModuleId, ModulePlan, OnFault, ViewSpec};
use flame_quota::Meters;
use flame_remote::{ChannelError, Command, Install, MAX_HEAD, Receiver, Report, Sender};
use flame_run::Eviction;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which a process must show that it is alive.
const PING: Duration = Duration::from_secs(1);
/// The time in which a process must have confined itself.
const START: Duration = Duration::from_secs(10);
/// The number of unanswered pings after which a process is killed. It answers between two calls, and calls of
/// metered modules are cut into slices.
const UNANSWERED: u64 = 10;
/// The time in which a process must report some work while a worker waits for it.
const WORK: Duration = Duration::from_secs(60);
/// The time that a process has for its work once the run was stopped.
const LAST: Duration = Duration::from_secs(10);
/// The maximum number of characters of a fault that a process reports.
const MAX_TEXT: usize = 4096;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The processes of a run, by name.
pub(crate) struct Processes {
    program: PathBuf,
    /// The queue of the collector.
    events: Outbox<Event>,
    batch: u32,
    /// `None` once the run has ended.
    running: Mutex<Option<BTreeMap<String, Arc<Process>>>>,
}

impl Processes {
    pub(crate) fn new(program: &Path, batch: usize, events: Outbox<Event>) -> Self {
        let (program, batch) = (program.to_owned(), batch.clamp(1, flame_abi::MAX_BATCH) as u32);
        Self { program, events, batch, running: Mutex::new(Some(BTreeMap::new())) }
    }

    /// Starts a module in the process `name`, and that process if it does not run.
    pub(crate) fn install(
        &self,
        name: &str,
        module: &Module,
        shape: Shape,
    ) -> Result<RemoteModule, RunError> {
        let mut running = lock(&self.running);
        let Some(running) = running.as_mut() else { return Err(RunError::Ended) };
        let process = match running.get(name).filter(|process| !process.is_gone()) {
            Some(process) => process.clone(),
            None => {
                let process =
                    Process::start(&self.program, self.events.clone()).map_err(|e| self.error(e))?;
                running.insert(name.to_owned(), process.clone());
                process
            }
        };
        let Module { plan, meters } = module;
        let state = Arc::new(State {
            id: plan.id,
            name: plan.name.clone(),
            schema: Schema::new(&plan.manifest),
            output: plan.limits.output_per_call as usize,
            eviction: Eviction::default(),
            accounts: Mutex::new(vec![Account::default(); shape.workers]),
            messages_lost: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            reports: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            most_faults: most_faults(plan.on_fault, shape.workers),
        });
        process.enter(state.clone()).map_err(|e| self.error(e))?;
        let view = ViewSpec { resolution_ns: plan.view.resolution_ns, ..ViewSpec::default() };
        let install = Install {
            plan: ModulePlan { view, ..plan.clone() },
            workers: shape.workers,
            tick_ns: shape.tick_ns,
            interval_ns: shape.interval_ns,
            batch: self.batch,
            granted: meters.granted().then(|| meters.limits()),
        };
        process.send(Command::Install(Box::new(install)), Vec::new());
        Ok(RemoteModule { plan: Arc::new(plan.clone()), meters: meters.clone(), process, state })
    }

    fn error(&self, e: io::Error) -> RunError {
        RunError::Process(self.program.display().to_string(), e)
    }

    /// Lets go of all processes, which end when their modules have.
    pub(crate) fn clear(&self) {
        lock(&self.running).take();
    }
}

/// A module in a process.
#[derive(Clone)]
pub(crate) struct RemoteModule {
    pub(crate) plan: Arc<ModulePlan>,
    pub(crate) meters: Meters,
    pub(crate) process: Arc<Process>,
    pub(crate) state: Arc<State>,
}

/// What the worker knows of a module in a process.
pub(crate) struct State {
    id: ModuleId,
    name: String,
    schema: Schema,
    /// The maximum number of bytes of the output of one call.
    output: usize,
    pub(crate) eviction: Eviction,
    /// The reported accounts by worker.
    accounts: Mutex<Vec<Account>>,
    messages_lost: AtomicU64,
    has_ended: AtomicBool,
    /// The number of reports of this module.
    reports: AtomicU64,
    faults: AtomicU64,
    most_faults: u64,
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
    /// Returns whether the module has ended on all workers, or its process is gone. All its output has been
    /// passed on by then.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    pub(crate) fn account(&self, worker: usize) -> Account {
        let mut account = lock(&self.accounts).get(worker).cloned().unwrap_or_default();
        let of_first = |number: &AtomicU64| if worker == 0 { number.load(Ordering::Relaxed) } else { 0 };
        // A sum with the numbers of other workers must not overflow.
        account.messages_lost = of_first(&self.messages_lost).min(u64::MAX >> 16);
        account.faults = of_first(&self.faults);
        account
    }
}

/// A wait for the work of a process, which ends with it or with the process.
#[derive(Default)]
pub(crate) struct Patience {
    /// When something was last reported, and the number of reports then.
    last: Option<(Instant, u64)>,
    stopped: Option<Instant>,
}

impl Patience {
    /// Kills the process if it has not worked for too long.
    pub(crate) fn check(&mut self, module: &RemoteModule, stop: &Stop<'_>) {
        let reports = module.state.reports.load(Ordering::Relaxed);
        let now = Instant::now();
        match &self.last {
            Some((_, seen)) if *seen == reports => {}
            _ => self.last = Some((now, reports)),
        }
        if stop.is_set() && self.stopped.is_none() {
            self.stopped = Some(now);
            module.process.send(Command::Stop, Vec::new());
        }
        let is_idle = self.last.is_some_and(|(at, _)| now - at > WORK);
        if is_idle || self.stopped.is_some_and(|at| now - at > LAST) {
            let _ = lock(&module.process.child).kill();
        }
    }
}

/// A process, which is killed when the last module and the run have let go of it.
pub(crate) struct Process {
    commands: Outbox<(Command, Vec<OwnedFd>)>,
    modules: Arc<Mutex<BTreeMap<ModuleId, Arc<State>>>>,
    child: Arc<Mutex<Child>>,
    is_gone: Arc<AtomicBool>,
}

impl Process {
    /// Starts a process, and waits until it has confined itself.
    fn start(program: &Path, events: Outbox<Event>) -> io::Result<Arc<Self>> {
        let (program, (started, wait)) = (program.to_owned(), crossbeam_channel::bounded(1));
        // The kernel ends the process with the thread that starts it, which must not be one of the caller's.
        let run = move || match Self::spawn(&program, events) {
            Ok((process, reader)) => {
                let _ = started.send(Ok(process));
                reader.run();
            }
            Err(e) => drop(started.send(Err(e))),
        };
        std::thread::Builder::new().name("flame-reports".to_owned()).spawn(run)?;
        wait.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it has ended")))
    }

    fn spawn(program: &Path, events: Outbox<Event>) -> io::Result<(Arc<Self>, Reader)> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = std::process::Command::new(program)
            .arg(std::process::id().to_string())
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // Its exit status says enough, and the terminal would be a way out and in.
            .stderr(Stdio::null())
            .spawn()?;
        let child = Arc::new(Mutex::new(child));
        // A process that reads nothing for so long is not alive.
        ours.set_write_timeout(Some(PING * UNANSWERED as u32))?;
        let receiver = begun(&ours, &child)?;
        let sender = Sender::new(OwnedFd::from(ours));
        let (commands, inbox) = unbounded();
        let modules: Arc<Mutex<BTreeMap<_, _>>> = Arc::default();
        let (is_gone, is_blocked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let answered = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            sender,
            inbox,
            child: child.clone(),
            answered: answered.clone(),
            is_blocked: is_blocked.clone(),
        };
        let reader = Reader {
            receiver,
            events,
            modules: modules.clone(),
            child: child.clone(),
            answered,
            is_blocked,
            is_gone: is_gone.clone(),
        };
        std::thread::Builder::new().name("flame-commands".to_owned()).spawn(move || writer.run())?;
        Ok((Arc::new(Self { commands, modules, child, is_gone }), reader))
    }

    /// Registers a module, unless the process is gone.
    fn enter(&self, state: Arc<State>) -> io::Result<()> {
        let mut modules = lock(&self.modules);
        // Set under this lock, after which nobody would report the end of a module.
        if self.is_gone() {
            return Err(io::Error::other("it has ended"));
        }
        modules.insert(state.id, state);
        Ok(())
    }

    /// Queues a command. It is lost if the process is gone.
    pub(crate) fn send(&self, command: Command, fds: Vec<OwnedFd>) {
        let _ = self.commands.send((command, fds));
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // All its modules have ended. The thread that reads its reports waits for its end.
        let _ = lock(&self.child).kill();
    }
}

/// Waits until a process has confined itself, and returns its connection.
fn begun(socket: &UnixStream, child: &Mutex<Child>) -> io::Result<Receiver> {
    socket.set_read_timeout(Some(START))?;
    let mut receiver = Receiver::new(OwnedFd::from(socket.try_clone()?));
    let mut first = || {
        while receiver.receive(true)? {
            if let Some((Report::Alive(0), _)) = receiver.next(MAX_HEAD)? {
                return Ok(());
            }
        }
        Err(ChannelError::Closed)
    };
    let begun = first();
    socket.set_read_timeout(None)?;
    match begun {
        Ok(()) => Ok(receiver),
        Err(e) => {
            let mut child = lock(child);
            child.kill()?;
            Err(io::Error::other(format!("it did not start: {e}, {}", child.wait()?)))
        }
    }
}

/// The thread that writes commands.
struct Writer {
    sender: Sender,
    inbox: Inbox<(Command, Vec<OwnedFd>)>,
    child: Arc<Mutex<Child>>,
    answered: Arc<AtomicU64>,
    is_blocked: Arc<AtomicBool>,
}

impl Writer {
    fn run(mut self) {
        if self.write().is_err() {
            let _ = lock(&self.child).kill();
        }
    }

    fn write(&mut self) -> Result<(), ChannelError> {
        let mut pings = 0u64;
        loop {
            match self.inbox.recv_timeout(PING) {
                Ok((command, fds)) if fds.is_empty() => self.sender.send(&command, &[])?,
                Ok((command, fds)) => {
                    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                    self.sender.send_fds(&command, &fds)?;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let answered = self.answered.load(Ordering::Relaxed);
                    // While its reports wait for the collector, its answers do too.
                    if !self.is_blocked.load(Ordering::Relaxed)
                        && pings.saturating_sub(answered) >= UNANSWERED
                    {
                        return Err(ChannelError::Closed);
                    }
                    pings += 1;
                    self.sender.send(&Command::Ping(pings), &[])?;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if self.inbox.is_empty() {
                self.sender.flush()?;
            }
        }
    }
}

/// The thread that reads reports.
struct Reader {
    receiver: Receiver,
    events: Outbox<Event>,
    modules: Arc<Mutex<BTreeMap<ModuleId, Arc<State>>>>,
    child: Arc<Mutex<Child>>,
    answered: Arc<AtomicU64>,
    is_blocked: Arc<AtomicBool>,
    is_gone: Arc<AtomicBool>,
}

impl Reader {
    fn run(mut self) {
        let error = match self.read() {
            Ok(never) => match never {},
            Err(e) => e,
        };
        let _ = lock(&self.child).kill();
        let status = lock(&self.child).wait();
        let text = match (error, status) {
            (ChannelError::Closed, Ok(status)) => format!("its process ended: {status}"),
            (ChannelError::Closed, Err(e)) => format!("its process ended: {e}"),
            (error, _) => format!("its process was ended: {error}"),
        };
        let mut modules = lock(&self.modules);
        self.is_gone.store(true, Ordering::Release);
        for state in std::mem::take(&mut *modules).into_values() {
            if !state.has_ended() {
                let _ = self.events.send(Event::Fault(report(&state, text.clone())));
                state.has_ended.store(true, Ordering::Release);
            }
        }
    }

    /// Passes reports on until the connection ends.
    fn read(&mut self) -> Result<std::convert::Infallible, ChannelError> {
        loop {
            self.receiver.receive(true)?;
            while let Some((head, body)) = self.receiver.next(MAX_HEAD)? {
                let module = match &head {
                    Report::Output { module, .. }
                    | Report::Account { module, .. }
                    | Report::Ended { module, .. } => Some(*module),
                    Report::Fault(fault) => Some(fault.id),
                    Report::Alive(number) => {
                        self.answered.fetch_max(*number, Ordering::Relaxed);
                        None
                    }
                };
                let Some(id) = module else { continue };
                // A module that has ended has nothing to report.
                let Some(state) = lock(&self.modules).get(&id).cloned() else { continue };
                state.reports.fetch_add(1, Ordering::Relaxed);
                match head {
                    Report::Output { worker, .. } => {
                        if let Some(event) = output(&state, worker, body)? {
                            pass(&self.events, &self.is_blocked, event)?;
                        }
                    }
                    Report::Fault(fault) => {
                        let evicted = fault.evicted.and_then(|_| state.eviction.reason().cloned());
                        let mut fault = FaultReport { id, module: state.name.clone(), evicted, ..fault };
                        fault.text = fault.text.chars().take(MAX_TEXT).collect();
                        let faults = 1 + state.faults.fetch_add(1, Ordering::Relaxed);
                        if faults > state.most_faults {
                            let text = format!("more faults of {} than it has instances", state.name);
                            return Err(io::Error::new(io::ErrorKind::InvalidData, text).into());
                        }
                        if fault.evicted.is_some() {
                            state.faults.fetch_sub(1, Ordering::Relaxed);
                        }
                        pass(&self.events, &self.is_blocked, Event::Fault(fault))?;
                    }
                    Report::Account { worker, account, .. } => {
                        if let Some(known) = lock(&state.accounts).get_mut(worker) {
                            *known = account;
                        }
                    }
                    Report::Ended { messages_lost, .. } => {
                        lock(&self.modules).remove(&id);
                        state.messages_lost.store(messages_lost, Ordering::Relaxed);
                        state.has_ended.store(true, Ordering::Release);
                    }
                    Report::Alive(_) => {}
                }
            }
        }
    }
}

/// Sends an event to the collector, which may take its time.
fn pass(events: &Outbox<Event>, is_blocked: &AtomicBool, event: Event) -> Result<(), ChannelError> {
    is_blocked.store(true, Ordering::Relaxed);
    let sent = events.send(event);
    is_blocked.store(false, Ordering::Relaxed);
    sent.map_err(|_| ChannelError::Closed)
}

/// Checks output. Returns `None` for output of a module that has been evicted.
fn output(state: &State, worker: Option<usize>, body: &[u8]) -> Result<Option<Event>, ChannelError> {
    if state.eviction.reason().is_some() {
        return Ok(None);
    }
    if body.len() > state.output {
        return Err(ChannelError::Length { head: 0, body: body.len() });
    }
    // Messages were passed on in the process; any that are here have no receiver.
    if let Err(e) = state.schema.check(body, true) {
        return Err(
            io::Error::new(io::ErrorKind::InvalidData, format!("output of {}: {e}", state.name)).into()
        );
    }
    let worker = worker.filter(|w| *w < lock(&state.accounts).len()).unwrap_or(0);
    let from = Origin { module: state.id, worker, is_first: true };
    Ok(Some(Event::Output { from, bytes: body.to_vec() }))
}

fn report(state: &State, text: String) -> FaultReport {
    let (id, module) = (state.id, state.name.clone());
    FaultReport { id, module, worker: None, packet: None, text, evicted: None, restarted: false }
}
