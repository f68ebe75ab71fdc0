//! `http`: requests of HTTP/1 and their answers.
//!
//! Expects the payload of TCP, on any port. Writes the tables `request` and `state` of `module.toml`. The
//! README describes them, the parameters and the memory.
#![forbid(unsafe_code)]

mod exchange;
mod head;

/// The rows and parameters of `module.toml`.
pub mod tables {
    flame_module::manifest!();
}

use exchange::Exchanges;
use flame_module::{Batch, Init, Module, Out, Progress, proto};

/// The fast path.
pub struct Http {
    worker: u32,
    exchanges: Exchanges,
}

impl Module for Http {
    fn new(init: &Init) -> Self {
        Self { worker: init.worker, exchanges: Exchanges::new(&tables::Params::from(init)) }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            if packet.proto == proto::TCP {
                self.exchanges.segment(&packet, out);
            }
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.exchanges.scan(now_ns, out);
        Progress::Done
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        let all = &mut self.exchanges;
        all.scan(u64::MAX, out);
        let (incomplete, evicted_connections) = (all.incomplete(), all.evicted_connections());
        if all.malformed + all.too_long + incomplete + all.evicted_requests + evicted_connections > 0 {
            out.write(&tables::State {
                worker: self.worker,
                malformed: all.malformed,
                too_long: all.too_long,
                incomplete,
                evicted_requests: all.evicted_requests,
                evicted_connections,
            });
        }
        Progress::Done
    }
}

flame_module::export!(Http);

#[cfg(test)]
mod tests;
