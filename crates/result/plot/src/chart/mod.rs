//! Which picture fits which table: one file each, and one line in [`ALL`].

mod alerts;
mod delay;
mod latency;
mod logscale;
mod packets;
mod rtt;
mod talkers;

/// Sources of the charts, which begin with their manuals.
pub const MANUALS: &[&str] = &[
    include_str!("alerts.rs"),
    include_str!("delay.rs"),
    include_str!("latency.rs"),
    include_str!("logscale.rs"),
    include_str!("packets.rs"),
    include_str!("rtt.rs"),
    include_str!("talkers.rs"),
];

use crate::Run;
use crate::picture::Picture;

/// What is drawn from the records of one module.
pub struct Chart {
    pub module: &'static str,
    /// Without records in the first there is no picture.
    pub tables: &'static [Table],
    /// A few words for people.
    pub about: &'static str,
    /// What to do if there are no records.
    pub hint: &'static str,
    /// Nothing if the records hold nothing to see. Each run has the tables in order, the first with rows.
    pub draw: fn(&[Run]) -> Option<Picture>,
}

pub struct Table {
    pub name: &'static str,
    pub columns: &'static [&'static str],
}

pub static ALL: [Chart; 8] = [
    rtt::CHART,
    delay::CHART,
    logscale::CHART,
    talkers::CHART,
    alerts::WORM,
    alerts::IDS,
    packets::CHART,
    latency::CHART,
];

impl Chart {
    pub(crate) fn index(&self, table: &str) -> Option<usize> {
        self.tables.iter().position(|t| t.name == table)
    }
}

/// All there are, for people.
pub fn list() -> String {
    let one = |c: &Chart| format!("{}.{} ({})", c.module, c.tables[0].name, c.about);
    ALL.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Whole numbers as people write them.
fn count(n: f64) -> String {
    flame_record::human::grouped(n.max(0.0) as u64)
}

/// A unit of time in which `ns` is a number that people read, and what one is in nanoseconds.
fn time_unit(ns: f64) -> (&'static str, f64) {
    match ns {
        n if n < 1e3 => ("ns", 1.0),
        n if n < 1e6 => ("µs", 1e3),
        n if n < 1e9 => ("ms", 1e6),
        _ => ("s", 1e9),
    }
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|v| v.is_finite()).fold(0.0, f64::max)
}
