#![allow(unsafe_code)] // Maps the kernel's ring.

//! The ring of packets to send: a socket that has no other ring, and shares the memory of a queue.
//!
//! The socket is one of its own, since a wait for a socket (`poll`) sends what lies in its ring, and would
//! hide the errors of that. The ring is read and written here, and not by the crate `xdp`, which does not
//! state how far the kernel has read: that is the only way to learn which packet it has dropped.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of places, a power of two.
pub const PLACES: u32 = 1024;

/// A packet, as `struct xdp_desc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    length: u32,
    options: u32,
}

/// The ring and its socket.
pub struct SendRing {
    socket: OwnedFd,
    start: NonNull<u8>,
    bytes: usize,
    /// The offsets in the ring.
    at: libc::xdp_ring_offset,
}

// SAFETY: the mapping belongs to this value alone, and no thread has state for it.
unsafe impl Send for SendRing {}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl SendRing {
    /// Opens a socket for packets of the memory that the socket `owner` has, on the same queue.
    pub fn open(interface: u32, number: u32, owner: RawFd) -> io::Result<Self> {
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        check(fd)?;
        // SAFETY: just created, with no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let (places, size) = (PLACES, size_of::<u32>() as libc::socklen_t);
        // SAFETY: the value is a number of `size` bytes.
        check(unsafe {
            libc::setsockopt(fd, libc::SOL_XDP, libc::XDP_TX_RING, (&raw const places).cast(), size)
        })?;
        // SAFETY: all zero is a valid value of this structure of numbers.
        let mut at: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        let mut size = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `size` bytes of numbers into `at`.
        check(unsafe {
            libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, (&raw mut at).cast(), &mut size)
        })?;
        let at = at.tx;
        let bytes = at.desc as usize + PLACES as usize * size_of::<Place>();
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping of the socket's ring; the result is checked.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, libc::XDP_PGOFF_TX_RING) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("no address"))?;
        let ring = Self { socket, start, bytes, at };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_SHARED_UMEM,
            sxdp_ifindex: interface,
            sxdp_queue_id: number,
            sxdp_shared_umem_fd: owner as u32,
        };
        let size = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: a whole address of the socket's family.
        check(unsafe { libc::bind(fd, (&raw const address).cast(), size) })?;
        Ok(ring)
    }

    fn counter(&self, at: u64) -> &AtomicU32 {
        // SAFETY: a number that the kernel has aligned, in the mapping, which `self` keeps. Both sides access
        // it atomically.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at as usize).cast()) }
    }

    /// Returns how many places the kernel has read, modulo 2³².
    pub fn read(&self) -> u32 {
        self.counter(self.at.consumer).load(Ordering::Acquire)
    }

    /// Writes a packet, by its offset in the memory, to place `number`, modulo the number of places.
    pub fn write(&mut self, number: u32, offset: u64, length: usize) {
        let at = self.at.desc as usize + (number % PLACES) as usize * size_of::<Place>();
        let place = Place { offset, length: length as u32, options: 0 };
        // SAFETY: inside the mapping, which has `PLACES` places, aligned by the kernel. It reads a place only
        // in `send` here (and with zero-copy, only after `publish`).
        unsafe { self.start.as_ptr().add(at).cast::<Place>().write(place) }
    }

    /// Gives the kernel all places before `end`, modulo 2³².
    pub fn publish(&self, end: u32) {
        self.counter(self.at.producer).store(end, Ordering::Release);
    }

    /// Makes the kernel send.
    pub fn send(&self) -> io::Result<()> {
        let (fd, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: no bytes and no address are given.
        let sent = unsafe { libc::sendto(fd, std::ptr::null(), 0, flags, std::ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for SendRing {
    fn drop(&mut self) {
        // SAFETY: the mapping of this value, which nothing uses any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
