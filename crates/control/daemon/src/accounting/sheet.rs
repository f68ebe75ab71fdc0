//! The use in one interval, as rows.

use super::Session;
use crate::reach::{Made, Reach};
use crate::spool::Spool;
use flame_plan::{CatalogEntry, rounded};
use flame_quota::{LevelState, Used};
use flame_record::Rows;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The use of resources by a module or a session in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub cpu_ns: u64,
    pub packets: u64,
    pub block_ns: u64,
    pub memory_byte_seconds: u64,
    pub kept_byte_seconds: u64,
    pub kept_bytes: u64,
    pub records: u64,
    pub record_bytes: u64,
    pub sent_bytes: u64,
    pub transmitted_bytes: u64,
}

/// Returns the growth of an integral over nanoseconds, in units of `unit` nanoseconds. What is left of a unit
/// counts in the next interval.
fn growth(before: &LevelState, now: &LevelState, unit: u128) -> u64 {
    u64::try_from(now.integral / unit - before.integral / unit).unwrap_or(u64::MAX)
}

impl Amounts {
    const SECOND: u128 = 1_000_000_000;

    /// Returns the use between two times.
    pub fn between(before: &Used, now: &Used) -> Self {
        Self {
            cpu_ns: now.cpu_ns - before.cpu_ns,
            packets: now.packets - before.packets,
            block_ns: growth(&before.blocks, &now.blocks, 1),
            memory_byte_seconds: growth(&before.memory, &now.memory, Self::SECOND),
            kept_byte_seconds: growth(&before.kept, &now.kept, Self::SECOND),
            kept_bytes: now.kept.now,
            records: now.records - before.records,
            record_bytes: now.record_bytes - before.record_bytes,
            sent_bytes: now.sent_bytes - before.sent_bytes,
            transmitted_bytes: now.transmitted_bytes - before.transmitted_bytes,
        }
    }

    /// Adds the use of another module, or of a later time: what is kept is then the later amount.
    pub(super) fn add(&mut self, other: &Self, is_later: bool) {
        self.cpu_ns += other.cpu_ns;
        self.packets += other.packets;
        self.block_ns = self.block_ns.saturating_add(other.block_ns);
        self.memory_byte_seconds = self.memory_byte_seconds.saturating_add(other.memory_byte_seconds);
        self.kept_byte_seconds = self.kept_byte_seconds.saturating_add(other.kept_byte_seconds);
        self.kept_bytes = other.kept_bytes + if is_later { 0 } else { self.kept_bytes };
        self.records += other.records;
        self.record_bytes += other.record_bytes;
        self.sent_bytes += other.sent_bytes;
        self.transmitted_bytes += other.transmitted_bytes;
    }

    /// Returns the numbers as a principal sees them.
    pub(super) fn rounded(&self) -> Self {
        Self {
            cpu_ns: rounded(self.cpu_ns),
            block_ns: rounded(self.block_ns),
            memory_byte_seconds: rounded(self.memory_byte_seconds),
            ..*self
        }
    }
}

/// The rows of one interval.
pub(super) struct Sheet {
    rows: Rows,
    time: (u64, u64),
    pub sessions: BTreeMap<Session, Amounts>,
    /// The rights of all modules in it.
    pub made: Vec<Arc<Reach>>,
}

impl Sheet {
    pub fn new(tables: &Rows, time: (u64, u64)) -> Self {
        Self { rows: tables.empty(), time, sessions: BTreeMap::new(), made: Vec::new() }
    }

    pub fn module(&mut self, session: &Session, module: &str, source: &str, used: &Amounts) {
        self.sessions.entry(session.clone()).or_default().add(used, false);
        self.row(0, session, &[module, source], used);
    }

    fn row(&mut self, table: u16, session: &Session, names: &[&str], used: &Amounts) {
        let Amounts { cpu_ns, packets, block_ns, memory_byte_seconds, .. } = *used;
        let Amounts { kept_byte_seconds, kept_bytes, records, record_bytes, .. } = *used;
        let Amounts { sent_bytes, transmitted_bytes, .. } = *used;
        let (root, session) = match session {
            Session::System => ("", "system"),
            Session::Of(owner) if owner.is_operator() => ("", "operator"),
            Session::Of(owner) => (owner.root.as_str(), owner.principal.as_str()),
        };
        let mut row = Vec::new();
        [self.time.0, self.time.1].into_iter().for_each(|n| row.extend(n.to_le_bytes()));
        for text in [root, session].iter().chain(names) {
            let bytes = text.as_bytes();
            // Names are far shorter.
            let length = bytes.len().min(usize::from(u16::MAX)) as u16;
            row.extend(length.to_le_bytes());
            row.extend(&bytes[..usize::from(length)]);
        }
        let memory = [block_ns, memory_byte_seconds, kept_byte_seconds, kept_bytes];
        let out = [records, record_bytes, sent_bytes, transmitted_bytes];
        let numbers = [cpu_ns, packets].into_iter().chain(memory).chain(out);
        numbers.for_each(|n| row.extend(n.to_le_bytes()));
        // Few rows: full batches do not arise.
        let _ = self.rows.push(table, &row);
    }

    pub fn write(mut self, spool: &Spool, entry: &Arc<CatalogEntry>) {
        for (session, used) in std::mem::take(&mut self.sessions) {
            self.row(1, &session, &[], &used);
        }
        let made: Made = self.made.into();
        for (table, batch) in self.rows.drain() {
            spool.push((entry, &made), table, &batch);
        }
        spool.release();
    }
}
