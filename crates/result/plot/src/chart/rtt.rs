//! rtt: draws a histogram of TCP round-trip times.
//!
//! Usage:    --plot FILE.svg, FILE.png or term; --compare FILE draws an earlier run (JSON) next to this one
//! Expects:  rtt.histogram (lower_ns, upper_ns, connections).
//! Gives:    a bar for each bin on a logarithmic axis, the number of connections and their approximate
//!           median; with several runs, shares of connections instead of counts.
//! Example:  flame run rtt -r FILE --plot rtt.svg
//! Related:  rtt (module), delay

use super::{Chart, Table, count};
use crate::Run;
use crate::picture::{Axis, Picture, Scale, Series, Shape};

pub const CHART: Chart = Chart {
    module: "rtt",
    tables: &[Table { name: "histogram", columns: &["lower_ns", "upper_ns", "connections"] }],
    about: "histogram of round-trip times",
    hint: "",
    draw,
};

fn draw(runs: &[Run]) -> Option<Picture> {
    let series: Vec<_> = runs.iter().enumerate().filter_map(|(n, run)| one(run, n, runs.len())).collect();
    if series.is_empty() {
        return None;
    }
    let y = if runs.len() > 1 { "share of connections (%)" } else { "connections" };
    Some(Picture {
        title: "Round-trip times of TCP handshakes".into(),
        notes: Vec::new(),
        x: Axis { label: "round-trip time".into(), scale: Scale::LogTime },
        y: Axis { label: y.into(), scale: Scale::FromZero },
        series,
    })
}

/// Returns the series of run `n` of `runs`. Each bin is divided between the runs, and several runs are made
/// comparable.
fn one(run: &Run, n: usize, runs: usize) -> Option<Series> {
    let frame = &run.frames[0];
    let counts = frame.numbers("connections");
    let good = |((low, high), count): &((&f64, &f64), &f64)| {
        **low >= 0.0 && high > low && high.is_finite() && **count >= 0.0 && count.is_finite()
    };
    let bins = || frame.numbers("lower_ns").iter().zip(frame.numbers("upper_ns")).zip(counts).filter(good);
    let total: f64 = bins().map(|(_, count)| count).sum();
    if total <= 0.0 || !total.is_finite() {
        return None;
    }
    let scale = if runs > 1 { 100.0 / total } else { 1.0 };
    let boxes = bins().filter(|((low, _), _)| **low > 0.0).map(|((low, high), count)| {
        let (low, high) = (low.log10(), high.log10());
        let part = (high - low) * 0.92 / runs as f64;
        let from = low + (high - low) * 0.04 + part * n as f64;
        [from, 0.0, from + part, count * scale]
    });
    // The median is in the bin of the middle connection.
    let mut sorted: Vec<_> = bins().map(|((low, high), count)| ((low * high).sqrt(), count)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut below = 0.0;
    let median = sorted.iter().find(|(_, c)| {
        below += **c;
        below >= total / 2.0
    });
    let median = median.map_or(String::new(), |(ns, _)| format!(", median about {}", about(*ns)));
    let label = if run.label.is_empty() { String::new() } else { format!("{}: ", run.label) };
    let name = format!("{label}{} connections{median}", count(total));
    Some(Series { name, colour: n, shape: Shape::Boxes(boxes.collect()) })
}

/// Formats a time with two digits, which is the accuracy of a bin.
fn about(ns: f64) -> String {
    let (unit, one) = super::time_unit(ns);
    let value = ns / one;
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}
