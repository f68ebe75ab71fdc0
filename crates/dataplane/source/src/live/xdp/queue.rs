#![allow(unsafe_code)] // Lends memory to the kernel, and reads its clock.

//! One receive queue: a socket, and the frames that the kernel writes packets to.

use crate::live::fetch::fetch;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use xdp::slab::{Slab, StackSlab};
use xdp::socket::{OptName, SocketError, XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{CompletionRing, Packet, RingConfigBuilder, RxRing, Umem, WakableFillRing};

/// The bytes before a packet: the time of its reception, which the program writes.
pub const STAMP: usize = 8;
/// The most packets that are taken from the ring at once.
pub const AT_ONCE: usize = 64;
/// The kernel's own room before a packet (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;

// linux/if_xdp.h
const SOL_XDP: libc::c_int = 283;
const XDP_OPTIONS: libc::c_int = 8;
const OPTIONS_ZEROCOPY: u32 = 1;

/// The size of a frame of a queue's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    Half,
    Page,
}

impl Chunk {
    /// Returns the smallest frame with room for packets of `bytes` bytes.
    pub fn of(bytes: usize) -> Option<Self> {
        [Self::Half, Self::Page].into_iter().find(|chunk| bytes <= chunk.room())
    }

    pub fn bytes(self) -> usize {
        match self {
            Self::Half => 2048,
            Self::Page => 4096,
        }
    }

    /// Returns the number of bytes of a packet for which a frame has room.
    pub fn room(self) -> usize {
        self.bytes() - HEADROOM - STAMP
    }
}

/// A socket bound to a receive queue. The fields are dropped in this order: the memory after its users.
pub struct Queue {
    received: RxRing,
    free: WakableFillRing,
    completed: CompletionRing,
    socket: XdpSocket,
    memory: Umem,
    chunk: Chunk,
    /// The address of the memory.
    base: usize,
}

// SAFETY: the rings and the memory belong to this value alone, and no thread has state for them.
unsafe impl Send for Queue {}

/// A frame of a queue's memory, for a packet to send.
pub struct Frame(Packet);

// SAFETY: the memory that it is part of may be used from any thread, by one at a time.
unsafe impl Send for Frame {}

impl Deref for Frame {
    type Target = Packet;
    fn deref(&self) -> &Packet {
        &self.0
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut Packet {
        &mut self.0
    }
}

/// The properties of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub chunk: Chunk,
    /// The number of frames for received packets, a power of two.
    pub frames: u32,
    /// The number of frames for packets to send.
    pub to_send: u32,
    /// Whether the card may write to the frames itself.
    pub may_share: bool,
}

/// Room for a part of [`AT_ONCE`] packets.
struct Limited {
    slab: StackSlab<AT_ONCE>,
    most: usize,
}

impl Slab for Limited {
    fn available(&self) -> usize {
        self.most - self.slab.len()
    }

    fn len(&self) -> usize {
        self.slab.len()
    }

    fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    fn push_front(&mut self, packet: Packet) -> Option<Packet> {
        self.slab.push_front(packet)
    }

    fn pop_back(&mut self) -> Option<Packet> {
        self.slab.pop_back()
    }
}

/// Returns the kernel's error, with the step that failed.
fn failed(error: SocketError) -> io::Error {
    let (step, error) = match error {
        SocketError::SocketCreation(error) => ("socket".to_owned(), error),
        SocketError::Bind(error) => ("bind".to_owned(), error),
        SocketError::RingMap { inner, ring } => (format!("mapping the {ring:?} ring"), inner),
        SocketError::SetSockOpt { inner, option: OptName::UmemRegion }
            if inner.raw_os_error() == Some(libc::ENOBUFS) =>
        {
            let text = "the limit of locked memory is too low: `ulimit -l unlimited`, LimitMEMLOCK=infinity \
                        of the unit, or CAP_IPC_LOCK";
            ("memory".to_owned(), io::Error::other(text))
        }
        SocketError::SetSockOpt { inner, option } | SocketError::GetSockOpt { inner, option } => {
            (format!("{option:?}"), inner)
        }
    };
    io::Error::new(error.kind(), format!("{step}: {error}"))
}

impl Queue {
    /// Opens a socket for queue `number` of interface `interface`.
    pub fn open(interface: u32, number: u32, shape: Shape) -> io::Result<Self> {
        let Shape { chunk, frames, to_send, may_share } = shape;
        let frame_size = match chunk {
            Chunk::Half => FrameSize::TwoK,
            Chunk::Page => FrameSize::FourK,
        };
        let head_room = STAMP as u32;
        // One more, which is spent to learn the address of the memory.
        let frame_count = frames + to_send + 1;
        let memory = UmemCfgBuilder { frame_size, head_room, frame_count, ..Default::default() };
        let memory = memory.build().map_err(|e| io::Error::other(e.to_string()))?;
        let mut memory = Umem::map(memory)?;
        // SAFETY: `memory` lives until the end of this function.
        let first = unsafe { memory.alloc() }.ok_or_else(|| io::Error::other("no frame"))?;
        let address = first.as_ptr() as usize;
        let base = address - xdp::libc::xdp::xdp_desc::from(first).addr as usize;
        // With room for all frames, no ring is ever the reason for a loss.
        let completion_count = to_send.next_power_of_two().max(2);
        let rings = RingConfigBuilder { rx_count: frames, tx_count: 0, fill_count: frames, completion_count };
        let rings = rings.build().map_err(|e| io::Error::other(e.to_string()))?;
        let mut builder = XdpSocketBuilder::new().map_err(failed)?;
        // The kernel may rest until it is woken up, which `poll` does.
        let (rings, mut flags) = builder.build_wakable_rings(&memory, rings).map_err(failed)?;
        let (Some(received), mut free) = (rings.rx_ring, rings.fill_ring) else {
            return Err(io::Error::other("the kernel gave no ring"));
        };
        if !may_share {
            flags.force_copy();
        }
        // SAFETY: `memory` lives in the same value as the socket, after which it is dropped.
        unsafe { free.enqueue(&mut memory, frames as usize, false) }?;
        let socket = builder.bind(xdp::nic::NicIndex::new(interface), number, flags).map_err(failed)?;
        Ok(Self { received, free, completed: rings.completion_ring, socket, memory, chunk, base })
    }

    pub fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// Returns a frame for a packet to send, if one is free. It is part of the memory of this queue, which
    /// must outlive it.
    pub fn lend(&mut self) -> Option<Frame> {
        // SAFETY: the caller holds the queue for as long as the frame, and frames have no other users.
        unsafe { self.memory.alloc() }.map(Frame)
    }

    /// Takes a frame back that was lent, and that the kernel does not have.
    pub fn give_back(&mut self, Frame(packet): Frame) {
        self.memory.free_packet(packet);
    }

    /// Returns the offset of a packet in the memory, by which the kernel knows it.
    pub fn offset(&self, packet: &Packet) -> u64 {
        (packet.as_ptr() as usize - self.base) as u64
    }

    /// Frees the frames whose packets the kernel has sent.
    pub fn complete(&mut self) {
        while self.completed.dequeue(&mut self.memory, AT_ONCE) > 0 {}
    }

    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Returns whether the card writes to the frames itself.
    pub fn is_zero_copy(&self) -> bool {
        let (mut options, mut size) = (0_u32, size_of::<u32>() as libc::socklen_t);
        // SAFETY: the kernel writes at most `size` bytes, a number, into `options`.
        let result = unsafe {
            libc::getsockopt(self.fd(), SOL_XDP, XDP_OPTIONS, (&raw mut options).cast(), &mut size)
        };
        result == 0 && options & OPTIONS_ZEROCOPY != 0
    }

    /// Gives the packets that have arrived to `each`, at most `most` and [`AT_ONCE`], with the reading of the
    /// kernel's clock that the program left, or 0. Returns how many there were. Their frames are free again.
    pub fn take(&mut self, most: usize, mut each: impl FnMut(&[u8], u64)) -> usize {
        let mut slab = Limited { slab: StackSlab::new(), most: most.min(AT_ONCE) };
        // SAFETY: no packet outlives this call, nor `memory`.
        let count = unsafe { self.received.recv(&self.memory, &mut slab) };
        let mut packets = [const { None }; AT_ONCE];
        for place in &mut packets[..count.min(AT_ONCE)] {
            let next = slab.pop_back();
            next.iter().for_each(|packet| fetch(packet.as_ptr().wrapping_sub(STAMP)));
            *place = next;
        }
        for mut packet in packets.into_iter().map_while(|packet| packet) {
            if packet.adjust_head(-(STAMP as i32)).is_ok()
                && let Some((stamp, bytes)) = packet.split_first_chunk_mut::<STAMP>()
            {
                // A later packet in this frame may get none.
                let stated = u64::from_ne_bytes(std::mem::take(stamp));
                each(bytes, stated);
            }
            self.memory.free_packet(packet);
        }
        if count > 0 {
            // Without a wake-up, there is no system call, and no error.
            // SAFETY: as in `open`.
            let _ = unsafe { self.free.enqueue(&mut self.memory, count, false) };
        }
        count
    }

    /// Returns whether packets have arrived.
    pub fn is_ready(&self) -> bool {
        wait(&mut [self.polled()], 0)
    }

    /// Returns the request for [`wait`].
    pub fn polled(&self) -> libc::pollfd {
        libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 }
    }

    /// Returns the number of packets so far for which there was no frame, or which did not fit in one.
    pub fn drops(&self) -> u64 {
        self.socket.statistics().map_or(0, |s| s.rx_dropped + s.rx_ring_full)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket is open as long as the queue, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }
}

/// Waits until one of `sockets` has packets, or the time is up, and lets the kernel refill its queues.
/// Returns whether one has.
pub fn wait(sockets: &mut [libc::pollfd], timeout_ms: u32) -> bool {
    // SAFETY: whole structures, whose number is stated; the kernel writes `revents`.
    let n = unsafe { libc::poll(sockets.as_mut_ptr(), sockets.len() as libc::nfds_t, timeout_ms as i32) };
    // A signal (EINTR) is a reason to check again, not an error.
    n > 0
}

/// Returns the time since the start of the machine in nanoseconds, which the program writes.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time to this place. Every kernel has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
