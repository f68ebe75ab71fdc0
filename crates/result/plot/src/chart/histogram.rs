//! histogram: draws the bins of a table as bars.
//!
//! Usage:    a plot in module.toml with kind = "histogram"; --plot FILE.svg, FILE.png, term or NAME;
//!           --compare FILE draws an earlier run (JSON) next to this one
//! Expects:  a table with the columns x and x_end, the ends of a bin, and y, its height.
//! Gives:    a bar for each bin, on a logarithmic axis for durations and bytes, the sum and the approximate
//!           median; with several runs, shares instead of heights.
//! Example:  flame run rtt -r FILE --plot rtt.svg
//! Related:  line, events, docs/manifest.md

use super::count;
use super::declared::Declared;
use crate::Run;
use crate::picture::{Axis, Picture, Scale, Series, Shape};
use flame_abi::manifest::ColumnType;

pub(super) fn draw(declared: &Declared, runs: &[Run]) -> Option<Picture> {
    let plot = &declared.plot;
    let scale = match declared.kind(&plot.x) {
        ColumnType::Duration => Scale::LogTime,
        _ if declared.unit(&plot.x) == "bytes" => Scale::LogBytes,
        _ => Scale::Linear,
    };
    let one = |(n, run)| one(declared, &scale, run, n, runs.len());
    let series: Vec<_> = runs.iter().enumerate().filter_map(one).collect();
    if series.is_empty() {
        return None;
    }
    let unit = declared.unit(plot.y.first()?);
    let y = if runs.len() > 1 { format!("share of {unit} (%)") } else { unit };
    Some(Picture {
        title: declared.title(),
        notes: Vec::new(),
        x: Axis { label: plot.x_label.clone().unwrap_or_else(|| declared.unit(&plot.x)), scale },
        y: Axis { label: y, scale: Scale::FromZero },
        series,
    })
}

/// Returns the series of run `n` of `runs`. Each bin is divided between the runs, and several runs are made
/// comparable.
fn one(declared: &Declared, scale: &Scale, run: &Run, n: usize, runs: usize) -> Option<Series> {
    let (plot, frame) = (&declared.plot, &run.frames[0]);
    let counts = frame.numbers(plot.y.first()?);
    let is_log = *scale != Scale::Linear;
    let good = |((low, high), count): &((&f64, &f64), &f64)| {
        // On a logarithmic axis, a bin may begin at 0, but is not shown.
        let low_fits = low.is_finite() && (**low >= 0.0 || !is_log);
        low_fits && high > low && high.is_finite() && **count >= 0.0 && count.is_finite()
    };
    let ends = frame.numbers(plot.x_end.as_deref()?);
    let bins = || frame.numbers(&plot.x).iter().zip(ends).zip(counts).filter(good);
    let total: f64 = bins().map(|(_, count)| count).sum();
    if total <= 0.0 || !total.is_finite() {
        return None;
    }
    let share = if runs > 1 { 100.0 / total } else { 1.0 };
    let place = |value: f64| match scale {
        Scale::LogTime => value.log10(),
        Scale::LogBytes => value.log2(),
        _ => value,
    };
    let boxes = bins().filter(|((low, _), _)| **low > 0.0 || !is_log).map(|((low, high), count)| {
        let (low, high) = (place(*low), place(*high));
        let part = (high - low) * 0.92 / runs as f64;
        let from = low + (high - low) * 0.04 + part * n as f64;
        [from, 0.0, from + part, count * share]
    });
    // The median is in the bin of the middle one.
    let middle = |low: f64, high: f64| if is_log { (low * high).sqrt() } else { low / 2.0 + high / 2.0 };
    let mut sorted: Vec<_> = bins().map(|((low, high), count)| (middle(*low, *high), count)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut below = 0.0;
    let median = sorted.iter().find(|(_, c)| {
        below += **c;
        below >= total / 2.0
    });
    let about = |value: f64| match scale {
        Scale::LogTime => time(value),
        _ => two_digits(value),
    };
    let median = median.map_or(String::new(), |(value, _)| format!(", median about {}", about(*value)));
    let label = if run.label.is_empty() { String::new() } else { format!("{}: ", run.label) };
    let name = format!("{label}{} {}{median}", count(total), declared.unit(plot.y.first()?));
    Some(Series { name, colour: n, shape: Shape::Boxes(boxes.collect()) })
}

/// Formats a time with two digits, which is the accuracy of a bin.
fn time(ns: f64) -> String {
    let (unit, one) = super::time_unit(ns);
    format!("{} {unit}", two_digits(ns / one))
}

fn two_digits(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}
