//! 32 bytes about one packet, made once for all modules.

/// Bits of [`Descriptor::flags`].
pub mod flags {
    /// The network header is IPv4.
    pub const IPV4: u8 = 1 << 0;
    /// The network header is IPv6.
    pub const IPV6: u8 = 1 << 1;
    /// Part of a fragmented datagram.
    pub const FRAGMENT: u8 = 1 << 2;
    /// A fragment other than the first: it has no transport header (`l4` is where its data begins).
    pub const LATER_FRAGMENT: u8 = 1 << 3;
    /// A whole transport header lies at `l4`, `l4_len` bytes long.
    pub const TRANSPORT: u8 = 1 << 4;
    /// A header contradicts itself or the packet; what was understood before it is kept.
    pub const MALFORMED: u8 = 1 << 5;
    /// Tunnel headers were taken off: `l3` and `l4` are the inner ones.
    pub const TUNNEL: u8 = 1 << 6;
    /// Fewer bytes were captured than were on the wire.
    pub const TRUNCATED: u8 = 1 << 7;
}

/// Bits of [`Descriptor::tcp_flags`] (RFC 9293, section 3.1).
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

/// What the decoder found, and where. An offset never exceeds `cap_len`.
///
/// `l3` is 0 when there is no IP header in the packet (`flags` has neither IPV4 nor IPV6); raw IP
/// captures also have `l3 == 0`, so ask the flags.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Capture time, nanoseconds since 1970.
    pub ts_ns: u64,
    /// Address of the packet's first byte. In a module: in its memory. In the host's own
    /// descriptors: offset into the block's bytes.
    pub addr: u32,
    /// Symmetric flow hash: equal for both directions of a 5-tuple.
    pub hash: u32,
    /// Length on the wire in bytes.
    pub wire_len: u32,
    /// Bytes that may be read at `addr`.
    pub cap_len: u32,
    /// Offset of the IP header.
    pub l3: u16,
    /// Offset behind the IP header and its extensions.
    pub l4: u16,
    /// Length of the transport header in bytes; 0 without one.
    pub l4_len: u8,
    /// IP protocol number behind all extension headers; 0 and no IPV4/IPV6 flag if not IP.
    pub proto: u8,
    /// See [`flags`].
    pub flags: u8,
    /// TCP flags; 0 unless `proto` is TCP and TRANSPORT is set (or byte 13 was captured).
    pub tcp_flags: u8,
}

const _: () = assert!(size_of::<Descriptor>() == 32 && align_of::<Descriptor>() == 32);

impl Descriptor {
    /// Size in bytes.
    pub const SIZE: usize = 32;

    /// The same value as bytes, in the order and endianness that modules read.
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

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn is_ip(&self) -> bool {
        self.has(flags::IPV4 | flags::IPV6)
    }

    /// Offset of the first byte behind the transport header.
    pub fn payload(&self) -> u32 {
        u32::from(self.l4) + u32::from(self.l4_len)
    }
}
