#![allow(unsafe_code)] // Lends memory to the kernel, and reads its clock.

//! One receive queue: a socket, and the frames that the kernel writes packets to.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use xdp::slab::{Slab, StackSlab};
use xdp::socket::{OptName, SocketError, XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{CompletionRing, RingConfigBuilder, RxRing, Umem, WakableFillRing};

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
    _completed: CompletionRing,
    socket: XdpSocket,
    memory: Umem,
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
    /// Opens a socket for queue `number` of interface `interface`, with `frames` frames, a power of two.
    pub fn open(interface: u32, number: u32, chunk: Chunk, frames: u32, may_share: bool) -> io::Result<Self> {
        let frame_size = match chunk {
            Chunk::Half => FrameSize::TwoK,
            Chunk::Page => FrameSize::FourK,
        };
        let head_room = STAMP as u32;
        let memory = UmemCfgBuilder { frame_size, head_room, frame_count: frames, ..Default::default() };
        let memory = memory.build().map_err(|e| io::Error::other(e.to_string()))?;
        let mut memory = Umem::map(memory)?;
        // With room for all frames, neither ring is ever the reason for a loss.
        let rings =
            RingConfigBuilder { rx_count: frames, tx_count: 0, fill_count: frames, completion_count: 2 };
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
        Ok(Self { received, free, _completed: rings.completion_ring, socket, memory })
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

    /// Gives the packets that have arrived to `each`, at most [`AT_ONCE`], with the reading of the kernel's
    /// clock that the program left, or 0. Returns how many there were. Their frames are free again.
    pub fn take(&mut self, mut each: impl FnMut(&[u8], u64)) -> usize {
        let mut slab = StackSlab::<AT_ONCE>::new();
        // SAFETY: no packet outlives this call, nor `memory`.
        let count = unsafe { self.received.recv(&self.memory, &mut slab) };
        while let Some(mut packet) = slab.pop_back() {
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
