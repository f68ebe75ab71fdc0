//! The fields of one TCP segment that the measurements need (RFC 9293, section 3.1; RFC 7323, section 3.2).

use flame_module::{Descriptor, Ip, flags};

const PROTO_TCP: u8 = 6;
/// Offsets in the TCP header.
const SEQ: usize = 4;
const ACK: usize = 8;
const DATA_OFFSET: usize = 12;
const OPTIONS: usize = 20;
/// The number of bytes that must be captured: up to and including the flags.
const LEAST: usize = 14;

/// Two endpoints, from the sender to the receiver. Addresses are as in rows: IPv4 in the first four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuple {
    pub src: [u8; 16],
    pub dst: [u8; 16],
    pub sport: u16,
    pub dport: u16,
    /// The address family, 4 or 6.
    pub family: u8,
}

impl Tuple {
    pub fn reversed(&self) -> Self {
        Self { src: self.dst, dst: self.src, sport: self.dport, dport: self.sport, family: self.family }
    }

    pub fn src(&self) -> Ip {
        Ip { family: self.family, bytes: self.src }
    }

    pub fn dst(&self) -> Ip {
        Ip { family: self.family, bytes: self.dst }
    }
}

/// TCP timestamps: the sender's clock, and its latest value of the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    pub value: u32,
    pub echo: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub tuple: Tuple,
    pub hash: u32,
    /// The capture time in nanoseconds.
    pub at: u64,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    /// Bytes of payload on the wire.
    pub len: u32,
    pub timestamps: Option<Timestamps>,
}

impl Segment {
    /// Returns the segment, or `None` if the packet is not a TCP segment or is cut off before the flags.
    #[inline]
    pub fn of(d: &Descriptor, bytes: &[u8]) -> Option<Self> {
        // A packet without a time measures nothing.
        if d.proto != PROTO_TCP || d.has(flags::LATER_FRAGMENT) || !d.is_ip() || d.ts_ns == 0 {
            return None;
        }
        let (l3, l4) = (usize::from(d.l3), usize::from(d.l4));
        let ip = bytes.get(l3..)?;
        let mut tuple = Tuple::default();
        let ip_len;
        if d.has(flags::IPV4) {
            let b = ip.get(..20)?;
            tuple.src[..4].copy_from_slice(&b[12..16]);
            tuple.dst[..4].copy_from_slice(&b[16..20]);
            tuple.family = 4;
            ip_len = usize::from(be16(b, 2));
        } else {
            let b = ip.get(..40)?;
            tuple.src.copy_from_slice(&b[8..24]);
            tuple.dst.copy_from_slice(&b[24..40]);
            tuple.family = 6;
            let len = usize::from(be16(b, 4));
            ip_len = if len == 0 { 0 } else { 40 + len };
        }
        // Segmentation offload omits the length; then the frame's length counts. Otherwise the bytes after
        // the datagram are the link's padding.
        let end = if ip_len == 0 { d.wire_len as usize } else { l3 + ip_len };
        let tcp = bytes.get(l4..end.min(bytes.len()))?;
        if tcp.len() < LEAST {
            return None;
        }
        (tuple.sport, tuple.dport) = (be16(tcp, 0), be16(tcp, 2));
        let header = usize::from(tcp[DATA_OFFSET] >> 4) * 4;
        Some(Self {
            tuple,
            hash: d.hash,
            at: d.ts_ns,
            seq: be32(tcp, SEQ),
            ack: be32(tcp, ACK),
            flags: tcp[13],
            len: end.saturating_sub(l4 + header) as u32,
            timestamps: tcp.get(OPTIONS..header.min(tcp.len())).and_then(timestamps),
        })
    }
}

/// The kind and length of the timestamps option.
const TIMESTAMPS: [u8; 2] = [8, 10];

#[inline]
fn timestamps(options: &[u8]) -> Option<Timestamps> {
    // Almost all stacks align it like this (RFC 7323, appendix A).
    if options.len() >= 12 && options[..4] == [1, 1, TIMESTAMPS[0], TIMESTAMPS[1]] {
        return Some(Timestamps { value: be32(options, 4), echo: be32(options, 8) });
    }
    flame_module::cold();
    let mut at = 0;
    // At most 40 bytes of options, two or more in each step: an option, or padding and what follows it.
    for _ in 0..20 {
        at += usize::from(*options.get(at)? == 1);
        match *options.get(at)? {
            0 => return None,
            1 => at += 1,
            _ => {
                let len = usize::from(*options.get(at + 1)?);
                if options[at..at + 2] == TIMESTAMPS && options.len() >= at + 10 {
                    return Some(Timestamps { value: be32(options, at + 2), echo: be32(options, at + 6) });
                }
                if len < 2 {
                    return None;
                }
                at += len;
            }
        }
    }
    None
}

fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Returns whether `a` is at or after `b` in sequence space (RFC 9293, section 3.4).
#[inline]
pub fn at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_found_wherever_they_are() {
        let option = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let expected = Some(Timestamps { value: 1, echo: 2 });
        for before in
            [&[][..], &[1], &[1, 1], &[2, 4, 5, 0xb4], &[4, 2, 1, 1, 1], &[1; 30], &[4, 2].repeat(15)]
        {
            assert_eq!(timestamps(&[before, &option[..]].concat()), expected, "{before:?}");
        }
        for bad in [&[][..], &[8], &[8, 10, 0], &[0, 8, 10], &[2, 0, 8, 10], &[2, 1], &[3, 255], &option[..9]]
        {
            assert_eq!(timestamps(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert!(at_or_after(5, 5) && at_or_after(1, u32::MAX) && !at_or_after(u32::MAX, 1));
    }

    #[test]
    fn any_cut_of_a_packet_is_handled() {
        let mut bytes = vec![0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        bytes.extend([0, 80, 1, 0, 0, 0, 0, 9, 0, 0, 0, 8, 0xa0, 16, 0, 0, 0, 0, 0, 0]);
        bytes.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 1, 1, 1, 1, 1, 1]);
        let flags = flags::IPV4;
        let d = Descriptor { ts_ns: 1, l4: 20, proto: 6, flags, wire_len: 60, ..Descriptor::default() };
        for cut in 0..=60 {
            let segment = Segment::of(&d, &bytes[..cut]);
            assert_eq!(segment.is_some(), cut >= 34, "{cut}");
            assert_eq!(segment.and_then(|s| s.timestamps).is_some(), cut >= 52, "{cut}");
            assert_eq!(segment.map_or(0, |s| s.len), 0);
        }
    }
}
