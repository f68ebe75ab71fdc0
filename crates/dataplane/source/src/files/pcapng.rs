//! pcapng: the capture format of Wireshark, read by the source file.
//!
//! Usage:    -r FILE
//! Expects:  draft-ietf-opsawg-pcapng: sections of either byte order, at most 65,536 interfaces each, packets
//!           in enhanced, simple and obsolete packet blocks. Other blocks are skipped; one above 16 MiB is
//!           damage.
//! Gives:    a link type for each interface, times in nanoseconds. The time of a simple packet block, which
//!           has none, is 0. From the first packet before 1970 on, the file's times are 100 years later, so
//!           that their differences stay. The drops that interface statistics blocks state are noted.
//! Example:  flame run count -r FILE
//! Related:  pcap, file, capture (sink)

use super::step::Step;
use crate::RawPacket;
use flame_abi::{LinkType, MAX_PACKET};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
/// Obsolete, but still in use.
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// The largest block in bytes. Real ones (decryption secrets, name tables) are much smaller.
const MAX_BLOCK: usize = 16 << 20;
/// The maximum number of interfaces of a section.
const MAX_INTERFACES: usize = 65_536;

/// The time by which times of a file with packets before 1970 are moved: 36,525 days, which are a hundred
/// years from any day between 1901 and 1999.
pub const LATER_NS: i128 = 36_525 * 86_400 * 1_000_000_000;

#[derive(Debug, Default)]
pub struct Pcapng {
    big_endian: bool,
    begun: bool,
    interfaces: Vec<Interface>,
    /// The drops of interfaces of earlier sections.
    earlier: Drops,
    /// The time in nanoseconds that is added to the times of packets.
    moved_ns: i128,
}

/// Packets that were dropped while a capture was made, as its statistics state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// By the interface for want of resources.
    pub interface: u64,
    /// By the operating system.
    pub system: u64,
}

impl Drops {
    fn plus(self, other: Self) -> Self {
        Self {
            interface: self.interface.saturating_add(other.interface),
            system: self.system.saturating_add(other.system),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    snaplen: u32,
    scale: Scale,
    offset_s: i64,
    drops: Drops,
}

/// The conversion of a time stamp to nanoseconds.
#[derive(Clone, Copy, Debug)]
enum Scale {
    Times(u64),
    Over(u64),
    /// Units of 2^-n seconds.
    Binary(u32),
}

impl Interface {
    /// Returns the nanoseconds since 1970, which are negative before.
    fn ns(&self, units: u64) -> i128 {
        let ns = match self.scale {
            Scale::Times(n) => u128::from(units) * u128::from(n),
            Scale::Over(n) => u128::from(units / n),
            Scale::Binary(bits) => (u128::from(units) * 1_000_000_000) >> bits,
        };
        i128::try_from(ns).unwrap_or(i128::MAX).saturating_add(i128::from(self.offset_s) * 1_000_000_000)
    }
}

impl Pcapng {
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&SECTION.to_le_bytes())
    }

    /// Returns whether times of an interface that is described before the first packet of `bytes` are finer
    /// than a microsecond.
    pub fn is_nano(bytes: &[u8]) -> bool {
        let (mut parser, mut at) = (Self::default(), 0);
        while let (Step::Skip, length) = parser.step(bytes.get(at..).unwrap_or_default()) {
            at += length;
        }
        parser.interfaces.iter().any(|interface| match interface.scale {
            Scale::Times(ns) => ns < 1000,
            Scale::Over(_) => true,
            Scale::Binary(bits) => bits > 20,
        })
    }

    /// Returns whether any interface of this section is decoded.
    pub fn any_decoded(&self) -> bool {
        self.interfaces.iter().any(|i| i.link.is_decoded())
    }

    /// Returns whether a packet so far had a time before 1970.
    pub fn is_moved(&self) -> bool {
        self.moved_ns != 0
    }

    /// Returns the drops that the statistics so far state.
    pub fn drops(&self) -> Drops {
        self.interfaces.iter().fold(self.earlier, |sum, interface| sum.plus(interface.drops))
    }

    pub fn step(&mut self, bytes: &[u8]) -> (Step, usize) {
        let Some(head) = bytes.get(..12) else { return (Step::More, 12) };
        let mut kind = self.u32(head, 0);
        // A section block reads the same in both byte orders; its body states which one it has.
        if head[..4] == SECTION.to_le_bytes() {
            kind = SECTION;
            match u32::from_le_bytes([head[8], head[9], head[10], head[11]]) {
                BYTE_ORDER => self.big_endian = false,
                m if m.swap_bytes() == BYTE_ORDER => self.big_endian = true,
                m => {
                    return damage(format!(
                        "a section with byte-order magic {m:#x}, expected {BYTE_ORDER:#x}"
                    ));
                }
            }
        } else if !self.begun {
            return damage(format!("a block of type {kind:#x} before the first section"));
        }
        let length = self.u32(head, 4) as usize;
        if length < 12 || !length.is_multiple_of(4) {
            return damage(format!("a block of {length} bytes, expected a multiple of 4, at least 12"));
        }
        if length > MAX_BLOCK {
            return damage(format!("a block of {length} bytes, at most {MAX_BLOCK} are read"));
        }
        let Some(block) = bytes.get(..length) else { return (Step::More, length) };
        let again = self.u32(block, length - 4) as usize;
        if again != length {
            return damage(format!("a block that begins as {length} bytes and ends as {again}"));
        }
        let body = &block[8..length - 4];
        let step = match kind {
            SECTION => {
                self.begun = true;
                self.earlier = self.drops();
                self.interfaces.clear();
                Ok(Step::Skip)
            }
            INTERFACE => self.interface(body),
            ENHANCED_PACKET => self.enhanced(body),
            PACKET => self.packet(body),
            SIMPLE_PACKET => self.simple(body),
            STATISTICS => self.statistics(body),
            _ => Ok(Step::Skip),
        };
        match step {
            Ok(step) => (step, length),
            Err(reason) => damage(reason),
        }
    }

    fn interface(&mut self, body: &[u8]) -> Result<Step, String> {
        if body.len() < 8 {
            return Err(format!("an interface block of {} bytes, expected at least 8", body.len()));
        }
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(format!("more than {MAX_INTERFACES} interfaces in a section"));
        }
        let mut interface = Interface {
            link: LinkType(self.u16(body, 0)),
            snaplen: self.u32(body, 4),
            scale: Scale::Times(1000),
            offset_s: 0,
            drops: Drops::default(),
        };
        for (code, value) in self.options(&body[8..]) {
            let length = value.len();
            match code {
                9 if length == 1 => interface.scale = scale(value[0])?,
                14 if length == 8 => {
                    let bytes = value.try_into().map_err(|_| "an offset of 8 bytes".to_owned())?;
                    interface.offset_s =
                        if self.big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(Step::Skip)
    }

    /// Returns the options of a block, code and value, up to the end of options or to a cut one.
    fn options<'a>(&self, options: &'a [u8]) -> Vec<(u16, &'a [u8])> {
        let (mut rest, mut found) = (options, Vec::new());
        while rest.len() >= 4 {
            let (code, length) = (self.u16(rest, 0), usize::from(self.u16(rest, 2)));
            let Some(value) = rest.get(4..4 + length).filter(|_| code != 0) else { break };
            found.push((code, value));
            rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        found
    }

    /// Parses an interface statistics block: interface, time, then counters since its capture began as
    /// options.
    fn statistics(&mut self, body: &[u8]) -> Result<Step, String> {
        if body.len() < 12 {
            return Err(format!("a statistics block of {} bytes, expected at least 12", body.len()));
        }
        let number = self.u32(body, 0) as usize;
        self.get(number)?;
        let mut drops = self.interfaces[number].drops;
        for (code, value) in self.options(&body[12..]) {
            let Ok(bytes) = <[u8; 8]>::try_from(value) else { continue };
            let count = if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
            match code {
                5 => drops.interface = count,
                7 => drops.system = count,
                _ => {}
            }
        }
        self.interfaces[number].drops = drops;
        Ok(Step::Skip)
    }

    fn enhanced(&mut self, body: &[u8]) -> Result<Step, String> {
        if body.len() < 20 {
            return Err(format!("an enhanced packet block of {} bytes, expected at least 20", body.len()));
        }
        self.whole(body, self.u32(body, 0) as usize, 20)
    }

    fn packet(&mut self, body: &[u8]) -> Result<Step, String> {
        if body.len() < 20 {
            return Err(format!("a packet block of {} bytes, expected at least 20", body.len()));
        }
        self.whole(body, usize::from(self.u16(body, 0)), 20)
    }

    /// Parses the common part of enhanced and obsolete packet blocks: time at 4, lengths at 12 and 16, data
    /// at 20.
    fn whole(&mut self, body: &[u8], number: usize, data: usize) -> Result<Step, String> {
        let interface = *self.get(number)?;
        let units = u64::from(self.u32(body, 4)) << 32 | u64::from(self.u32(body, 8));
        let (cap_len, wire_len) = (self.u32(body, 12), self.u32(body, 16));
        fits(cap_len, body.len() - data)?;
        // The block's type and length come before its body.
        let offset = 8 + data as u32;
        let ns = interface.ns(units);
        if ns < 0 {
            self.moved_ns = LATER_NS;
        }
        // 0 stands for no time.
        let ts_ns = u64::try_from(ns.saturating_add(self.moved_ns).max(0)).unwrap_or(u64::MAX);
        Ok(Step::Packet(RawPacket { ts_ns, offset, cap_len, wire_len, link: interface.link }))
    }

    /// Parses a packet of the first interface without a time. Its length is that on the wire, cut to the
    /// snaplen.
    fn simple(&self, body: &[u8]) -> Result<Step, String> {
        if body.len() < 4 {
            return Err("a simple packet block without a length".to_owned());
        }
        let interface = self.get(0)?;
        let wire_len = self.u32(body, 0);
        let limit = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
        let cap_len = wire_len.min(limit);
        fits(cap_len, body.len() - 4)?;
        Ok(Step::Packet(RawPacket { ts_ns: 0, offset: 12, cap_len, wire_len, link: interface.link }))
    }

    fn get(&self, number: usize) -> Result<&Interface, String> {
        let count = self.interfaces.len();
        self.interfaces
            .get(number)
            .ok_or_else(|| format!("a packet of interface {number}, {count} are described"))
    }

    fn u16(&self, bytes: &[u8], at: usize) -> u16 {
        let word = [bytes[at], bytes[at + 1]];
        if self.big_endian { u16::from_be_bytes(word) } else { u16::from_le_bytes(word) }
    }

    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }
}

fn fits(cap_len: u32, room: usize) -> Result<(), String> {
    if cap_len as usize > MAX_PACKET {
        return Err(format!("a packet of {cap_len} bytes, at most {MAX_PACKET} are possible"));
    }
    if cap_len as usize > room {
        return Err(format!("a packet of {cap_len} bytes in a block with room for {room}"));
    }
    Ok(())
}

/// Parses `if_tsresol`: a power of ten, or of two if the first bit is set.
fn scale(resolution: u8) -> Result<Scale, String> {
    let exponent = u32::from(resolution & 0x7f);
    match resolution {
        0..=9 => Ok(Scale::Times(10u64.pow(9 - exponent))),
        10..=19 => Ok(Scale::Over(10u64.pow(exponent - 9))),
        0x80.. if exponent <= 63 => Ok(Scale::Binary(exponent)),
        _ => Err(format!("a time resolution of {resolution:#x}: finer than 64 bits can hold")),
    }
}

fn damage(reason: String) -> (Step, usize) {
    (Step::Damage(reason), 0)
}
