//! talkers: draws the ten hosts with most bytes.
//!
//! Usage:    --plot FILE.svg, FILE.png or term
//! Expects:  flow.flow (src, dst, bytes_fwd, bytes_rev).
//! Gives:    two bars a host, bytes sent and received, in the order of their sum.
//! Example:  flame run flow -r FILE --plot talkers.svg
//! Related:  flow (module), line

use super::{Chart, Table, largest};
use crate::Run;
use crate::picture::{Axis, Picture, Scale, Series, Shape};
use std::collections::HashMap;

pub const CHART: Chart = Chart {
    name: "talkers",
    module: "flow",
    tables: &[Table { name: "flow", columns: &["src", "dst", "bytes_fwd", "bytes_rev"] }],
    hint: "",
    draw,
};

const HOSTS: usize = 10;

fn draw(runs: &[Run]) -> Option<Picture> {
    let frame = &runs.first()?.frames[0];
    // The bytes sent and received by each host.
    let mut hosts: HashMap<&str, [f64; 2]> = HashMap::new();
    let bytes = frame.numbers("bytes_fwd").iter().zip(frame.numbers("bytes_rev"));
    for ((src, dst), (forward, reverse)) in frame.words("src").zip(frame.words("dst")).zip(bytes) {
        for (host, sent, received) in [(src, forward, reverse), (dst, reverse, forward)] {
            let sums = hosts.entry(host).or_default();
            sums[0] += sent;
            sums[1] += received;
        }
    }
    let all = hosts.len();
    let mut hosts: Vec<_> = hosts.into_iter().collect();
    hosts.sort_by(|a, b| (b.1[0] + b.1[1]).total_cmp(&(a.1[0] + a.1[1])).then(a.0.cmp(b.0)));
    hosts.truncate(HOSTS);
    let (unit, one) = match largest(hosts.iter().flat_map(|h| h.1)) {
        n if n < 1e4 => ("bytes", 1.0),
        n if n < 1e6 => ("kB", 1e3),
        n if n < 1e9 => ("MB", 1e6),
        _ => ("GB", 1e9),
    };
    let boxes = |which: usize| {
        let row = |(i, host): (usize, &(&str, [f64; 2]))| {
            let top = i as f64 + 0.12 + 0.38 * which as f64;
            [0.0, top, host.1[which] / one, top + 0.38]
        };
        Shape::Boxes(hosts.iter().enumerate().map(row).collect())
    };
    let words = hosts.iter().map(|h| h.0.to_owned()).collect();
    Some(Picture {
        title: "Top talkers".into(),
        notes: vec![format!("{} of {all} hosts, by bytes sent and received", hosts.len())],
        x: Axis { label: unit.into(), scale: Scale::FromZero },
        y: Axis { label: String::new(), scale: Scale::Rows(words) },
        series: vec![
            Series { name: "sent".into(), colour: 0, shape: boxes(0) },
            Series { name: "received".into(), colour: 1, shape: boxes(1) },
        ],
    })
}
