//! `rtt`: round-trip times of TCP connections, measured at one point of the path.
//!
//! Expects TCP headers with their options. Writes the tables `handshake`, `sample`, `histogram` and `state`
//! of `module.toml`. The README describes the method, the parameters and the memory bound.
#![forbid(unsafe_code)]

mod handshake;
mod histogram;
mod sample;
mod segment;

/// The rows and parameters of `module.toml`.
pub mod tables {
    flame_module::manifest!();
}

pub use histogram::{BINS, Histogram, bin, lower};

use flame_module::{Batch, Init, Module, Out, Progress, Record};
use handshake::Handshakes;
use histogram::Counts;
use sample::Samples;
use segment::Segment;

/// The bytes of the rows of a packet: a handshake, and a sample by each method.
const ROWS: usize = tables::Handshake::SPACE + 2 * tables::Sample::SPACE;

/// The fast path.
pub struct Rtt {
    handshakes: Handshakes,
    samples: Option<Samples>,
    /// The counts since the start, and those of them that were sent to the slow path.
    counts: Counts,
    sent: Counts,
}

impl Module for Rtt {
    fn new(init: &Init) -> Self {
        let params = tables::Params::from(init);
        Self {
            handshakes: Handshakes::new(
                params.max_handshakes as usize,
                params.handshake_timeout,
                params.require_synack,
            ),
            samples: params.samples.then(|| Samples::new(params.max_connections as usize)),
            counts: Counts::default(),
            sent: Counts::default(),
        }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        // Room for the rows of all packets, so that the bound of a packet contains none of its cost.
        let mut out = out.reserve(batch.len() * ROWS);
        for packet in batch.packets() {
            let Some(segment) = Segment::of(&packet, packet.bytes()) else { continue };
            if let Some(rtt) = self.handshakes.segment(&segment, &mut out) {
                self.counts.bins[bin(rtt)] += 1;
            }
            if let Some(samples) = &mut self.samples {
                samples.segment(&segment, &mut out);
            }
        }
    }

    fn tick(&mut self, _: u64, out: &mut Out) -> Progress {
        self.send(out);
        Progress::Done
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        self.send(out);
        Progress::Done
    }
}

impl Rtt {
    /// Sends the counts since the last message. It is called often, so that little is lost with an instance.
    fn send(&mut self, out: &mut Out) {
        self.counts.ambiguous = self.handshakes.ambiguous;
        self.counts.evicted_handshakes = self.handshakes.evicted();
        self.counts.evicted_connections = self.samples.as_ref().map_or(0, Samples::evicted);
        let copies = self.samples.as_ref().map_or(0, |samples| samples.copies);
        self.counts.copies = self.handshakes.copies + copies;
        if self.counts != self.sent {
            out.message(&self.counts.since(&self.sent).to_bytes());
            self.sent = self.counts.clone();
        }
    }
}

flame_module::export!(Rtt, slow = Histogram);
