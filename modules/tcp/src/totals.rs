//! Sums over all connections of an instance, and over all instances in the slow one.
//!
//! A message is [`Totals`] as little-endian u64s.

use crate::analysis::is;
use crate::rtt::{BINS, Times};
use crate::tables;
use flame_module::{Init, Out, Progress, Slow};

#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub packets: u64,
    pub connections: u64,
    pub handshakes: u64,
    pub refused: u64,
    pub unanswered: u64,
    pub in_flight: u64,
    pub counts: [u64; is::COUNTED],
    pub times: Times<u64>,
}

const WORDS: usize = 8 + is::COUNTED + BINS;

impl Totals {
    /// Sends the sums since the last message to the slow instance.
    pub fn send(&mut self, out: &mut Out) {
        let Self { packets, connections, handshakes, refused, unanswered, in_flight, counts, times } = self;
        let head = [
            packets,
            connections,
            handshakes,
            refused,
            unanswered,
            in_flight,
            &mut times.least,
            &mut times.most,
        ];
        let mut message = Vec::with_capacity(WORDS * 8);
        let words = head.into_iter().chain(counts).chain(&mut times.bins);
        words.for_each(|word| message.extend_from_slice(&word.to_le_bytes()));
        out.message(&message);
        *self = Self::default();
    }

    fn add(&mut self, message: &[u8]) {
        let (words, _) = message.as_chunks::<8>();
        let word = |n: usize| words.get(n).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        self.packets += word(0);
        self.connections += word(1);
        self.handshakes += word(2);
        self.refused += word(3);
        self.unanswered += word(4);
        self.in_flight = self.in_flight.max(word(5));
        self.times.least = self.times.least.min(word(6));
        self.times.most = self.times.most.max(word(7));
        self.counts.iter_mut().enumerate().for_each(|(n, count)| *count += word(8 + n));
        self.times.bins.iter_mut().enumerate().for_each(|(n, count)| *count += word(8 + is::COUNTED + n));
    }
}

/// The slow path: the sums of all workers.
pub struct Merge {
    is_interval: bool,
    totals: Totals,
}

impl Slow for Merge {
    fn new(init: &Init) -> Self {
        Self { is_interval: init.interval_ns > 0, totals: Totals::default() }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        self.totals.add(bytes);
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        if self.is_interval {
            self.write(now_ns, out);
        }
        Progress::Done
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        if self.totals.packets > 0 || !self.is_interval {
            self.write(now_ns, out);
        }
        Progress::Done
    }
}

impl Merge {
    fn write(&mut self, end_ns: u64, out: &mut Out) {
        let Totals { packets, connections, handshakes, refused, unanswered, in_flight, counts, times } =
            std::mem::take(&mut self.totals);
        let times = times.summary();
        let [rtt_p50_ns, rtt_p95_ns, rtt_p99_ns] = times.percentiles;
        out.write(&tables::Interval {
            end_ns,
            packets,
            connections,
            handshakes,
            refused,
            unanswered,
            retransmissions: counts[0],
            out_of_order: counts[3],
            duplicate_acks: counts[4],
            fast_retransmissions: counts[1],
            spurious_retransmissions: counts[2],
            lost: counts[5],
            zero_windows: counts[6],
            full_windows: counts[7],
            keep_alives: counts[8],
            resets: counts[9],
            in_flight: in_flight.min(u32::MAX.into()) as u32,
            rtts: times.count,
            rtt_min_ns: times.least,
            rtt_p50_ns,
            rtt_p95_ns,
            rtt_p99_ns,
            rtt_max_ns: times.most,
        });
    }
}
