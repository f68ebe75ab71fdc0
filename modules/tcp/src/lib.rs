//! `tcp`: the state of TCP connections.
//!
//! Expects TCP headers with their options. Writes the tables `connection`, `interval` and `state` of
//! `module.toml`. The README describes them, the parameters and the memory.
#![forbid(unsafe_code)]

mod analysis;
mod connection;
mod rtt;
mod totals;

/// The rows and parameters of `module.toml`.
pub mod tables {
    flame_module::manifest!();
}

pub use totals::Merge;

use connection::Connections;
use flame_module::{Batch, Init, Module, Out, Progress, proto};

/// The fast path.
pub struct Tcp {
    worker: u32,
    is_interval: bool,
    connections: Connections,
}

impl Module for Tcp {
    fn new(init: &Init) -> Self {
        let connections = Connections::new(&tables::Params::from(init));
        Self { worker: init.worker, is_interval: init.interval_ns > 0, connections }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            if packet.proto == proto::TCP {
                self.connections.packet(&packet, out);
            }
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.connections.scan(now_ns, out);
        if self.is_interval {
            self.connections.totals.send(out);
        }
        Progress::Done
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        self.connections.scan(u64::MAX, out);
        self.connections.totals.send(out);
        let evicted = self.connections.evicted();
        if evicted > 0 {
            out.write(&tables::State { worker: self.worker, evicted });
        }
        Progress::Done
    }
}

flame_module::export!(Tcp, slow = Merge);

#[cfg(test)]
mod tests;
