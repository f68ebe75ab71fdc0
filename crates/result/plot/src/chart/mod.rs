//! The charts for tables: those that manifests declare, by kind, and those of one table each, which have a
//! line in [`ALL`].

mod declared;
mod delay;
mod events;
mod histogram;
mod latency;
mod line;
mod logscale;
mod talkers;

pub(crate) use declared::Declared;

/// The sources of the charts, which begin with their manuals.
pub const MANUALS: &[&str] = &[
    include_str!("delay.rs"),
    include_str!("events.rs"),
    include_str!("histogram.rs"),
    include_str!("latency.rs"),
    include_str!("line.rs"),
    include_str!("logscale.rs"),
    include_str!("talkers.rs"),
];

use crate::Run;
use crate::picture::Picture;
use flame_abi::manifest::PlotKind;

impl Declared {
    /// Draws the plot, or returns `None` if the records contain nothing to show.
    pub fn draw(&self, runs: &[Run]) -> Option<Picture> {
        match self.plot.kind {
            PlotKind::Line | PlotKind::Points => line::draw(self, runs),
            PlotKind::Events => events::draw(self, runs),
            PlotKind::Histogram => histogram::draw(self, runs),
        }
    }
}

/// A chart of the records of one module that no kind of declared plots draws.
pub struct Chart {
    pub name: &'static str,
    pub module: &'static str,
    /// The tables of the chart. It is drawn only if the first has records.
    pub tables: &'static [Table],
    /// The remedy if there are no records.
    pub hint: &'static str,
    /// Draws the chart, or returns `None` if the records contain nothing to show. Each run has the tables in
    /// order, and the first one has rows.
    pub draw: fn(&[Run]) -> Option<Picture>,
}

pub struct Table {
    pub name: &'static str,
    pub columns: &'static [&'static str],
}

pub static ALL: [Chart; 4] = [delay::CHART, logscale::CHART, talkers::CHART, latency::CHART];

/// Formats a whole number for people.
fn count(n: f64) -> String {
    flame_record::human::grouped(n.max(0.0) as u64)
}

/// Returns a note of records that have no place in a picture, if there are any.
fn without_place(records: usize) -> Option<String> {
    (records > 0).then(|| format!("{} values are no numbers and not in the picture", count(records as f64)))
}

/// Returns the value below which the share `q` of the values lies, interpolated between two of them, as
/// `quantile_cont` of SQL does. `sorted` has no NaN.
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let at = (sorted.len().checked_sub(1)?) as f64 * q;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// Returns a unit of time in which `ns` is a readable number, and the unit's length in nanoseconds.
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
