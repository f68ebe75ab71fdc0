//! Packets and capture files.

use std::path::Path;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// Returns an Ethernet frame with a TCP SYN from 10.0.x.y:1024+flow to 192.0.2.1, with 20 bytes of payload.
pub fn tcp_packet(flow: u16, dport: u16) -> Vec<u8> {
    let mut p =
        vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0];
    p.extend(flow.to_be_bytes());
    p.extend([192, 0, 2, 1]);
    p.extend((1024 + flow % 60_000).to_be_bytes());
    p.extend(dport.to_be_bytes());
    p.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0]);
    p.extend([0x5a; 20]);
    p
}

/// Returns a frame of `size` bytes from IPv4 10.0.`from` to 10.0.`to`, with `tags` before the IP header.
pub fn ipv4(tags: &[u8], proto: u8, from: (u16, u16), to: (u16, u16), size: usize) -> Vec<u8> {
    let mut frame = [&MACS[..], tags, &[8, 0]].concat();
    let total = size - frame.len();
    frame.extend([0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0, 0, 64, proto, 0, 0]);
    frame.extend([[10, 0], from.0.to_be_bytes(), [10, 0], to.0.to_be_bytes()].concat());
    frame.extend([from.1.to_be_bytes(), to.1.to_be_bytes()].concat());
    // A SYN for TCP. For UDP and ICMP, only the length matters.
    frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0]);
    frame.resize(size, 0x5a);
    frame
}

/// A capture file in libpcap's format.
pub struct Pcap {
    bytes: Vec<u8>,
    /// The unit of times within a second.
    unit_ns: u64,
}

impl Default for Pcap {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Pcap {
    /// Creates a file of a link type, with times in microseconds. Ethernet is 1.
    pub fn new(link: u32) -> Self {
        Self::of(0xa1b2_c3d4, link, 1000)
    }

    /// Creates a file of Ethernet packets, with times in nanoseconds.
    pub fn nanoseconds() -> Self {
        Self::of(0xa1b2_3c4d, 1, 1)
    }

    fn of(magic: u32, link: u32, unit_ns: u64) -> Self {
        let head = [magic, 4 << 16 | 2, 0, 0, 65_535, link];
        Self { bytes: head.map(u32::to_le_bytes).concat(), unit_ns }
    }

    /// Appends a packet that was captured at a time in nanoseconds.
    pub fn push(&mut self, ts_ns: u64, packet: &[u8]) {
        self.push_part(ts_ns, packet, packet.len() as u32);
    }

    /// Appends the captured part of a packet of `wire_len` bytes.
    pub fn push_part(&mut self, ts_ns: u64, packet: &[u8], wire_len: u32) {
        let fraction = ts_ns % 1_000_000_000 / self.unit_ns;
        let head = [(ts_ns / 1_000_000_000) as u32, fraction as u32, packet.len() as u32, wire_len];
        self.bytes.extend(head.map(u32::to_le_bytes).concat());
        self.bytes.extend(packet);
    }

    /// Returns the file with more packets, each with its time in nanoseconds.
    #[must_use]
    pub fn with<P: AsRef<[u8]>>(mut self, packets: impl IntoIterator<Item = (u64, P)>) -> Self {
        packets.into_iter().for_each(|(ts_ns, packet)| self.push(ts_ns, packet.as_ref()));
        self
    }

    /// Returns the bytes of the file.
    pub fn bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes the file.
    ///
    /// # Panics
    ///
    /// Panics if it cannot be written.
    pub fn write(self, path: &Path) {
        std::fs::write(path, self.bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

/// Returns a capture file of Ethernet packets with their times in milliseconds.
pub fn pcap(packets: impl IntoIterator<Item = (u64, Vec<u8>)>) -> Vec<u8> {
    Pcap::default().with(packets.into_iter().map(|(ms, packet)| (ms * 1_000_000, packet))).bytes()
}
