//! Intrusion detection by rules in Snort's language, packet by packet.
//!
//! [`rule`] reads the rules, [`engine`] runs them; the README has what is supported, and what a packet costs.
#![forbid(unsafe_code)]

pub mod engine;
pub mod rule;

use engine::{Engine, Facts, Limits};
use flame_module::{Batch, Init, Module, Out, Progress};

/// Tables, in the order of `module.toml`.
const ALERT: u16 = 0;
const UNSUPPORTED: u16 = 1;
const STATE: u16 = 2;

/// More than the longest row of `unsupported`.
const ROW: usize = 4096;

/// The rules that are shipped.
pub const SHIPPED: &str = include_str!("../rules/flame.rules");

pub struct Ids {
    engine: Engine,
    worker: u32,
    /// Rows of `unsupported` that were written.
    told: usize,
    /// Packets with payload of which nothing is to be seen.
    without_payload: u64,
}

impl Module for Ids {
    fn new(init: &Init) -> Self {
        let text = match init.text("rules") {
            "" => SHIPPED,
            text => text,
        };
        let set = rule::parse(text).unwrap_or_else(|fault| panic!("parameter rules: {fault}"));
        let limits = Limits {
            connections: init.integer("max_connections") as usize,
            tracked: init.integer("max_tracked") as usize,
        };
        let engine = Engine::new(set, limits);
        // One worker tells for all.
        let told = if init.worker == 0 { 0 } else { usize::MAX };
        Self { engine, worker: init.worker, told, without_payload: 0 }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            let Some(facts) = Facts::of(&packet) else { continue };
            self.without_payload += u64::from(facts.payload.is_empty() && facts.payload_len > 0);
            self.engine.packet(&facts, |rule| {
                let row = out.row(ALERT).time(facts.ts_ns).u32(rule.gid).u32(rule.sid).u32(rule.rev);
                let row = row.text(&rule.msg).text(&rule.class).u8(rule.priority).u8(facts.proto);
                let row = row.ip(facts.src).u16(facts.ports.0).ip(facts.dst).u16(facts.ports.1);
                row.u32(facts.hash).u32(facts.wire_len).finish();
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
        let rules = (self.engine.rules() as u32, self.engine.unsupported.len() as u32);
        let row = out.row(STATE).u32(self.worker).u32(rules.0).u32(rules.1).u64(c.packets).u64(c.alerts);
        let row = row.u64(c.held_back).u64(c.given_up).u64(self.without_payload);
        row.u64(connections).u64(rates).finish();
        Progress::Done
    }
}

impl Ids {
    /// Lists what is not acted upon, once.
    fn tell(&mut self, out: &mut Out) -> Progress {
        while let Some(u) = self.engine.unsupported.get(self.told) {
            if out.room() < ROW {
                return Progress::More;
            }
            let reason: String = u.reason.chars().take(1000).collect();
            out.row(UNSUPPORTED).u32(u.line).u32(u.sid).text(&reason).finish();
            self.told += 1;
        }
        Progress::Done
    }
}

flame_module::export!(Ids);

#[cfg(test)]
mod tests;
