//! `scan`: sources that touch many hosts, or many ports of a host.
//!
//! Expects headers. Writes the tables `scan` and `state` of `module.toml`. The README describes them, the
//! parameters and the memory.
#![forbid(unsafe_code)]

pub mod distinct;
mod merge;
mod probes;

/// The rows and parameters of `module.toml`.
pub mod tables {
    flame_module::manifest!();
}

pub use merge::Merge;

use flame_module::{Batch, Init, Module, Out, Progress, flags};
use merge::{Rule, send};
use probes::Probes;
use tables::Params;

/// The fast path.
pub struct Scan {
    worker: u32,
    workers: u32,
    rule: Rule,
    probes: Probes,
}

impl Module for Scan {
    fn new(init: &Init) -> Self {
        let params = Params::from(init);
        Self {
            worker: init.worker,
            workers: init.workers,
            rule: Rule::new(&params),
            probes: Probes::new(&params),
        }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            if packet.has(flags::TRANSPORT) {
                self.probes.packet(&packet);
            }
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        if self.rule.is_over(now_ns) {
            send(&mut self.probes, &self.rule, self.workers, out);
        }
        Progress::Done
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        send(&mut self.probes, &self.rule, self.workers, out);
        let (evicted_sources, evicted_pairs) = (self.probes.sources.evicted, self.probes.pairs.evicted);
        if evicted_sources + evicted_pairs > 0 {
            out.write(&tables::State { worker: self.worker, evicted_sources, evicted_pairs });
        }
        Progress::Done
    }
}

flame_module::export!(Scan, slow = Merge);

#[cfg(test)]
mod tests;
