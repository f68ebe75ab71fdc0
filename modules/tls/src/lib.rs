//! `tls`: servers that clients ask for by TLS and QUIC.
//!
//! Expects the payload of TCP and UDP. Writes the tables `client`, `server` and `state` of `module.toml`. The
//! README describes them, the parameters and the memory.
#![forbid(unsafe_code)]

mod flow;
mod hello;
mod ja4;
mod quic;
mod record;

/// The rows and parameters of `module.toml`.
pub mod tables {
    flame_module::manifest!();
}

use flame_module::{Batch, Init, Module, Out, Progress, proto};
use flow::Flows;

/// The fast path.
pub struct Tls {
    worker: u32,
    flows: Flows,
}

impl Module for Tls {
    fn new(init: &Init) -> Self {
        Self { worker: init.worker, flows: Flows::new(&tables::Params::from(init)) }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            match packet.proto {
                proto::TCP => self.flows.segment(&packet, out),
                proto::UDP => self.flows.datagram(&packet, out),
                _ => {}
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        let (counts, incomplete, evicted) =
            (&self.flows.counts, self.flows.incomplete(), self.flows.evicted());
        if counts.malformed + counts.too_long + counts.undecrypted + incomplete + evicted > 0 {
            out.write(&tables::State {
                worker: self.worker,
                malformed: counts.malformed,
                too_long: counts.too_long,
                incomplete,
                undecrypted: counts.undecrypted,
                evicted,
            });
        }
        Progress::Done
    }
}

flame_module::export!(Tls);

#[cfg(test)]
mod tests;
