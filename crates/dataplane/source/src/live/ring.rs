#![allow(unsafe_code)] // Maps the kernel's ring.

use super::finish::{CHECKSUM_START, STATEMENT, Unfinished};
use super::socket::Socket;
use bytes::Bytes;
use flame_abi::MAX_PACKET;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The form in which the kernel hands packets over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    /// Without a link header: they get a cooked one.
    Cooked,
    /// With a statement of the work that is left on a frame.
    Stated,
}

/// The mapped ring and its socket.
pub struct Ring {
    socket: Socket,
    form: Form,
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
    pub const PROTOCOL: usize = 48 + 2;
    pub const INTERFACE: usize = 48 + 4;
    pub const HARDWARE: usize = 48 + 8;
    pub const KIND: usize = 48 + 10;
    pub const ADDRESS_LENGTH: usize = 48 + 11;
    pub const ADDRESS: usize = 48 + 12;
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
    pub fn new(socket: Socket, form: Form, block_bytes: usize, blocks: usize) -> io::Result<Self> {
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
        Ok(Self { socket, form, start, block_bytes, blocks })
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

    /// Returns the number of blocks from `index` on that the kernel has handed over. It fills them in turn,
    /// so only a few are read.
    pub fn ready_from(&self, index: usize) -> usize {
        let (mut ready, mut end) = (0, self.blocks);
        while ready < end {
            let middle = usize::midpoint(ready, end);
            match self.is_ready((index + middle) % self.blocks) {
                true => ready = middle + 1,
                false => end = middle,
            }
        }
        ready
    }

    /// Takes a ready block. VLAN tags that the network card removed are restored and cooked headers are
    /// written first, so that a block does not change while it is lent out.
    pub fn take(ring: &Arc<Self>, index: usize) -> (Bytes, Frame) {
        debug_assert!(ring.is_ready(index));
        // SAFETY: the block belongs to this process now, and nothing else refers to it yet.
        let bytes = unsafe { std::slice::from_raw_parts_mut(ring.at(index), ring.block_bytes) };
        let first = Frame { at: word(bytes, block::FIRST) as usize, left: word(bytes, block::PACKETS) };
        let mut frame = first;
        while let Some(at) = frame.step(bytes) {
            match ring.form {
                Form::Cooked => cook(bytes, at),
                form => restore_tag(bytes, at, if form == Form::Stated { STATEMENT } else { 0 }),
            }
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

/// Restores a VLAN tag: moves the two MAC addresses, and `stated` bytes before them, four bytes forward, into
/// the reserve, and writes the tag after them.
fn restore_tag(bytes: &mut [u8], at: usize, stated: usize) {
    const ADDRESSES: usize = 12;
    let status = word(bytes, at + packet::STATUS);
    let (mac, captured) =
        (usize::from(half(bytes, at + packet::MAC)), word(bytes, at + packet::CAPTURED) as usize);
    let start = at + mac;
    let room = mac >= packet::HEAD + TAG + stated && captured >= ADDRESSES && start + captured <= bytes.len();
    if status & libc::TP_STATUS_VLAN_VALID == 0 || !room {
        return;
    }
    let tpid = match half(bytes, at + packet::VLAN_TPID) {
        tpid if tpid != 0 && status & libc::TP_STATUS_VLAN_TPID_VALID != 0 => tpid,
        _ => 0x8100,
    };
    let tci = word(bytes, at + packet::VLAN_TCI) as u16;
    bytes.copy_within(start - stated..start + ADDRESSES, start - stated - TAG);
    bytes[start + 8..start + 10].copy_from_slice(&tpid.to_be_bytes());
    bytes[start + 10..start + 12].copy_from_slice(&tci.to_be_bytes());
    if stated > 0 {
        let place = start - TAG - STATEMENT + CHECKSUM_START;
        let later = half(bytes, place).saturating_add(TAG as u16);
        bytes[place..place + 2].copy_from_slice(&later.to_ne_bytes());
    }
    grow(bytes, at, TAG);
}

/// The length of a cooked header (LINKTYPE_LINUX_SLL2), and of a VLAN tag.
const COOKED: usize = 20;
const TAG: usize = 4;

/// Writes a cooked header before a packet, into the reserve: from the protocol to the sender's address, then
/// a VLAN tag that was removed.
fn cook(bytes: &mut [u8], at: usize) {
    let status = word(bytes, at + packet::STATUS);
    let (mac, captured) =
        (usize::from(half(bytes, at + packet::MAC)), word(bytes, at + packet::CAPTURED) as usize);
    let start = at + mac;
    let is_tagged = status & libc::TP_STATUS_VLAN_VALID != 0;
    let length = if is_tagged { COOKED + TAG } else { COOKED };
    if mac < packet::HEAD + length || start + captured > bytes.len() {
        return;
    }
    let tpid = match half(bytes, at + packet::VLAN_TPID) {
        tpid if tpid != 0 && status & libc::TP_STATUS_VLAN_TPID_VALID != 0 => tpid,
        _ => 0x8100,
    };
    // The kernel states the protocol in network order, and the other numbers in its own.
    let protocol = [bytes[at + packet::PROTOCOL], bytes[at + packet::PROTOCOL + 1]];
    let mut header = [0; COOKED + TAG];
    header[..2].copy_from_slice(&if is_tagged { tpid.to_be_bytes() } else { protocol });
    header[4..8].copy_from_slice(&word(bytes, at + packet::INTERFACE).to_be_bytes());
    header[8..10].copy_from_slice(&half(bytes, at + packet::HARDWARE).to_be_bytes());
    header[10] = bytes[at + packet::KIND];
    header[11] = bytes[at + packet::ADDRESS_LENGTH];
    header[12..COOKED].copy_from_slice(&bytes[at + packet::ADDRESS..at + packet::HEAD]);
    header[COOKED..COOKED + 2].copy_from_slice(&(word(bytes, at + packet::VLAN_TCI) as u16).to_be_bytes());
    header[COOKED + 2..].copy_from_slice(&protocol);
    bytes[start - length..start].copy_from_slice(&header[..length]);
    grow(bytes, at, length);
}

/// Counts `length` bytes before a packet as its own.
fn grow(bytes: &mut [u8], at: usize, length: usize) {
    let mac = half(bytes, at + packet::MAC) - length as u16;
    bytes[at + packet::MAC..at + packet::MAC + 2].copy_from_slice(&mac.to_ne_bytes());
    for field in [packet::CAPTURED, packet::LENGTH] {
        let longer = word(bytes, at + field).saturating_add(length as u32);
        bytes[at + field..at + field + 4].copy_from_slice(&longer.to_ne_bytes());
    }
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
    /// The bytes that the kernel kept, which may be more than `cap_len`.
    pub captured: u32,
    /// The kernel's `PACKET_HOST` and its kin.
    pub kind: u8,
    /// Whether this is the outgoing one of two copies: a loopback interface shows every packet in both
    /// directions.
    pub is_copy: bool,
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
                captured,
                kind: bytes[at + packet::KIND],
                is_copy: bytes[at + packet::KIND] == libc::PACKET_OUTGOING
                    && half(bytes, at + packet::HARDWARE) == libc::ARPHRD_LOOPBACK,
            });
        }
    }
}

/// Returns the work that is left on a frame, of a ring of the form [`Form::Stated`].
pub fn work_left(bytes: &[u8], found: &Found) -> Unfinished {
    let statement = (found.offset as usize).checked_sub(STATEMENT).and_then(|at| bytes.get(at..));
    statement.and_then(|s| s.first_chunk()).map_or(Unfinished::default(), |s| Unfinished::read(*s))
}

// The offsets above are the kernel's and must agree with the declarations of libc.
const _: () = assert!(
    size_of::<libc::tpacket3_hdr>() == 48
        && std::mem::offset_of!(libc::tpacket3_hdr, tp_mac) == packet::MAC
        && std::mem::offset_of!(libc::tpacket3_hdr, tp_status) == packet::STATUS
        && std::mem::offset_of!(libc::sockaddr_ll, sll_protocol) == packet::PROTOCOL - 48
        && std::mem::offset_of!(libc::sockaddr_ll, sll_ifindex) == packet::INTERFACE - 48
        && std::mem::offset_of!(libc::sockaddr_ll, sll_hatype) == packet::HARDWARE - 48
        && std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype) == packet::KIND - 48
        && std::mem::offset_of!(libc::sockaddr_ll, sll_halen) == packet::ADDRESS_LENGTH - 48
        && std::mem::offset_of!(libc::sockaddr_ll, sll_addr) == packet::ADDRESS - 48
);
