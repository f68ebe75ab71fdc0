//! pcap: the capture format of tcpdump, read by the source file.
//!
//! Usage:    -r FILE
//! Expects:  draft-ietf-opsawg-pcap: a header of 24 bytes, then records of 16 bytes (24 in a variant of old
//!           Linux systems) and data; either byte order; microseconds or nanoseconds. The lengths of a record
//!           are exchanged before version 2.3, and may be in version 2.3.
//! Gives:    one link type for the whole file, times in nanoseconds.
//! Example:  flame run count -r FILE
//! Related:  pcapng, file, live

use super::step::Step;
use crate::RawPacket;
use flame_abi::{LinkType, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS, MAX_PACKET};

pub const HEADER: usize = 24;

#[derive(Clone, Copy, Debug)]
pub struct Pcap {
    big_endian: bool,
    /// The number of nanoseconds in a unit of the second half of a time stamp.
    unit: u32,
    /// The number of bytes of a record's header. A variant of old Linux systems has 8 more.
    record: usize,
    lengths: Lengths,
    pub link: LinkType,
}

/// The order of the two lengths in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    /// The captured one first.
    Usual,
    Exchanged,
    /// In version 2.3, and in version 543 of one system: the captured one is the smaller.
    Either,
}

/// Returns the byte order, unit and length of records by the first four bytes of a file.
fn variant(bytes: &[u8]) -> Option<(bool, u32, usize)> {
    let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    Some(match u32::from_le_bytes(magic) {
        0xa1b2_c3d4 => (false, 1000, 16),
        0xd4c3_b2a1 => (true, 1000, 16),
        0xa1b2_3c4d => (false, 1, 16),
        0x4d3c_b2a1 => (true, 1, 16),
        0xa1b2_cd34 => (false, 1000, 24),
        0x34cd_b2a1 => (true, 1000, 24),
        _ => return None,
    })
}

impl Pcap {
    /// Parses the header of a file, if it is a pcap file.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let (big_endian, unit, record) = variant(bytes)?;
        let mut pcap = Self { big_endian, unit, record, lengths: Lengths::Usual, link: LinkType::default() };
        let head = bytes.get(..HEADER)?;
        // The upper half is the length of a frame check sequence, which stays in the packet.
        pcap.link = LinkType(pcap.word(head, 20) as u16);
        let version = pcap.word(head, 4);
        let (first, second) = (version & 0xffff, version >> 16);
        pcap.lengths = match if big_endian { (second, first) } else { (first, second) } {
            (2, 0..=2) => Lengths::Exchanged,
            (2, 3) | (543, _) => Lengths::Either,
            _ => Lengths::Usual,
        };
        Some(pcap)
    }

    /// Returns whether times are finer than a microsecond.
    pub fn is_nano(&self) -> bool {
        self.unit < 1000
    }

    /// Returns whether the file begins as a pcap file does, even if its header is cut short.
    pub fn begins(bytes: &[u8]) -> bool {
        variant(bytes).is_some()
    }

    #[inline]
    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    #[inline]
    pub fn step(&mut self, bytes: &[u8]) -> (Step, usize) {
        let Some(head) = bytes.get(..self.record) else { return (Step::More, self.record) };
        let (cap_len, wire_len) = match (self.word(head, 8), self.word(head, 12)) {
            (first, second) if self.lengths == Lengths::Exchanged => (second, first),
            (first, second) if self.lengths == Lengths::Either => (first.min(second), first.max(second)),
            lengths => lengths,
        };
        if cap_len as usize > MAX_PACKET {
            return (
                Step::Damage(format!("a packet of {cap_len} bytes, at most {MAX_PACKET} are possible")),
                0,
            );
        }
        let length = self.record + cap_len as usize;
        if bytes.len() < length {
            return (Step::More, length);
        }
        let ts_ns = u64::from(self.word(head, 0)) * 1_000_000_000
            + u64::from(self.word(head, 4)) * u64::from(self.unit);
        let offset = self.record as u32;
        (Step::Packet(RawPacket { ts_ns, offset, cap_len, wire_len, link: self.link }), length)
    }

    /// Takes whole packets from `at` on until a packet is incomplete or invalid, or `block` is full. Returns
    /// the offset of the first byte after them. This is a fast path of [`Pcap::step`], because files consist
    /// almost only of packets.
    pub fn run(&self, bytes: &[u8], at: usize, start: usize, snaplen: u32, block: &mut Room<'_>) -> usize {
        if self.record != 16 || self.lengths != Lengths::Usual {
            at
        } else if self.big_endian {
            self.packets(bytes, at, start, snaplen, block, u32::from_be_bytes)
        } else {
            self.packets(bytes, at, start, snaplen, block, u32::from_le_bytes)
        }
    }

    #[inline]
    fn packets(
        &self,
        bytes: &[u8],
        mut at: usize,
        start: usize,
        snaplen: u32,
        block: &mut Room<'_>,
        word: impl Fn([u8; 4]) -> u32,
    ) -> usize {
        let unit = u64::from(self.unit);
        while block.packets.len() < MAX_BLOCK_PACKETS && *block.captured < MAX_BLOCK_BYTES {
            let Some((head, data)) = bytes.get(at..).and_then(|b| b.split_first_chunk::<16>()) else { break };
            let word = |i: usize| word([head[i], head[i + 1], head[i + 2], head[i + 3]]);
            let cap_len = word(8);
            // A length on the wire below the captured one is corrected elsewhere.
            if cap_len as usize > data.len().min(MAX_PACKET) || word(12) < cap_len {
                break;
            }
            let kept = cap_len.min(snaplen);
            block.packets.push(RawPacket {
                ts_ns: u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * unit,
                offset: (at + 16 - start) as u32,
                cap_len: kept,
                wire_len: word(12),
                link: self.link,
            });
            *block.captured += kept as usize;
            at += 16 + cap_len as usize;
        }
        at
    }
}

/// The destination of a run of packets.
pub struct Room<'a> {
    pub packets: &'a mut Vec<RawPacket>,
    pub captured: &'a mut usize,
}
