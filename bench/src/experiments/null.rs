//! The time of a packet in a chain of elements that send it on, by their number: native elements, and
//! untrusted ones with a proved bound (hybrid), or metered and preempted, each in a process of its own
//! (dynamic): the experiment of the Figure 5.4 of Patel's thesis.

use super::finding::Finding;
use super::{Figure, Setting};
use crate::click::FRAME;
use crate::elements::null;
use crate::fixture::Error;
use crate::graph::Graph;
use crate::row::median;
use flame_plot::{Scale, Shape};

/// The elements of a chain.
const CHAINS: [usize; 5] = [1, 2, 4, 8, 16];

/// Measures the chains.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let folder = tempfile::tempdir()?;
    let module = null(folder.path())?;
    let ways = [
        ("native", &[][..], "Null".to_owned()),
        ("hybrid", &[], format!("Module({module})")),
        ("dynamic", &["--isolate", "--metered"], format!("Module({module})")),
    ];
    let (chains, rounds, packets) =
        if setting.quick { (&CHAINS[..2], 1, 20_000) } else { (&CHAINS[..], 3, 1_000_000) };
    println!("null: nanoseconds for a packet in a chain of elements that send it on (Patel, Fig. 5.4)");
    println!("elements  {:>8}  {:>8}  {:>8}", ways[0].0, ways[1].0, ways[2].0);
    let mut lines = [const { Vec::new() }; 3];
    for elements in chains {
        let mut times = [const { Vec::new() }; 3];
        // The first round compiles the module.
        for round in 0..=rounds {
            for ((_, options, element), times) in ways.iter().zip(&mut times) {
                let graph = Graph { flame: setting.flame, options, data: FRAME, length: 100, burst: 64 };
                let ns = graph.nanoseconds(&vec![element.as_str(); *elements].join(" -> "), packets)?;
                if round > 0 {
                    times.push(ns);
                }
            }
        }
        let times = times.map(median);
        println!("{elements:8}  {:8.1}  {:8.1}  {:8.1}", times[0], times[1], times[2]);
        lines.iter_mut().zip(times).for_each(|(line, ns)| line.push((*elements as f64, ns)));
    }
    let slope = |line: &[(f64, f64)]| match (line.first(), line.last()) {
        (Some(first), Some(last)) => (last.1 - first.1) / (last.0 - first.0),
        _ => f64::NAN,
    };
    let [native, hybrid, dynamic] = lines.each_ref().map(|line| slope(line));
    println!("for each element: native {native:.1} ns, hybrid {hybrid:.1} ns, dynamic {dynamic:.1} ns");
    let series = ways.iter().zip(lines).map(|((name, ..), line)| ((*name).to_owned(), Shape::Line(line)));
    Figure {
        name: "null",
        title: "Time of a packet in a chain of elements that send it on",
        notes: Vec::new(),
        x: ("elements", Scale::FromZero),
        y: ("ns for a packet", Scale::FromZero),
        series: series.collect(),
    }
    .write(setting.folder)?;
    Ok(vec![
        Finding::less("Patel Fig. 5.4", "an untrusted element in the path", "ns", 600.0, hybrid),
        Finding::shape(
            "Patel Fig. 5.4",
            "order: native, hybrid, dynamic",
            "native < hybrid",
            format!("{native:.1}, {hybrid:.1}, {dynamic:.1} ns"),
            native < hybrid && hybrid < dynamic,
        ),
    ])
}
