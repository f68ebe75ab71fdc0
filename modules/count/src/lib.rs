//! Counts packets and bytes by protocol. Only descriptors are needed, no packet byte is read.

use flame_module::{Batch, Descriptor, Init, Module, Out, Progress, Slow, flags, tcp};

mod tables {
    flame_module::manifest!();
}

const COLUMNS: usize = 10;

// Seven counters in one word: nine bits hold the 256 packets of a batch.
const WIDTH: u32 = 9;
const V4: u32 = 0;
const V6: u32 = 1;
const TCP: u32 = 2;
const UDP: u32 = 3;
const ICMP: u32 = 4;
const SCTP: u32 = 5;
const SYN: u32 = 6;

const fn one(field: u32) -> u64 {
    1 << (WIDTH * field)
}

/// The summands of a descriptor's flags, and whether it has a protocol.
#[derive(Clone, Copy)]
struct OfFlags {
    adds: u64,
    keeps: u64,
}

static BY_FLAGS: [OfFlags; 256] = {
    let mut table = [OfFlags { adds: 0, keeps: 0 }; 256];
    let mut i = 0;
    while i < 256 {
        let v4 = i as u8 & flags::IPV4 != 0;
        let v6 = i as u8 & flags::IPV6 != 0;
        let adds = if v4 { one(V4) } else { 0 } + if v6 { one(V6) } else { 0 };
        table[i] = OfFlags { adds, keeps: if v4 || v6 { u64::MAX } else { 0 } };
        i += 1;
    }
    table
};

static BY_PROTO: [u64; 256] = {
    let mut table = [0; 256];
    table[6] = one(TCP) | one(SYN);
    table[17] = one(UDP);
    table[1] = one(ICMP);
    table[58] = one(ICMP);
    table[132] = one(SCTP);
    table
};

/// A mask of all fields, without that of SYN unless the flags are those of a connection request.
static KEEPS_SYN: [u64; 256] = {
    let mut table = [!one(SYN); 256];
    let mut i = 0;
    while i < 256 {
        if i as u8 & (tcp::SYN | tcp::ACK) == tcp::SYN {
            table[i] = u64::MAX;
        }
        i += 1;
    }
    table
};

/// The columns of the manifest, in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums([u64; COLUMNS]);

impl Sums {
    /// Adds a batch. There are no branches, because the traffic would make them unpredictable: three look-ups
    /// return the summands of a packet for seven counters, which share one word for a batch.
    #[inline]
    pub fn add(&mut self, descriptors: &[Descriptor]) {
        let (mut word, mut bytes) = (0u64, 0u64);
        for d in descriptors {
            bytes += u64::from(d.wire_len);
            let of_flags = &BY_FLAGS[usize::from(d.flags)];
            let of_proto = BY_PROTO[usize::from(d.proto)];
            word += of_flags.adds + (of_proto & of_flags.keeps & KEEPS_SYN[usize::from(d.tcp_flags)]);
        }
        let field = |n: u32| word >> (WIDTH * n) & ((1 << WIDTH) - 1);
        let packets = descriptors.len() as u64;
        let other = packets - field(V4) - field(V6);
        let batch = [
            packets,
            bytes,
            field(V4),
            field(V6),
            field(TCP),
            field(UDP),
            field(ICMP),
            field(SCTP),
            field(SYN),
            other,
        ];
        for (sum, n) in self.0.iter_mut().zip(batch) {
            *sum += n;
        }
    }

    fn merge(&mut self, other: &Self) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum += n;
        }
    }

    fn to_bytes(self) -> [u8; COLUMNS * 8] {
        let mut bytes = [0; COLUMNS * 8];
        for (place, n) in bytes.chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&n.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut sums = Self::default();
        for (sum, b) in sums.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *sum = b.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        }
        sums
    }
}

/// The counter of one worker. It sends its sums at the end, and at ticks if intervals were requested.
pub struct Count {
    sums: Sums,
    per_interval: bool,
}

impl Module for Count {
    fn new(init: &Init) -> Self {
        Self { sums: Sums::default(), per_interval: init.interval_ns != 0 }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        self.sums.add(batch.descriptors());
    }

    fn tick(&mut self, _: u64, out: &mut Out) -> Progress {
        if self.per_interval {
            out.message(&std::mem::take(&mut self.sums).to_bytes());
        }
        Progress::Done
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.message(&self.sums.to_bytes());
        Progress::Done
    }
}

/// The sums over all workers.
pub struct Total {
    total: Sums,
    interval: Sums,
    /// The length of an interval, or 0.
    interval_ns: u64,
    /// The end of the last interval.
    closed_ns: Option<u64>,
}

impl Slow for Total {
    fn new(init: &Init) -> Self {
        let (total, interval) = (Sums::default(), Sums::default());
        // Under a resolution, intervals are as long as the time between two ticks.
        let interval_ns = if init.interval_ns == 0 { 0 } else { init.tick_ns };
        Self { total, interval, interval_ns, closed_ns: None }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        self.interval.merge(&Sums::from_bytes(bytes));
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        if self.interval_ns != 0 {
            self.close(now_ns, out);
        }
        Progress::Done
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        // The last interval ends where it would if packets followed.
        let end_ns = match self.interval_ns {
            // Without intervals or ticks.
            0 | u64::MAX => now_ns,
            interval_ns => now_ns.div_ceil(interval_ns).saturating_mul(interval_ns),
        };
        self.close(end_ns, out);
        let [packets, wire_bytes, ipv4, ipv6, tcp, udp, icmp, sctp, tcp_syn, other] = self.total.0;
        out.write(&tables::Count { packets, wire_bytes, ipv4, ipv6, tcp, udp, icmp, sctp, tcp_syn, other });
        Progress::Done
    }
}

impl Total {
    fn close(&mut self, end_ns: u64, out: &mut Out) {
        let interval = std::mem::take(&mut self.interval);
        self.total.merge(&interval);
        if self.interval_ns != 0 && self.closed_ns != Some(end_ns) {
            let start_ns = self.closed_ns.unwrap_or(end_ns.saturating_sub(self.interval_ns));
            self.closed_ns = Some(end_ns);
            let [packets, wire_bytes, ipv4, ipv6, tcp, udp, icmp, sctp, tcp_syn, other] = interval.0;
            out.write(&tables::Interval {
                start_ns,
                end_ns,
                packets,
                wire_bytes,
                ipv4,
                ipv6,
                tcp,
                udp,
                icmp,
                sctp,
                tcp_syn,
                other,
            });
        }
    }
}

flame_module::export!(Count, slow = Total);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{Native, Parameters};

    fn packet(flags: u8, proto: u8, tcp_flags: u8) -> Descriptor {
        Descriptor { wire_len: 100, flags, proto, tcp_flags, ..Descriptor::default() }
    }

    #[test]
    fn every_column_counts_what_it_says() {
        let packets = [
            packet(flags::IPV4 | flags::TRANSPORT, 6, tcp::SYN),
            packet(flags::IPV4 | flags::TRANSPORT, 6, tcp::SYN | tcp::ACK),
            packet(flags::IPV4 | flags::FRAGMENT | flags::LATER_FRAGMENT, 6, 0),
            packet(flags::IPV6, 17, 0),
            packet(flags::IPV4, 1, 0),
            packet(flags::IPV6, 58, 0),
            packet(flags::IPV4, 132, 0),
            packet(0, 0, 0),
        ];
        let mut native = Native::<Count, Total>::with_slow(&Parameters::default(), 0);
        native.packets(&packets.repeat(300), &[]);
        native.end(0);
        let [packets, wire_bytes, ipv4, ipv6, tcp, udp, icmp, sctp, tcp_syn, other] =
            [8, 800, 5, 2, 3, 1, 2, 1, 1, 1].map(|n| n * 300);
        let expected =
            tables::Count { packets, wire_bytes, ipv4, ipv6, tcp, udp, icmp, sctp, tcp_syn, other };
        assert_eq!((native.rows.len(), native.of()), (1, vec![expected]));
    }

    #[test]
    fn intervals_add_up_to_the_whole() {
        let mut native = Native::<Count, Total>::with_slow(&Parameters::default(), 10);
        for (packets, now) in [(3, 10), (0, 20), (5, 60)] {
            native.packets(&vec![packet(flags::IPV4, 17, 0); packets], &[]);
            native.tick(now);
        }
        native.packets(&[packet(0, 0, 0); 2], &[]);
        native.end(63);
        let intervals: Vec<_> = native
            .of::<tables::Interval>()
            .iter()
            .map(|row| (row.start_ns, row.end_ns, row.packets))
            .collect();
        assert_eq!(intervals, [(0, 10, 3), (10, 20, 0), (20, 60, 5), (60, 70, 2)]);
        assert_eq!(native.of::<tables::Count>()[0].packets, 10);
    }
}
