//! `talkers`: the largest keys of packets, by bytes or packets.
//!
//! Expects headers. Writes the tables `top` and `total` of `module.toml`. The README describes them, the
//! parameters and the memory.
#![forbid(unsafe_code)]

pub mod key;
mod merge;
pub mod sketch;

/// The rows and parameters of `module.toml`.
pub mod tables {
    flame_module::manifest!();
}

pub use merge::Merge;

use flame_module::{Batch, Init, Module, Out, Progress};
use key::{Kind, keys};
use merge::Totals;
use sketch::Sketch;
use tables::Params;

/// The fast path.
pub struct Talkers {
    kind: Kind,
    is_bytes: bool,
    is_interval: bool,
    sketch: Sketch,
    totals: Totals,
}

/// Returns the kind of key, and whether bytes make a key large.
///
/// # Panics
///
/// Panics if a parameter has none of its possible values.
fn measure(params: &Params<'_>) -> (Kind, bool) {
    let is_bytes = match params.by {
        "bytes" => true,
        "packets" => false,
        other => panic!("parameter by: expected bytes or packets, found {other:?}"),
    };
    (Kind::of(params.key).unwrap_or_else(|e| panic!("{e}")), is_bytes)
}

impl Module for Talkers {
    fn new(init: &Init) -> Self {
        let params = Params::from(init);
        let (kind, is_bytes) = measure(&params);
        let sketch = Sketch::new(params.counters as usize);
        Self { kind, is_bytes, is_interval: init.interval_ns > 0, sketch, totals: Totals::default() }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets_together() {
            let bytes = u64::from(packet.wire_len);
            self.totals.packets += 1;
            self.totals.bytes += bytes;
            let Some((first, second)) = keys(self.kind, batch, &packet) else {
                self.totals.without += 1;
                continue;
            };
            let (value, other) = if self.is_bytes { (bytes, 1) } else { (1, bytes) };
            self.sketch.add(first, value, other);
            if let Some(second) = second {
                self.sketch.add(second, value, other);
            }
        }
    }

    fn tick(&mut self, _: u64, out: &mut Out) -> Progress {
        if self.is_interval {
            self.send(out);
        }
        Progress::Done
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        self.send(out);
        Progress::Done
    }
}

impl Talkers {
    fn send(&mut self, out: &mut Out) {
        merge::send(&self.sketch, std::mem::take(&mut self.totals), out);
        self.sketch.clear();
    }
}

flame_module::export!(Talkers, slow = Merge);

#[cfg(test)]
mod tests;
