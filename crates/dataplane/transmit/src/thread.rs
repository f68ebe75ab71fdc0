//! The thread of a link, which takes frames from channels and hands them to the interface when they are due.

use crate::counts::Counts;
use crate::schedule::{Key, Next, Reservation, Scheduler};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use flame_abi::LinkType;
use flame_source::SourceError;
use flame_source::live::{self, Patience, Unsent};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The time that the thread may be late and still catch up. What it is later than that is lost to all.
pub(crate) const CATCH_UP_NS: u64 = 2_000_000;
/// The most frames that are due at once.
const DUE: usize = live::Sender::MOST;
/// The pause while the interface takes no frames.
const PAUSE: Duration = Duration::from_micros(100);
/// The most commands between two looks at the time.
const COMMANDS: usize = 1024;

/// A command to the thread of a link.
pub(crate) enum Command {
    Open(Key, Reservation, Arc<Counts>),
    Frame(Key, Vec<u8>),
    Close(Key, Option<Sender<()>>),
}

/// The destination of the frames of a link.
pub trait Wire: Send {
    /// Sends frames, and returns how many.
    ///
    /// # Errors
    ///
    /// Returns the reason why the first one was not sent.
    fn send(&mut self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent>;

    /// Returns whether frames can leave, so that a frame that is dropped repeatedly is refused.
    fn has_carrier(&self) -> bool {
        true
    }
}

/// An interface.
pub(crate) struct Interface(live::Sender);

impl Interface {
    pub(crate) fn open(name: &str) -> Result<Self, SourceError> {
        live::Sender::open(name).map(Self)
    }

    pub(crate) fn link(&self) -> LinkType {
        self.0.link()
    }
}

impl Wire for Interface {
    fn send(&mut self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent> {
        self.0.send(frames)
    }

    fn has_carrier(&self) -> bool {
        self.0.has_carrier()
    }
}

struct Thread<'a> {
    wire: Box<dyn Wire>,
    scheduler: Scheduler<Vec<u8>>,
    channels: BTreeMap<Key, Arc<Counts>>,
    /// The frames that are due.
    due: VecDeque<(Arc<Counts>, Vec<u8>)>,
    /// The time for the first of them, should the interface drop it: no module stops the others by frames
    /// that the interface, or the other end of the link, refuses.
    patience: Patience,
    used: &'a Sender<Vec<u8>>,
    begun: Instant,
}

/// The way of commands to the thread of a link, which ends when this is dropped.
///
/// The thread is woken by `unpark`. Channels that wait yield first, and a thread with time of its own
/// (`SCHED_DEADLINE`) that yields gives up the rest of its period.
pub(crate) struct Commands {
    commands: Option<Sender<Command>>,
    thread: thread::Thread,
}

impl Commands {
    pub(crate) fn new(commands: Sender<Command>, thread: thread::Thread) -> Self {
        Self { commands: Some(commands), thread }
    }

    /// Sends a command. Returns whether the thread will receive it.
    pub(crate) fn send(&self, command: Command) -> bool {
        let is_sent = self.commands.as_ref().is_some_and(|commands| commands.send(command).is_ok());
        self.thread.unpark();
        is_sent
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        self.commands = None;
        self.thread.unpark();
    }
}

/// Sends until [`Commands`] are dropped.
pub(crate) fn run(wire: Box<dyn Wire>, bandwidth: u64, commands: &Receiver<Command>, used: &Sender<Vec<u8>>) {
    let mut thread = Thread {
        wire,
        scheduler: Scheduler::new(bandwidth),
        channels: BTreeMap::new(),
        due: VecDeque::new(),
        patience: Patience::default(),
        used,
        begun: Instant::now(),
    };
    let mut wait = None;
    loop {
        let mut first = commands.try_recv();
        if matches!(first, Err(TryRecvError::Empty)) {
            match wait {
                None => thread::park(),
                Some(time) => thread::park_timeout(time),
            }
            first = commands.try_recv();
        }
        if matches!(first, Err(TryRecvError::Disconnected)) {
            return;
        }
        // What was due until now leaves before what comes now.
        thread.take_due();
        let now_ns = thread.now_ns();
        first.ok().into_iter().chain(commands.try_iter()).take(COMMANDS).for_each(|c| thread.obey(c, now_ns));
        wait = thread.send();
    }
}

impl Thread<'_> {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn obey(&mut self, command: Command, now_ns: u64) {
        match command {
            Command::Open(key, reservation, counts) => {
                self.scheduler.open(key, reservation);
                self.channels.insert(key, counts);
            }
            Command::Frame(key, frame) => {
                // Its channel was closed.
                drop(self.scheduler.push(key, frame, now_ns));
            }
            Command::Close(key, reply) => {
                let left = self.scheduler.close(key);
                if let Some(counts) = self.channels.remove(&key) {
                    left.iter().for_each(|frame| counts.left(frame.len(), false));
                    self.due.retain(|(owner, frame)| {
                        let is_closed = Arc::ptr_eq(owner, &counts);
                        if is_closed {
                            counts.left(frame.len(), false);
                        }
                        !is_closed
                    });
                }
                drop(reply);
            }
        }
    }

    /// Takes the frames that are due from the scheduler. Returns the time until the next one.
    fn take_due(&mut self) -> Option<Duration> {
        let now_ns = self.now_ns();
        self.scheduler.lose_time_before(now_ns.saturating_sub(CATCH_UP_NS));
        while self.due.len() < DUE {
            match self.scheduler.next(now_ns) {
                Next::Send { key, frame, .. } => {
                    if let Some(counts) = self.channels.get(&key) {
                        self.due.push_back((counts.clone(), frame));
                    }
                }
                Next::Wait(until) => return Some(Duration::from_nanos(until - now_ns)),
                Next::Idle => return None,
            }
        }
        Some(Duration::ZERO)
    }

    /// Hands frames to the interface, once: frames that wait as commands may have earlier deadlines than the
    /// next ones. Returns the time for which it can wait for commands.
    fn send(&mut self) -> Option<Duration> {
        let wait = self.take_due();
        if self.due.is_empty() {
            return wait;
        }
        match self.wire.send(&mut self.due.iter().map(|(_, frame)| &frame[..])) {
            Ok(0) | Err(Unsent::NoRoom | Unsent::QueueFull) => return Some(PAUSE),
            Ok(sent) => {
                self.patience.taken(self.now_ns());
                (0..sent).for_each(|_| self.done(true));
            }
            Err(Unsent::Dropped) => {
                let now_ns = self.now_ns();
                let Self { due, wire, patience, .. } = &mut *self;
                let send = |first| wire.send(&mut due.iter().skip(first).map(|(_, frame)| &frame[..]));
                let (mut refused, taken) = patience.send_others(due.len(), send);
                if refused == 0 {
                    if !patience.is_over(now_ns, || wire.has_carrier()) {
                        return Some(PAUSE);
                    }
                    refused = 1;
                }
                (0..refused).for_each(|_| self.done(false));
                (0..taken).for_each(|_| self.done(true));
            }
            Err(_) => {
                self.patience.begin_again();
                self.done(false);
            }
        }
        Some(Duration::ZERO)
    }

    fn done(&mut self, is_sent: bool) {
        if let Some((counts, frame)) = self.due.pop_front() {
            counts.left(frame.len(), is_sent);
            // A full store of buffers needs no more.
            let _ = self.used.try_send(frame);
        }
    }
}
