//! Functions that several elements share: checksums, header fields, small conversions.

use crate::runtime::packet::Packet;
use flame_click::Ip;

/// Returns the sum of 16-bit words, not yet complemented.
pub fn sum(bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(2);
    let mut total: u64 = words.by_ref().map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    if let [last] = words.remainder() {
        total += u64::from(*last) << 8;
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u32
}

/// Returns the Internet checksum over bytes and a sum of others.
pub fn checksum(bytes: &[u8], plus: u32) -> u16 {
    let mut total = sum(bytes) + plus;
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

/// Returns the sum of the pseudo-header of TCP and UDP.
pub fn pseudo(ip: &[u8], length: usize) -> u32 {
    sum(&ip[12..20]) + u32::from(ip[9]) + length as u32
}

/// Returns the words of an address before and after a change.
pub fn address_words(old: Ip, new: Ip) -> [(u16, u16); 2] {
    [((old.0 >> 16) as u16, (new.0 >> 16) as u16), (old.0 as u16, new.0 as u16)]
}

/// Brings the checksum at an offset up to date after words that it covers changed. A 0 in UDP means that
/// there is no checksum, which stays so, and is ffff where it would become 0 (RFC 768).
pub fn adjust_checksum(bytes: &mut [u8], at: usize, is_udp: bool, changes: &[(u16, u16)]) {
    let old = be16(bytes, at);
    if is_udp && old == 0 {
        return;
    }
    let new = changes.iter().fold(old, |check, (old, new)| update(check, *old, *new));
    put16(bytes, at, if is_udp && new == 0 { 0xffff } else { new });
}

/// Returns a checksum after a 16-bit word changed from `old` to `new` (RFC 1624).
fn update(check: u16, old: u16, new: u16) -> u16 {
    let mut total = u32::from(!check) + u32::from(!old) + u32::from(new);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

pub fn be16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(b) => u16::from_be_bytes([b[0], b[1]]),
        None => 0,
    }
}

pub fn be32(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(b) => u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
        None => 0,
    }
}

pub fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(b) = bytes.get_mut(at..at + 2) {
        b.copy_from_slice(&value.to_be_bytes());
    }
}

pub fn put32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(b) = bytes.get_mut(at..at + 4) {
        b.copy_from_slice(&value.to_be_bytes());
    }
}

/// The parts of a packet's IPv4 header that are needed most.
#[derive(Clone, Copy, Debug)]
pub struct IpHeader {
    /// Offset of the header in the packet.
    pub at: usize,
    pub length: usize,
    /// The length field, but not more than the packet has.
    pub total: usize,
    /// The length field, which is more than `total` if the packet was cut, but at least the header.
    pub stated: usize,
    pub protocol: u8,
    pub source: Ip,
    pub destination: Ip,
    /// The fragment's offset in bytes.
    pub offset: usize,
    pub has_more: bool,
}

/// Reads the IPv4 header that is marked as network header, if it is whole.
pub fn ip_header(p: &Packet) -> Option<IpHeader> {
    let at = p.network()?;
    let h = p.data().get(at..)?;
    if h.len() < 20 || h[0] >> 4 != 4 {
        return None;
    }
    let length = usize::from(h[0] & 15) * 4;
    if length < 20 || length > h.len() {
        return None;
    }
    let field = be16(h, 6);
    let stated = usize::from(be16(h, 2)).max(length);
    Some(IpHeader {
        at,
        length,
        total: stated.min(h.len()),
        stated,
        protocol: h[9],
        source: Ip(be32(h, 12)),
        destination: Ip(be32(h, 16)),
        offset: usize::from(field & 0x1fff) * 8,
        has_more: field & 0x2000 != 0,
    })
}

impl IpHeader {
    /// Returns the offset after the IP header.
    pub fn payload(&self) -> usize {
        self.at + self.length
    }

    pub fn end(&self) -> usize {
        self.at + self.total
    }

    pub fn is_first_fragment(&self) -> bool {
        self.offset == 0
    }
}

/// Marks the IPv4 header at an offset, with the length that it states.
pub fn mark_ip(p: &mut Packet, at: usize) {
    let length = p.data().get(at).map_or(20, |b| usize::from(b & 15) * 4);
    p.set_network(at, length);
}

/// Writes the IPv4 header's checksum again.
pub fn set_ip_checksum(h: &mut [u8]) {
    let length = (usize::from(h.first().map_or(0, |b| b & 15)) * 4).min(h.len());
    if length >= 20 {
        put16(h, 10, 0);
        let check = checksum(&h[..length], 0);
        put16(h, 10, check);
    }
}

/// Writes the checksum of TCP, UDP or ICMP again, if the packet holds all of its payload.
pub fn set_transport_checksum(p: &mut Packet, protocol: u8) -> bool {
    let Some(h) = ip_header(p) else { return false };
    let (start, end) = (h.payload(), h.end());
    let length = end - start;
    let (field, least) = match protocol {
        6 => (16, 20),
        17 => (6, 8),
        1 => (2, 4),
        _ => return false,
    };
    if h.protocol != protocol || length < least || !h.is_first_fragment() {
        return false;
    }
    let plus = if protocol == 1 { 0 } else { pseudo(&p.data()[h.at..], length) };
    let plus =
        if protocol == 17 { plus - length as u32 + u32::from(be16(p.data(), start + 4)) } else { plus };
    let length = match protocol {
        17 => usize::from(be16(p.data(), start + 4)),
        _ => length,
    };
    if start + length > end {
        return false;
    }
    let data = p.data_mut();
    put16(data, start + field, 0);
    let mut check = checksum(&data[start..start + length], plus);
    if protocol == 17 && check == 0 {
        check = 0xffff;
    }
    put16(data, start + field, check);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_agree_with_known_headers_and_updates() {
        // The header of RFC 1071's usual example.
        let mut h =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        set_ip_checksum(&mut h);
        assert_eq!(be16(&h, 10), 0xb861);
        assert_eq!(checksum(&h, 0), 0);
        h[8] = 0x3f;
        adjust_checksum(&mut h, 10, false, &[(0x4011, 0x3f11)]);
        assert_eq!(checksum(&h, 0), 0);
    }
    #[test]
    fn a_checksum_of_udp_does_not_become_none() {
        let adjusted = |check: u16, is_udp, change| {
            let mut bytes = check.to_be_bytes();
            adjust_checksum(&mut bytes, 0, is_udp, &[change]);
            be16(&bytes, 0)
        };
        assert_eq!(adjusted(0x0001, true, (0x1000, 0x1001)), 0xffff);
        assert_eq!(adjusted(0x0001, false, (0x1000, 0x1001)), 0);
        assert_eq!(adjusted(0, true, (0x1000, 0x1001)), 0);
        assert_eq!(adjusted(0, false, (0x1000, 0x1001)), 0xfffe);
    }
}
