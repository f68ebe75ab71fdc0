//! The pcap format (draft-ietf-opsawg-pcap): a header of 24 bytes, then records of 16 bytes and data.

use super::reader::Step;
use crate::RawPacket;
use flame_abi::{LinkType, MAX_PACKET};

pub const HEADER: usize = 24;

#[derive(Clone, Copy, Debug)]
pub struct Pcap {
    big_endian: bool,
    /// Nanoseconds in a unit of the second half of a time stamp.
    unit: u32,
    /// Bytes of a record's header; a variant of old Linux systems has 8 more.
    record: usize,
    pub link: LinkType,
}

impl Pcap {
    /// The header of a file, if it is one.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
        let (big_endian, unit, record) = match u32::from_le_bytes(magic) {
            0xa1b2_c3d4 => (false, 1000, 16),
            0xd4c3_b2a1 => (true, 1000, 16),
            0xa1b2_3c4d => (false, 1, 16),
            0x4d3c_b2a1 => (true, 1, 16),
            0xa1b2_cd34 => (false, 1000, 24),
            0x34cd_b2a1 => (true, 1000, 24),
            _ => return None,
        };
        let mut pcap = Self { big_endian, unit, record, link: LinkType::default() };
        // The upper half holds the length of a frame check sequence, which stays in the packet.
        pcap.link = LinkType(pcap.word(bytes.get(..HEADER)?, 20) as u16);
        Some(pcap)
    }

    #[inline]
    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    #[inline]
    pub fn step(&mut self, bytes: &[u8]) -> (Step, usize) {
        let Some(head) = bytes.get(..self.record) else { return (Step::More, 0) };
        let cap_len = self.word(head, 8);
        if cap_len as usize > MAX_PACKET {
            return (
                Step::Damage(format!("a packet of {cap_len} bytes, at most {MAX_PACKET} are possible")),
                0,
            );
        }
        let length = self.record + cap_len as usize;
        if bytes.len() < length {
            return (Step::More, 0);
        }
        let ts_ns = u64::from(self.word(head, 0)) * 1_000_000_000
            + u64::from(self.word(head, 4)) * u64::from(self.unit);
        let wire_len = self.word(head, 12);
        let offset = self.record as u32;
        (Step::Packet(RawPacket { ts_ns, offset, cap_len, wire_len, link: self.link }), length)
    }
}
