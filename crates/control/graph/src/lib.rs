//! The Click language: a configuration is parsed and becomes a flat graph.
//!
//! [`read`] does both. Texts may be hostile: each limit in [`Limits`] has an error of its own, and no text
//! makes the parser panic.
#![forbid(unsafe_code)]

mod ast;
mod cycles;
mod error;
mod expand;
mod lex;
mod link;
mod parse;
mod variables;

pub use cycles::{Cycle, unbounded_cycles};
pub use error::{Errors, Message};
pub use flame_click::{Connection, Element, Graph, Port};

/// What a configuration may need at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes: usize,
    pub depth: usize,
    pub elements: usize,
    pub connections: usize,
    /// The bytes of all arguments after variables are replaced.
    pub expanded: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 16 << 20, depth: 64, elements: 65_536, connections: 262_144, expanded: 64 << 20 }
    }
}

/// Loads a library for `require(library FILE)`: its name and bytes, from a name and the file that requires
/// it.
pub type Library<'a> = &'a dyn Fn(&str, &str) -> Result<(String, Vec<u8>), String>;

/// What the text does not say.
#[derive(Default)]
pub struct Options<'a> {
    pub limits: Limits,
    /// Variables that are set from outside. They win over `define`.
    pub variables: Vec<(String, String)>,
    pub library: Option<Library<'a>>,
}

/// Reads a configuration. `file` is its name in messages.
pub fn read(text: &[u8], file: &str, options: &Options<'_>) -> Result<Graph, Errors> {
    let mut errors = Errors::default();
    let program = parse::parse(text, file, options, &mut errors);
    let flat = expand::expand(&program, options, &mut errors);
    let graph = link::link(flat, options, &mut errors);
    if errors.is_empty() { Ok(graph) } else { Err(errors) }
}
