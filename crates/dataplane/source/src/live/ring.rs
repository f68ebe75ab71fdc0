#![allow(unsafe_code)] // Maps the kernel's ring.

use super::socket::Socket;
use bytes::Bytes;
use flame_abi::MAX_PACKET;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The mapped ring and its socket.
pub struct Ring {
    socket: Socket,
    start: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
}

// SAFETY: the mapping is not tied to a thread; the status word of a block determines its owner.
unsafe impl Send for Ring {}
// SAFETY: as above; the status word is accessed atomically.
unsafe impl Sync for Ring {}

/// Byte offsets in a block's head (struct tpacket_block_desc, tpacket_hdr_v1).
mod block {
    pub const STATUS: usize = 8;
    pub const PACKETS: usize = 12;
    pub const FIRST: usize = 16;
}

/// Byte offsets in a packet's head (struct tpacket3_hdr), which is followed by a struct sockaddr_ll.
mod packet {
    pub const NEXT: usize = 0;
    pub const SEC: usize = 4;
    pub const NSEC: usize = 8;
    pub const CAPTURED: usize = 12;
    pub const LENGTH: usize = 16;
    pub const STATUS: usize = 20;
    pub const MAC: usize = 24;
    pub const VLAN_TCI: usize = 32;
    pub const VLAN_TPID: usize = 36;
    pub const KIND: usize = 48 + 10;
    pub const HEAD: usize = 48 + 20;
}

/// A block that the kernel has handed over. Dropping it returns the block.
struct Held {
    ring: Arc<Ring>,
    index: usize,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: in the mapping, which `ring` keeps; the kernel does not write to a block before
        // it is returned, nor does this process after `Ring::take`.
        unsafe { std::slice::from_raw_parts(self.ring.at(self.index), self.ring.block_bytes) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ring.status(self.index).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Ring {
    pub fn new(socket: Socket, block_bytes: usize, blocks: usize) -> io::Result<Self> {
        // SAFETY: a new mapping of exactly the ring that the socket was given; the result is checked.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                block_bytes * blocks,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { socket, start, block_bytes, blocks })
    }

    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    pub fn blocks(&self) -> usize {
        self.blocks
    }

    pub fn bytes(&self) -> usize {
        self.block_bytes * self.blocks
    }

    pub fn offset(&self, index: usize) -> usize {
        index * self.block_bytes
    }

    fn at(&self, index: usize) -> *mut u8 {
        assert!(index < self.blocks, "block lies in the ring");
        // SAFETY: in the mapping, as just checked.
        unsafe { self.start.as_ptr().add(self.offset(index)) }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: in the block's head, aligned; the kernel and this process access it as one word.
        unsafe { &*self.at(index).add(block::STATUS).cast::<AtomicU32>() }
    }

    /// Returns whether the kernel has handed over block `index`.
    pub fn is_ready(&self, index: usize) -> bool {
        self.status(index).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Takes a ready block. VLAN tags that the network card removed are restored first, so that a block does
    /// not change while it is lent out.
    pub fn take(ring: &Arc<Self>, index: usize) -> (Bytes, Frame) {
        debug_assert!(ring.is_ready(index));
        // SAFETY: the block belongs to this process now, and nothing else refers to it yet.
        let bytes = unsafe { std::slice::from_raw_parts_mut(ring.at(index), ring.block_bytes) };
        let first = Frame { at: word(bytes, block::FIRST) as usize, left: word(bytes, block::PACKETS) };
        let mut frame = first;
        while let Some(at) = frame.step(bytes) {
            restore_tag(bytes, at);
        }
        fence(Ordering::Release);
        (Bytes::from_owner(Held { ring: ring.clone(), index }), first)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped once; no block is held, because each holds an Arc.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]))
}

/// Restores a VLAN tag: moves the two MAC addresses four bytes forward, into the reserve, and writes the tag
/// after them.
fn restore_tag(bytes: &mut [u8], at: usize) {
    const ADDRESSES: usize = 12;
    let status = word(bytes, at + packet::STATUS);
    let (mac, captured) =
        (usize::from(half(bytes, at + packet::MAC)), word(bytes, at + packet::CAPTURED) as usize);
    let start = at + mac;
    let room = mac >= packet::HEAD + 4 && captured >= ADDRESSES && start + captured <= bytes.len();
    if status & libc::TP_STATUS_VLAN_VALID == 0 || !room {
        return;
    }
    let tpid = match half(bytes, at + packet::VLAN_TPID) {
        tpid if tpid != 0 && status & libc::TP_STATUS_VLAN_TPID_VALID != 0 => tpid,
        _ => 0x8100,
    };
    let tci = word(bytes, at + packet::VLAN_TCI) as u16;
    bytes.copy_within(start..start + ADDRESSES, start - 4);
    bytes[start + 8..start + 10].copy_from_slice(&tpid.to_be_bytes());
    bytes[start + 10..start + 12].copy_from_slice(&tci.to_be_bytes());
    bytes[at + packet::MAC..at + packet::MAC + 2].copy_from_slice(&((mac - 4) as u16).to_ne_bytes());
    bytes[at + packet::CAPTURED..at + packet::CAPTURED + 4]
        .copy_from_slice(&((captured + 4) as u32).to_ne_bytes());
    let length = word(bytes, at + packet::LENGTH).saturating_add(4);
    bytes[at + packet::LENGTH..at + packet::LENGTH + 4].copy_from_slice(&length.to_ne_bytes());
}

/// A position in a block: the next packet, and the number of packets left.
#[derive(Clone, Copy)]
pub struct Frame {
    at: usize,
    left: u32,
}

pub struct Found {
    pub ts_ns: u64,
    /// The offset of the packet in the block.
    pub offset: u32,
    pub cap_len: u32,
    pub wire_len: u32,
    pub outgoing: bool,
}

impl Frame {
    pub fn is_last(&self) -> bool {
        self.left == 0
    }

    /// Advances to the next packet and returns the offset of the current one's head.
    fn step(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.left == 0 || self.at + packet::HEAD > bytes.len() {
            self.left = 0;
            return None;
        }
        let at = self.at;
        let next = word(bytes, at + packet::NEXT) as usize;
        self.left = if next == 0 { 0 } else { self.left - 1 };
        self.at = at.saturating_add(next);
        Some(at)
    }

    /// Returns the next packet whose bytes lie in the block.
    pub fn next(&mut self, bytes: &[u8]) -> Option<Found> {
        loop {
            let at = self.step(bytes)?;
            let offset = at + usize::from(half(bytes, at + packet::MAC));
            let captured = word(bytes, at + packet::CAPTURED);
            if offset + captured as usize > bytes.len() {
                continue;
            }
            // Segments that were coalesced (BIG TCP) can be longer than a view has room for.
            let cap_len = captured.min(MAX_PACKET as u32);
            let ts_ns = u64::from(word(bytes, at + packet::SEC)) * 1_000_000_000
                + u64::from(word(bytes, at + packet::NSEC));
            return Some(Found {
                ts_ns,
                offset: offset as u32,
                cap_len,
                wire_len: word(bytes, at + packet::LENGTH).max(captured),
                outgoing: bytes[at + packet::KIND] == libc::PACKET_OUTGOING,
            });
        }
    }
}

// The offsets above are the kernel's and must agree with the declarations of libc.
const _: () = assert!(
    size_of::<libc::tpacket3_hdr>() == 48
        && std::mem::offset_of!(libc::tpacket3_hdr, tp_mac) == packet::MAC
        && std::mem::offset_of!(libc::tpacket3_hdr, tp_status) == packet::STATUS
        && std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype) == packet::KIND - 48
);
