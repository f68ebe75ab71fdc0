//! Explicit congestion notification (RFC 3168) by the length of a virtual queue.

use flame_module::{Batch, Forward, Init, Out, Packet, Progress, flags};

flame_module::manifest!();

/// The code points of ECN in the second byte of an IPv4 header.
const NOT_CAPABLE: u8 = 0;
const CONGESTED: u8 = 3;
/// Nanoseconds in a second, and bits in a byte.
const SCALE: f64 = 8e9;

pub struct Ecn {
    rate: f64,
    threshold: f64,
    /// None if no packet is dropped.
    limit: Option<f64>,
    /// The bytes in the queue at `now_ns`.
    length: f64,
    now_ns: u64,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    packets: u64,
    marked: u64,
    dropped: u64,
    longest: u64,
}

impl Ecn {
    /// Adds a packet to the queue, which the link empties at its rate, and returns the queue's length.
    fn queue(&mut self, packet: &Packet<'_>) -> f64 {
        let passed = packet.ts_ns.saturating_sub(self.now_ns);
        self.now_ns = self.now_ns.max(packet.ts_ns);
        let left = self.length - passed as f64 * self.rate / SCALE;
        self.length = left.max(0.0) + f64::from(packet.wire_len);
        self.counts.longest = self.counts.longest.max(self.length as u64);
        self.length
    }
}

/// Marks a packet whose IPv4 header begins at `at`. RFC 1624: the checksum changes by the difference of the
/// word.
fn mark(bytes: &mut [u8], at: usize) {
    let Some(header) = bytes.get_mut(at..at + 20) else { return };
    let before = u32::from(u16::from_be_bytes([header[0], header[1]]));
    header[1] |= CONGESTED;
    let after = u32::from(u16::from_be_bytes([header[0], header[1]]));
    let sum = u32::from(!u16::from_be_bytes([header[10], header[11]])) + (!before & 0xffff) + after;
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

impl Forward for Ecn {
    fn new(init: &Init) -> Self {
        let Params { rate, threshold, limit, .. } = Params::from(init);
        let limit = (limit > 0).then_some(limit as f64);
        let (rate, threshold) = (rate as f64, threshold as f64);
        Self { rate, threshold, limit, length: 0.0, now_ns: 0, counts: Counts::default() }
    }

    fn push(&mut self, _: u32, batch: &Batch, out: &mut Out) {
        for (index, packet) in batch.packets().enumerate() {
            self.counts.packets += 1;
            let length = self.queue(&packet);
            let at = usize::from(packet.l3);
            let code = match packet.flags & flags::IPV4 {
                0 => NOT_CAPABLE,
                _ => packet.bytes().get(at + 1).map_or(NOT_CAPABLE, |tos| tos & CONGESTED),
            };
            if code == NOT_CAPABLE && self.limit.is_some_and(|limit| length > limit) {
                self.counts.dropped += 1;
                // A dropped packet is not in the queue.
                self.length = length - f64::from(packet.wire_len);
            } else if code == NOT_CAPABLE || code == CONGESTED || length <= self.threshold {
                out.send(index, 0);
            } else {
                self.counts.marked += 1;
                out.send_changed(index, 0, packet.bytes(), |bytes| {
                    mark(bytes, at);
                    bytes.len()
                });
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        let Counts { packets, marked, dropped, longest } = self.counts;
        out.write(&Total { packets, marked, dropped, longest });
        Progress::Done
    }
}

flame_module::export!(forward = Ecn);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{self, Parameters, Traffic};

    fn sum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum = words.sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    fn ecn(threshold: i64, limit: i64) -> Ecn {
        let parameters = Parameters::of(Params::DEFAULTS);
        let parameters = parameters.integer("rate", 8000).integer("threshold", threshold);
        Ecn::new(&Init::new(&parameters.integer("limit", limit).init()))
    }

    #[test]
    fn a_mark_keeps_the_checksum_correct() {
        let mut header = [0x45, 0, 0, 48, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        for code in 0..4 {
            header[1] = 0xb8 | code;
            header[10..12].fill(0);
            let checksum = !sum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            let mut bytes = [&[7; 14][..], &header].concat();
            mark(&mut bytes, 14);
            assert_eq!((bytes[15], sum(&bytes[14..])), (0xbb, 0xffff), "{code}");
        }
    }

    #[test]
    fn a_long_queue_marks_capable_packets() {
        let mut ecn = ecn(100, 0);
        let mut traffic = Traffic::default();
        // 64 bytes each, of a flow with ECN.
        traffic.udp("10.0.0.1:1", "10.0.0.2:2").payload(&[0; 22]).bytes()[15] = 2;
        let sent: Vec<_> = (0..3).flat_map(|_| testing::push(&mut ecn, 0, &traffic)).collect();
        let marks: Vec<_> = sent.iter().map(|packet| packet.bytes.get(15).copied()).collect();
        assert_eq!(marks, [None, Some(CONGESTED), Some(CONGESTED)], "the first goes on as it came");
        assert_eq!((ecn.counts.packets, ecn.counts.marked, ecn.counts.dropped), (3, 2, 0));
    }

    #[test]
    fn the_queue_drains_at_the_rate() {
        let mut ecn = ecn(100, 150);
        let mut traffic = Traffic::default();
        // 64 bytes each, of a flow without ECN: 64 ms on the link of 8,000 bits a second.
        traffic.udp("10.0.0.1:1", "10.0.0.2:2").payload(&[0; 22]);
        let sent: usize = (0..4).map(|_| testing::push(&mut ecn, 0, &traffic).len()).sum();
        assert_eq!((sent, ecn.counts.dropped, ecn.counts.marked), (2, 2, 0));
        assert_eq!(ecn.length, 128.0);
    }
}
