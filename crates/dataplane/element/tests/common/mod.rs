//! The language, for tests and the example.

use flame_element::driver::Language;
use flame_graph::{Graph, Options, open_library, read, unbounded_cycles};

fn parse(bytes: &[u8], name: &str, variables: &[(String, String)]) -> Result<Graph, String> {
    let options =
        Options { variables: variables.to_vec(), library: Some(&open_library), ..Options::default() };
    read(bytes, name, &options).map_err(|e| e.to_string())
}

fn cycles(graph: &Graph) -> Vec<String> {
    unbounded_cycles(graph, &|e| e.class == "Loop" || ends(e)).iter().map(|c| c.names(graph)).collect()
}

pub const LANGUAGE: Language = Language { read: parse, cycles, bound, draw: flame_graph::draw };

/// Returns whether an element gives none of the packets that it takes.
fn ends(element: &flame_graph::Element) -> bool {
    matches!(element.class.as_str(), "Idle" | "KernelTun" | "Socket")
}

fn bound(graph: &Graph, costs: &[f64]) -> (f64, Vec<(Vec<usize>, u32)>) {
    let passes = |e: &flame_graph::Element| {
        (e.class == "Loop").then(|| e.config.trim().trim_start_matches("N ").trim().parse().unwrap_or(255))
    };
    let worst = flame_graph::worst_path(graph, costs, &flame_graph::Rules { passes: &passes, ends: &ends });
    (worst.cost, worst.parts)
}
