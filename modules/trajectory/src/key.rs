//! The hashed part of a packet: the fields that no router changes, then the first bytes of the IP payload
//! (RFC 5475, section 6.2).

use crate::bob::Key;
use flame_module::{Packet, flags};

/// The largest number of bytes of the IP payload that are hashed.
pub const MOST_PAYLOAD: usize = 64;

/// The number of bytes of the IPv4 header that are hashed.
const V4_FIELDS: usize = 12;
const V6_FIELDS: usize = 35;

const _: () = assert!(V6_FIELDS + MOST_PAYLOAD <= crate::bob::MOST);

/// The invariant part of the IP header, and the payload.
pub struct Datagram<'a> {
    v4: bool,
    /// The header: at least 20 bytes of IPv4, or 40 of IPv6.
    header: &'a [u8],
    /// The payload up to the datagram's end; the link's padding differs between links.
    carried: &'a [u8],
    /// The length of the payload according to the header; the captured length if the header has none.
    length: usize,
}

impl<'a> Datagram<'a> {
    /// Returns the datagram, or `None` if the header was not captured or the view hides it.
    #[inline]
    pub fn of(packet: &Packet<'a>) -> Option<Self> {
        let header = packet.l3();
        let v4 = packet.has(flags::IPV4);
        let word = |at: usize| usize::from(header[at]) << 8 | usize::from(header[at + 1]);
        let (start, length) = if v4 {
            header.first_chunk::<20>()?;
            let start = usize::from(header[0] & 15) * 4;
            // A length of 0 is from segmentation offload, before the segments are cut.
            (start, if word(2) == 0 { usize::MAX } else { word(2).saturating_sub(start) })
        } else {
            header.first_chunk::<40>()?;
            (40, if word(4) == 0 { usize::MAX } else { word(4) })
        };
        let rest = header.get(start..).unwrap_or(&[]);
        let length = if length == usize::MAX { rest.len() } else { length };
        Some(Self { v4, header, carried: &rest[..rest.len().min(length)], length })
    }

    /// Returns whether fewer than the first `payload` bytes are visible although there are more.
    #[inline]
    pub fn is_cut(&self, payload: usize) -> bool {
        self.carried.len() < self.length.min(payload)
    }

    /// Writes the key: of IPv4 the identification, flags and fragment offset, and addresses; of IPv6 the
    /// payload length, next header, and addresses; then the first `payload` bytes of the payload, up to
    /// [`MOST_PAYLOAD`].
    #[inline]
    pub fn write(&self, payload: usize, key: &mut Key) {
        let bytes = key.bytes();
        let header = self.header;
        let fields = if self.v4 { V4_FIELDS } else { V6_FIELDS };
        if self.v4 {
            bytes[..4].copy_from_slice(&header[4..8]);
            bytes[4..12].copy_from_slice(&header[12..20]);
        } else {
            bytes[..3].copy_from_slice(&header[4..7]);
            bytes[3..35].copy_from_slice(&header[8..40]);
        }
        // The default in five loads, with its end known in advance; a copy of any length is a call, and a
        // slow one in the memory of the packets.
        match self.carried.first_chunk::<20>() {
            Some(first) if payload == 20 && self.v4 => {
                bytes[V4_FIELDS..V4_FIELDS + 20].copy_from_slice(first);
                key.end(V4_FIELDS + 20);
            }
            Some(first) if payload == 20 => {
                bytes[V6_FIELDS..V6_FIELDS + 20].copy_from_slice(first);
                key.end(V6_FIELDS + 20);
            }
            _ => {
                let len = self.carried.len().min(payload).min(MOST_PAYLOAD);
                bytes[fields..fields + len].copy_from_slice(&self.carried[..len]);
                key.end(fields + len);
            }
        }
    }

    /// Returns the input of IPSX. The RFC defines it for IPv4. The IPv6 addresses are folded into one word
    /// each, and length and next header replace the identification. A word that is absent is 0.
    #[inline]
    pub fn words(&self) -> [u32; 4] {
        let word = |bytes: &[u8]| bytes.first_chunk::<4>().map_or(0, |b| u32::from_be_bytes(*b));
        let carried = word(self.carried.get(4..8).unwrap_or(&[]));
        let header = self.header;
        if self.v4 {
            return [word(&header[4..8]), word(&header[12..16]), word(&header[16..20]), carried];
        }
        let fold = |bytes: &[u8]| bytes.chunks_exact(4).fold(0, |n, w| n ^ word(w));
        // The last byte of this word is the hop limit.
        [word(&header[4..8]) & 0xffff_ff00, fold(&header[8..24]), fold(&header[24..40]), carried]
    }
}
