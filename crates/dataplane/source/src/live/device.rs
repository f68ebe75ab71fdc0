//! Interfaces from which frames are received to be sent on, and to which frames are sent, in batches.
//!
//! A [`Receiver`] is a ring (TPACKET_V3) whose packets are taken from the kernel a block at a time. A block
//! is handed over when it is full or [`HANDOVER_MS`] old. A [`Sender`] hands frames to the kernel by
//! `sendmmsg`, from where they lie.

use super::card::Card;
use super::deaf::Deaf;
use super::finish::Unfinished;
use super::interface::{self, Interface};
use super::ring::{Form, Ring, Taken, work_left};
use super::socket::{self, SENT_AT_ONCE, Socket, Use};
use super::state::State;
use super::{LiveOptions, SourceError};
use flame_abi::{LinkType, MAX_PACKET};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The longest time that a frame waits in a block that is not full.
const HANDOVER_MS: u32 = 1;
/// A block has room for a frame of 64 KiB of joined segments. Blocks are small and many, since a block that
/// is handed over by time may hold a single frame.
pub const BLOCK_BYTES: usize = 128 << 10;

/// The time between two looks at an interface that is down.
pub const DOWN_INTERVAL: Duration = Duration::from_secs(1);

/// Options of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Whether to receive frames for other machines, too.
    pub is_promiscuous: bool,
    /// Whether to receive the frames that this machine sends, too.
    pub is_outgoing: bool,
    /// Whether the kernel handles the frames, too.
    pub is_sniffer: bool,
    /// The number of blocks of 128 KiB.
    pub blocks: usize,
}

/// A frame in the kernel's memory.
#[derive(Clone, Copy, Debug)]
pub struct FrameIn<'a> {
    pub bytes: &'a [u8],
    /// The time of its reception in nanoseconds since 1970.
    pub ts_ns: u64,
    pub wire_len: u32,
    /// The kernel's `PACKET_HOST` (0), broadcast (1), multicast (2), other host (3) or outgoing (4).
    pub kind: u8,
    /// The work that is left on it.
    pub work: Unfinished,
}

/// An interface from which frames are received.
pub trait Receive: Send {
    fn link(&self) -> LinkType;

    /// Returns the way in which frames are received, in words.
    fn way(&self) -> String;

    /// Returns whether the name by which it was opened is still that of its interface.
    fn has_its_name(&self) -> bool;

    /// Returns whether there are frames to take.
    fn is_ready(&self) -> bool;

    /// Takes frames until there are `most` packets, or no more frames. `each` returns how many packets were
    /// made of its frame, which counts as one at least. Returns how many there were.
    fn take(&mut self, most: usize, each: &mut dyn FnMut(FrameIn<'_>) -> usize) -> usize;

    /// Looks at the state of an interface. Returns a message when it went down, is up again, or has changed
    /// otherwise; the descriptors may be others then.
    ///
    /// # Errors
    ///
    /// Returns an error if the interface was removed.
    fn look(&mut self) -> Result<Option<String>, SourceError>;

    /// Returns the time after which it should be looked at, if no descriptor reports a change.
    fn look_after(&self) -> Option<Duration>;

    /// Returns the number of frames so far that the kernel dropped, since they were not taken in time.
    fn drops(&mut self) -> u64;

    /// Returns descriptors, of which one is readable when there are frames or the state has changed.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too many open files.
    fn watched(&self) -> io::Result<Vec<OwnedFd>>;

    /// Continues with other options, if this is possible without closing the interface. Returns whether it
    /// is.
    fn adopt(&mut self, options: &DeviceOptions) -> bool;
}

/// An interface from which frames are received by AF_PACKET.
pub struct Receiver {
    ring: Arc<Ring>,
    state: State,
    link: LinkType,
    options: DeviceOptions,
    /// The index of the next block.
    head: usize,
    /// The block of which frames are left.
    current: Option<Taken>,
    drops: u64,
    _deaf: Option<Deaf>,
}

/// Checks that an interface exists, and that packet sockets are permitted.
///
/// # Errors
///
/// Returns the error with which [`Receiver::open`] and [`Sender::open`] would fail.
pub fn may_open(interface: &str) -> Result<LinkType, SourceError> {
    socket::open_to_send(&Interface::find(interface)?).map(|(_, link)| link.link)
}

impl Receiver {
    /// Opens an interface.
    ///
    /// # Errors
    ///
    /// Returns an error without the rights, or if there is no such interface.
    pub fn open(interface: &str, options: &DeviceOptions) -> Result<Self, SourceError> {
        let io =
            |step: &str, error| SourceError::Io { place: format!("interface {interface}: {step}"), error };
        let live = LiveOptions {
            promiscuous: options.is_promiscuous,
            snaplen: MAX_PACKET as u32,
            block_bytes: BLOCK_BYTES,
            blocks: options.blocks.max(2),
            timeout_ms: HANDOVER_MS,
            ..LiveOptions::default()
        };
        let found = Interface::find(interface)?;
        if found.is_all() {
            let error = io::Error::other("frames of all interfaces cannot be sent on: name one");
            return Err(io("opening", error));
        }
        let use_ = Use::Forward { is_outgoing: options.is_outgoing };
        let (socket, link) = socket::open(&found, &live, use_)?;
        let ring = Ring::new(socket, Form::Stated, live.block_bytes, live.blocks)
            .map_err(|e| io("mapping the ring", e))?;
        let deaf = match options.is_sniffer {
            true => None,
            false => Some(Deaf::new(link.index as u32, None).map_err(|e| io("SNIFFER false", e))?),
        };
        Ok(Self {
            ring: Arc::new(ring),
            state: State::new(interface, link.index),
            link: link.link,
            options: *options,
            head: 0,
            current: None,
            drops: 0,
            _deaf: deaf,
        })
    }
}

impl Receive for Receiver {
    fn link(&self) -> LinkType {
        self.link
    }

    fn way(&self) -> String {
        let handles = if self.options.is_sniffer { "handles" } else { "does not handle" };
        let size = self.ring.bytes() >> 20;
        format!("an AF_PACKET ring (TPACKET_V3) of {size} MiB; the kernel {handles} its packets")
    }

    fn has_its_name(&self) -> bool {
        self.state.has_its_name()
    }

    fn is_ready(&self) -> bool {
        self.current.is_some() || self.ring.is_ready(self.head)
    }

    fn take(&mut self, most: usize, each: &mut dyn FnMut(FrameIn<'_>) -> usize) -> usize {
        let mut count = 0;
        while count < most {
            if self.current.is_none() {
                if !self.ring.is_ready(self.head) {
                    break;
                }
                self.current = Some(Ring::take(&self.ring, self.head));
                self.head = (self.head + 1) % self.ring.blocks();
            }
            let Some(taken) = &mut self.current else { break };
            taken.read(|block, found| {
                if !found.is_copy {
                    let start = found.offset as usize;
                    let bytes = &block[start..start + found.captured as usize];
                    let work = work_left(block, &found);
                    let (ts_ns, wire_len, kind) = (found.ts_ns, found.wire_len, found.kind);
                    count += each(FrameIn { bytes, ts_ns, wire_len, kind, work }).max(1);
                }
                count < most
            });
            if taken.is_over() {
                self.current = None;
            }
        }
        count
    }

    fn look(&mut self) -> Result<Option<String>, SourceError> {
        self.state.look(self.ring.socket())
    }

    fn look_after(&self) -> Option<Duration> {
        self.state.is_down().then_some(DOWN_INTERVAL)
    }

    fn drops(&mut self) -> u64 {
        // The kernel resets its counter at each read.
        self.drops += self.ring.socket().drops();
        self.drops
    }

    fn watched(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![self.ring.socket().as_fd().try_clone_to_owned()?])
    }

    fn adopt(&mut self, options: &DeviceOptions) -> bool {
        *options == self.options
    }
}

/// An interface to which frames are sent.
pub struct Sender {
    socket: Socket,
    interface: String,
    link: socket::Link,
    card: Card,
    /// Whether the socket has lost its interface.
    is_unbound: Cell<bool>,
}

/// The reason why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// There is no room in the socket: it is writable when there is.
    NoRoom,
    /// The interface takes no frames now. The kernel does not report when there is room.
    QueueFull,
    /// The interface or its queue has dropped the frame: for want of room, without a carrier, or since it, or
    /// the other end of the link, refuses this frame. The kernel does not report which.
    Dropped,
    TooLong,
    /// The interface is down, or was removed.
    Down,
    Refused,
}

impl Sender {
    /// The most frames that one call of [`Sender::send`] sends.
    pub const MOST: usize = SENT_AT_ONCE;

    /// Opens an interface.
    ///
    /// # Errors
    ///
    /// Returns an error without the rights, or if there is no such interface.
    pub fn open(interface: &str) -> Result<Self, SourceError> {
        let (socket, link) = socket::open_to_send(&Interface::find(interface)?)?;
        let card = Card::open(interface).map_err(|error| {
            let place = format!("interface {interface}: opening");
            SourceError::Io { place, error }
        })?;
        let card = card.by_number(link.index);
        Ok(Self { socket, interface: interface.to_owned(), link, card, is_unbound: Cell::new(false) })
    }

    pub fn link(&self) -> LinkType {
        self.link.link
    }

    /// Returns whether the interface was removed.
    pub fn is_gone(&self) -> bool {
        self.is_unbound.get() || self.socket.is_up(self.link.index).is_err()
    }

    /// Returns whether the interface has a carrier, without which it sends nothing.
    pub fn has_carrier(&self) -> bool {
        self.card.has_carrier()
    }

    /// Returns whether the name by which it was opened is still that of its interface.
    pub fn has_its_name(&self) -> bool {
        interface::index(&self.interface).is_ok_and(|index| index == self.link.index)
    }

    /// Sends whole frames in one system call, at most [`Sender::MOST`]. Returns how many were sent.
    ///
    /// # Errors
    ///
    /// Returns the reason why the first one was not sent.
    pub fn send<'a>(&self, mut frames: impl Iterator<Item = &'a [u8]>) -> Result<usize, Unsent> {
        self.socket.send(&mut frames).map_err(|e| match e.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Unsent::NoRoom,
            Some(libc::ENOMEM) => Unsent::QueueFull,
            Some(libc::ENOBUFS) => Unsent::Dropped,
            Some(libc::EMSGSIZE) => Unsent::TooLong,
            Some(libc::ENXIO) => {
                self.is_unbound.set(true);
                Unsent::Down
            }
            Some(libc::ENETDOWN | libc::ENODEV) => Unsent::Down,
            _ => Unsent::Refused,
        })
    }

    /// Returns the descriptor that is writable when there is room.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
