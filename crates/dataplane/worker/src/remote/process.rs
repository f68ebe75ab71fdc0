//! The processes of a run: their start, the commands to them, and their end.

use super::kernel::Scheduled;
use super::life::{Life, UNANSWERED};
use super::program::Runner;
use super::reports::Reader;
use super::state::{RemoteModule, State};
use super::watch::{DECISION, Watch};
use crate::error::RunError;
use crate::lock;
use crate::outlet::Event;
use crossbeam_channel::{Receiver as Inbox, RecvTimeoutError, Sender as Outbox, bounded, unbounded};
use flame_block::Region;
use flame_execute::{Keep, Module, Shape};
use flame_plan::{ModuleId, ModulePlan, Share, ViewSpec};
use flame_quota::Meters;
use flame_remote::{ChannelError, Command, Install, Receiver, Report, Sender};
use flame_run::Loaded;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// The interval at which a process must show that it is alive, and its use of time is measured.
const PING: Duration = Duration::from_secs(1);
/// The time in which a process must have confined itself.
const START: Duration = Duration::from_secs(10);
/// The maximum numbers of bytes of the first report of a process, and of its frame.
const FIRST_HEAD: usize = 16;
const FIRST_FRAME: usize = 64;
/// The number of instances of a module besides those of the workers: the slow one, and one that replaces an
/// instance that has not ended yet.
const INSTANCES: usize = 2;
/// The maximum number of reports of one process that wait for the collector.
const REPORTS: usize = 16;

/// The processes of a run, by name.
pub(crate) struct Processes {
    program: Runner,
    /// Brings the queue of each new process to the collector.
    queues: Outbox<Inbox<Event>>,
    batch: u32,
    /// `None` once the run has ended.
    running: Mutex<Option<BTreeMap<String, Weak<Process>>>>,
}

impl Processes {
    pub(crate) fn new(program: Runner, batch: usize, queues: Outbox<Inbox<Event>>) -> Self {
        let batch = batch.clamp(1, flame_abi::MAX_BATCH) as u32;
        Self { program, queues, batch, running: Mutex::new(Some(BTreeMap::new())) }
    }

    /// Starts a module in the process `name`, and that process if it does not run.
    pub(crate) fn install(
        &self,
        name: &str,
        module: &Module,
        shape: Shape,
    ) -> Result<RemoteModule, RunError> {
        let Module { plan, meters, keep } = module;
        let keep = keep.as_ref().filter(|_| plan.manifest.state.is_some());
        let state = Arc::new(State::new(plan, meters, shape.workers));
        let process = loop {
            let process = self.process(name)?;
            match process.life.enter(state.clone()) {
                Ok(()) => break process,
                // It has ended its last module in this moment.
                Err(_) if process.life.is_closed() => {}
                Err(e) => return Err(self.error(e)),
            }
        };
        let region = Loaded::region_size(plan, shape.workers + INSTANCES);
        let region = Region::create(region).map_err(|e| self.error(io::Error::other(e)))?;
        let view = ViewSpec { resolution_ns: plan.view.resolution_ns, ..ViewSpec::default() };
        let install = Install {
            plan: ModulePlan { view, process: None, ..plan.clone() },
            workers: shape.workers,
            tick_ns: shape.tick_ns,
            interval_ns: shape.interval_ns,
            batch: self.batch,
            granted: meters.granted().then(|| meters.links()),
            keeps: keep.map(Keep::every_ns),
        };
        process.send(Command::Install(Box::new(install)), vec![region]);
        if let Some(keep) = keep {
            Self::request_places(keep, &process, &state);
        }
        Ok(RemoteModule { plan: Arc::new(plan.clone()), meters: meters.clone(), process, state })
    }

    /// Lets each instance begin with the state of its place, once the instance before has left it.
    fn request_places(keep: &Keep, process: &Arc<Process>, state: &Arc<State>) {
        let Some(alive) = state.needs_places() else { return };
        for place in keep.all() {
            // Neither lives longer because it waits.
            let (process, weak) = (Arc::downgrade(process), Arc::downgrade(state));
            let module = state.id;
            let then = move |held, given: Option<flame_execute::State>| {
                if let (Some(process), Some(state)) = (process.upgrade(), weak.upgrade())
                    && state.occupy(place, held)
                {
                    let state = given.map(|state| state.to_vec());
                    process.send(Command::Import { module, worker: place.worker(), state }, Vec::new());
                }
            };
            keep.request_with(place, &alive, Box::new(then));
        }
    }

    /// Returns the process `name`, which is started if it does not run.
    fn process(&self, name: &str) -> Result<Arc<Process>, RunError> {
        if let Some(process) = self.running(name, None)? {
            return Ok(process);
        }
        // Without the lock: others need not wait for the start.
        let (events, queue) = bounded(REPORTS);
        let started = Process::start(&self.program, name, events).map_err(|e| self.error(e))?;
        self.queues.send(queue).map_err(|_| RunError::Ended)?;
        self.running(name, Some(started))?.ok_or(RunError::Ended)
    }

    /// Returns the process `name` if it runs. Otherwise `started` becomes that process.
    fn running(&self, name: &str, started: Option<Arc<Process>>) -> Result<Option<Arc<Process>>, RunError> {
        let mut running = lock(&self.running);
        let Some(running) = running.as_mut() else { return Err(RunError::Ended) };
        // A process ends with its last module.
        running.retain(|_, process| process.strong_count() > 0);
        let takes = |process: &Arc<Process>| !process.is_gone() && !process.life.is_closed();
        let known = running.get(name).and_then(Weak::upgrade).filter(takes);
        if let (None, Some(started)) = (&known, &started) {
            running.insert(name.to_owned(), Arc::downgrade(started));
        }
        Ok(known.or(started))
    }

    fn all(&self) -> Vec<Arc<Process>> {
        let running = lock(&self.running);
        running.iter().flat_map(BTreeMap::values).filter_map(Weak::upgrade).collect()
    }

    /// Returns the processes that run.
    pub(crate) fn list(&self) -> Vec<ProcessInfo> {
        let running = self.all().into_iter().filter(|process| !process.is_gone());
        running.map(|process| process.life.info()).collect()
    }

    /// Charges the processor time of all processes so far.
    pub(crate) fn settle(&self) {
        for process in self.all() {
            process.life.charge();
            // Who has too much is ended by the thread that watches it.
            let _ = process.life.count_memory();
        }
    }

    fn error(&self, e: io::Error) -> RunError {
        RunError::Process(self.program.to_string(), e)
    }

    /// Refuses further modules. The processes end when their modules have.
    pub(crate) fn clear(&self) {
        lock(&self.running).take();
    }
}

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

/// A process, which is killed when its last module has let go of it.
pub(crate) struct Process {
    commands: Outbox<(Command, Vec<OwnedFd>)>,
    life: Arc<Life>,
}

impl Process {
    /// Starts a process, and waits until it has confined itself.
    fn start(program: &Runner, name: &str, events: Outbox<Event>) -> io::Result<Arc<Self>> {
        let (program, name, (started, wait)) = (program.clone(), name.to_owned(), bounded(1));
        // The kernel ends the process with the thread that starts it, which must not be one of the caller's.
        let run = move || match Self::spawn(&program, name, events) {
            Ok((process, reader)) => {
                let _ = started.send(Ok(process));
                reader.run();
            }
            Err(e) => drop(started.send(Err(e))),
        };
        std::thread::Builder::new().name("flame-reports".to_owned()).spawn(run)?;
        wait.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it has ended")))
    }

    fn spawn(program: &Runner, name: String, events: Outbox<Event>) -> io::Result<(Arc<Self>, Reader)> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = program
            .command()
            .arg(std::process::id().to_string())
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // Its exit status says enough, and the terminal would be a way out and in.
            .stderr(Stdio::null())
            .spawn()?;
        let life = Arc::new(Life::new(name, child));
        // A process that reads nothing for so long is not alive.
        ours.set_write_timeout(Some(PING))?;
        let receiver = begun(&ours, &life.child)?;
        life.begin();
        let (commands, inbox) = unbounded();
        let sender = Sender::with_limit(OwnedFd::from(ours), PING * UNANSWERED as u32);
        let writer = Writer { sender, inbox, life: life.clone(), watch: Watch::default() };
        let reader = Reader { receiver, life: life.clone(), events };
        std::thread::Builder::new().name("flame-commands".to_owned()).spawn(move || writer.run())?;
        Ok((Arc::new(Self { commands, life }), reader))
    }

    /// Queues a command. It is lost if the process is gone.
    pub(crate) fn send(&self, command: Command, fds: Vec<OwnedFd>) {
        let _ = self.commands.send((command, fds));
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.life.is_gone.load(Ordering::Acquire)
    }

    /// Returns the time for which its first thread has worked or waited for a processor, unless the process
    /// has ended.
    pub(super) fn busy_time(&self) -> Option<Duration> {
        let Scheduled { worked, waited } = self.life.scheduled()?;
        Some(worked + waited)
    }

    /// Returns the time for which its first thread has waited for a processor, unless the process has ended.
    pub(super) fn waiting_time(&self) -> Option<Duration> {
        Some(self.life.scheduled()?.waited)
    }

    /// Returns the processor time of all its threads, unless the process has ended.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        self.life.processor_time()
    }

    /// Returns whether the kernel guarantees the processor time that a module here has reserved.
    pub(super) fn is_guaranteed(&self, id: ModuleId) -> bool {
        self.life.has_reserved(id)
    }

    /// Records that one of its modules was evicted.
    pub(crate) fn evicted(&self) {
        self.life.end_if_evicted();
    }

    /// Returns the module as lost, if its process has ended.
    pub(crate) fn lost(&self, id: ModuleId) -> Option<LostModule> {
        let cause = lock(&self.life.cause).clone().filter(|_| self.is_gone())?;
        Some(LostModule { id, process: self.life.name.clone(), pid: self.life.pid(), cause })
    }

    /// Reserves processor time for a module, in place of what it has, and lets the kernel guarantee the sum
    /// of all modules here.
    pub(crate) fn reserve(&self, id: ModuleId, share: Option<Share>) -> io::Result<()> {
        self.life.reserve(id, share)
    }

    /// Gives a module the limits of its meters, which were replaced.
    pub(crate) fn renew(&self, id: ModuleId, meters: &Meters) {
        self.life.relimit();
        let mut links = meters.links();
        if lock(&self.life.reserved).contains_key(&id)
            && let Some(reserved) = links.last_mut()
        {
            // The kernel keeps to the reservation, whose meter is the last. Without the share it is another
            // one.
            (reserved.id, reserved.share) = (!reserved.id, None);
        }
        self.send(Command::Renew { module: id, links }, Vec::new());
    }

    pub(crate) fn kill(&self, reason: &str) {
        self.life.kill(Some(reason));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // All its modules have ended. The thread that reads its reports waits for its end.
        self.life.kill(None);
    }
}

/// Waits until a process has confined itself, and returns its connection. The process has the time [`START`]
/// for it, however it divides what it sends.
fn begun(socket: &UnixStream, child: &Mutex<Child>) -> io::Result<Receiver> {
    let deadline = Instant::now() + START;
    let mut receiver = Receiver::new(OwnedFd::from(socket.try_clone()?));
    let mut first = || {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            socket.set_read_timeout(Some(left))?;
            receiver.receive(true)?;
            if let Some((Report::Alive(0), _)) = receiver.next(FIRST_HEAD)? {
                return Ok(());
            }
            if receiver.waiting() > FIRST_FRAME {
                return Err(ChannelError::Length { head: receiver.waiting(), body: 0 });
            }
        }
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
    life: Arc<Life>,
    watch: Watch,
}

impl Writer {
    fn run(mut self) {
        if let Err(reason) = self.write() {
            self.life.kill(reason.as_deref());
        }
    }

    /// Writes commands until nobody is left to send any. An error may give the reason why the process must
    /// end.
    fn write(&mut self) -> Result<(), Option<String>> {
        let closed = |_: ChannelError| None;
        let (mut ping, mut decision) = (Instant::now() + PING, Instant::now());
        loop {
            let is_command = match self.inbox.recv_deadline(ping.min(decision)) {
                Ok((command, fds)) if fds.is_empty() => {
                    self.sender.send(&command, &[]).map_err(closed)?;
                    true
                }
                Ok((command, fds)) => {
                    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                    self.sender.send_fds(&command, &fds).map_err(closed)?;
                    true
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let now = Instant::now();
            if now >= decision {
                for command in self.watch.decide(&self.life)? {
                    self.sender.send(&command, &[]).map_err(closed)?;
                }
                decision = if self.watch.is_shared() { now + DECISION } else { ping + PING };
            } else if is_command {
                // It may bring a share.
                decision = decision.min(now + DECISION);
            }
            if now >= ping {
                ping = now + PING;
                let number = self.check()?;
                self.sender.send(&Command::Ping(number), &[]).map_err(closed)?;
            }
            if self.inbox.is_empty() {
                self.sender.flush().map_err(closed)?;
            }
        }
    }

    /// Checks the process, and returns the number of the next ping.
    fn check(&mut self) -> Result<u64, Option<String>> {
        self.watch.check(&self.life)?;
        let answered = self.life.answered.load(Ordering::Relaxed);
        let sent = self.life.pings.fetch_add(1, Ordering::Relaxed);
        // While its reports wait for the collector, its answers do too.
        let is_blocked = self.life.is_blocked.load(Ordering::Relaxed);
        if !is_blocked && sent.saturating_sub(answered) >= self.life.patience() {
            return Err(Some("it did not answer".to_owned()));
        }
        Ok(sent + 1)
    }
}
