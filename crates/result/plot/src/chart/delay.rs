//! delay: draws one-way delay over time.
//!
//! Usage:    flame join FILES --plot FILE.svg, FILE.png or term
//! Expects:  join.delay (start_ns, path, packets, mean_ns, p50_ns, p99_ns).
//! Gives:    mean, median and 99th percentile if there is one path; otherwise the means of the six paths with
//!           most packets, and the number of paths left out.
//! Example:  flame join here.json there.json --plot delay.png
//! Related:  trajectory (module), histogram

use super::{Chart, Table, largest, time_unit};
use crate::Run;
use crate::picture::{Axis, Picture, Scale, Series, Shape};
use std::collections::BTreeMap;

pub const CHART: Chart = Chart {
    name: "delay",
    module: "join",
    tables: &[Table {
        name: "delay",
        columns: &["start_ns", "path", "packets", "mean_ns", "p50_ns", "p99_ns"],
    }],
    hint: "",
    draw,
};

/// Maximum number of paths in a picture. The number of omitted ones is stated.
const PATHS: usize = 6;

fn draw(runs: &[Run]) -> Option<Picture> {
    let frame = &runs.first()?.frames[0];
    let mut paths: BTreeMap<&str, (f64, Vec<usize>)> = BTreeMap::new();
    for (row, (path, packets)) in frame.words("path").zip(frame.numbers("packets")).enumerate() {
        let (sum, rows) = paths.entry(path).or_default();
        *sum += packets;
        rows.push(row);
    }
    let mut paths: Vec<_> = paths.into_iter().collect();
    paths.sort_by(|a, b| b.1.0.total_cmp(&a.1.0).then(a.0.cmp(b.0)));
    let columns = if paths.len() == 1 { &["p99_ns", "p50_ns", "mean_ns"][..] } else { &["mean_ns"] };
    let highest = columns.iter().map(|c| largest(frame.numbers(c).iter().copied())).fold(0.0, f64::max);
    let (unit, one) = time_unit(highest);
    let mut series = Vec::new();
    for (path, (_, rows)) in paths.iter().take(PATHS) {
        for column in columns {
            let name = match *column {
                _ if columns.len() == 1 => (*path).to_owned(),
                "p99_ns" => "99 % below".to_owned(),
                "p50_ns" => "median".to_owned(),
                _ => "mean".to_owned(),
            };
            let (times, values) = (frame.numbers("start_ns"), frame.numbers(column));
            let mut line: Vec<_> = rows.iter().map(|row| (times[*row] / 1e9, values[*row] / one)).collect();
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
            series.push(Series { name, colour: series.len(), shape: Shape::Line(line) });
        }
    }
    let mut notes = Vec::new();
    if let [(path, _)] = paths.as_slice() {
        notes.push(format!("path {path}"));
    } else {
        notes.push("mean of each path".to_owned());
    }
    if paths.len() > PATHS {
        notes.push(format!(
            "the {PATHS} paths with most packets; {} more are not in the picture",
            paths.len() - PATHS
        ));
    }
    Some(Picture {
        title: "One-way delay".into(),
        notes,
        x: Axis { label: "time".into(), scale: Scale::Time },
        y: Axis { label: format!("delay ({unit})"), scale: Scale::FromZero },
        series,
    })
}
