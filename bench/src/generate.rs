//! The default trace: seeded, heavy-tailed flows, a realistic mix of sizes.

use std::io::{self, Write};

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Writes `packets` packets as a nanosecond pcap, the same for the same seed. Nine of ten flows are TCP,
/// one of eight IPv6; a flow's number follows a power law, so that few flows carry most packets.
pub fn trace(out: &mut impl Write, seed: u64, packets: u64) -> io::Result<()> {
    let mut random = Random(seed);
    let w = |n: u32| n.to_le_bytes();
    out.write_all(&[w(0xa1b2_3c4d), [2, 0, 4, 0], w(0), w(0), w(262_144), w(1)].concat())?;
    let mut ts = 1_700_000_000_000_000_000u64;
    for i in 0..packets {
        ts += 200 + random.below(1600);
        // Of 2^0 to 2^16 flows, each power is as likely: Zipf-like, over ever new flows.
        let power = random.below(17);
        let flow = (1 << power) + random.below(1 << power) + if power > 12 { i >> 14 << 20 } else { 0 };
        let back = random.below(3) == 0;
        let size = match random.below(12) {
            0..=5 => 0,
            6..=9 => 400 + random.below(300),
            _ => 1400,
        };
        let frame = frame(flow, back, size as usize, i as u32, random.below(40) == 0);
        let (s, ns) = (ts / 1_000_000_000, ts % 1_000_000_000);
        out.write_all(&[w(s as u32), w(ns as u32), w(frame.len() as u32), w(frame.len() as u32)].concat())?;
        out.write_all(&frame)?;
    }
    Ok(())
}

fn frame(flow: u64, back: bool, size: usize, seq: u32, syn: bool) -> Vec<u8> {
    let (tcp, v6) = (!flow.is_multiple_of(10), flow.is_multiple_of(8));
    let ports = [(1024 + flow * 7 % 60_000) as u16, if flow.is_multiple_of(3) { 80 } else { 443 }];
    let ports = if back { [ports[1], ports[0]] } else { ports };
    let mut transport = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
    if tcp {
        transport.extend(seq.to_be_bytes());
        transport.extend([0, 0, 0, 1, 0x80, if syn { 2 } else { 16 }, 4, 0, 0, 0, 0, 0, 1, 1, 8, 10]);
        transport.extend([seq.to_be_bytes(), (seq / 2).to_be_bytes()].concat());
    } else {
        transport.extend([((8 + size) >> 8) as u8, (8 + size) as u8, 0, 0]);
    }
    transport.resize(transport.len() + size, 0x5a);
    let proto = if tcp { 6 } else { 17 };
    let id = (flow as u32).to_be_bytes();
    let (a, b) = ([10, id[1], id[2], id[3]], [192, 0, 2, (flow % 200) as u8]);
    let (src, dst) = if back { (b, a) } else { (a, b) };
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if v6 {
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        f.extend((transport.len() as u16).to_be_bytes());
        f.extend([proto, 64]);
        for address in [src, dst] {
            f.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            f.extend(address);
        }
    } else {
        f.extend([8, 0, 0x45, 0]);
        f.extend(((20 + transport.len()) as u16).to_be_bytes());
        f.extend([0, 0, 0x40, 0, 64, proto, 0, 0]);
        f.extend([src, dst].concat());
    }
    f.extend(transport);
    f
}
