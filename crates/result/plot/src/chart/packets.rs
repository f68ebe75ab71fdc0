//! packets: draws packets per interval, in total and by protocol.
//!
//! Usage:    --interval TIME --plot FILE.svg, FILE.png or term
//! Expects:  count.interval (end_ns, packets, tcp, udp, icmp, sctp), which count emits with --interval only.
//! Gives:    a line for all packets, and one for each protocol that occurs.
//! Example:  flame run count -r FILE --interval 1s --plot packets.svg
//! Related:  count (module), alerts

use super::{Chart, Table};
use crate::Run;
use crate::picture::{Axis, Picture, Scale, Series, Shape};

pub const CHART: Chart = Chart {
    module: "count",
    tables: &[Table { name: "interval", columns: &["end_ns", "packets", "tcp", "udp", "icmp", "sctp"] }],
    about: "packets per interval",
    hint: "add --interval TIME",
    draw,
};

fn draw(runs: &[Run]) -> Option<Picture> {
    let frame = &runs.first()?.frames[0];
    let times = frame.numbers("end_ns");
    let mut series = Vec::new();
    for (column, name) in
        [("packets", "all"), ("tcp", "TCP"), ("udp", "UDP"), ("icmp", "ICMP"), ("sctp", "SCTP")]
    {
        let values = frame.numbers(column);
        // A protocol without packets needs no line.
        if column == "packets" || values.iter().any(|n| *n > 0.0) {
            let line = times.iter().zip(values).map(|(t, n)| (t / 1e9, *n)).collect();
            series.push(Series { name: name.into(), colour: series.len(), shape: Shape::Line(line) });
        }
    }
    // The last interval ends with the capture, and a pause makes one row.
    let mut lengths: Vec<_> = times.windows(2).map(|w| w[1] - w[0]).collect();
    lengths.sort_by(f64::total_cmp);
    let label = match lengths.get(lengths.len() / 2) {
        Some(ns) => format!("packets per {}", flame_record::human::duration(*ns as i64)),
        None => "packets".to_owned(),
    };
    Some(Picture {
        title: "Packets over time".into(),
        notes: Vec::new(),
        x: Axis { label: "time".into(), scale: Scale::Time },
        y: Axis { label, scale: Scale::FromZero },
        series,
    })
}
