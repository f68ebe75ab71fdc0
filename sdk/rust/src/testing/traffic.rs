//! Packets for tests, built header by header.

use crate::view::proto;
use flame_abi::{Descriptor, flags};
use std::net::{IpAddr, SocketAddr};

/// Packets in the order in which they are added, each one microsecond after the one before: Ethernet, IP
/// without extensions, and the descriptor that a host would compute. The checksums of IPv4 headers are right;
/// those of TCP and UDP are 0.
///
/// ```
/// use flame_module::{tcp, testing::Traffic};
/// let mut traffic = Traffic::default();
/// traffic.tcp("10.0.0.1:1024", "10.0.0.2:443").tcp_flags(tcp::SYN).seq(7);
/// traffic.tcp("10.0.0.1:1024", "10.0.0.2:443").payload(b"hello").at(1_000_000_000);
/// traffic.udp("[fd00::1]:5353", "[fd00::2]:53").payload(b"?").captured(60);
/// assert_eq!(traffic.descriptors().len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    descriptors: Vec<Descriptor>,
    memory: Vec<u8>,
    /// The descriptor of the last packet, as if all of it were captured.
    whole: Descriptor,
}

/// The packet that was added last.
#[derive(Debug)]
pub struct PacketBuilder<'a> {
    traffic: &'a mut Traffic,
}

const ETHERNET: usize = 14;

impl Traffic {
    /// Adds a TCP segment with the flag ACK from one endpoint to another, for example `10.0.0.1:80` or
    /// `[fd00::1]:80`.
    ///
    /// # Panics
    /// Panics, as all of these methods do, if an endpoint or address is not valid.
    pub fn tcp(&mut self, src: &str, dst: &str) -> PacketBuilder<'_> {
        let mut packet = self.ports(src, dst, proto::TCP, 20);
        packet.l4()[12] = 0x50;
        packet.tcp_flags(flame_abi::tcp::ACK);
        packet
    }

    /// Adds a UDP datagram.
    ///
    /// # Panics
    ///
    /// Panics if an endpoint is not valid, or if the two are not of one version of IP.
    pub fn udp(&mut self, src: &str, dst: &str) -> PacketBuilder<'_> {
        self.ports(src, dst, proto::UDP, 8)
    }

    /// Adds a packet of any protocol between two addresses, for example `10.0.0.1` or `fd00::1`. Its payload
    /// begins after the IP header.
    ///
    /// # Panics
    ///
    /// Panics if an address is not valid, or if the two are not of one version of IP.
    pub fn ip(&mut self, src: &str, dst: &str, proto: u8) -> PacketBuilder<'_> {
        let address = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text:?}: expected an address"));
        self.add(address(src), address(dst), proto, 0)
    }

    fn ports(&mut self, src: &str, dst: &str, proto: u8, l4_len: u8) -> PacketBuilder<'_> {
        let endpoint = |text: &str| -> SocketAddr {
            text.parse().unwrap_or_else(|_| panic!("{text:?}: expected an endpoint, as 10.0.0.1:80"))
        };
        let (src, dst) = (endpoint(src), endpoint(dst));
        let mut packet = self.add(src.ip(), dst.ip(), proto, l4_len);
        packet.l4()[..2].copy_from_slice(&src.port().to_be_bytes());
        packet.l4()[2..4].copy_from_slice(&dst.port().to_be_bytes());
        // The sum is the same in both directions.
        let ports = u32::from(src.port()) + u32::from(dst.port());
        packet.traffic.whole.hash = packet.traffic.whole.hash.wrapping_add(ports).wrapping_mul(0x9e37_79b1);
        packet.update();
        packet
    }

    fn add(&mut self, src: IpAddr, dst: IpAddr, proto: u8, l4_len: u8) -> PacketBuilder<'_> {
        let addr = self.memory.len();
        self.memory.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        let (version, l4) = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.memory.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, proto, 0, 0]);
                self.memory.extend([src.octets(), dst.octets()].concat());
                (flags::IPV4, ETHERNET + 20)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                self.memory.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, proto, 64]);
                self.memory.extend([src.octets(), dst.octets()].concat());
                (flags::IPV6, ETHERNET + 40)
            }
            _ => panic!("{src} and {dst} are not of one version"),
        };
        self.memory.resize(addr + l4 + usize::from(l4_len), 0);
        let octets = |ip| match ip {
            IpAddr::V4(ip) => u32::from(ip),
            IpAddr::V6(ip) => {
                ip.octets().chunks(4).fold(0, |n, b| n ^ u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
            }
        };
        self.whole = Descriptor {
            ts_ns: self.descriptors.last().map_or(0, |d| d.ts_ns + 1000),
            addr: addr as u32,
            hash: (octets(src) ^ octets(dst)).wrapping_add(proto.into()).wrapping_mul(0x9e37_79b1),
            l3: ETHERNET as u16,
            l4: l4 as u16,
            l4_len,
            proto,
            flags: version | if l4_len > 0 { flags::TRANSPORT } else { 0 },
            ..Descriptor::default()
        };
        self.descriptors.push(self.whole);
        let mut packet = PacketBuilder { traffic: self };
        packet.update();
        packet
    }

    /// Returns the packet that was added last.
    ///
    /// # Panics
    /// Panics without one.
    pub fn last(&mut self) -> PacketBuilder<'_> {
        assert!(!self.descriptors.is_empty(), "no packet was added");
        PacketBuilder { traffic: self }
    }

    /// Adds a copy of the packet that was added last.
    ///
    /// # Panics
    ///
    /// Panics without one.
    pub fn again(&mut self) -> PacketBuilder<'_> {
        let bytes = self.memory[self.whole.addr as usize..].to_vec();
        self.whole.addr = self.memory.len() as u32;
        self.whole.ts_ns = self.last().descriptor().ts_ns + 1000;
        self.memory.extend(bytes);
        self.descriptors.push(self.whole);
        let mut packet = self.last();
        packet.update();
        packet
    }

    /// Returns the descriptors of all packets, in the order in which they were added.
    pub fn descriptors(&self) -> &[Descriptor] {
        &self.descriptors
    }

    /// Returns the memory in which the descriptors' `addr` is an offset.
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }
}

impl PacketBuilder<'_> {
    /// Appends to the payload.
    pub fn payload(&mut self, bytes: &[u8]) -> &mut Self {
        self.traffic.memory.extend(bytes);
        self.update()
    }

    /// Sets the time, in nanoseconds.
    pub fn at(&mut self, ts_ns: u64) -> &mut Self {
        self.traffic.whole.ts_ns = ts_ns;
        self.update()
    }

    /// Sets the flow hash, which otherwise follows from addresses, ports and protocol.
    pub fn hash(&mut self, hash: u32) -> &mut Self {
        self.traffic.whole.hash = hash;
        self.update()
    }

    /// Sets the flags of a TCP segment, in the packet and in its descriptor.
    ///
    /// # Panics
    ///
    /// Panics if the packet has no room for them behind its IP header.
    pub fn tcp_flags(&mut self, tcp_flags: u8) -> &mut Self {
        self.l4()[13] = tcp_flags;
        self.traffic.whole.tcp_flags = tcp_flags;
        self.update()
    }

    /// Sets the sequence number of a TCP segment.
    ///
    /// # Panics
    ///
    /// Panics if the packet has no room for one behind its IP header.
    pub fn seq(&mut self, seq: u32) -> &mut Self {
        self.l4()[4..8].copy_from_slice(&seq.to_be_bytes());
        self
    }

    /// Sets the acknowledgment number of a TCP segment.
    ///
    /// # Panics
    ///
    /// Panics if the packet has no room for one behind its IP header.
    pub fn ack(&mut self, ack: u32) -> &mut Self {
        self.l4()[8..12].copy_from_slice(&ack.to_be_bytes());
        self
    }

    /// Sets the options of a TCP segment that has no payload yet, padded to a multiple of four bytes.
    ///
    /// # Panics
    ///
    /// Panics if there are more than 40 bytes of options.
    pub fn tcp_options(&mut self, options: &[u8]) -> &mut Self {
        let len = options.len().next_multiple_of(4);
        assert!(len <= 40, "{len} bytes of options: TCP has room for 40");
        self.traffic.memory.extend(options);
        self.traffic.memory.resize(self.traffic.memory.len() + len - options.len(), 0);
        self.traffic.whole.l4_len = 20 + len as u8;
        self.l4()[12] = (5 + len as u8 / 4) << 4;
        self.update()
    }

    /// Limits the captured bytes of the packet to `len`.
    pub fn captured(&mut self, len: u32) -> &mut Self {
        self.update();
        let descriptor = self.descriptor();
        if len < descriptor.cap_len {
            descriptor.cap_len = len;
            descriptor.flags |= flags::TRUNCATED;
            let part = |offset: u16| u32::from(offset).min(len) as u16;
            (descriptor.l3, descriptor.l4) = (part(descriptor.l3), part(descriptor.l4));
            if len < descriptor.payload() {
                descriptor.flags &= !flags::TRANSPORT;
            }
        }
        self
    }

    /// Makes the packet a later fragment: data follows the IP header, without a transport header.
    pub fn later_fragment(&mut self) -> &mut Self {
        let whole = &mut self.traffic.whole;
        whole.flags = whole.flags & !flags::TRANSPORT | flags::FRAGMENT | flags::LATER_FRAGMENT;
        (whole.l4_len, whole.tcp_flags) = (0, 0);
        self.update()
    }

    /// Returns all bytes, for any change.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.traffic.memory[self.traffic.whole.addr as usize..]
    }

    /// Returns the descriptor, for any change; the methods above rebuild it.
    ///
    /// # Panics
    ///
    /// Never panics, because the builder's packet has been added.
    pub fn descriptor(&mut self) -> &mut Descriptor {
        self.traffic.descriptors.last_mut().expect("the builder's packet was added")
    }

    fn l4(&mut self) -> &mut [u8] {
        let l4 = self.traffic.whole.l4.into();
        &mut self.bytes()[l4..]
    }

    /// Updates the lengths in the packet and in its descriptor.
    fn update(&mut self) -> &mut Self {
        let whole = &mut self.traffic.whole;
        let packet = &mut self.traffic.memory[whole.addr as usize..];
        let len = packet.len();
        let behind_ip = len - usize::from(whole.l4);
        match whole.has(flags::IPV4) {
            true => {
                packet[16..18].copy_from_slice(&((behind_ip + 20) as u16).to_be_bytes());
                packet[24..26].fill(0);
                let words = packet[ETHERNET..ETHERNET + 20].chunks(2);
                let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
                packet[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
            }
            false => packet[18..20].copy_from_slice(&(behind_ip as u16).to_be_bytes()),
        }
        if whole.proto == proto::UDP && whole.has(flags::TRANSPORT) {
            let l4 = usize::from(whole.l4);
            packet[l4 + 4..l4 + 6].copy_from_slice(&(behind_ip as u16).to_be_bytes());
        }
        (whole.cap_len, whole.wire_len) = (len as u32, len as u32);
        *self.descriptor() = self.traffic.whole;
        self
    }
}
