//! Links, the channels on them, and their counts.

use crate::capture::{Capture, Replay};
use crate::counts::{Counts, OVERHEAD, SPARE, filled};
use crate::schedule::{Key, Reservation};
use crate::thread::{Command, Commands, Interface, Wire, run};
use crate::time::needed;
use crossbeam_channel::{Receiver, bounded, unbounded};
use flame_abi::LinkType;
use flame_base::lock;
use flame_confine::{give_time_at_least, this_thread};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The time whose frames a channel's queue holds at its rate, as a part of a second: a tenth.
const QUEUED: u64 = 10;
/// The least and the most bytes of a channel's queue.
const LEAST_QUEUE: u64 = 64 << 10;
const MOST_QUEUE: u64 = 4 << 20;

/// The reason why a link or a channel cannot be opened, or a capture not be written.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    Source(#[from] flame_source::SourceError),
    #[error("{interface} is of link type {}, and channels send on Ethernet alone", .link.0)]
    LinkType { interface: String, link: LinkType },
    #[error("starting a thread: {0}")]
    Thread(#[from] std::io::Error),
    #[error(
        "channels would reserve {reserved} bit/s, and the link has {bandwidth}: raise it, or run fewer modules"
    )]
    Reserved { reserved: u64, bandwidth: u64 },
    #[error(
        "the kernel gives the link's thread no processor time of its own ({0}), so the rates of channels hold \
         only while a processor is free: {remedy}", remedy = remedy(.0)
    )]
    Time(std::io::Error),
    #[error("{0}")]
    Capture(String),
}

fn remedy(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "give the program CAP_SYS_NICE, which a node with `user` keeps by scheduler = \"deadline\" in \
             [isolation], and all processors"
        }
        _ => "reserve less processor time: the kernel keeps a part of it for what has no reservation",
    }
}

/// The frames of a channel so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub sent: u64,
    /// Frames that the interface did not take, or that waited when the channel was closed.
    pub refused: u64,
}

fn traffic(counts: &Counts) -> Traffic {
    let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
    Traffic { sent: load(&counts.sent), refused: load(&counts.refused) }
}

enum Way {
    Thread { commands: Commands, spare: Receiver<Vec<u8>>, id: u32 },
    Capture(Mutex<Replay>),
}

/// An interface, or a capture file in place of one, on which channels send.
pub struct Link {
    shared: Arc<Shared>,
    /// Whether the owner of the channels has reserved their bandwidth.
    is_reserved: bool,
}

struct Shared {
    bandwidth: u64,
    /// The sum of what is reserved.
    reserved: Mutex<u64>,
    next: AtomicU64,
    way: Way,
    /// Whether the kernel guarantees the time that the reserved bandwidth takes.
    has_time: AtomicBool,
}

/// A part of a link's bandwidth, which is free again when this is dropped.
pub struct Bandwidth {
    shared: Arc<Shared>,
    rate: u64,
}

impl Bandwidth {
    /// Adds another part of the same link's bandwidth to this one, and gives up all but `rate` bits per
    /// second.
    #[must_use]
    pub fn and(mut self, mut other: Self, rate: u64) -> Self {
        let sum = self.rate.saturating_add(std::mem::take(&mut other.rate));
        self.rate = sum.min(rate);
        let mut reserved = lock(&self.shared.reserved);
        *reserved = reserved.saturating_sub(sum - self.rate);
        drop(reserved);
        self
    }

    /// Returns the bandwidth in bits per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }
}

impl Drop for Bandwidth {
    fn drop(&mut self) {
        let mut reserved = lock(&self.shared.reserved);
        *reserved = reserved.saturating_sub(self.rate);
    }
}

impl Link {
    fn new(bandwidth: u64, way: Way) -> Arc<Self> {
        let (reserved, next) = (Mutex::new(0), AtomicU64::new(0));
        // A capture follows packet time.
        let has_time = AtomicBool::new(matches!(way, Way::Capture(_)));
        let shared = Arc::new(Shared { bandwidth, reserved, next, way, has_time });
        Arc::new(Self { shared, is_reserved: false })
    }

    /// Opens an interface, which is to carry at most `bandwidth` bits per second of channels. Frames leave in
    /// a thread of the link, which ends with its last channel.
    ///
    /// # Errors
    ///
    /// Returns an error without the right to send, if there is no such interface, or if it is not Ethernet.
    pub fn interface(name: &str, bandwidth: u64) -> Result<Arc<Self>, LinkError> {
        let wire = Interface::open(name)?;
        let link = wire.link();
        if link != LinkType::ETHERNET {
            return Err(LinkError::LinkType { interface: name.to_owned(), link });
        }
        Self::on(Box::new(wire), bandwidth)
    }

    /// Returns a link that hands frames to `wire`.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn on(wire: Box<dyn Wire>, bandwidth: u64) -> Result<Arc<Self>, LinkError> {
        // Each channel has a limit of its own. A common one would let those who send much keep others out.
        let (commands, inbox) = unbounded();
        let (used, spare) = bounded(SPARE);
        let (identify, identified) = bounded(1);
        let thread = std::thread::Builder::new().name("flame-link".to_owned());
        let thread = thread.spawn(move || {
            let _ = identify.send(this_thread());
            run(wire, bandwidth, &inbox, &used);
        })?;
        let id = identified.recv().map_err(std::io::Error::other)?;
        let commands = Commands::new(commands, thread.thread().clone());
        Ok(Self::new(bandwidth, Way::Thread { commands, spare, id }))
    }

    /// Lets the kernel guarantee the processor time that the link's bandwidth takes, so that channels have
    /// their rates whatever else works on the machine. Without it they have them while a processor is free.
    ///
    /// # Errors
    ///
    /// Returns [`LinkError::Time`], with the remedy, if the kernel refuses it.
    pub fn take_time(&self) -> Result<(), LinkError> {
        if let Way::Thread { id, .. } = &self.shared.way {
            give_time_at_least(*id, needed(self.shared.bandwidth)).map_err(LinkError::Time)?;
            self.shared.has_time.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns whether the rates of channels hold whatever else works on the machine.
    pub fn has_time(&self) -> bool {
        self.shared.has_time.load(Ordering::Relaxed)
    }

    /// Returns a link of which `capture` receives the frames, with the packet times at which they would leave
    /// a link with this bandwidth.
    pub fn capture(capture: Box<dyn Capture>, bandwidth: u64) -> Arc<Self> {
        Self::new(bandwidth, Way::Capture(Mutex::new(Replay::new(capture, bandwidth))))
    }

    /// Returns this link for the channels of an owner that reserves their bandwidth by [`Link::reserve`].
    /// They reserve none when they are opened, so an owner keeps it while they are not open.
    #[must_use]
    pub fn for_owner(&self) -> Arc<Self> {
        Arc::new(Self { shared: self.shared.clone(), is_reserved: true })
    }

    /// Reserves bandwidth in bits per second.
    ///
    /// # Errors
    ///
    /// Returns an error if the link has not so much left.
    pub fn reserve(&self, rate: u64) -> Result<Bandwidth, LinkError> {
        let mut reserved = lock(&self.shared.reserved);
        let (sum, bandwidth) = (reserved.saturating_add(rate), self.shared.bandwidth);
        if sum > bandwidth {
            return Err(LinkError::Reserved { reserved: sum, bandwidth });
        }
        *reserved = sum;
        Ok(Bandwidth { shared: self.shared.clone(), rate })
    }

    /// Opens a channel, whose rate is reserved.
    ///
    /// # Errors
    ///
    /// Returns an error if the link has not enough bandwidth left, unless an owner reserves it.
    pub fn open(&self, reservation: Reservation) -> Result<Channel, LinkError> {
        let bandwidth = (!self.is_reserved).then(|| self.reserve(reservation.rate)).transpose()?;
        let shared = self.shared.clone();
        let key = Key(shared.next.fetch_add(1, Ordering::Relaxed));
        let counts = Arc::new(Counts::default());
        match &shared.way {
            Way::Thread { commands, .. } => {
                commands.send(Command::Open(key, reservation, counts.clone()));
            }
            Way::Capture(replay) => lock(replay).open(key, reservation, counts.clone()),
        }
        let limit = (reservation.rate / 8 / QUEUED).clamp(LEAST_QUEUE, MOST_QUEUE);
        Ok(Channel { shared, key, counts, limit, _bandwidth: bandwidth })
    }

    /// Advances packet time: the frames that leave before it are written. Does nothing for an interface.
    pub fn advance(&self, now_ns: u64) {
        if let Way::Capture(replay) = &self.shared.way {
            lock(replay).advance(now_ns);
        }
    }

    /// Completes the capture, after all frames have left. Does nothing for an interface.
    ///
    /// # Errors
    ///
    /// Returns an error if the capture could not be written.
    pub fn finish(&self) -> Result<(), LinkError> {
        match &self.shared.way {
            Way::Capture(replay) => lock(replay).finish().map_err(LinkError::Capture),
            Way::Thread { .. } => Ok(()),
        }
    }
}

/// A channel of one module on a link. It is closed when it is dropped.
pub struct Channel {
    shared: Arc<Shared>,
    key: Key,
    counts: Arc<Counts>,
    limit: u64,
    _bandwidth: Option<Bandwidth>,
}

impl Channel {
    /// Queues a copy of a frame, at packet time `now_ns`. Returns false if there is no room for it.
    pub fn send(&self, bytes: &[u8], now_ns: u64) -> bool {
        let size = bytes.len() as u64 + OVERHEAD;
        // Only one thread sends on a channel, and the link's own makes the number smaller.
        if self.counts.waiting.load(Ordering::Relaxed) + size > self.limit {
            return false;
        }
        self.counts.waiting.fetch_add(size, Ordering::Relaxed);
        let is_queued = match &self.shared.way {
            Way::Thread { commands, spare, .. } => {
                let buffer = filled(spare.try_recv().ok(), bytes);
                commands.send(Command::Frame(self.key, buffer))
            }
            Way::Capture(replay) => lock(replay).push(self.key, bytes, now_ns),
        };
        if !is_queued {
            self.counts.waiting.fetch_sub(size, Ordering::Relaxed);
        }
        is_queued
    }

    /// Returns whether frames wait.
    pub fn is_waiting(&self) -> bool {
        self.counts.waiting.load(Ordering::Relaxed) > 0
    }

    /// Adds the bytes of frames that leave from now on to `bill`. A channel has one bill.
    pub fn bill(&self, bill: Arc<AtomicU64>) {
        // The first one stays.
        let _ = self.counts.bill.set(bill);
    }

    /// Returns the frames so far.
    pub fn traffic(&self) -> Traffic {
        traffic(&self.counts)
    }

    /// Closes the channel. Frames that still wait are refused.
    pub fn close(self) -> Traffic {
        let counts = self.counts.clone();
        let (reply, done) = bounded(1);
        match &self.shared.way {
            Way::Thread { commands, .. } => {
                if commands.send(Command::Close(self.key, Some(reply))) {
                    let _ = done.recv();
                }
            }
            Way::Capture(replay) => lock(replay).close(self.key),
        }
        traffic(&counts)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // A channel that was closed is not there any more.
        match &self.shared.way {
            Way::Thread { commands, .. } => {
                commands.send(Command::Close(self.key, None));
            }
            Way::Capture(replay) => lock(replay).close(self.key),
        }
    }
}
