//! The descriptor: 32 bytes about one packet, computed once for all modules.

/// The bits of [`Descriptor::flags`].
pub mod flags {
    /// The network header is IPv4.
    pub const IPV4: u8 = 1 << 0;
    /// The network header is IPv6.
    pub const IPV6: u8 = 1 << 1;
    /// The packet is part of a fragmented datagram.
    pub const FRAGMENT: u8 = 1 << 2;
    /// The packet is a fragment other than the first. It has no transport header, and its data begin at `l4`.
    pub const LATER_FRAGMENT: u8 = 1 << 3;
    /// A whole transport header of `l4_len` bytes lies at `l4`.
    pub const TRANSPORT: u8 = 1 << 4;
    /// A header contradicts itself or the packet. The fields describe the headers before it.
    pub const MALFORMED: u8 = 1 << 5;
    /// Tunnel headers were removed: `l3` and `l4` are the offsets of the inner headers.
    pub const TUNNEL: u8 = 1 << 6;
    /// Fewer bytes were captured than were on the wire.
    pub const TRUNCATED: u8 = 1 << 7;
}

/// The bits of [`Descriptor::tcp_flags`] (RFC 9293, section 3.1).
pub mod tcp {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
    pub const URG: u8 = 32;
    pub const ECE: u8 = 64;
    pub const CWR: u8 = 128;
}

/// Returns whether the header of an IP protocol begins with two ports: TCP, UDP (RFC 768), DCCP (RFC 4340),
/// SCTP (RFC 9260), UDP-Lite (RFC 3828). These are the fields of a flow and of its hash.
#[inline]
pub const fn has_ports(proto: u8) -> bool {
    matches!(proto, 6 | 17 | 33 | 132 | 136)
}

/// The results of decoding one packet. No offset exceeds `cap_len`.
///
/// `l3` is 0 when the packet has no IP header (`flags` has neither IPV4 nor IPV6). In raw IP captures `l3` is
/// also 0 when there is one, so test the flags instead.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The capture time in nanoseconds since 1970, or 0 if the packet has none.
    pub ts_ns: u64,
    /// The address of the packet's first byte: in a module, in its linear memory; in the host's own
    /// descriptors, an offset into the bytes of the block.
    pub addr: u32,
    /// The symmetric flow hash, which is equal for both directions of a 5-tuple.
    pub hash: u32,
    /// The length on the wire in bytes.
    pub wire_len: u32,
    /// The number of bytes that may be read at `addr`.
    pub cap_len: u32,
    /// The offset of the IP header.
    pub l3: u16,
    /// The offset of the first byte after the IP header and its extensions.
    pub l4: u16,
    /// The length of the transport header in bytes, or 0 without one.
    pub l4_len: u8,
    /// The IP protocol number after all extension headers, or 0 (with neither IPV4 nor IPV6 set) if the
    /// packet is not IP.
    pub proto: u8,
    /// The bits of [`flags`].
    pub flags: u8,
    /// The TCP flags. 0 unless `proto` is TCP and TRANSPORT is set (or byte 13 was captured).
    pub tcp_flags: u8,
}

const _: () = assert!(size_of::<Descriptor>() == 32 && align_of::<Descriptor>() == 32);

impl Descriptor {
    /// The size of a descriptor in bytes.
    pub const SIZE: usize = 32;

    /// Returns all fields in four words, for operations on many descriptors: the compiler makes vector
    /// instructions of those on words.
    #[inline]
    pub const fn to_words(&self) -> [u64; 4] {
        [
            self.ts_ns,
            self.addr as u64 | (self.hash as u64) << 32,
            self.wire_len as u64 | (self.cap_len as u64) << 32,
            self.l3 as u64
                | (self.l4 as u64) << 16
                | (self.l4_len as u64) << 32
                | (self.proto as u64) << 40
                | (self.flags as u64) << 48
                | (self.tcp_flags as u64) << 56,
        ]
    }

    /// Returns the descriptor of which [`Descriptor::to_words`] returns these words.
    #[inline]
    pub const fn from_words([time, place, lengths, rest]: [u64; 4]) -> Self {
        Self {
            ts_ns: time,
            addr: place as u32,
            hash: (place >> 32) as u32,
            wire_len: lengths as u32,
            cap_len: (lengths >> 32) as u32,
            l3: rest as u16,
            l4: (rest >> 16) as u16,
            l4_len: (rest >> 32) as u8,
            proto: (rest >> 40) as u8,
            flags: (rest >> 48) as u8,
            tcp_flags: (rest >> 56) as u8,
        }
    }

    /// Returns the descriptor as bytes, in the layout that modules read.
    pub fn to_bytes(&self) -> [u8; 32] {
        let mut b = [0; 32];
        b[0..8].copy_from_slice(&self.ts_ns.to_le_bytes());
        b[8..12].copy_from_slice(&self.addr.to_le_bytes());
        b[12..16].copy_from_slice(&self.hash.to_le_bytes());
        b[16..20].copy_from_slice(&self.wire_len.to_le_bytes());
        b[20..24].copy_from_slice(&self.cap_len.to_le_bytes());
        b[24..26].copy_from_slice(&self.l3.to_le_bytes());
        b[26..28].copy_from_slice(&self.l4.to_le_bytes());
        b[28..32].copy_from_slice(&[self.l4_len, self.proto, self.flags, self.tcp_flags]);
        b
    }

    /// Returns whether at least one of these flags is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether the packet has an IP header, of either version.
    pub fn is_ip(&self) -> bool {
        self.has(flags::IPV4 | flags::IPV6)
    }

    /// Returns the offset of the first byte after the transport header.
    pub fn payload(&self) -> u32 {
        u32::from(self.l4) + u32::from(self.l4_len)
    }
}
