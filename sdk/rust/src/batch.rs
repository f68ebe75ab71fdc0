#![allow(unsafe_code)] // Reads the window, which the host maps.

use flame_abi::{BatchHeader, Descriptor, LinkType, batch_flags, flags};
use std::fmt;
use std::ops::Deref;

/// The packets of one call, at most 256. They are readable only during the call.
pub struct Batch<'a> {
    descriptors: &'a [Descriptor],
    /// The address of byte 0 of the module's memory: 0 on Wasm, another value natively.
    origin: *const u8,
    lost: u64,
    flags: u32,
    link: u32,
    queue: u32,
}

impl<'a> Batch<'a> {
    /// Returns the batch that the host describes at `header`.
    ///
    /// # Safety
    /// `header` is what the host passed to `flame_batch`, during that call.
    #[cfg(target_family = "wasm")]
    #[doc(hidden)]
    pub unsafe fn from_host(header: u32) -> Self {
        // SAFETY: the host guarantees a header and, at the address in it, `count` aligned descriptors.
        unsafe {
            let header = &*(header as usize as *const BatchHeader);
            let descriptors = std::slice::from_raw_parts(
                header.descriptors as usize as *const Descriptor,
                header.count as usize,
            );
            Self {
                descriptors,
                origin: std::ptr::null(),
                lost: header.lost,
                flags: header.flags,
                link: header.link,
                queue: header.queue,
            }
        }
    }

    /// Creates a batch natively, from descriptors whose `addr` minus `base` is an offset in `memory`.
    ///
    /// # Panics
    /// Panics if a packet does not lie in `memory`.
    #[cfg(not(target_family = "wasm"))]
    pub fn new(descriptors: &'a [Descriptor], memory: &'a [u8], base: u32, header: &BatchHeader) -> Self {
        for d in descriptors {
            let end = u64::from(d.addr.wrapping_sub(base)) + u64::from(d.cap_len);
            assert!(d.addr >= base && end <= memory.len() as u64, "packet lies in the memory");
        }
        let origin = memory.as_ptr().wrapping_sub(base as usize);
        let BatchHeader { lost, flags, link, queue, .. } = *header;
        Self { descriptors, origin, lost, flags, link, queue }
    }

    /// Creates a batch like [`Batch::new`], but without the check of every packet, for measurements.
    ///
    /// # Safety
    /// Every packet lies in `memory`, as [`Batch::new`] checks.
    #[cfg(not(target_family = "wasm"))]
    pub unsafe fn new_unchecked(descriptors: &'a [Descriptor], memory: &'a [u8], base: u32) -> Self {
        let origin = memory.as_ptr().wrapping_sub(base as usize);
        Self { descriptors, origin, lost: 0, flags: 0, link: 1, queue: 0 }
    }

    /// Returns all descriptors at once, for work that needs neither packet bytes nor a budget per packet.
    #[inline]
    pub fn descriptors(&self) -> &'a [Descriptor] {
        self.descriptors
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.descriptors.len()
    }

    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// Returns an iterator over the packets; each gets its own budget of work.
    #[inline]
    pub fn packets(&self) -> impl Iterator<Item = Packet<'a>> {
        let origin = self.origin;
        self.descriptors.iter().enumerate().map(move |(index, descriptor)| {
            crate::host::begin_packet(index as u32);
            Packet { descriptor, origin }
        })
    }

    /// Returns an iterator over the packets, which share the sum of their budgets: for work that is small and
    /// the same for each packet. If the budget runs out, the whole batch counts as shed. A module that calls
    /// [`Batch::packets`] anywhere must call it everywhere.
    #[inline]
    pub fn packets_together(&self) -> impl Iterator<Item = Packet<'a>> {
        let origin = self.origin;
        self.descriptors.iter().map(move |descriptor| Packet { descriptor, origin })
    }

    /// Returns the link type of these packets.
    pub fn link(&self) -> LinkType {
        LinkType(self.link as u16)
    }

    /// Returns the number of the event queue of these packets, in the order of the manifest. `manifest!`
    /// names them: `Queue::DNS`.
    #[inline]
    pub fn queue(&self) -> u16 {
        self.queue as u16
    }

    /// Returns the number of packets that this module lost since its last batch, with event queues those of
    /// this queue.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns whether this is the first batch of an instance that replaces one ended by a fault.
    pub fn restarted(&self) -> bool {
        self.flags & batch_flags::RESTARTED != 0
    }
}

/// One packet: the fields of its descriptor and its visible bytes.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    descriptor: &'a Descriptor,
    origin: *const u8,
}

impl Deref for Packet<'_> {
    type Target = Descriptor;

    #[inline]
    fn deref(&self) -> &Descriptor {
        self.descriptor
    }
}

impl<'a> Packet<'a> {
    /// Creates a packet of bytes in the module's own memory, for example a datagram that it put together.
    /// `addr` of the descriptor is not used.
    ///
    /// # Panics
    /// Panics if there are fewer bytes than the descriptor states.
    pub fn new(descriptor: &'a Descriptor, bytes: &'a [u8]) -> Self {
        let len = descriptor.cap_len as usize;
        assert!(len <= bytes.len(), "packet of {len} bytes: there are {}", bytes.len());
        Self { descriptor, origin: bytes.as_ptr().wrapping_sub(descriptor.addr as usize) }
    }

    /// Returns the bytes that the view exposes to this module, from the first byte of the packet.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        let d = self.descriptor;
        if d.cap_len == 0 {
            return &[];
        }
        // SAFETY: the host (natively, `Batch::new`; elsewhere `Packet::new`) guarantees `cap_len` readable
        // bytes at `addr` for as long as the packet may be read.
        unsafe { std::slice::from_raw_parts(self.origin.wrapping_add(d.addr as usize), d.cap_len as usize) }
    }

    /// Returns the visible bytes from the IP header on; empty if the packet is not IP or the header is
    /// hidden.
    #[inline]
    pub fn l3(&self) -> &'a [u8] {
        if self.is_ip() { self.from(self.l3.into()) } else { &[] }
    }

    /// Returns the visible bytes from the transport header on; empty without one.
    #[inline]
    pub fn l4(&self) -> &'a [u8] {
        if self.has(flags::LATER_FRAGMENT) { &[] } else { self.from(self.l4.into()) }
    }

    /// Returns the visible bytes after the transport header, up to the end of the datagram. Padding by the
    /// link is not payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        if !self.has(flags::TRANSPORT) {
            return &[];
        }
        let visible = self.from(Descriptor::payload(self) as usize);
        &visible[..self.payload_len().map_or(visible.len(), |n| n.min(visible.len()))]
    }

    /// Returns the payload's length in bytes according to the IP header (and for UDP also its own), whether
    /// visible or not. Returns `None` if there is no transport header, or if the length is hidden or is 0
    /// because the packet is longer than the field can hold.
    #[inline]
    pub fn payload_len(&self) -> Option<usize> {
        if !self.has(flags::TRANSPORT) {
            return None;
        }
        let half = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])))
        };
        let l3 = self.l3();
        // The length in an IPv4 header includes the header, in IPv6 it does not.
        let stated =
            if self.has(flags::IPV4) { half(l3, 2) } else { half(l3, 4).filter(|n| *n > 0).map(|n| n + 40) };
        let headers = (Descriptor::payload(self) as usize).saturating_sub(self.l3.into());
        let len = stated.filter(|n| *n > 0).map(|n| n.saturating_sub(headers));
        if self.proto != 17 {
            return len;
        }
        match half(self.l4(), 4).filter(|n| *n >= 8) {
            Some(udp) => Some(len.unwrap_or(usize::MAX).min(udp - 8)),
            None => len,
        }
    }

    /// Returns the source address of the IP header, if its bytes are visible.
    #[inline]
    pub fn src(&self) -> Option<Ip> {
        self.address(12, 8)
    }

    /// Returns the destination address of the IP header, if its bytes are visible.
    #[inline]
    pub fn dst(&self) -> Option<Ip> {
        self.address(16, 24)
    }

    /// Returns the source port of TCP, UDP and SCTP, if its bytes are visible.
    #[inline]
    pub fn sport(&self) -> Option<u16> {
        self.port(0)
    }

    /// Returns the destination port of TCP, UDP and SCTP, if its bytes are visible.
    #[inline]
    pub fn dport(&self) -> Option<u16> {
        self.port(2)
    }

    #[inline]
    fn from(&self, offset: usize) -> &'a [u8] {
        self.bytes().get(offset..).unwrap_or(&[])
    }

    #[inline]
    fn address(&self, v4: usize, v6: usize) -> Option<Ip> {
        if self.has(flags::IPV4) {
            let bytes: [u8; 4] = self.l3().get(v4..v4 + 4)?.try_into().ok()?;
            Some(Ip::v4(bytes))
        } else {
            let bytes: [u8; 16] = self.l3().get(v6..v6 + 16)?.try_into().ok()?;
            Some(Ip::v6(bytes))
        }
    }

    #[inline]
    fn port(&self, at: usize) -> Option<u16> {
        if !matches!(self.proto, 6 | 17 | 132) || !self.is_ip() {
            return None;
        }
        let bytes = self.l4().get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}

/// An address as rows contain it: the family, then 16 bytes (IPv4 in the first four).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ip {
    pub family: u8,
    pub bytes: [u8; 16],
}

impl Ip {
    #[inline]
    pub fn v4(b: [u8; 4]) -> Self {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&b);
        Self { family: 4, bytes }
    }

    #[inline]
    pub fn v6(bytes: [u8; 16]) -> Self {
        Self { family: 6, bytes }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.bytes;
        match self.family {
            4 => std::net::Ipv4Addr::new(a, b, c, d).fmt(f),
            _ => std::net::Ipv6Addr::from(self.bytes).fmt(f),
        }
    }
}
