//! The language, for tests and the example.

use flame_element::driver::{Divided, Division, Language, Worst};
use flame_graph::{Element, Graph, Options, Rules, open_library, read, unbounded_cycles};

fn parse(bytes: &[u8], name: &str, variables: &[(String, String)]) -> Result<Graph, String> {
    let options =
        Options { variables: variables.to_vec(), library: Some(&open_library), ..Options::default() };
    read(bytes, name, &options).map_err(|e| e.to_string())
}

fn cycles(graph: &Graph) -> Vec<String> {
    let rules = Rules::of_elements();
    let is_end = |e: &Element| (rules.passes)(e).is_some() || (rules.ends)(e);
    unbounded_cycles(graph, &is_end).iter().map(|c| c.names(graph)).collect()
}

pub const LANGUAGE: Language =
    Language { read: parse, cycles, bound, segment, insert_polls, draw: flame_graph::draw };

fn bound(graph: &Graph, costs: &[f64]) -> Worst {
    let worst = flame_graph::worst_path(graph, costs, &Rules::of_elements());
    (worst.cost, worst.parts)
}

fn segment(graph: &Graph, costs: &[f64], waits: &[bool]) -> Worst {
    let worst = flame_graph::worst_segment(graph, costs, &Rules::of_elements(), waits);
    (worst.cost, worst.parts)
}

fn insert_polls(division: &Division<'_>) -> Result<Divided, String> {
    let Division { graph, costs, waits, limit, poll, is_push, is_interrupted } = *division;
    let polls = flame_graph::Polls { limit, cost: poll, is_push, is_interrupted };
    let divided = flame_graph::insert_polls(graph, costs, &Rules::of_elements(), waits, &polls);
    divided.map(|d| (d.graph, d.places, d.worst.cost)).map_err(|e| format!("{e:?}"))
}
