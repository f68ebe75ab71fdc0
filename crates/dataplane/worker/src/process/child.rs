//! A process in which modules run: its start, the commands to it, and its end.

use super::deadline::Progress;
use super::event::ModuleEvent;
use super::kernel::Scheduled;
use super::process_state::{Life, LostModule};
use super::program::Runner;
use super::reports::Reader;
use super::watch::Watch;
use crate::lock;
use crossbeam_channel::{Receiver as Inbox, RecvTimeoutError, Sender as Outbox, bounded, unbounded};
use flame_plan::limits::{HELD_DECISION, PROCESS_ANSWER_PINGS, ProcessLimits};
use flame_plan::{ModuleId, Share};
use flame_quota::Meters;
use flame_remote::{BodyReader, ChannelError, Command, PausableClock, Receiver, Report, Sender, Stall};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The maximum numbers of bytes of the first report of a process, and of its frame.
const FIRST_HEAD: usize = 16;
const FIRST_FRAME: usize = 64;

/// A process that was started ahead of its first module. It is killed when this value is dropped, unless it
/// has a module by then.
#[must_use]
pub struct StartedProcess {
    _process: Arc<Process>,
}

impl StartedProcess {
    pub(crate) fn new(process: Arc<Process>) -> Self {
        Self { _process: process }
    }
}

/// A process, which is killed when its last module has let go of it.
pub(crate) struct Process {
    commands: Outbox<(Command, Vec<OwnedFd>)>,
    pub(super) life: Arc<Life>,
}

impl Process {
    /// Starts a process, and waits until it has confined itself.
    pub(super) fn start(program: &Runner, name: &str, events: Outbox<ModuleEvent>) -> io::Result<Arc<Self>> {
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

    fn spawn(program: &Runner, name: String, events: Outbox<ModuleEvent>) -> io::Result<(Arc<Self>, Reader)> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = program
            .command()
            .arg(std::process::id().to_string())
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // Its exit status is enough, and the terminal would be a way out and in.
            .stderr(Stdio::null())
            // A terminal's SIGINT is for this process, which ends its modules in order.
            .process_group(0)
            .spawn()?;
        let (handling, handled) = Stall::create(Duration::ZERO);
        let (blocked, wait) = Stall::create(Duration::ZERO);
        let life = Arc::new(Life::new(name, child, handled));
        let ProcessLimits { start, ping, .. } = program.limits;
        // Its limit is checked this often.
        ours.set_write_timeout(Some(ping))?;
        let (bodies, theirs) = BodyReader::create()?;
        let mut receiver = begun(&ours, &life.child, start)?;
        receiver.take_bodies(bodies);
        life.begin();
        let (commands, inbox) = unbounded();
        // The first command, before any module could have output.
        let _ = commands.send((Command::Bodies, theirs.into()));
        // While its reports wait for the collector, its answers do too, and it takes no commands.
        let sender = Sender::with_limit(OwnedFd::from(ours), ping * PROCESS_ANSWER_PINGS, wait.clone());
        let (clock, watch) = (PausableClock::new(wait, 2 * ping), Watch::default());
        let progress = Progress::default();
        let writer = Writer { sender, inbox, life: life.clone(), watch, ping, clock, progress };
        let reader = Reader { receiver, life: life.clone(), events, handling, blocked };
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

    /// Returns the time for which its first thread has worked or waited for a processor, and its reports were
    /// handled, unless the process has ended.
    pub(super) fn busy_time(&self) -> Option<Duration> {
        let Scheduled { worked, waited } = self.life.scheduled()?;
        Some(worked + waited + self.life.handling.total(Instant::now()))
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
        self.life.reserve(id, share, None)
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

/// Waits until a process has confined itself, and returns its connection. The process has the time
/// `start` for it, however it divides what it sends.
fn begun(socket: &UnixStream, child: &Mutex<Child>, start: Duration) -> io::Result<Receiver> {
    let deadline = Instant::now() + start;
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
    /// The interval of pings.
    ping: Duration,
    /// The clock of the waits for answers to pings.
    clock: PausableClock,
    progress: Progress,
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
        let (mut ping, mut decision) = (Instant::now() + self.ping, Instant::now());
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
                decision = if self.watch.is_shared() { now + HELD_DECISION } else { ping + self.ping };
            } else if is_command {
                // It may bring a share.
                decision = decision.min(now + HELD_DECISION);
            }
            if now >= ping {
                ping = now + self.ping;
                if let Some(number) = self.check()? {
                    self.sender.send(&Command::Ping(number), &[]).map_err(closed)?;
                }
            }
            if self.inbox.is_empty() {
                self.sender.flush().map_err(closed)?;
            }
        }
    }

    /// Checks the process, and returns the number of the next ping, if the last one was answered.
    fn check(&mut self) -> Result<Option<u64>, Option<String>> {
        self.watch.check(&self.life)?;
        let ((last, answered), now) = (self.life.pings(), self.clock.read(Instant::now()));
        let limit = self.ping.mul_f64(self.life.answer_pings());
        if self.progress.is_late(now, answered, limit) {
            return Err(Some("it did not answer".to_owned()));
        }
        Ok((answered >= last).then(|| self.life.ping()))
    }
}
