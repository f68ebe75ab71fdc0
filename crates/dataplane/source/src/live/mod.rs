//! live: captures an interface through an AF_PACKET ring (TPACKET_V3), or by AF_XDP.
//!
//! Usage:    -i INTERFACE, or -i any for all of them, -s BYTES, -p (not promiscuous),
//!           --capture auto, packet, xdp or xdp-generic, --hardware-timestamps, --workers N; on a node,
//!           [sources.NAME] with interface = "INTERFACE"
//! Expects:  Linux, and CAP_NET_RAW or root; for AF_XDP also CAP_NET_ADMIN and CAP_BPF.
//! Gives:    packets in the memory of the kernel, without a copy, until Ctrl-C. Packets that nobody takes in
//!           time are dropped by the kernel and counted. With several workers the kernel assigns each flow to
//!           one of them. An interface that goes down is waited for; one that is removed ends the run with
//!           status 1, after all packets that arrived. With any, packets have a cooked header (LINUX_SLL2),
//!           and interfaces are not promiscuous. AF_XDP takes the received packets away from this machine's
//!           own stack and from other captures: --capture auto uses it only if the driver has
//!           native XDP and leaves VLAN tags in the frames, and nobody else uses the interface: it has no
//!           address, no interface is built on it, and no other program captures it.
//! Example:  flame run flow -i eth0 --workers 2
//! Related:  file

mod bpf;
mod card;
mod choice;
mod deaf;
mod device;
mod fetch;
mod finish;
mod interface;
mod naps;
mod patience;
mod ring;
mod socket;
mod state;
mod xdp;

pub use bpf::XdpMode;
pub use card::{Card, Offload, RingSize, open_tun};
pub use choice::{Capture, Opened, Way, objection, open_by};
pub use device::{DeviceOptions, FrameIn, Receive, Receiver, Sender, Unsent, may_open};
pub use finish::{Unfinishable, Unfinished};
pub use interface::{Interface, interfaces};
pub use patience::Patience;
pub use xdp::{Manner, XdpReceiver, XdpSender};

use crate::{Described, Next, Notice, Progress, RawBlock, RawPacket, Shared, Source, SourceError};
use bytes::Bytes;
use flame_abi::{LinkType, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS, MAX_PACKET};
use flame_plan::Discipline;
use naps::{Nap, RingSleep};
use ring::{Form, Found, Ring, Taken};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The group of a source that shares the packets of an interface with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// A new group, which no other socket on the machine has.
    New,
    /// The group with this number.
    Of(u16),
}

/// Options for capturing an interface.
#[derive(Clone, Copy, Debug)]
pub struct LiveOptions {
    /// Whether to capture packets for other machines, too.
    pub promiscuous: bool,
    /// The number of bytes of each packet that the kernel keeps.
    pub snaplen: u32,
    /// The group that shares the packets of the interface, if there is one. Each flow reaches one member.
    pub fanout: Option<Fanout>,
    /// The size of a block in bytes, a power of two from 128 KiB to 1 MiB.
    pub block_bytes: usize,
    pub blocks: usize,
    /// The time in milliseconds after which a block is returned even if it is not full, and `next` returns.
    pub timeout_ms: u32,
    /// Whether to use the network card's time stamps, where it has them.
    pub hardware_timestamps: bool,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self {
            promiscuous: true,
            snaplen: MAX_PACKET as u32,
            fanout: None,
            block_bytes: MAX_BLOCK_BYTES,
            blocks: 64,
            timeout_ms: 20,
            hardware_timestamps: false,
        }
    }
}

/// An interface that is being captured.
///
/// Members of a fanout group receive no packet before the first [`Source::next`]: a socket that is bound but
/// has not joined yet would receive every flow. When a capture is closed, or its interface disappears,
/// packets that the kernel holds are returned first (packet(7), `packet_mmap` in the kernel's documentation).
pub struct Live {
    interface: String,
    ring: Arc<Ring>,
    link: LinkType,
    /// The number of the interface.
    index: i32,
    state: State,
    /// A change of state that was not reported yet.
    notice: Option<Notice>,
    timeout_ms: u32,
    snaplen: u32,
    /// Whether packets are kept out until the whole group has joined.
    gated: bool,
    closing: Option<Closing>,
    /// The index of the next block.
    head: usize,
    /// The number of blocks from there on that are known to wait.
    waiting: AtomicUsize,
    sleep: RingSleep,
    /// The block of which packets are left.
    current: Option<Taken>,
    bytes: u64,
    /// Whether the kernel need not be asked for its drops, since packets of the same block follow. To ask
    /// takes a system call, and a lock that the reception needs.
    is_inside: AtomicBool,
    drops: AtomicU64,
}

/// The state of an interface.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It was not found up yet. A capture does not begin on an interface that is down.
    Unknown,
    Up,
    Down,
}

/// The end of a capture, after which no further packet arrives.
struct Closing {
    /// The time by which the kernel has handed over the block that it was filling.
    until: Instant,
    /// The error that ended the capture, unless it was closed.
    error: Option<std::io::Error>,
}

/// Opens `interface`.
///
/// # Errors
///
/// Returns an error without CAP_NET_RAW, or if there is no such interface or it cannot be captured.
pub fn open(interface: &str, options: &LiveOptions) -> Result<Live, SourceError> {
    open_found(&Interface::find(interface)?, options)
}

fn open_found(interface: &Interface, options: &LiveOptions) -> Result<Live, SourceError> {
    let name = interface.name();
    let io = |step: &str, error| SourceError::Io { place: format!("interface {name}: {step}"), error };
    let (socket, link) = socket::open(interface, options, socket::Use::Capture)?;
    let form = if interface.is_all() { Form::Cooked } else { Form::Plain };
    let ring = Ring::new(socket, form, options.block_bytes, options.blocks)
        .map_err(|e| io("mapping the ring", e))?;
    Ok(Live {
        interface: name.to_owned(),
        index: link.index,
        state: State::Unknown,
        notice: None,
        link: link.link,
        sleep: RingSleep::new(ring.blocks(), ring.bytes()),
        ring: Arc::new(ring),
        timeout_ms: options.timeout_ms,
        snaplen: options.snaplen,
        gated: options.fanout.is_some(),
        closing: None,
        head: 0,
        waiting: AtomicUsize::new(0),
        current: None,
        bytes: 0,
        is_inside: AtomicBool::new(false),
        drops: AtomicU64::new(0),
    })
}

/// Opens an interface for several readers, a group of their own: each flow reaches one of them.
///
/// # Errors
///
/// Returns the errors of [`open`].
pub fn open_group(
    interface: &Interface,
    options: &LiveOptions,
    members: usize,
) -> Result<Vec<Live>, SourceError> {
    let mut group: Vec<Live> = Vec::with_capacity(members);
    for _ in 0..members {
        let fanout = match group.first() {
            None => Fanout::New,
            Some(first) => Fanout::Of(first.group()?),
        };
        group.push(open_found(interface, &LiveOptions { fanout: Some(fanout), ..*options })?);
    }
    Ok(group)
}

impl Live {
    /// Returns the number of the group of which it is a member.
    fn group(&self) -> Result<u16, SourceError> {
        let place = || format!("interface {}: PACKET_FANOUT", self.interface);
        self.ring.socket().group().map_err(|error| SourceError::Io { place: place(), error })
    }

    /// Waits for the next block. Returns `None` if it is ready, or the result of [`Source::next`] otherwise.
    fn wait(&mut self) -> Result<Option<Next>, SourceError> {
        if self.gated {
            self.ring.socket().admit(self.snaplen).map_err(|e| socket::lost(&self.interface, e))?;
            self.gated = false;
        }
        while !self.ring.is_ready(self.head) {
            let Some(closing) = &mut self.closing else {
                match self.sleep.wait(|| waiting(&self.ring, self.head, 0), naps::park) {
                    Nap::Ready => return Ok(None),
                    Nap::Ended => return Ok(Some(Next::Idle)),
                    Nap::Unforeseen => {}
                }
                let begun = Instant::now();
                let waited = self.ring.socket().wait(self.timeout_ms);
                self.sleep.polled(self.ring.is_ready(self.head).then(|| begun.elapsed()));
                if let Err(error) = waited.and_then(|()| self.look()).or_else(|error| self.went_down(error)) {
                    self.end(Some(error));
                    continue;
                }
                return Ok((!self.ring.is_ready(self.head)).then_some(Next::Idle));
            };
            let left = closing.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let error = closing.error.take();
                return error.map_or(Ok(Some(Next::End)), |e| Err(socket::lost(&self.interface, e)));
            }
            std::thread::sleep(left.min(Duration::from_millis(5)));
        }
        Ok(None)
    }

    /// Checks whether an interface that went down is up again, or was removed.
    fn look(&mut self) -> std::io::Result<()> {
        match self.state {
            State::Up => {}
            State::Unknown => self.state = State::Up,
            State::Down if self.is_still_up()? => {
                self.state = State::Up;
                self.notice = Some(Notice::up(&self.interface));
            }
            State::Down => {}
        }
        Ok(())
    }

    /// Returns whether the interface of the socket is up, or an error if it was removed. Only sockets of
    /// Ethernet tell their own interface from another one that has its number now.
    fn is_still_up(&self) -> std::io::Result<bool> {
        match self.link {
            LinkType::ETHERNET => self.ring.socket().is_still_up(),
            _ => self.ring.socket().is_up(self.index),
        }
    }

    /// Waits from now on for an interface that went down, if that is the error. The kernel resumes the
    /// capture when it is up again.
    fn went_down(&mut self, error: std::io::Error) -> std::io::Result<()> {
        if error.raw_os_error() != Some(libc::ENETDOWN) || self.state == State::Unknown {
            return Err(error);
        }
        if self.state == State::Up {
            self.state = State::Down;
            self.notice = Some(Notice::down(&self.interface));
        }
        Ok(())
    }

    fn end(&mut self, error: Option<std::io::Error>) {
        // A block is retired at the latest at the second timeout after its first packet.
        let held_back = Duration::from_millis(u64::from(self.timeout_ms.max(1)) * 3);
        self.closing.get_or_insert(Closing { until: Instant::now() + held_back, error });
    }

    /// Replaces the contents of `block`, and gives the bytes of each packet to `each`.
    fn fill_block(
        &mut self,
        block: &mut RawBlock,
        mut each: impl FnMut(&[u8], RawPacket),
    ) -> Result<Next, SourceError> {
        block.packets.clear();
        block.data = Bytes::new();
        block.shared_offset = None;
        if self.current.is_none() {
            if let Some(other) = self.wait()? {
                return Ok(other);
            }
            if self.state == State::Unknown {
                self.state = State::Up;
            }
            self.current = Some(Ring::take(&self.ring, self.head));
            self.head = (self.head + 1) % self.ring.blocks();
            let waiting = self.waiting.load(Ordering::Relaxed);
            self.waiting.store(waiting.saturating_sub(1), Ordering::Relaxed);
        }
        let Some(mut taken) = self.current.take() else { return Ok(Next::Idle) };
        let (mut packets, mut captured, link) = (0, 0, self.link);
        let (data, at) = taken.part(|bytes, found| {
            if !found.is_copy {
                let Found { ts_ns, offset, cap_len, wire_len, .. } = found;
                packets += 1;
                captured += cap_len as usize;
                let packet = RawPacket { ts_ns, offset, cap_len, wire_len, link };
                each(&bytes[offset as usize..(offset + cap_len) as usize], packet);
            }
            packets < MAX_BLOCK_PACKETS && captured < MAX_BLOCK_BYTES
        });
        self.bytes += captured as u64;
        block.data = data;
        block.shared_offset = Some(at as u64);
        self.current = Some(taken).filter(|taken| !taken.is_over());
        self.is_inside = AtomicBool::new(self.current.is_some());
        if packets == 0 {
            block.data = Bytes::new();
            return Ok(Next::Idle);
        }
        Ok(Next::Packets)
    }
}

/// Returns the number of a ring's blocks that may wait without a loss. Linux looks for room a quarter of the
/// ring ahead; without room, it looks at the current block, without a lock, and drops a packet that
/// arrives while its timer hands that block over (`packet_rcv_has_room` in `net/packet/af_packet.c`).
fn room(blocks: usize) -> usize {
    (blocks * 3 / 4).max(1)
}

/// Returns the number of blocks from `head` on that are ready, of which `known` are known to be.
fn waiting(ring: &Ring, head: usize, known: usize) -> usize {
    let blocks = ring.blocks();
    (known..blocks).find(|n| !ring.is_ready((head + n) % blocks)).unwrap_or(blocks)
}

impl Source for Live {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        let mut packets = std::mem::take(&mut block.packets);
        packets.clear();
        let next = self.fill_block(block, |_, packet| packets.push(packet));
        block.packets = packets;
        next
    }

    fn describe(
        &mut self,
        block: &mut RawBlock,
        described: &mut Described,
        options: flame_decode::Options,
    ) -> Result<Next, SourceError> {
        // The headers of the ring and of the packets come from memory together, not one after the other.
        described.clear();
        let mut decoding = described.decoding(self.link, MAX_BLOCK_PACKETS, options);
        self.fill_block(block, |bytes, packet| decoding.decode(packet, bytes))
    }

    fn discipline(&self) -> Discipline {
        Discipline::Link
    }

    fn fill(&self) -> u32 {
        // Those that waited before still do.
        let waiting = waiting(&self.ring, self.head, self.waiting.load(Ordering::Relaxed));
        self.waiting.store(waiting, Ordering::Relaxed);
        (waiting * 1000 / room(self.ring.blocks())).min(1000) as u32
    }

    fn is_ready(&self) -> bool {
        self.current.is_some() || self.ring.is_ready(self.head)
    }

    fn progress(&self) -> Progress {
        // The kernel resets its counter at each read. Without a further block, this may be the end.
        let is_inside = self.is_inside.swap(false, Ordering::Relaxed);
        let new = if is_inside { 0 } else { self.ring.socket().drops() };
        let kernel_drops = self.drops.fetch_add(new, Ordering::Relaxed) + new;
        Progress { bytes: self.bytes, total: None, kernel_drops: Some(kernel_drops) }
    }

    fn close(&mut self) -> bool {
        // If packets were still let in, the end might never be reached.
        let closed = self.ring.socket().cut(0).is_ok();
        if closed {
            self.gated = false;
            self.end(None);
        }
        closed
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.notice.take()
    }

    fn shared(&self) -> Option<Shared> {
        Some(Shared { fd: self.ring.socket().fd(), bytes: self.ring.bytes() })
    }
}
