//! The language, for tests and the example.

use flame_element::driver::Language;
use flame_graph::{Graph, Options, read, unbounded_cycles};
use std::path::Path;

/// Reads a library beside the file that requires it.
fn library(name: &str, from: &str) -> Result<(String, Vec<u8>), String> {
    let path = Path::new(from).parent().unwrap_or(Path::new("")).join(name);
    let bytes = std::fs::read(&path).map_err(|e| e.to_string())?;
    Ok((path.to_string_lossy().into_owned(), bytes))
}

fn parse(bytes: &[u8], name: &str, variables: &[(String, String)]) -> Result<Graph, String> {
    let options = Options { variables: variables.to_vec(), library: Some(&library), ..Options::default() };
    read(bytes, name, &options).map_err(|e| e.to_string())
}

fn cycles(graph: &Graph) -> Vec<String> {
    unbounded_cycles(graph, &|e| e.class == "Loop").iter().map(|c| c.names(graph)).collect()
}

pub const LANGUAGE: Language = Language { read: parse, cycles };
