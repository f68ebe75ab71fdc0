//! Packets of an interface through AF_XDP sockets, one for each receive queue, and to it.
//!
//! A program in the driver gives each received packet to the socket of its queue, before the kernel's stack
//! and its captures: they do not see it. The kernel writes it to a frame of memory that belongs to the
//! socket. From there it is copied into a block, so that a block that is kept for long costs no frames.

mod program;
mod queue;
mod receive;
mod ring;
mod send;
mod shared;

pub use queue::Chunk;
pub use receive::XdpReceiver;
pub use send::XdpSender;

use super::LiveOptions;
use super::bpf::{Count, Sockets, XdpMode};
use super::card::Card;
use super::interface::Interface;
use super::socket::{self, Socket};
use crate::{Next, Notice, Progress, RawBlock, RawPacket, Source, SourceError};
use bytes::Bytes;
use flame_abi::{LinkType, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS};
use flame_plan::Discipline;
use program::Redirect;
use queue::{AT_ONCE, Queue, Shape};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The memory of all queues together, unless they have the fewest frames that a queue needs.
const MEMORY: usize = 64 << 20;
const LEAST_FRAMES: usize = 4096;
/// Time for which packets are left to gather in the rings. A queue has room for those of two million a
/// second at least.
const GATHER: Duration = Duration::from_millis(2);
/// Time after the removal of the program in which packets may still arrive.
const LAST_PACKETS: Duration = Duration::from_millis(50);
/// Interval of checks of the state of the interface.
const STATE_CHECK: Duration = Duration::from_millis(200);
/// The longest time between reception and delivery. A stated time that lies further back, or in the future,
/// was not written by the program.
const LATEST_NS: u64 = 60_000_000_000;
/// Ethernet header and two VLAN tags, which the MTU does not count.
const HEADERS: usize = 14 + 2 * 4;

/// The manner in which an interface is captured by AF_XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    pub mode: XdpMode,
    /// Whether the card writes packets to the sockets' memory itself.
    pub is_zero_copy: bool,
    pub queues: usize,
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        };
        let copy = if self.is_zero_copy { "zero-copy" } else { "copy" };
        let plural = if self.queues == 1 { "" } else { "s" };
        write!(f, "AF_XDP ({mode}, {copy}, {} queue{plural})", self.queues)
    }
}

/// An interface that is being captured. The fields are dropped in this order: first, packets take their usual
/// way again.
pub struct Xdp {
    redirect: Option<Redirect>,
    queues: Vec<Queue>,
    polled: Vec<libc::pollfd>,
    /// Makes the interface promiscuous, and is asked about its state.
    socket: Socket,
    interface: String,
    index: i32,
    mode: XdpMode,
    snaplen: usize,
    timeout_ms: u32,
    /// The longest packet.
    room: usize,
    pool: Pool,
    bytes: u64,
    /// Whether the last block was full, so that there may be more packets.
    is_more: bool,
    /// Changes of state that were not reported yet.
    notices: VecDeque<Notice>,
    is_down: bool,
    looked: Instant,
    closing: Option<Instant>,
}

/// Buffers of blocks. One is used again when its block was dropped.
#[derive(Default)]
struct Pool(Vec<Arc<Vec<u8>>>);

struct Held(Arc<Vec<u8>>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Pool {
    /// Takes a buffer without other holders.
    fn take(&mut self) -> Arc<Vec<u8>> {
        let free = self.0.iter_mut().position(|buffer| Arc::get_mut(buffer).is_some());
        free.map_or_else(|| Arc::new(vec![0; MAX_BLOCK_BYTES]), |at| self.0.swap_remove(at))
    }
}

/// Returns the frames that packets of an interface need.
pub fn chunk(card: &Card) -> io::Result<Chunk> {
    let mtu = card.mtu()?;
    Chunk::of(mtu as usize + HEADERS).ok_or_else(|| {
        let most = Chunk::Page.room() - HEADERS;
        io::Error::other(format!("packets have up to {mtu} bytes (MTU), AF_XDP has room for {most}"))
    })
}

/// Adds the remedy to an error of the kernel's.
fn explained(error: io::Error) -> io::Error {
    let text = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run as root or with CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF; a node that has given them up opens \
             an interface by AF_XDP at its start only"
        }
        io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists => {
            "another XDP program or socket has it: `ip link show`"
        }
        io::ErrorKind::InvalidInput => "AF_XDP needs Linux 5.9, and a driver that can do it",
        _ if error.raw_os_error() == Some(libc::ERANGE) => {
            "the MTU of the interface or its peer is too large for XDP"
        }
        _ if error.raw_os_error() == Some(libc::ENOSPC) => {
            "a veth interface needs as many receive queues as its peer has transmit queues: `ethtool -L`"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error} ({text})"))
}

/// Returns the error of a step of the opening of an interface.
fn failed(interface: &str, step: &str, error: io::Error) -> SourceError {
    let place = format!("interface {interface}: AF_XDP: {step}");
    SourceError::Io { place, error: explained(error) }
}

/// An interface that AF_XDP can have.
struct Found {
    /// Is asked about its state.
    socket: Socket,
    index: i32,
    card: Card,
    chunk: Chunk,
}

/// Looks for an interface, and checks that its packets are such as AF_XDP can have.
fn find(interface: &Interface) -> Result<Found, SourceError> {
    let io = |step: &str, error| failed(interface.name(), step, error);
    if interface.is_all() {
        return Err(io("opening", io::Error::other("it takes one interface, not all")));
    }
    let (socket, link) = socket::open_to_send(interface)?;
    if link.link != LinkType::ETHERNET {
        return Err(io("opening", io::Error::other("it takes Ethernet only")));
    }
    let card = Card::open(interface.name()).map_err(|e| io("opening", e))?;
    let card = card.by_number(link.index);
    let chunk = chunk(&card).map_err(|e| io("frames", e))?;
    Ok(Found { socket, index: link.index, card, chunk })
}

/// Attaches the program to an interface with at most `count` queues, whose packets go their usual way until
/// their sockets are entered, or are dropped and counted in `dropped`. The driver's part is used where there
/// is one, unless `is_generic`.
fn attach(
    index: i32,
    count: u32,
    dropped: Option<&Count>,
    is_generic: bool,
) -> io::Result<(Sockets, Redirect, XdpMode)> {
    let sockets = Sockets::new(count)?;
    let attach = |mode| Redirect::new(index as u32, &sockets, dropped, mode).map(|redirect| (redirect, mode));
    let native = if is_generic { Err(unsupported()) } else { attach(XdpMode::Native) };
    let (redirect, mode) = match native {
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => attach(XdpMode::Generic),
        attached => attached,
    }?;
    Ok((sockets, redirect, mode))
}

/// Returns the number of frames of each of `count` queues, which have `bytes` bytes together unless those are
/// too few.
fn frames(bytes: usize, chunk: Chunk, count: u32) -> u32 {
    1 << (bytes / chunk.bytes() / count as usize).max(LEAST_FRAMES).ilog2()
}

/// The reading of two clocks at the same time.
#[derive(Clone, Copy)]
struct Clocks {
    monotonic: u64,
    since_1970: u64,
}

impl Clocks {
    fn read() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Self { monotonic: queue::monotonic_ns(), since_1970 }
    }

    /// Returns the time of a packet in nanoseconds since 1970. Without a stamp, it is the time of the
    /// reading.
    fn time_of(self, stamp: u64) -> u64 {
        let age = self.monotonic.checked_sub(stamp).filter(|age| *age < LATEST_NS).unwrap_or(0);
        self.since_1970.saturating_sub(age)
    }
}

/// Opens all queues of an interface. The driver's part is used where there is one, unless `is_generic`.
///
/// # Errors
///
/// Returns an error without the rights, or if the interface cannot be captured in this way.
pub fn open(interface: &Interface, options: &LiveOptions, is_generic: bool) -> Result<Xdp, SourceError> {
    let io = |step: &str, error| failed(interface.name(), step, error);
    if options.hardware_timestamps {
        let text = "its packets have the kernel's time, not the card's: leave out --hardware-timestamps";
        return Err(io("opening", io::Error::other(text)));
    }
    let Found { socket, index, card, chunk } = find(interface)?;
    let count = card.queues().map_err(|e| io("queues", e))?;
    let (sockets, redirect, mode) = attach(index, count, None, is_generic).map_err(|e| io("program", e))?;
    let may_share = mode == XdpMode::Native;
    let shape = Shape { chunk, frames: frames(MEMORY, chunk, count), to_send: 0, may_share };
    let mut queues = Vec::with_capacity(count as usize);
    for number in 0..count {
        let queue = Queue::open(index as u32, number, shape);
        let queue = queue.map_err(|e| io(&format!("queue {number}"), e))?;
        sockets.set(number, queue.fd()).map_err(|e| io(&format!("queue {number}"), e))?;
        queues.push(queue);
    }
    if options.promiscuous {
        socket.be_promiscuous(index).map_err(|e| io("promiscuous mode", e))?;
    }
    Ok(Xdp {
        redirect: Some(redirect),
        polled: queues.iter().map(Queue::polled).collect(),
        queues,
        socket,
        interface: interface.name().to_owned(),
        index,
        mode,
        snaplen: options.snaplen.max(1) as usize,
        timeout_ms: options.timeout_ms.max(1),
        room: chunk.room(),
        pool: Pool::default(),
        bytes: 0,
        is_more: false,
        notices: VecDeque::new(),
        is_down: false,
        looked: Instant::now(),
        closing: None,
    })
}

fn unsupported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

impl Xdp {
    pub fn manner(&self) -> Manner {
        let is_zero_copy = self.queues.iter().any(Queue::is_zero_copy);
        Manner { mode: self.mode, is_zero_copy, queues: self.queues.len() }
    }

    /// Reports `text` to the operator at the start.
    pub fn announce(&mut self, text: String) {
        self.notices.push_back(Notice::Way(text));
    }

    /// Copies the packets that have arrived into `buffer`, from `used` on. Returns the number of bytes in use
    /// then, and whether the block is full.
    fn gather(&mut self, buffer: &mut [u8], mut used: usize, packets: &mut Vec<RawPacket>) -> (usize, bool) {
        let clocks = Clocks::read();
        let (snaplen, most) = (self.snaplen, buffer.len() - AT_ONCE * self.room);
        let (first, mut is_full) = (packets.len(), false);
        for queue in &mut self.queues {
            let mut taken = AT_ONCE;
            while taken == AT_ONCE && !is_full {
                taken = queue.take(AT_ONCE, |bytes, stamp| {
                    let kept = &bytes[..bytes.len().min(snaplen)];
                    buffer[used..used + kept.len()].copy_from_slice(kept);
                    packets.push(RawPacket {
                        ts_ns: clocks.time_of(stamp),
                        offset: used as u32,
                        cap_len: kept.len() as u32,
                        wire_len: bytes.len() as u32,
                        link: LinkType::ETHERNET,
                    });
                    used += kept.len();
                });
                is_full = packets.len() + AT_ONCE > MAX_BLOCK_PACKETS || used > most;
            }
        }
        if self.queues.len() > 1 {
            packets[first..].sort_unstable_by_key(|packet| (packet.ts_ns, packet.offset));
        }
        (used, is_full)
    }

    /// Fills a block, or waits for packets.
    fn fill(&mut self, buffer: &mut [u8], packets: &mut Vec<RawPacket>) -> Result<Next, SourceError> {
        let (mut used, mut since) = (0, None);
        loop {
            (used, self.is_more) = self.gather(buffer, used, packets);
            self.look()?;
            if packets.is_empty() {
                match self.closing {
                    // A packet may have been on its way to a socket when the program was removed.
                    Some(since) if since.elapsed() > LAST_PACKETS => return Ok(Next::End),
                    Some(_) => std::thread::sleep(GATHER),
                    _ if self.is_down => std::thread::sleep(Duration::from_millis(self.timeout_ms.into())),
                    _ if queue::wait(&mut self.polled, self.timeout_ms) => continue,
                    _ => {}
                }
                return Ok(Next::Idle);
            }
            let since = *since.get_or_insert_with(Instant::now);
            let is_late = since.elapsed() >= Duration::from_millis(self.timeout_ms.into());
            if self.is_more || is_late || self.closing.is_some() {
                self.bytes += used as u64;
                return Ok(Next::Packets);
            }
            std::thread::sleep(GATHER);
            queue::wait(&mut self.polled, 0);
        }
    }

    /// Looks now and then whether the interface is up, or was removed.
    fn look(&mut self) -> Result<(), SourceError> {
        if self.looked.elapsed() < STATE_CHECK {
            return Ok(());
        }
        self.looked = Instant::now();
        let is_up = self.socket.is_up(self.index);
        let is_up = is_up.map_err(|e| socket::lost(&self.interface, e))?;
        if is_up == self.is_down {
            self.is_down = !is_up;
            let notice = if is_up { Notice::up } else { Notice::down };
            self.notices.push_back(notice(&self.interface));
        }
        Ok(())
    }
}

impl Source for Xdp {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        block.packets.clear();
        block.data = Bytes::new();
        block.shared_offset = None;
        let mut buffer = self.pool.take();
        let result = match Arc::get_mut(&mut buffer) {
            Some(bytes) => self.fill(bytes, &mut block.packets),
            None => Ok(Next::Idle),
        };
        self.pool.0.push(buffer.clone());
        if matches!(result, Ok(Next::Packets)) {
            block.data = Bytes::from_owner(Held(buffer));
        }
        result
    }

    fn discipline(&self) -> Discipline {
        Discipline::Link
    }

    fn is_ready(&self) -> bool {
        self.is_more || self.queues.iter().any(Queue::is_ready)
    }

    fn progress(&self) -> Progress {
        let kernel_drops = self.queues.iter().map(Queue::drops).sum();
        Progress { bytes: self.bytes, total: None, kernel_drops: Some(kernel_drops) }
    }

    fn close(&mut self) -> bool {
        // From now on, packets take their usual way.
        self.redirect = None;
        self.closing.get_or_insert_with(Instant::now);
        true
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}
