//! Headers with named fields. A view exists only if the whole fixed part of its header is visible.

use crate::batch::{Ip, Packet};
use flame_abi::flags;

/// Protocol numbers (IANA), as in `proto` of [`flame_abi::Descriptor`].
pub mod proto {
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const IPIP: u8 = 4;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const IPV6: u8 = 41;
    pub const GRE: u8 = 47;
    pub const ESP: u8 = 50;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const OSPF: u8 = 89;
    pub const SCTP: u8 = 132;
}

/// An IPv4 header (RFC 791).
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    header: &'a [u8; 20],
    rest: &'a [u8],
}

/// An IPv6 header (RFC 8200).
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    header: &'a [u8; 40],
}

/// A TCP header (RFC 9293).
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    header: &'a [u8; 20],
    rest: &'a [u8],
}

/// A UDP header (RFC 768).
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    header: &'a [u8; 8],
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $type:ident at $at:literal,)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name(&self) -> $type {
            const SIZE: usize = size_of::<$type>();
            let mut bytes = [0; SIZE];
            bytes.copy_from_slice(&self.header[$at..$at + SIZE]);
            $type::from_be_bytes(bytes)
        }
    )*};
}

impl<'a> Packet<'a> {
    /// Returns the IPv4 header; of a packet in a tunnel, the inner one.
    #[inline]
    pub fn ipv4(&self) -> Option<Ipv4<'a>> {
        if !self.has(flags::IPV4) {
            return None;
        }
        let (header, rest) = self.l3().split_first_chunk()?;
        Some(Ipv4 { header, rest })
    }

    /// Returns the IPv6 header; of a packet in a tunnel, the inner one.
    #[inline]
    pub fn ipv6(&self) -> Option<Ipv6<'a>> {
        if !self.has(flags::IPV6) {
            return None;
        }
        Some(Ipv6 { header: self.l3().first_chunk()? })
    }

    /// Returns the TCP header; later fragments have none.
    #[inline]
    pub fn tcp(&self) -> Option<Tcp<'a>> {
        if self.proto != proto::TCP || !self.is_ip() {
            return None;
        }
        let (header, rest) = self.l4().split_first_chunk()?;
        Some(Tcp { header, rest })
    }

    /// Returns the UDP header; later fragments have none.
    #[inline]
    pub fn udp(&self) -> Option<Udp<'a>> {
        if self.proto != proto::UDP || !self.is_ip() {
            return None;
        }
        Some(Udp { header: self.l4().first_chunk()? })
    }
}

impl<'a> Ipv4<'a> {
    fields! {
        /// Length of the datagram in bytes; 0 if segmentation offload omitted it.
        total_len: u16 at 2,
        id: u16 at 4,
        ttl: u8 at 8,
        proto: u8 at 9,
        /// Checksum; 0 if not all bytes that it covers are visible.
        checksum: u16 at 10,
    }

    /// Returns the length of the header in bytes, according to its length field.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.header[0] & 15) * 4
    }

    /// Returns the code point of differentiated services, 0 to 63.
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.header[1] >> 2
    }

    /// Returns the bits of explicit congestion notification: 3 if the network marked congestion.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.header[1] & 3
    }

    /// Returns the version in the header, which is 4.
    #[inline]
    pub fn version(&self) -> u8 {
        self.header[0] >> 4
    }

    /// Returns the bit before "don't fragment", which is reserved (RFC 791, section 3.1).
    #[inline]
    pub fn reserved(&self) -> bool {
        self.header[6] & 0x80 != 0
    }

    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.header[6] & 0x40 != 0
    }

    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.header[6] & 0x20 != 0
    }

    /// Returns the offset of the fragment in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> usize {
        (usize::from(self.header[6] & 31) << 8 | usize::from(self.header[7])) * 8
    }

    #[inline]
    pub fn src(&self) -> Ip {
        let [.., a, b, c, d, _, _, _, _] = *self.header;
        Ip::v4([a, b, c, d])
    }

    #[inline]
    pub fn dst(&self) -> Ip {
        let [.., a, b, c, d] = *self.header;
        Ip::v4([a, b, c, d])
    }

    /// Returns the visible part of the options.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        upto(self.rest, self.header_len(), 20)
    }
}

impl Ipv6<'_> {
    fields! {
        /// Length of the payload in bytes; 0 for a jumbogram, or if segmentation offload omitted it.
        payload_len: u16 at 4,
        /// Type of the header after this one: an extension, or the transport that `packet.proto` names.
        next_header: u8 at 6,
        hop_limit: u8 at 7,
    }

    /// Returns the code point of differentiated services, 0 to 63.
    #[inline]
    pub fn dscp(&self) -> u8 {
        (self.header[0] & 15) << 2 | self.header[1] >> 6
    }

    /// Returns the bits of explicit congestion notification: 3 if the network marked congestion.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.header[1] >> 4 & 3
    }

    /// Returns the version in the header, which is 6.
    #[inline]
    pub fn version(&self) -> u8 {
        self.header[0] >> 4
    }

    /// Returns the flow label, a number of 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.header[1] & 15, self.header[2], self.header[3]])
    }

    #[inline]
    pub fn src(&self) -> Ip {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.header[8..24]);
        Ip::v6(bytes)
    }

    #[inline]
    pub fn dst(&self) -> Ip {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.header[24..40]);
        Ip::v6(bytes)
    }
}

impl<'a> Tcp<'a> {
    fields! {
        sport: u16 at 0,
        dport: u16 at 2,
        seq: u32 at 4,
        ack: u32 at 8,
        /// Flags CWR, ECE, URG, ACK, PSH, RST, SYN, FIN, see [`crate::tcp`].
        flags: u8 at 13,
        window: u16 at 14,
        /// Checksum; 0 if not all bytes that it covers are visible.
        checksum: u16 at 16,
        urgent: u16 at 18,
    }

    /// Returns the four bits before the flags. The last is AE (RFC 9768), the others are reserved (RFC 9293,
    /// section 3.1).
    #[inline]
    pub fn reserved(&self) -> u8 {
        self.header[12] & 15
    }

    /// Returns the length of the header in bytes, according to its length field.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.header[12] >> 4) * 4
    }

    /// Returns whether all of these flags are set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.flags() & flags == flags
    }

    /// Returns the visible part of the options.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        upto(self.rest, self.header_len(), 20)
    }

    /// Returns the content of the first option of this kind; for example, `option(8)` has two timestamps (RFC
    /// 7323).
    #[inline]
    pub fn option(&self, kind: u8) -> Option<&'a [u8]> {
        let options = self.options();
        let mut at = 0;
        // At most 40 bytes of options.
        for _ in 0..40 {
            match *options.get(at)? {
                0 => return None,
                1 => at += 1,
                found => {
                    let len = usize::from(*options.get(at + 1)?);
                    if found == kind {
                        return options.get(at + 2..at + len);
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
}

impl Udp<'_> {
    fields! {
        sport: u16 at 0,
        dport: u16 at 2,
        /// Length of this header and the payload in bytes.
        total_len: u16 at 4,
        /// Checksum; 0 if it is missing, or not all bytes that it covers are visible.
        checksum: u16 at 6,
    }
}

/// Returns the visible part of a header of `len` bytes after its first `fixed` bytes.
#[inline]
fn upto(rest: &[u8], len: usize, fixed: usize) -> &[u8] {
    &rest[..len.saturating_sub(fixed).min(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Traffic;
    use crate::{Batch, tcp};
    use flame_abi::BatchHeader;

    fn one<T>(traffic: &Traffic, look: impl Fn(&Packet<'_>) -> T) -> T {
        let batch = Batch::new(traffic.descriptors(), traffic.memory(), 0, &BatchHeader::default());
        look(&batch.packets().next().expect("there is a packet"))
    }

    #[test]
    fn every_field_of_ipv4_and_tcp() {
        let mut traffic = Traffic::default();
        let mut packet = traffic.tcp("10.0.0.1:1024", "192.0.2.7:443");
        packet.tcp_flags(tcp::SYN | tcp::ACK).seq(0x0102_0304).ack(0x0506_0708).payload(b"hello");
        packet.bytes()[15..22].copy_from_slice(&[0xba, 0, 45, 0x12, 0x34, 0xe0, 0x03]);
        packet.bytes()[46] |= 9;
        packet.bytes()[24..26].copy_from_slice(&[0xca, 0xfe]);
        packet.bytes()[48..54].copy_from_slice(&[0x20, 0x01, 0xab, 0xcd, 0, 9]);
        one(&traffic, |p| {
            let (ip, tcp) = (p.ipv4().unwrap(), p.tcp().unwrap());
            assert_eq!(
                (ip.header_len(), ip.dscp(), ip.ecn(), ip.total_len(), ip.id()),
                (20, 46, 2, 45, 0x1234)
            );
            assert_eq!((ip.version(), ip.reserved(), tcp.reserved()), (4, true, 9));
            assert_eq!((ip.dont_fragment(), ip.more_fragments(), ip.fragment_offset()), (true, true, 24));
            assert_eq!((ip.ttl(), ip.proto(), ip.checksum()), (64, proto::TCP, 0xcafe));
            assert_eq!((ip.src().to_string(), ip.dst().to_string()), ("10.0.0.1".into(), "192.0.2.7".into()));
            assert!(ip.options().is_empty() && p.ipv6().is_none() && p.udp().is_none());
            assert_eq!(
                (tcp.sport(), tcp.dport(), tcp.seq(), tcp.ack()),
                (1024, 443, 0x0102_0304, 0x0506_0708)
            );
            assert_eq!((tcp.flags(), tcp.window(), tcp.checksum(), tcp.urgent()), (0x12, 0x2001, 0xabcd, 9));
            assert_eq!((tcp.header_len(), tcp.options()), (20, &[][..]));
            assert!(tcp.has(tcp::SYN) && !tcp.has(tcp::FIN));
            assert_eq!(p.payload(), b"hello");
        });
    }

    #[test]
    fn every_field_of_ipv6_and_udp() {
        let mut traffic = Traffic::default();
        let mut packet = traffic.udp("[2001:db8::1]:53", "[2001:db8::2]:5353");
        packet.payload(b"q");
        packet.bytes()[14..18].copy_from_slice(&[0x6b, 0xa1, 0x23, 0x45]);
        one(&traffic, |p| {
            let (ip, udp) = (p.ipv6().unwrap(), p.udp().unwrap());
            assert_eq!((ip.version(), ip.dscp(), ip.ecn(), ip.flow_label()), (6, 46, 2, 0x12345));
            assert_eq!((ip.payload_len(), ip.next_header(), ip.hop_limit()), (9, proto::UDP, 64));
            assert_eq!((Some(ip.src()), Some(ip.dst())), (p.src(), p.dst()));
            assert_eq!(ip.dst().to_string(), "2001:db8::2");
            assert_eq!((udp.sport(), udp.dport(), udp.total_len(), udp.checksum()), (53, 5353, 9, 0));
            assert!(p.ipv4().is_none() && p.tcp().is_none());
        });
    }

    #[test]
    fn options_are_found_wherever_they_are_and_never_outside() {
        let stamps = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        for before in [&[][..], &[1], &[2, 4, 5, 0xb4], &[4, 2, 1, 1, 1]] {
            let mut traffic = Traffic::default();
            traffic
                .tcp("10.0.0.1:1", "10.0.0.2:2")
                .tcp_options(&[before, &stamps[..]].concat())
                .payload(b"xy");
            one(&traffic, |p| {
                assert_eq!(p.tcp().unwrap().option(8), Some(&stamps[2..]), "{before:?}");
                assert_eq!((p.tcp().unwrap().option(3), p.payload()), (None, &b"xy"[..]));
            });
        }
        for bad in [&[8, 9, 9][..], &[8], &[8, 0], &[8, 1], &[0, 8, 2], &[3, 1, 8, 2], &[3, 255]] {
            let mut traffic = Traffic::default();
            traffic.tcp("10.0.0.1:1", "10.0.0.2:2").tcp_options(bad);
            // The options are padded with zeros to a multiple of four bytes.
            one(&traffic, |p| assert!(p.tcp().unwrap().option(8).is_none_or(|o| o.is_empty()), "{bad:?}"));
        }
    }

    #[test]
    fn any_cut_of_a_packet_is_handled() {
        let mut traffic = Traffic::default();
        traffic
            .tcp("10.0.0.1:1", "10.0.0.2:2")
            .tcp_options(&[8, 10, 0, 0, 0, 1, 0, 0, 0, 2])
            .payload(b"hello");
        for cut in 0..=traffic.memory().len() as u32 {
            traffic.last().captured(cut);
            one(&traffic, |p| {
                assert_eq!(p.ipv4().is_some(), cut >= 34, "{cut}");
                assert_eq!(p.tcp().is_some(), cut >= 54, "{cut}");
                let option = p.tcp().and_then(|tcp| tcp.option(8).map(<[u8]>::len));
                assert_eq!(option, (cut >= 64).then_some(8), "{cut}");
            });
        }
    }
}
