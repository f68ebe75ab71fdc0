//! Frames that the kernel hands over unfinished: without their checksum, which the card would have computed,
//! or as one long frame of segments that the card would have cut, or has joined. A ring states beside each
//! frame which work is left (struct `virtio_net_hdr`), and this file does it, so that what is forwarded is a
//! right frame.

/// The length of the statement in front of a frame.
pub const STATEMENT: usize = 10;
/// The offset of the place where the checksum begins, in the statement.
pub const CHECKSUM_START: usize = 6;

const NEEDS_CHECKSUM: u8 = 1;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
/// Set beside another kind, if the first segment has the flag CWR.
const ECN: u8 = 0x80;

/// The most frames that one is cut into. The 64 KiB that the kernel joins are fewer segments, unless these
/// have less than 64 bytes, which no sender of large data has.
pub const MOST_SEGMENTS: usize = 1024;

/// The work that is left on a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    needs_checksum: bool,
    /// The kind of segments, or 0.
    segments: u8,
    /// The bytes of payload in each segment but the last.
    size: usize,
    /// The first byte that the checksum covers, and the place of the checksum after it.
    start: usize,
    offset: usize,
}

/// The reason why a frame cannot be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinishable {
    /// The ring did not keep all of its bytes.
    CutOff,
    /// Its segments are of a kind that is not known here, such as those inside a tunnel.
    Unknown,
    /// They are more than [`MOST_SEGMENTS`].
    TooMany,
}

impl Unfinished {
    /// Reads the statement that the kernel wrote.
    pub fn read(statement: [u8; STATEMENT]) -> Self {
        let half = |at: usize| usize::from(u16::from_ne_bytes([statement[at], statement[at + 1]]));
        Self {
            needs_checksum: statement[0] & NEEDS_CHECKSUM != 0,
            segments: statement[1] & !ECN,
            size: half(4),
            start: half(CHECKSUM_START),
            offset: half(8),
        }
    }

    /// Returns whether nothing is left to do.
    pub fn is_nothing(self) -> bool {
        !self.needs_checksum && self.segments == 0
    }

    /// Finishes `frame`, and hands over each right frame in two parts: bytes in front, which are in `front`,
    /// and those of the frame that follow them.
    ///
    /// # Errors
    ///
    /// Returns the reason why this frame cannot be finished. Then nothing was handed over.
    pub fn finish(
        self,
        frame: &[u8],
        front: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Unfinishable> {
        if self.segments != 0 {
            return self.cut(frame, front, each);
        }
        if !self.needs_checksum {
            each(&[], frame);
            return Ok(());
        }
        let at = self.start + self.offset;
        if at + 2 > frame.len() {
            return Err(Unfinishable::CutOff);
        }
        // The sum of the addresses is in the field already.
        let value = folded(add(0, &frame[self.start..]));
        // 0 would mean that a datagram has no checksum. Only UDP has its checksum at this place.
        let value = if value == 0 && self.offset == 6 { 0xffff } else { value };
        front.clear();
        front.extend_from_slice(&frame[..at + 2]);
        put(front, at, value);
        each(front, &frame[at + 2..]);
        Ok(())
    }

    /// Cuts a frame into its segments.
    fn cut(
        self,
        frame: &[u8],
        front: &mut Vec<u8>,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Unfinishable> {
        let network = network(frame).ok_or(Unfinishable::Unknown)?;
        let transport = match self.segments {
            TCP4 | TCP6 | UDP => network.transport(frame).ok_or(Unfinishable::Unknown)?,
            _ => return Err(Unfinishable::Unknown),
        };
        // Inside a tunnel, the checksum begins elsewhere.
        if self.needs_checksum && self.start != transport.at || self.size == 0 {
            return Err(Unfinishable::Unknown);
        }
        let is_tcp = self.segments != UDP;
        if transport.protocol != if is_tcp { 6 } else { 17 } {
            return Err(Unfinishable::Unknown);
        }
        let length = if is_tcp {
            usize::from(frame.get(transport.at + 12).ok_or(Unfinishable::CutOff)? >> 4) * 4
        } else {
            8
        };
        let head = frame.get(..transport.at + length).ok_or(Unfinishable::CutOff)?;
        if is_tcp && length < 20 {
            return Err(Unfinishable::Unknown);
        }
        let payload = &frame[head.len()..];
        let count = payload.len().div_ceil(self.size).max(1);
        if count > MOST_SEGMENTS {
            return Err(Unfinishable::TooMany);
        }
        for i in 0..count {
            let from = i * self.size;
            let part = &payload[from..payload.len().min(from + self.size)];
            front.clear();
            front.extend_from_slice(head);
            network.adjust(front, head.len() + part.len(), i as u16);
            if is_tcp {
                adjust_tcp(&mut front[transport.at..], from as u32, i == 0, i + 1 == count);
            } else {
                put(front, transport.at + 4, (8 + part.len()) as u16);
            }
            let field = transport.at + if is_tcp { 16 } else { 6 };
            put(front, field, 0);
            let sum = network.sum(front, transport.protocol, length + part.len());
            let value = folded(add(add(sum, &front[transport.at..]), part));
            put(front, field, if value == 0 && !is_tcp { 0xffff } else { value });
            each(front, part);
        }
        Ok(())
    }
}

/// Sets what differs between the segments of TCP: the number of the first byte, and the flags that only the
/// first or the last segment has.
fn adjust_tcp(tcp: &mut [u8], passed: u32, is_first: bool, is_last: bool) {
    const FIN_PSH: u8 = 0x09;
    const CWR: u8 = 0x80;
    let number = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(passed);
    tcp[4..8].copy_from_slice(&number.to_be_bytes());
    if !is_first {
        tcp[13] &= !CWR;
    }
    if !is_last {
        tcp[13] &= !FIN_PSH;
    }
}

/// The IP header of a frame.
struct Network {
    at: usize,
    is_v4: bool,
}

struct Transport {
    at: usize,
    protocol: u8,
}

/// Finds the IP header after the Ethernet header and its tags, or at the beginning, as tunnels have it.
fn network(frame: &[u8]) -> Option<Network> {
    let kind = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut at = 12;
    for _ in 0..4 {
        match kind(at)? {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            0x0800 => return Some(Network { at: at + 2, is_v4: true }),
            0x86dd => return Some(Network { at: at + 2, is_v4: false }),
            _ => return None,
        }
    }
    None
}

impl Network {
    /// Returns the header that follows. IPv6 packets with further headers between have none.
    fn transport(&self, frame: &[u8]) -> Option<Transport> {
        let header = frame.get(self.at..)?;
        if !self.is_v4 {
            let protocol = *header.get(6)?;
            return (header.len() >= 40).then_some(Transport { at: self.at + 40, protocol });
        }
        let length = usize::from(header.first()? & 15) * 4;
        let is_whole = length >= 20 && header.len() >= length;
        is_whole.then(|| Transport { at: self.at + length, protocol: header[9] })
    }

    /// Sets lengths, identification and checksum of segment `index` in a frame of `total` bytes.
    fn adjust(&self, front: &mut [u8], total: usize, index: u16) {
        if !self.is_v4 {
            return put(front, self.at + 4, (total - self.at - 40) as u16);
        }
        let id = u16::from_be_bytes([front[self.at + 4], front[self.at + 5]]).wrapping_add(index);
        put(front, self.at + 2, (total - self.at) as u16);
        put(front, self.at + 4, id);
        put(front, self.at + 10, 0);
        let end = self.at + usize::from(front[self.at] & 15) * 4;
        let value = folded(add(0, &front[self.at..end]));
        put(front, self.at + 10, value);
    }

    /// Returns the sum of addresses, protocol and length, which the checksum covers, too.
    fn sum(&self, front: &[u8], protocol: u8, length: usize) -> u64 {
        let addresses = if self.is_v4 { 12..20 } else { 8..40 };
        let addresses = &front[self.at + addresses.start..self.at + addresses.end];
        add(u64::from(protocol) + length as u64, addresses)
    }
}

/// Adds 16-bit words to a sum. Bytes that follow must begin at an even place.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    // 32 bits at a time: the halves are added when the sum is folded.
    let words = bytes.chunks_exact(4);
    let rest = match *words.remainder() {
        [a, b, c] => (u64::from(u16::from_be_bytes([a, b])) << 16) + (u64::from(c) << 8),
        [a, b] => u64::from(u16::from_be_bytes([a, b])),
        [a] => u64::from(a) << 8,
        _ => 0,
    };
    let of = |w: &[u8]| u64::from(u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
    sum + words.map(of).sum::<u64>() + rest
}

/// Returns the checksum of a sum.
fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
#[path = "finish_tests.rs"]
mod tests;
