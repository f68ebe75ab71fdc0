//! Intrusion detection by rules in Snort's language, packet by packet.
//!
//! [`rule`] parses the rules, [`engine`] evaluates them. The README lists the supported options and the cost
//! of a packet.
#![forbid(unsafe_code)]

pub mod engine;
pub mod rule;

use engine::{Engine, Facts, Limits};
use flame_module::{Batch, Init, Module, Out, Progress};

mod tables {
    flame_module::manifest!();
}

/// More bytes than the longest row of `unsupported`.
const ROW: usize = 4096;

/// The rules that are shipped.
pub const SHIPPED: &str = include_str!("../rules/flame.rules");

pub struct Ids {
    engine: Engine,
    worker: u32,
    /// The number of rows of `unsupported` that were written.
    told: usize,
    /// The number of packets with a payload that is entirely hidden.
    without_payload: u64,
}

impl Module for Ids {
    fn new(init: &Init) -> Self {
        let params = tables::Params::from(init);
        let text = match params.rules {
            "" => SHIPPED,
            text => text,
        };
        let set = rule::parse(text).unwrap_or_else(|fault| panic!("parameter rules: {fault}"));
        let limits =
            Limits { connections: params.max_connections as usize, tracked: params.max_tracked as usize };
        let engine = Engine::new(set, limits);
        // Only worker 0 reports unsupported rules.
        let told = if init.worker == 0 { 0 } else { usize::MAX };
        Self { engine, worker: init.worker, told, without_payload: 0 }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            let Some(facts) = Facts::of(&packet) else { continue };
            self.without_payload += u64::from(facts.payload.is_empty() && facts.payload_len > 0);
            self.engine.packet(&facts, |rule| {
                out.write(&tables::Alert {
                    ts_ns: facts.ts_ns,
                    gid: rule.gid,
                    sid: rule.sid,
                    rev: rule.rev,
                    msg: &rule.msg,
                    class: &rule.class,
                    priority: rule.priority,
                    proto: facts.proto,
                    src: facts.src,
                    sport: facts.ports.0,
                    dst: facts.dst,
                    dport: facts.ports.1,
                    flow: facts.hash,
                    wire_len: facts.wire_len,
                });
            });
        }
    }

    fn tick(&mut self, _: u64, out: &mut Out) -> Progress {
        self.tell(out)
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        if self.tell(out) == Progress::More {
            return Progress::More;
        }
        let (c, (connections, rates)) = (self.engine.counts, self.engine.evicted());
        out.write(&tables::State {
            worker: self.worker,
            rules: self.engine.rules() as u32,
            unsupported: self.engine.unsupported.len() as u32,
            packets: c.packets,
            alerts: c.alerts,
            held_back: c.held_back,
            given_up: c.given_up,
            without_payload: self.without_payload,
            evicted_connections: connections,
            evicted_rates: rates,
        });
        Progress::Done
    }
}

impl Ids {
    /// Reports the unsupported rules, once.
    fn tell(&mut self, out: &mut Out) -> Progress {
        while let Some(u) = self.engine.unsupported.get(self.told) {
            if out.room() < ROW {
                return Progress::More;
            }
            let reason: String = u.reason.chars().take(1000).collect();
            out.write(&tables::Unsupported { line: u.line, sid: u.sid, reason: &reason });
            self.told += 1;
        }
        Progress::Done
    }
}

flame_module::export!(Ids);

#[cfg(test)]
mod tests;
