//! line: draws numbers of a table over time or over another number, as lines or points.
//!
//! Names:    line, points
//! Usage:    a plot in module.toml with kind = "line" or "points"; --plot FILE.svg, FILE.png, term or NAME
//! Expects:  a table with a column x, and a column for each of y.
//! Gives:    a series for each column of y or, with a group, for each of the six words with most rows.
//!           Columns with zeros only, except the first, are stated instead of drawn, and so is the number of
//!           values that are no numbers. Over time, the median distance of two rows.
//! Example:  flame run count -r FILE --interval 1s --plot packets.svg
//! Related:  events, histogram, docs/manifest.md

use super::declared::Declared;
use super::{largest, time_unit};
use crate::picture::{Axis, Picture, Scale, Series, Shape};
use crate::{Frame, Run};
use flame_abi::manifest::{ColumnType, PlotKind};
use std::collections::BTreeMap;

/// The shortest distance of two points that is stated. Times in floating-point numbers are exact to 256 ns.
const EXACT_NS: f64 = 1e6;

/// Maximum number of groups in a picture. The number of omitted ones is stated.
const GROUPS: usize = 6;

pub(super) fn draw(declared: &Declared, runs: &[Run]) -> Option<Picture> {
    let plot = &declared.plot;
    let frame = &runs.first()?.frames[0];
    let (x_axis, x_one) = axis(declared, &plot.x, plot.x_label.as_deref(), frame);
    let y = plot.y.first()?;
    let (mut y_axis, y_one) = axis(declared, y, plot.unit.as_deref(), frame);
    let xs = frame.numbers(&plot.x);
    let points = |ys: &[f64], rows: &mut dyn Iterator<Item = usize>| {
        let mut points: Vec<_> =
            rows.filter_map(|row| Some((xs.get(row)? / x_one, ys.get(row)? / y_one))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if plot.kind == PlotKind::Points { Shape::Points(points) } else { Shape::Line(points) }
    };
    let (mut series, mut notes) = (Vec::new(), Vec::new());
    if let Some(group) = &plot.group {
        let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        frame.words(group).enumerate().for_each(|(row, word)| groups.entry(word).or_default().push(row));
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then(a.0.cmp(b.0)));
        for (colour, (word, rows)) in groups.iter().take(GROUPS).enumerate() {
            let shape = points(frame.numbers(y), &mut rows.iter().copied());
            series.push(Series { name: (*word).to_owned(), colour, shape });
        }
        if groups.len() > GROUPS {
            let more = groups.len() - GROUPS;
            notes.push(format!("the {GROUPS} with most records; {more} more are not in the picture"));
        }
    } else {
        let mut zeros = Vec::new();
        for (n, column) in plot.y.iter().enumerate() {
            let values = frame.numbers(column);
            let name = plot.labels.get(n).unwrap_or(column).clone();
            // A column of zeros needs no line.
            if n > 0 && values.iter().all(|v| *v == 0.0) {
                zeros.push(name);
            } else {
                let shape = points(values, &mut (0..values.len()));
                series.push(Series { name, colour: series.len(), shape });
            }
        }
        if !zeros.is_empty() {
            notes.push(format!("always 0: {}", zeros.join(", ")));
        }
    }
    let drawn = series.iter().map(|s| match &s.shape {
        Shape::Line(points) | Shape::Points(points) => points.as_slice(),
        _ => &[],
    });
    let without = drawn.flatten().filter(|(x, y)| !x.is_finite() || !y.is_finite()).count();
    notes.extend(super::without_place(without));
    if series.is_empty() {
        return None;
    }
    let is_negative = plot.y.iter().any(|column| frame.numbers(column).iter().any(|v| *v < 0.0));
    y_axis.scale = if is_negative { Scale::Linear } else { Scale::FromZero };
    if x_axis.scale == Scale::Time && plot.kind == PlotKind::Line && plot.group.is_none() {
        // A long pause makes one row.
        let mut lengths: Vec<_> = xs.windows(2).map(|w| w[1] - w[0]).filter(|ns| *ns > 0.0).collect();
        lengths.sort_by(f64::total_cmp);
        if let Some(ns) = super::quantile(&lengths, 0.5).filter(|ns| *ns >= EXACT_NS) {
            notes.push(format!("a point each {} (median)", flame_record::human::duration(ns as i64)));
        }
    }
    Some(Picture { title: declared.title(), notes, x: x_axis, y: y_axis, series })
}

/// Returns an axis for a column, and the number in its unit that is 1 there.
fn axis(declared: &Declared, column: &str, words: Option<&str>, frame: &Frame) -> (Axis, f64) {
    let words = words.map_or_else(|| declared.unit(column), str::to_owned);
    match declared.kind(column) {
        ColumnType::Time => {
            let label = if words == column { "time".to_owned() } else { words };
            (Axis { label, scale: Scale::Time }, 1e9)
        }
        ColumnType::Duration => {
            let (unit, one) = time_unit(largest(frame.numbers(column).iter().map(|ns| ns.abs())));
            let words = if words == "ns" { column.to_owned() } else { words };
            (Axis { label: format!("{words} ({unit})"), scale: Scale::Linear }, one)
        }
        _ => (Axis { label: words, scale: Scale::Linear }, 1.0),
    }
}
