//! The default trace: seeded; complete connections with heavy-tailed lengths and rates; packet sizes as on a
//! link of an access network (most packets full or nearly empty, 500 to 800 bytes on average).
//!
//! Flows are in slots. The length of a flow has a discrete Pareto distribution with exponent 1, so that few
//! flows carry most packets (Crovella and Bestavros 1997). Slots are served by Zipf's law, in trains of
//! packets (Jain and Routhier 1986). All arithmetic is on integers: the same seed gives the same bytes on any
//! machine.

use std::io::{self, Write};

/// The number of octaves of slots, 2^0 to 2^12, which are served equally often: 8,191 flows at a time.
const OCTAVES: u64 = 13;
/// The longest flow has fewer than 2^(1 + this) packets.
const LONGEST: u32 = 17;
/// Payload in bytes of a full TCP segment with timestamps over IPv6 in an Ethernet frame.
const FULL: u64 = 1428;

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }
}

/// Writes `packets` packets as a nanosecond pcap, ten microseconds apart on average.
pub fn trace(out: &mut impl Write, seed: u64, packets: u64) -> io::Result<()> {
    let mut random = Random(seed);
    let mut flows: Vec<Flow> = (1..1 << OCTAVES).map(|_| Flow::under_way(&mut random)).collect();
    let w = |n: u32| n.to_le_bytes();
    out.write_all(&[w(0xa1b2_3c4d), [2, 0, 4, 0], w(0), w(0), w(262_144), w(1)].concat())?;
    let (mut ts, mut left, mut frame) = (1_700_000_000_000_000_000u64, packets, Vec::new());
    while left > 0 {
        let octave = random.below(OCTAVES);
        let slot = ((1 << octave) - 1 + random.below(1 << octave)) as usize;
        for _ in 0..left.min(random.between(1, 8)) {
            ts += random.between(1_000, 19_000);
            flows[slot].packet(ts, &mut random, &mut frame);
            let (s, ns) = (ts / 1_000_000_000, ts % 1_000_000_000);
            out.write_all(
                &[w(s as u32), w(ns as u32), w(frame.len() as u32), w(frame.len() as u32)].concat(),
            )?;
            out.write_all(&frame)?;
            left -= 1;
            if flows[slot].is_over() {
                flows[slot] = Flow::new(&mut random);
                break;
            }
        }
    }
    Ok(())
}

/// The kind of a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// TCP: a request, then full segments in one direction and an ACK for every two.
    Bulk,
    /// TCP: messages in both directions, few of them full.
    Talk,
    /// A SYN without an answer.
    Refused,
    /// DNS.
    Query,
    /// QUIC: nearly full packets in one direction.
    Stream,
    /// Voice: small packets in both directions.
    Call,
    /// Ping.
    Echo,
}

/// The state of one side of a connection.
#[derive(Clone, Copy, Default)]
struct Side {
    seq: u32,
    clock: u32,
}

struct Flow {
    kind: Kind,
    v6: bool,
    /// The addresses of client and server.
    hosts: [u32; 2],
    ports: [u16; 2],
    packets: u64,
    sent: u64,
    sides: [Side; 2],
}

mod flag {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const ACK: u8 = 16;
}

impl Flow {
    /// Returns a flow at its start.
    fn new(random: &mut Random) -> Self {
        // The octave grows with each coin that shows heads: P(at least 2^n) = 2^(1 - n).
        let octave = 1 + random.next().trailing_zeros().min(LONGEST - 1);
        Self::of_octave(octave, random)
    }

    /// Returns a flow as found at the start of a capture. The probability of a flow is proportional to its
    /// length, which makes octaves equally likely, and its position is uniform. So the first packets of the
    /// trace resemble the last.
    fn under_way(random: &mut Random) -> Self {
        let flow = Self::of_octave(1 + random.below(u64::from(LONGEST)) as u32, random);
        Self { sent: random.below(flow.packets), ..flow }
    }

    fn of_octave(octave: u32, random: &mut Random) -> Self {
        let packets = (1 << octave) + random.below(1 << octave);
        let kind = match (packets, random.below(100)) {
            (..4, ..60) => Kind::Query,
            (..4, ..95) => Kind::Refused,
            (..4, _) | (_, 99) => Kind::Echo,
            (..8, _) | (_, ..40) => Kind::Talk,
            (_, ..82) => Kind::Bulk,
            (_, ..95) => Kind::Stream,
            _ => Kind::Call,
        };
        let packets = if kind == Kind::Refused { packets & !1 } else { packets };
        let server = match (kind, random.below(100)) {
            (Kind::Query, _) => 53,
            (Kind::Stream, _) | (Kind::Bulk | Kind::Talk, ..65) => 443,
            (Kind::Bulk | Kind::Talk, ..90) => 80,
            (Kind::Call, _) => 3478,
            (_, n) => [22, 25, 445, 3389, 8080][n as usize % 5],
        };
        Self {
            kind,
            v6: random.below(4) == 0,
            hosts: [random.below(1 << 14) as u32, random.below(1 << 12) as u32],
            ports: [random.between(32_768, 60_999) as u16, server],
            packets,
            sent: 0,
            sides: [(); 2].map(|()| Side { seq: random.next() as u32, clock: random.next() as u32 }),
        }
    }

    fn is_over(&self) -> bool {
        self.sent >= self.packets
    }

    /// Writes the next packet to `frame`.
    fn packet(&mut self, ts: u64, random: &mut Random, frame: &mut Vec<u8>) {
        let (at, rest) = (self.sent, self.packets - self.sent);
        self.sent += 1;
        let turn = (at % 2) as usize;
        match self.kind {
            Kind::Refused => {
                let flags = if turn == 0 { flag::SYN } else { flag::RST | flag::ACK };
                self.segment(ts, turn, flags, 0, frame);
            }
            Kind::Bulk | Kind::Talk => {
                let (from, flags, size) = match (at, rest) {
                    (0, _) => (0, flag::SYN, 0),
                    (1, _) => (1, flag::SYN | flag::ACK, 0),
                    (2, _) => (0, flag::ACK, 0),
                    (_, 2) => (0, flag::FIN | flag::ACK, 0),
                    (_, 1) => (1, flag::FIN | flag::ACK, 0),
                    (3, _) => (0, flag::ACK, random.between(80, 700)),
                    _ if self.kind == Kind::Bulk && at % 3 == 0 => (0, flag::ACK, 0),
                    _ if self.kind == Kind::Bulk => (1, flag::ACK, FULL),
                    _ if random.below(3) == 0 => (1 - turn, flag::ACK, 0),
                    _ => (turn, flag::ACK, random.between(20, [400, FULL][turn])),
                };
                self.segment(ts, from, flags, size as usize, frame);
            }
            Kind::Query => {
                let size = [random.between(30, 60), random.between(60, 450)][turn];
                self.datagram(turn, size as usize, frame);
            }
            Kind::Stream => {
                let (from, size) = if at % 4 == 0 { (0, random.between(30, 90)) } else { (1, 1252) };
                self.datagram(from, size as usize, frame);
            }
            Kind::Call => self.datagram(turn, 172, frame),
            Kind::Echo => self.echo(turn, at as u16, frame),
        }
    }

    fn segment(&mut self, ts: u64, from: usize, flags: u8, size: usize, frame: &mut Vec<u8>) {
        let (me, peer) = (self.sides[from], self.sides[1 - from]);
        let is_first = flags & flag::ACK == 0;
        let clock = me.clock.wrapping_add((ts / 1_000_000) as u32);
        let heard = if is_first { 0 } else { peer.clock.wrapping_add((ts / 1_000_000) as u32) };
        let start = self.head(frame, from, 6, 32 + size);
        frame.extend(self.ports[from].to_be_bytes());
        frame.extend(self.ports[1 - from].to_be_bytes());
        frame.extend(me.seq.to_be_bytes());
        frame.extend(if is_first { 0 } else { peer.seq }.to_be_bytes());
        frame.extend([0x80, flags, 4, 0, 0, 0, 0, 0, 1, 1, 8, 10]);
        frame.extend([clock.to_be_bytes(), heard.to_be_bytes()].concat());
        self.finish(frame, start, 6, 16, size);
        let length = size as u32 + u32::from(flags & (flag::SYN | flag::FIN) != 0);
        self.sides[from].seq = me.seq.wrapping_add(length);
    }

    fn datagram(&self, from: usize, size: usize, frame: &mut Vec<u8>) {
        let start = self.head(frame, from, 17, 8 + size);
        frame.extend(self.ports[from].to_be_bytes());
        frame.extend(self.ports[1 - from].to_be_bytes());
        frame.extend(((8 + size) as u16).to_be_bytes());
        frame.extend([0, 0]);
        self.finish(frame, start, 17, 6, size);
    }

    fn echo(&self, from: usize, number: u16, frame: &mut Vec<u8>) {
        const SIZE: usize = 56;
        let proto = if self.v6 { 58 } else { 1 };
        let start = self.head(frame, from, proto, 8 + SIZE);
        let kind = if self.v6 { [128, 129] } else { [8, 0] };
        frame.extend([kind[from], 0, 0, 0]);
        frame.extend([self.ports[0].to_be_bytes(), (number / 2).to_be_bytes()].concat());
        self.finish(frame, start, proto, 2, SIZE);
    }

    /// Writes Ethernet and IP headers for `length` bytes, and returns the offset of the addresses.
    fn head(&self, frame: &mut Vec<u8>, from: usize, proto: u8, length: usize) -> usize {
        frame.clear();
        frame.extend([2, 0, 0, 0, 0, 1 + from as u8, 2, 0, 0, 0, 0, 2 - from as u8]);
        let ends = if from == 0 { [0, 1] } else { [1, 0] };
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((length as u16).to_be_bytes());
            frame.extend([proto, 64]);
            for end in ends {
                frame.extend([0x20, 1, 0x0d, 0xb8, 0, end as u8, 0, 0, 0, 0, 0, 0]);
                frame.extend(self.hosts[end].to_be_bytes());
            }
            return 22;
        }
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(((20 + length) as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, proto, 0, 0]);
        for end in ends {
            // Clients are in 10.0.0.0/8, servers in 198.18.0.0/15 (RFC 2544).
            let host = self.hosts[end] + [10 << 24, 198 << 24 | 18 << 16][end];
            frame.extend(host.to_be_bytes());
        }
        let sum = checksum(0, &frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        26
    }

    /// Writes the payload, and the checksum at offset `at` of the transport header.
    fn finish(&self, frame: &mut Vec<u8>, addresses: usize, proto: u8, at: usize, size: usize) {
        frame.resize(frame.len() + size, 0x5a);
        let transport = addresses + if self.v6 { 32 } else { 8 };
        let length = frame.len() - transport;
        // Addresses directly precede the transport header. Only ICMP has no pseudo-header.
        let sum = match proto {
            1 => checksum(0, &frame[transport..]),
            _ => checksum(u64::from(proto) + length as u64, &frame[addresses..]),
        };
        // In UDP, a sum of 0 means that it is missing.
        let sum = if sum == 0 && proto == 17 { 0xffff } else { sum };
        frame[transport + at..transport + at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the Internet checksum (RFC 1071), continued from `sum`.
fn checksum(mut sum: u64, bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    sum += words.map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_abi::LinkType;
    use std::collections::HashMap;

    const PACKETS: u64 = 100_000;

    fn bytes(seed: u64) -> Vec<u8> {
        let mut out = Vec::new();
        trace(&mut out, seed, PACKETS).unwrap();
        out
    }

    fn frames(trace: &[u8]) -> Vec<&[u8]> {
        let (mut at, mut frames) = (24, Vec::new());
        while at < trace.len() {
            let length = u32::from_le_bytes(trace[at + 8..at + 12].try_into().unwrap()) as usize;
            frames.push(&trace[at + 16..at + 16 + length]);
            at += 16 + length;
        }
        frames
    }

    #[test]
    fn a_seed_gives_one_trace() {
        assert!(bytes(1) == bytes(1));
        assert!(bytes(1) != bytes(2));
    }

    #[test]
    fn lengths_and_checksums_are_right() {
        let trace = bytes(3);
        let frames = frames(&trace);
        assert_eq!(frames.len() as u64, PACKETS);
        for f in frames {
            let v6 = f[12..14] == [0x86, 0xdd];
            let (field, proto, addresses, transport) =
                if v6 { (18, f[20], 22, 54) } else { (16, f[23], 26, 34) };
            let length = usize::from(u16::from_be_bytes([f[field], f[field + 1]]));
            assert_eq!(length + if v6 { 54 } else { 14 }, f.len());
            if !v6 {
                assert_eq!(checksum(0, &f[14..34]), 0);
            }
            let pseudo = u64::from(proto) + (f.len() - transport) as u64;
            let sum = if proto == 1 { checksum(0, &f[34..]) } else { checksum(pseudo, &f[addresses..]) };
            assert_eq!(sum, 0, "{f:02x?}");
            assert!(f.len() <= 1514);
        }
    }

    #[test]
    fn few_flows_carry_most_packets_of_a_sane_size() {
        let trace = bytes(4);
        let frames = frames(&trace);
        for some in frames.chunks(frames.len() / 4) {
            let size = some.iter().map(|f| f.len()).sum::<usize>() / some.len();
            assert!((500..=800).contains(&size), "{size}");
        }
        let mut flows: HashMap<u32, u32> = HashMap::new();
        for f in &frames {
            let d = flame_decode::decode(LinkType::ETHERNET, f, f.len() as u32, Default::default());
            *flows.entry(d.hash).or_default() += 1;
        }
        let mut sizes: Vec<u32> = flows.into_values().collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        // With exponentially distributed lengths, one tenth of the flows would carry one third.
        let tenth: u32 = sizes[..sizes.len() / 10].iter().sum();
        assert!(u64::from(tenth) > PACKETS * 6 / 10, "{tenth} of {} flows", sizes.len());
    }
}
