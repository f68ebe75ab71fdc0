//! histogram: draws the bins of a table as bars.
//!
//! Usage:    a plot in module.toml with kind = "histogram"; --plot FILE.svg, FILE.png, term or NAME;
//!           --compare FILE draws an earlier run (JSON) next to this one
//! Expects:  a table with the columns x and x_end, the ends of a bin, and y, its height; with values, another
//!           table with the single values.
//! Gives:    a bar for each bin, on a logarithmic axis for durations and bytes, and the sum. A bin that
//!           begins at 0 on that axis, or has no end, is drawn at the edge, which is stated. With values,
//!           their median and 99th percentile, as DuckDB's median and quantile_cont; without, the bin of
//!           the median. With several runs, shares instead of heights.
//! Example:  flame run rtt -r FILE --plot rtt.svg
//! Related:  line, events, docs/manifest.md

use super::declared::Declared;
use super::{count, quantile};
use crate::picture::{Axis, Picture, Scale, Series, Shape};
use crate::{ROWS, Run};
use flame_abi::manifest::ColumnType;
use flame_record::human;

/// The end of a bin from which on it has none: the largest number of 63 bits.
const NO_END: f64 = i64::MAX as f64;

/// Width of a bar at the edge where no other bar gives one: a factor of two.
const DOUBLE: f64 = 2.0;

#[derive(Clone, Copy)]
struct Bin {
    low: f64,
    high: f64,
    count: f64,
}

/// A horizontal axis: its scale, and the form of its numbers.
struct Across {
    scale: Scale,
    is_time: bool,
}

impl Across {
    fn is_log(&self) -> bool {
        self.scale != Scale::Linear
    }

    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::LogTime => value.log10(),
            Scale::LogBytes => value.log2(),
            _ => value,
        }
    }

    fn text(&self, value: f64) -> String {
        if self.is_time { human::duration(value.round() as i64) } else { human::float(value) }
    }

    /// Returns whether the beginning or the end of a bin has a place on the axis.
    fn has_low(&self, bin: &Bin) -> bool {
        bin.low > 0.0 || !self.is_log()
    }
}

pub(super) fn draw(declared: &Declared, runs: &[Run]) -> Option<Picture> {
    let plot = &declared.plot;
    let is_time = declared.kind(&plot.x) == ColumnType::Duration;
    let scale = match is_time {
        true => Scale::LogTime,
        false if declared.unit(&plot.x) == "bytes" => Scale::LogBytes,
        false => Scale::Linear,
    };
    let across = Across { scale, is_time };
    let mut notes = Vec::new();
    let one = |(n, run)| one(declared, &across, run, (n, runs.len()), &mut notes);
    let series: Vec<_> = runs.iter().enumerate().filter_map(one).collect();
    if series.is_empty() {
        return None;
    }
    let unit = declared.unit(plot.y.first()?);
    let y = if runs.len() > 1 { format!("share of {unit} (%)") } else { unit };
    notes.dedup();
    Some(Picture {
        title: declared.title(),
        notes,
        x: Axis {
            label: plot.x_label.clone().unwrap_or_else(|| declared.unit(&plot.x)),
            scale: across.scale,
        },
        y: Axis { label: y, scale: Scale::FromZero },
        series,
    })
}

/// Returns the series of run `n` of `runs`, and adds notes of what is not drawn in its place. Each bin is
/// divided between the runs, and several runs are made comparable.
fn one(
    declared: &Declared,
    across: &Across,
    run: &Run,
    (n, runs): (usize, usize),
    notes: &mut Vec<String>,
) -> Option<Series> {
    let (plot, frame) = (&declared.plot, run.frames.first()?);
    let unit = declared.unit(plot.y.first()?);
    let (lows, ends) = (frame.numbers(&plot.x), frame.numbers(plot.x_end.as_deref()?));
    let counts = frame.numbers(plot.y.first()?);
    let all = lows.iter().zip(ends).zip(counts).map(|((low, high), count)| Bin {
        low: *low,
        high: *high,
        count: *count,
    });
    let has_place = |bin: &Bin| {
        let low_fits = bin.low.is_finite() && (bin.low >= 0.0 || !across.is_log());
        let high_fits = bin.high.is_finite() || bin.high == f64::INFINITY;
        low_fits && bin.high > bin.low && high_fits && bin.count >= 0.0 && bin.count.is_finite()
    };
    let (bins, others): (Vec<Bin>, Vec<Bin>) = all.partition(has_place);
    let total: f64 = bins.iter().map(|bin| bin.count).sum();
    if total <= 0.0 || !total.is_finite() {
        return None;
    }
    let label = if run.label.is_empty() { String::new() } else { format!("{}: ", run.label) };
    notes.extend(left_out(&others, &unit).map(|note| format!("{label}{note}")));
    let share = if runs > 1 { 100.0 / total } else { 1.0 };
    let boxes = boxes(&bins, across, &unit, notes).into_iter().map(|(low, high, count)| {
        let part = (high - low) * 0.92 / runs as f64;
        let from = low + (high - low) * 0.04 + part * n as f64;
        [from, 0.0, from + part, count * share]
    });
    let boxes = boxes.collect();
    let statistics = statistics(declared, across, run).or_else(|| median_bin(&bins, total, across));
    let name = format!("{label}{} {unit}{}", count(total), statistics.unwrap_or_default());
    Some(Series { name, colour: n, shape: Shape::Boxes(boxes) })
}

/// Returns the bars: beginning, end and height. Bins of which one end has no place are drawn at the edge.
fn boxes(bins: &[Bin], across: &Across, unit: &str, notes: &mut Vec<String>) -> Vec<(f64, f64, f64)> {
    let is_closed = |bin: &&Bin| across.has_low(bin) && bin.high < NO_END;
    let widths = bins.iter().filter(is_closed).map(|bin| across.place(bin.high) - across.place(bin.low));
    let narrowest = widths.filter(|width| *width > 0.0).fold(f64::INFINITY, f64::min);
    let width = match narrowest.is_finite() {
        true => narrowest,
        false if across.is_log() => across.place(DOUBLE),
        false => 1.0,
    };
    let bar = |bin: &Bin| {
        let (has_low, has_high) = (across.has_low(bin), bin.high < NO_END);
        let (low, high) = (across.place(bin.low), across.place(bin.high));
        let number = format!("{} {unit}", count(bin.count));
        match (has_low, has_high) {
            (true, true) => (low, high, bin.count),
            (false, true) => {
                notes.push(format!("leftmost bar: {number} from 0 to {}", across.text(bin.high)));
                (high - width, high, bin.count)
            }
            (true, false) => {
                notes.push(format!("rightmost bar: {number} from {} on", across.text(bin.low)));
                (low, low + width, bin.count)
            }
            (false, false) => {
                notes.push(format!("{number} in one bin from 0 on"));
                (0.0, width, bin.count)
            }
        }
    };
    bins.iter().filter(|bin| bin.count > 0.0).map(bar).collect()
}

/// Returns a note of bins without a place on the axis.
fn left_out(bins: &[Bin], unit: &str) -> Option<String> {
    if bins.is_empty() {
        return None;
    }
    let sum: f64 = bins.iter().map(|bin| bin.count).filter(|count| *count > 0.0 && count.is_finite()).sum();
    let (bins, sum) = (count(bins.len() as f64), count(sum));
    Some(format!("not in the picture: {bins} bins with {sum} {unit}, which have no place on this axis"))
}

/// Returns the statistics of the single values, if there are any.
fn statistics(declared: &Declared, across: &Across, run: &Run) -> Option<String> {
    let (_, column) = declared.plot.values()?;
    let frame = run.frames.get(1)?;
    let mut values: Vec<f64> = frame.numbers(column).iter().copied().filter(|v| !v.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    let (median, most) = (quantile(&values, 0.5)?, quantile(&values, 0.99)?);
    let first = match frame.dropped {
        0 => String::new(),
        more => format!(" (of the first {} of {})", count(ROWS as f64), count(ROWS as f64 + more as f64)),
    };
    Some(format!(", median {}, 99 % up to {}{first}", across.text(median), across.text(most)))
}

/// Returns the bin of the median, which is all that bins show of it.
fn median_bin(bins: &[Bin], total: f64, across: &Across) -> Option<String> {
    let mut sorted = bins.to_vec();
    sorted.sort_by(|a, b| a.low.total_cmp(&b.low));
    let mut below = 0.0;
    let bin = sorted.iter().find(|bin| {
        below += bin.count;
        below >= total / 2.0
    })?;
    let low = across.text(bin.low);
    Some(match bin.high < NO_END {
        true => format!(", median between {low} and {}", across.text(bin.high)),
        false => format!(", median above {low}"),
    })
}
