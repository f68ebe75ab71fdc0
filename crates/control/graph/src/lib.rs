//! The Click language: a configuration is parsed and becomes a flat graph.
//!
//! [`read`] does both. Texts may be hostile: each limit in [`Limits`] has an error of its own, and no text
//! makes the parser panic.
#![forbid(unsafe_code)]

mod ast;
mod bound;
mod budget;
mod cycles;
mod draw;
mod error;
mod expand;
mod lex;
mod link;
mod parse;
mod segments;
mod variables;

pub use bound::{Rules, WorstPath, worst_path};
pub use cycles::{Cycle, unbounded_cycles};
pub use draw::draw;
pub use error::{Errors, Message};
pub use flame_click::{Connection, Element, Graph, Port, Requirement};
pub use segments::{Divided, Polls, Stuck, insert_polls, worst_segment};

/// The limits of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the text and its libraries together.
    pub bytes: usize,
    pub depth: usize,
    pub elements: usize,
    pub connections: usize,
    /// Inputs and outputs of all elements together, used or not: a port implies those below it.
    pub ports: usize,
    /// The bytes of all that is stored while the text is read: elements, compounds, connections, variables,
    /// and arguments after variables are replaced.
    pub expanded: usize,
    /// Bytes that are scanned and candidates that are tried while compounds and variables are replaced.
    pub steps: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: flame_click::input::MOST_BYTES,
            depth: 64,
            elements: 65_536,
            connections: 262_144,
            ports: 262_144,
            expanded: 128 << 20,
            steps: 1 << 28,
        }
    }
}

/// Opens a library for `require(library FILE)`: its name and bytes, from a name and the file that requires
/// it. The parser reads no more than the limit allows, and nothing if it has read a library of this name.
pub type Library<'a> = &'a dyn Fn(&str, &str) -> Result<(String, Box<dyn std::io::Read>), String>;

/// Opens a library beside the file that requires it.
///
/// # Errors
///
/// Returns an error if the file cannot be opened.
pub fn open_library(name: &str, from: &str) -> Result<(String, Box<dyn std::io::Read>), String> {
    let path = std::path::Path::new(from).parent().unwrap_or(std::path::Path::new("")).join(name);
    let file = std::fs::File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok((path.to_string_lossy().into_owned(), Box::new(file)))
}

/// The inputs of the parser besides the text of the configuration.
#[derive(Default)]
pub struct Options<'a> {
    pub limits: Limits,
    /// Variables that are set from outside. They win over `define`.
    pub variables: Vec<(String, String)>,
    pub library: Option<Library<'a>>,
}

/// Reads a configuration. `file` is its name in messages.
///
/// # Errors
///
/// Returns the errors, each with its place, if the configuration is not valid or exceeds the limits of
/// `options`. Beyond the first 100 they are only counted.
pub fn read(text: &[u8], file: &str, options: &Options<'_>) -> Result<Graph, Errors> {
    let mut errors = Errors::default();
    let mut budget = budget::Budget::new(&options.limits);
    let program = parse::parse(text, file, options, &mut budget, &mut errors);
    let flat = expand::expand(&program, options, &mut budget, &mut errors);
    let graph = link::link(flat, options, &mut budget, &mut errors);
    if errors.is_empty() { Ok(graph) } else { Err(errors) }
}
