#![allow(unsafe_code)] // Maps the kernel's ring.

use super::fetch::fetch;
use super::finish::{CHECKSUM_START, STATEMENT, Unfinished};
use super::socket::Socket;
use bytes::Bytes;
use flame_abi::MAX_PACKET;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The form in which the kernel hands packets over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    /// Packets without a link header, which get a cooked one.
    Cooked,
    /// Frames with a statement of the work that is left on them.
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
    pub const HEAD: usize = 48;
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

/// A block that the kernel has handed over. Dropping it and its parts returns it.
pub struct Taken {
    held: Arc<Held>,
    /// The next frame. No part that was lent goes beyond its start.
    frame: Frame,
}

/// The ownership of a block.
struct Held {
    ring: Arc<Ring>,
    index: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ring.status(self.index).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// Some frames of a block.
struct Part {
    held: Arc<Held>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        let ring = &self.held.ring;
        let start = ring.at(self.held.index, self.range.start);
        // SAFETY: in the mapping, which `ring` keeps; neither the kernel, to which the block is not returned
        // before, nor `Taken::read` writes to the frames of a part.
        unsafe { std::slice::from_raw_parts(start, self.range.len()) }
    }
}

impl Taken {
    pub fn is_over(&self) -> bool {
        self.frame.left == 0
    }

    /// Gives the next frames to `each`, with the bytes in which they lie, until it returns false. VLAN tags
    /// that the network card removed are restored and cooked headers are written before.
    pub fn read(&mut self, mut each: impl FnMut(&[u8], Found) -> bool) {
        let (ring, first) = (&self.held.ring, self.frame.at.min(self.held.ring.block_bytes));
        let start = ring.at(self.held.index, first);
        // SAFETY: in the mapping; the block belongs to this process, and nothing else refers to the frames
        // from the next one on: parts end before it, and the caller has no other reference.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, ring.block_bytes - first) };
        let mut frame = Frame { at: 0, left: self.frame.left };
        while let Some(at) = frame.step(bytes) {
            let later = frame.at.wrapping_add(frame.at.wrapping_sub(at).wrapping_mul(AHEAD));
            fetch(bytes.as_ptr().wrapping_add(later));
            if ring.form == Form::Cooked || has_tag(bytes, at) {
                complete(ring.form, bytes, at);
            }
            let end = if frame.left == 0 { bytes.len() } else { frame.at.min(bytes.len()) };
            if found(bytes, at, end).is_some_and(|found| !each(bytes, found)) {
                break;
            }
        }
        self.frame = Frame { at: first.saturating_add(frame.at), left: frame.left };
    }

    /// Gives the next frames to `each`, as [`Taken::read`]. Returns their bytes, which do not change while
    /// they are lent out, and their offset in the ring.
    pub fn part(&mut self, each: impl FnMut(&[u8], Found) -> bool) -> (Bytes, usize) {
        let whole = self.held.ring.block_bytes;
        let start = self.frame.at.min(whole);
        self.read(each);
        let end = if self.is_over() { whole } else { self.frame.at.min(whole) };
        fence(Ordering::Release);
        let part = Part { held: self.held.clone(), range: start..end };
        (Bytes::from_owner(part), self.held.ring.offset(self.held.index) + start)
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

    fn at(&self, index: usize, place: usize) -> *mut u8 {
        assert!(index < self.blocks && place <= self.block_bytes, "the place lies in a block of the ring");
        // SAFETY: in the mapping or at its end, as just checked.
        unsafe { self.start.as_ptr().add(self.offset(index) + place) }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: in the block's head, aligned; the kernel and this process access it as one word.
        unsafe { &*self.at(index, block::STATUS).cast::<AtomicU32>() }
    }

    /// Returns whether the kernel has handed over block `index`.
    pub fn is_ready(&self, index: usize) -> bool {
        self.status(index).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Takes a ready block.
    pub fn take(ring: &Arc<Self>, index: usize) -> Taken {
        debug_assert!(ring.is_ready(index));
        // SAFETY: the head of the block, in the mapping, which the kernel does not change any more.
        let head = unsafe { std::slice::from_raw_parts(ring.at(index, 0), block::HEAD) };
        let frame = Frame { at: word(head, block::FIRST) as usize, left: word(head, block::PACKETS) };
        // The head changes when the block is returned.
        let frame = Frame { at: frame.at.max(block::HEAD), ..frame };
        Taken { held: Arc::new(Held { ring: ring.clone(), index }), frame }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped once; no block is held, because each holds an Arc.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

/// The number of packets for which memory is fetched ahead. Each head states where the next one is, so the
/// processor could not fetch several at once; most packets follow others of the same length.
const AHEAD: usize = 8;

#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

#[inline]
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
    if !room {
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

/// A position in some bytes of a block: the next packet, and the number of packets left.
#[derive(Clone, Copy)]
struct Frame {
    at: usize,
    left: u32,
}

pub struct Found {
    pub ts_ns: u64,
    /// The offset of the packet in the bytes in which it lies.
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
    /// Advances to the next packet and returns the offset of the current one's head.
    #[inline]
    fn step(&mut self, bytes: &[u8]) -> Option<usize> {
        let (at, left) = (self.at, std::mem::take(&mut self.left));
        let head = head(bytes, at).filter(|_| left > 0)?;
        let next = word(head, packet::NEXT) as usize;
        self.left = if next == 0 { 0 } else { left - 1 };
        self.at = at.saturating_add(next);
        Some(at)
    }
}

/// Returns the head of the packet at `at`.
#[inline]
fn head(bytes: &[u8], at: usize) -> Option<&[u8; packet::HEAD]> {
    bytes.get(at..)?.first_chunk()
}

/// Returns whether the network card removed a VLAN tag from the packet whose head is at `at`.
#[inline]
fn has_tag(bytes: &[u8], at: usize) -> bool {
    word(bytes, at + packet::STATUS) & libc::TP_STATUS_VLAN_VALID != 0
}

/// Completes a packet that lacks a VLAN tag or a header.
#[cold]
fn complete(form: Form, bytes: &mut [u8], at: usize) {
    match form {
        Form::Cooked => cook(bytes, at),
        Form::Stated => restore_tag(bytes, at, STATEMENT),
        Form::Plain => restore_tag(bytes, at, 0),
    }
}

/// Returns the packet whose head is at `at`, if its bytes lie before `end`.
#[inline]
fn found(bytes: &[u8], at: usize, end: usize) -> Option<Found> {
    let head = head(bytes, at)?;
    let offset = at + usize::from(half(head, packet::MAC));
    let captured = word(head, packet::CAPTURED);
    if offset + captured as usize > end {
        return None;
    }
    let kind = head[packet::KIND];
    Some(Found {
        ts_ns: u64::from(word(head, packet::SEC)) * 1_000_000_000 + u64::from(word(head, packet::NSEC)),
        offset: offset as u32,
        // Segments that were coalesced (BIG TCP) can be longer than a view has room for.
        cap_len: captured.min(MAX_PACKET as u32),
        wire_len: word(head, packet::LENGTH).max(captured),
        captured,
        kind,
        is_copy: kind == libc::PACKET_OUTGOING && half(head, packet::HARDWARE) == libc::ARPHRD_LOOPBACK,
    })
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

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
