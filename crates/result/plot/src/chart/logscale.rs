//! logscale: draws the logscale diagram of Abry and Veitch (1998).
//!
//! Usage:    --plot FILE.svg, FILE.png or term
//! Expects:  lrd.octave and lrd.estimate; with --interval, the rows of the last interval.
//! Gives:    mean energy by octave with its 95 % interval for packets, bytes and connections, the regression
//!           line whose slope gives H, and H with its interval in the legend.
//! Example:  flame run lrd -r FILE --plot lrd.svg
//! Related:  lrd (module)

use super::{Chart, Table, largest};
use crate::Run;
use crate::picture::{Axis, Picture, Scale, Series, Shape};

pub const CHART: Chart = Chart {
    name: "logscale",
    module: "lrd",
    tables: &[
        Table { name: "octave", columns: &["end_ns", "series", "octave", "energy", "low", "high", "fit"] },
        Table { name: "estimate", columns: &["end_ns", "series", "h", "h_low", "h_high"] },
    ],
    hint: "the capture is shorter than two intervals (lrd.interval)",
    draw,
};

fn draw(runs: &[Run]) -> Option<Picture> {
    let run = runs.first()?;
    let (octave, estimate) = (&run.frames[0], &run.frames[1]);
    // With --interval, the last rows cover the whole run.
    let end = largest(octave.numbers("end_ns").iter().copied());
    let mut series = Vec::new();
    for (colour, of) in ["packets", "bytes", "connections"].into_iter().enumerate() {
        let ends = octave.numbers("end_ns");
        let rows: Vec<_> = octave
            .words("series")
            .enumerate()
            .filter(|(i, s)| *s == of && ends[*i] == end)
            .map(|(i, _)| i)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let column = |name: &str| rows.iter().map(|i| octave.numbers(name)[*i]).collect::<Vec<_>>();
        let (x, energy, low, high, fit) =
            (column("octave"), column("energy"), column("low"), column("high"), column("fit"));
        let line = x.iter().copied().zip(fit).collect();
        let bars = x.iter().zip(low).zip(high).map(|((x, l), h)| (*x, l, h)).collect();
        let ends = estimate.numbers("end_ns");
        let h =
            estimate.words("series").enumerate().find(|(i, s)| *s == of && ends[*i] == end).map(|(i, _)| {
                let of = |name| estimate.numbers(name)[i];
                format!("H = {:.2} ({:.2} to {:.2})", of("h"), of("h_low"), of("h_high"))
            });
        let name = format!("{of}: {}", h.unwrap_or_else(|| "too few octaves for H".into()));
        series.push(Series { name: String::new(), colour, shape: Shape::Line(line) });
        series.push(Series { name: String::new(), colour, shape: Shape::Whiskers(bars) });
        series.push(Series { name, colour, shape: Shape::Points(x.into_iter().zip(energy).collect()) });
    }
    if series.is_empty() {
        return None;
    }
    Some(Picture {
        title: "Logscale diagram".into(),
        notes: vec!["bars: 95 % interval; lines: regression over the octaves that fit".into()],
        x: Axis { label: "octave (of the counting interval)".into(), scale: Scale::Whole },
        y: Axis { label: "log2 of mean energy".into(), scale: Scale::Linear },
        series,
    })
}
