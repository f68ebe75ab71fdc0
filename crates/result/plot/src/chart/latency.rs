//! latency: draws the latency of memory by working set.
//!
//! Usage:    flame calibrate --plot FILE.svg, FILE.png or term
//! Expects:  calibrate.latency (bytes, picoseconds): loads at random, each of which needs the result of the
//!           one before.
//! Gives:    time of a load against working set, on a logarithmic axis; a step is where a cache ends.
//! Example:  flame calibrate --plot term
//! Related:  check (command)

use super::{Chart, Table};
use crate::Run;
use crate::picture::{Axis, Picture, Scale, Series, Shape};

pub const CHART: Chart = Chart {
    name: "latency",
    module: "calibrate",
    tables: &[Table { name: "latency", columns: &["bytes", "picoseconds"] }],
    hint: "",
    draw,
};

fn draw(runs: &[Run]) -> Option<Picture> {
    let mut series = Vec::new();
    for (colour, run) in runs.iter().enumerate() {
        let frame = &run.frames[0];
        let sizes = frame.numbers("bytes").iter().map(|bytes| bytes.max(1.0).log2());
        let points: Vec<_> = sizes.zip(frame.numbers("picoseconds").iter().map(|ps| ps / 1e3)).collect();
        let name = run.label.clone();
        series.push(Series { name: String::new(), colour, shape: Shape::Line(points.clone()) });
        series.push(Series { name, colour, shape: Shape::Points(points) });
    }
    Some(Picture {
        title: "Latency of memory".into(),
        notes: vec!["a load at random that needs the result of the one before".into()],
        x: Axis { label: "working set".into(), scale: Scale::LogBytes },
        y: Axis { label: "time of a load (ns)".into(), scale: Scale::FromZero },
        series,
    })
}
