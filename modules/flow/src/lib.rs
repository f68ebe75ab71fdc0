//! `flow`: one record for each flow of packets, as routers export them.
//!
//! Expects IP headers; other packets are not part of a flow. Writes the tables `flow` and `state` of
//! `module.toml`. The README describes the method, the parameters and the memory bound.
#![forbid(unsafe_code)]

mod flow;
mod key;
mod table;
mod tags;

/// The rows and parameters of `module.toml`.
pub mod tables {
    flame_module::manifest!();
}

pub use key::Key;
pub use table::{MAX_CHAIN, Seen, Table, Timeouts};
pub use tags::Tags;

use flame_module::{Batch, Init, Module, Out, Progress, Record, Reserved};

pub struct Flow {
    table: Table,
    worker: u32,
    /// The number of packets whose addresses were not captured or are hidden.
    unreadable: u64,
    scan: usize,
    dump: usize,
}

impl Module for Flow {
    fn new(init: &Init) -> Self {
        let params = tables::Params::from(init);
        let timeouts = Timeouts {
            idle: params.idle_timeout,
            active: params.active_timeout,
            linger: params.linger,
            late: params.late,
        };
        let table = Table::new(params.max_flows as usize, timeouts, params.tags);
        Self { table, worker: init.worker, unreadable: 0, scan: 0, dump: 0 }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        // A packet ends at most one flow. Its bound contains none of the cost of room for the record.
        let mut out = out.reserve(batch.len() * tables::Flow::SPACE);
        self.table.link = batch.link();
        match self.table.is_by_tags() {
            true => self.packets::<true>(batch, &mut out),
            false => self.packets::<false>(batch, &mut out),
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.table.scan(&mut self.scan, now_ns, out);
        Progress::Done
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        if self.table.dump(&mut self.dump, now_ns, out) || out.room() < tables::State::SPACE {
            return Progress::More;
        }
        if self.table.evicted + self.unreadable > 0 {
            out.write(&tables::State {
                worker: self.worker,
                peak: self.table.peak,
                evicted: self.table.evicted,
                unreadable: self.unreadable,
            });
        }
        Progress::Done
    }
}

impl Flow {
    #[inline(always)]
    fn packets<const TAGS: bool>(&mut self, batch: &Batch, out: &mut Reserved<'_>) {
        for packet in batch.packets() {
            if !packet.is_ip() {
                continue;
            }
            match Seen::new(packet) {
                Some(seen) => self.table.packet::<TAGS>(seen, out),
                None => self.unreadable += 1,
            }
        }
    }
}

flame_module::export!(Flow);
