//! Packets with room on both sides, and batches of them. Both come from pools and return to them.

use super::loops::{self, Loops, MAX_LOOPS};
use flame_base::lock;
use flame_click::{Ip, Nanos};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Free bytes in front of a new packet.
pub const HEADROOM: usize = 64;
/// The minimum number of free bytes after a new packet.
pub const TAILROOM: usize = 64;
/// The size of a pooled buffer.
const BUFFER: usize = 2048;
/// The number of packets and batches that a thread keeps for reuse.
const POOL: usize = 4096;
/// Packets or batches that pass between the pools of threads at once.
const CHUNK: usize = 256;
/// The most of such chunks that wait for a thread.
const MOST_CHUNKS: usize = 16;

/// The kind of destination that a frame was sent to, on its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Host,
    Broadcast,
    Multicast,
    OtherHost,
    Outgoing,
}

/// The data of a packet besides its bytes. What most elements read comes first.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Annotations {
    pub time: Nanos,
    /// Click's 48 bytes. The offsets below name the usual parts.
    pub bytes: [u8; 48],
    pub kind: Kind,
    /// The number of times that the packet passed each `Loop`.
    pub loops: Loops,
}

pub const ANNO_DST_IP: usize = 0;
pub const ANNO_PAINT: usize = 16;
/// The place in the IP header at which a parameter problem is.
pub const ANNO_ICMP_PARAMPROB: usize = 17;
pub const ANNO_FIX_IP_SRC: usize = 18;
pub const ANNO_AGGREGATE: usize = 20;
pub const ANNO_EXTRA_LENGTH: usize = 24;
pub const ANNO_VLAN: usize = 28;

impl Default for Annotations {
    fn default() -> Self {
        Self { time: Nanos::ZERO, kind: Kind::Host, bytes: [0; 48], loops: [0; MAX_LOOPS] }
    }
}

impl Annotations {
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap_or_default())
    }

    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes[at..at + 2].try_into().unwrap_or_default())
    }

    pub fn set_u16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    pub fn dst_ip(&self) -> Ip {
        Ip::from_bytes(&self.bytes[ANNO_DST_IP..])
    }

    pub fn set_dst_ip(&mut self, ip: Ip) {
        self.bytes[ANNO_DST_IP..ANNO_DST_IP + 4].copy_from_slice(&ip.bytes());
    }
}

/// A packet's buffer. Offsets are from the beginning of the buffer, and in 32 bits: what elements read of
/// each packet lies in one cache line, and all else in the next one.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Inner {
    buffer: Box<[u8]>,
    start: u32,
    end: u32,
    pub anno: Annotations,
    /// The first byte that this packet wrote. What lies before it may be another packet's.
    low: u32,
    link: Mark,
    network: Mark,
    transport: Mark,
}

const _: () = assert!(size_of::<Inner>() == 128);

/// The place of a header, if it is known: one more than its offset, or 0.
#[derive(Clone, Copy, Default)]
struct Mark(u32);

impl Mark {
    const NONE: Self = Self(0);

    fn at(offset: usize) -> Self {
        Self(narrow(offset + 1))
    }

    fn get(self) -> Option<usize> {
        (self.0 as usize).checked_sub(1)
    }
}

/// Returns an offset in 32 bits. Elements lengthen a packet by less than 64 KiB at a time, and one of 4 GiB
/// would be copied for as long as the run lasts.
fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or_else(|_| unreachable!("a packet of 4 GiB"))
}

/// Buffers that pass from a thread whose pool is full to one whose pool is empty: a thread that makes packets
/// for another one would otherwise allocate each of them.
struct Exchange<T> {
    count: AtomicUsize,
    chunks: Mutex<Vec<Vec<T>>>,
}

impl<T> Exchange<T> {
    const fn new() -> Self {
        Self { count: AtomicUsize::new(0), chunks: Mutex::new(Vec::new()) }
    }

    /// Fills an empty pool, if there is a chunk.
    fn fill(&self, pool: &mut Vec<T>) {
        if self.count.load(Ordering::Relaxed) > 0
            && let Some(mut chunk) = lock(&self.chunks).pop()
        {
            self.count.fetch_sub(1, Ordering::Relaxed);
            pool.append(&mut chunk);
        }
    }

    /// Takes a chunk of a full pool, which drops it if there are enough.
    fn relieve(&self, pool: &mut Vec<T>) {
        let chunk = pool.split_off(pool.len().saturating_sub(CHUNK));
        let mut chunks = lock(&self.chunks);
        if chunks.len() < MOST_CHUNKS {
            chunks.push(chunk);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[allow(clippy::vec_box)]
static SPARE_PACKETS: Exchange<Box<Inner>> = Exchange::new();
static SPARE_BATCHES: Exchange<Vec<Packet>> = Exchange::new();

/// Takes from a pool of this thread, or from what other threads have too much of.
fn take<T>(pool: &mut Vec<T>, exchange: &Exchange<T>) -> Option<T> {
    if pool.is_empty() {
        exchange.fill(pool);
    }
    pool.pop()
}

/// Returns something to a pool of this thread.
fn give<T>(pool: &mut Vec<T>, exchange: &Exchange<T>, value: T) {
    if pool.len() >= POOL {
        exchange.relieve(pool);
    }
    pool.push(value);
}

thread_local! {
    // A packet is a pointer, so that batches move pointers.
    #[allow(clippy::vec_box)]
    static PACKETS: RefCell<Vec<Box<Inner>>> = const { RefCell::new(Vec::new()) };
    static BATCHES: RefCell<Vec<Vec<Packet>>> = const { RefCell::new(Vec::new()) };
}

/// A packet. Dropping one returns its buffer to the pool.
pub struct Packet(Option<Box<Inner>>);

impl Drop for Packet {
    fn drop(&mut self) {
        let Some(inner) = self.0.take().filter(|i| i.buffer.len() == BUFFER) else { return };
        // At the end of the thread there is no pool any more.
        let _ = PACKETS.try_with(|pool| {
            if let Ok(mut pool) = pool.try_borrow_mut() {
                give(&mut pool, &SPARE_PACKETS, inner);
            }
        });
    }
}

impl Deref for Packet {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        self.0.as_ref().unwrap_or_else(|| unreachable!("only Drop empties a packet"))
    }
}

impl DerefMut for Packet {
    fn deref_mut(&mut self) -> &mut Inner {
        self.0.as_mut().unwrap_or_else(|| unreachable!("only Drop empties a packet"))
    }
}

impl Clone for Packet {
    fn clone(&self) -> Self {
        let mut new = Self::with_room(self.start(), self.len(), TAILROOM);
        // Stripped bytes are copied, too: the copy may be un-stripped.
        let written = self.low as usize..self.end as usize;
        new.buffer[written.clone()].copy_from_slice(&self.buffer[written]);
        new.low = self.low;
        let (link, network, transport) = (self.link, self.network, self.transport);
        (new.link, new.network, new.transport) = (link, network, transport);
        new.anno = self.anno.clone();
        new
    }
}

impl Packet {
    /// Returns a packet of `length` bytes, whose values are arbitrary.
    pub fn with_room(head: usize, length: usize, tail: usize) -> Self {
        let size = head + length + tail;
        let pooled = match size <= BUFFER {
            true => PACKETS.with(|pool| take(&mut pool.borrow_mut(), &SPARE_PACKETS)),
            false => None,
        };
        let mut inner = pooled.unwrap_or_else(|| {
            Box::new(Inner { buffer: vec![0; size.max(BUFFER)].into(), ..Inner::default() })
        });
        (inner.start, inner.end, inner.low) = (narrow(head), narrow(head + length), narrow(head));
        inner.clear_marks();
        inner.anno = Annotations { loops: loops::inherited(), ..Annotations::default() };
        Self(Some(inner))
    }

    /// Creates a packet with these bytes and the usual room before and after them.
    pub fn new(bytes: &[u8]) -> Self {
        let mut new = Self::with_room(HEADROOM, bytes.len(), TAILROOM);
        new.data_mut().copy_from_slice(bytes);
        new
    }

    /// Gives back the room that a buffer has in excess, of a packet that stays for long. Of the bytes that
    /// were stripped, the last `stripped` are kept.
    pub fn compact(&mut self, stripped: usize) {
        let front = ((self.start - self.low) as usize).min(stripped);
        let room = HEADROOM + front + self.len() + TAILROOM;
        if self.memory() <= BUFFER.max(room + room / 4) {
            return;
        }
        let mut new = Self::with_room(HEADROOM + front, self.len(), TAILROOM);
        let (low, to) = (new.start() - front, new.end as usize);
        new.low = narrow(low);
        let from = self.start() - front;
        new.buffer[low..to].copy_from_slice(&self.buffer[from..self.end as usize]);
        let moved = |mark: Mark| Some(mark.get()?.checked_sub(from)? + low);
        let mark = |mark: Mark| moved(mark).map_or(Mark::NONE, Mark::at);
        (new.link, new.network, new.transport) = (mark(self.link), mark(self.network), mark(self.transport));
        new.anno = std::mem::take(&mut self.anno);
        *self = new;
    }
}

impl Inner {
    fn start(&self) -> usize {
        self.start as usize
    }

    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn data(&self) -> &[u8] {
        &self.buffer[self.start as usize..self.end as usize]
    }

    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start as usize..self.end as usize]
    }

    /// Returns the bytes of its buffer.
    pub fn memory(&self) -> usize {
        self.buffer.len()
    }

    pub fn headroom(&self) -> usize {
        self.start()
    }

    /// Removes bytes in front, at most all.
    pub fn strip(&mut self, count: usize) {
        self.start += count.min(self.len()) as u32;
    }

    /// Moves the beginning to the front by `count` bytes, with room made if there is too little.
    fn grow_front(&mut self, count: usize) {
        if count > self.start() {
            let missing = count - self.start() + HEADROOM;
            let mut buffer = std::mem::take(&mut self.buffer).into_vec();
            buffer.splice(0..0, std::iter::repeat_n(0, missing));
            self.buffer = buffer.into();
            for offset in [&mut self.start, &mut self.end, &mut self.low] {
                *offset = narrow(*offset as usize + missing);
            }
            for mark in [&mut self.link, &mut self.network, &mut self.transport] {
                *mark = mark.get().map_or(Mark::NONE, |at| Mark::at(at + missing));
            }
        }
        self.start -= count as u32;
    }

    /// Adds bytes in front: those that were stripped, and zeros before them.
    pub fn unstrip(&mut self, count: usize) {
        self.grow_front(count);
        if self.start < self.low {
            self.buffer[self.start as usize..self.low as usize].fill(0);
            self.low = self.start;
        }
    }

    /// Adds a header in front.
    pub fn prepend(&mut self, header: &[u8]) {
        self.grow_front(header.len());
        let start = self.start();
        self.buffer[start..start + header.len()].copy_from_slice(header);
        self.low = self.low.min(self.start);
    }

    /// Replaces the bytes of the packet, of a longer one the first `most`. Marks of headers stay where they
    /// are, if they lie among the bytes.
    pub fn replace(&mut self, most: usize, bytes: &[u8]) {
        if self.len() > most {
            let bytes = &bytes[..bytes.len().min(most)];
            return self.data_mut()[..bytes.len()].copy_from_slice(bytes);
        }
        match bytes.len().checked_sub(self.len()) {
            Some(more) if more > 0 => self.extend(more),
            _ => self.truncate(bytes.len()),
        }
        self.data_mut().copy_from_slice(bytes);
    }

    /// Shortens the packet to at most `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.end = self.start + self.len().min(length) as u32;
    }

    /// Adds zeros at the end.
    pub fn extend(&mut self, count: usize) {
        let (old, end) = (self.end as usize, self.end as usize + count);
        if end > self.buffer.len() {
            let mut buffer = std::mem::take(&mut self.buffer).into_vec();
            buffer.resize(end + TAILROOM, 0);
            self.buffer = buffer.into();
        }
        self.buffer[old..end].fill(0);
        self.end = narrow(end);
    }

    fn offset(&self, mark: Mark) -> Option<usize> {
        mark.get()?.checked_sub(self.start()).filter(|o| *o <= self.len())
    }

    /// Returns the offset of the network header, if it is among the bytes.
    pub fn network(&self) -> Option<usize> {
        self.offset(self.network)
    }

    pub fn transport(&self) -> Option<usize> {
        self.offset(self.transport)
    }

    /// Returns how far the network header lies before or after the first byte.
    pub fn network_distance(&self) -> Option<isize> {
        self.network.get().map(|n| n as isize - self.start() as isize)
    }

    /// Returns how far the link header lies before the first byte.
    pub fn link_distance(&self) -> Option<usize> {
        self.start().checked_sub(self.link.get()?)
    }

    /// Returns the bytes of the link header onward, even if they were stripped.
    pub fn link_data(&self) -> Option<&[u8]> {
        self.buffer.get(self.link.get()?..self.end as usize)
    }

    pub fn set_link(&mut self, offset: usize) {
        self.link = Mark::at(self.start() + offset);
    }

    pub fn set_network(&mut self, offset: usize, length: usize) {
        self.network = Mark::at(self.start() + offset);
        self.transport = Mark::at(self.start() + offset + length);
    }

    pub fn clear_marks(&mut self) {
        (self.link, self.network, self.transport) = (Mark::NONE, Mark::NONE, Mark::NONE);
    }
}

/// Packets that move together.
pub struct Batch(Vec<Packet>);

impl Drop for Batch {
    fn drop(&mut self) {
        let mut packets = std::mem::take(&mut self.0);
        packets.clear();
        let _ = BATCHES.try_with(|pool| {
            if let Ok(mut pool) = pool.try_borrow_mut() {
                give(&mut pool, &SPARE_BATCHES, packets);
            }
        });
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self(BATCHES.with(|pool| take(&mut pool.borrow_mut(), &SPARE_BATCHES)).unwrap_or_default())
    }
}

impl Batch {
    pub fn one(packet: Packet) -> Self {
        let mut new = Self::default();
        new.0.push(packet);
        new
    }
}

impl Deref for Batch {
    type Target = Vec<Packet>;
    fn deref(&self) -> &Vec<Packet> {
        &self.0
    }
}

impl DerefMut for Batch {
    fn deref_mut(&mut self) -> &mut Vec<Packet> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_and_go_without_a_copy_of_the_marks() {
        let mut p = Packet::new(b"payload");
        p.prepend(b"ip__");
        p.set_network(0, 4);
        p.prepend(b"eth_");
        p.set_link(0);
        assert_eq!((p.data(), p.network(), p.transport()), (&b"eth_ip__payload"[..], Some(4), Some(8)));
        p.strip(8);
        assert_eq!((p.data(), p.network(), p.link_distance()), (&b"payload"[..], None, Some(8)));
        p.unstrip(4);
        assert_eq!(p.network(), Some(0));
        p.prepend(&[7; 5000]);
        assert_eq!((p.len(), p.network()), (5011, Some(5000)));
        p.extend(3000);
        p.truncate(5004);
        assert_eq!(&p.data()[5000..], b"ip__");
        let q = p.clone();
        assert_eq!((q.data(), q.network()), (p.data(), Some(5000)));
    }

    #[test]
    fn a_compact_packet_has_its_bytes_and_marks_and_little_more() {
        let mut p = Packet::new(&[vec![1; 65_000], b"eth_ip__payload".to_vec()].concat());
        p.strip(65_000);
        p.set_link(0);
        p.set_network(4, 4);
        p.strip(4);
        let mut small = p.clone();
        small.compact(4);
        assert_eq!((small.data(), small.network(), small.link_distance()), (p.data(), Some(0), Some(4)));
        assert!(small.memory() <= BUFFER && p.memory() > 65_000, "{}", small.memory());
        small.unstrip(6);
        assert_eq!(small.data(), b"\0\0eth_ip__payload");
        // What is small already stays where it is.
        let place = small.data().as_ptr();
        small.compact(4);
        assert_eq!(small.data().as_ptr(), place);
        let mut long = Packet::new(&[7; 60_000]);
        long.truncate(50_000);
        long.compact(256);
        assert!((long.len(), long.memory() < 63_000) == (50_000, true), "{}", long.memory());
    }

    #[test]
    fn only_bytes_of_the_packet_itself_can_be_unstripped() {
        drop(Packet::new(&[0xee; 1900]));
        let mut p = Packet::new(b"eth_ip");
        p.set_link(0);
        p.strip(4);
        drop(Packet::new(&[0xee; 1900]));
        let mut copy = p.clone();
        assert_eq!(copy.link_data(), Some(&b"eth_ip"[..]));
        copy.unstrip(4);
        assert_eq!(copy.data(), b"eth_ip");
        copy.unstrip(20);
        assert_eq!(&copy.data()[..20], &[0; 20]);
        // A copy of a copy whose front is another packet's.
        drop(Packet::new(&[0xee; 1900]));
        let mut again = p.clone();
        again.unstrip(10);
        assert_eq!(again.data(), b"\0\0\0\0\0\0eth_ip");
        again.prepend(b"x");
        again.strip(3);
        assert_eq!(again.clone().link_data(), Some(&b"eth_ip"[..]));
    }

    #[test]
    fn packets_of_another_thread_are_used_again() {
        // More than two pools hold: without the exchange, each packet beyond those is allocated.
        let (send, receive) = std::sync::mpsc::sync_channel::<Packet>(16);
        let ended = std::thread::spawn(move || receive.into_iter().map(drop).count());
        let mut addresses = std::collections::HashSet::new();
        let count = 20 * POOL;
        for _ in 0..count {
            let p = Packet::new(b"x");
            addresses.insert(p.data().as_ptr() as usize);
            send.send(p).unwrap();
        }
        drop(send);
        assert_eq!(ended.join().unwrap(), count);
        // Some are dropped, when another test has left many.
        assert!(addresses.len() < 4 * POOL, "{}", addresses.len());
    }

    #[test]
    fn buffers_return_to_the_pool() {
        let first = Packet::new(b"x");
        let address = first.data().as_ptr();
        drop(first);
        let second = Packet::new(b"y");
        assert_eq!((second.data().as_ptr(), second.anno.u32(ANNO_AGGREGATE)), (address, 0));
    }
}
