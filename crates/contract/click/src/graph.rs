//! A graph without compound elements, and its form as text.

use crate::text;
use std::fmt::Write as _;

/// An element of a flat graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    pub name: String,
    pub class: String,
    pub config: String,
    /// `file:line` of its declaration.
    pub landmark: String,
}

/// An input or output, by the index of its element in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    pub element: usize,
    pub port: usize,
}

/// A connection from an output to an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub from: Port,
    pub to: Port,
    pub landmark: String,
}

/// A package or feature that a configuration requires of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub text: String,
    pub landmark: String,
}

/// A flat graph: connections refer to elements by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    pub elements: Vec<Element>,
    pub connections: Vec<Connection>,
    pub requirements: Vec<Requirement>,
}

impl Graph {
    /// Returns the element of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.elements.iter().position(|e| e.name == name)
    }

    /// Writes the graph in the Click language. Chains are as long as possible.
    pub fn unparse(&self) -> String {
        let mut out = String::new();
        if !self.requirements.is_empty() {
            let texts: Vec<String> = self.requirements.iter().map(|r| r.text.clone()).collect();
            let _ = writeln!(out, "require({});\n", text::join(&texts));
        }
        for e in &self.elements {
            let _ = write!(out, "{} :: {}", e.name, e.class);
            let config = text::without_comments(&e.config);
            let _ = if config.is_empty() { writeln!(out, ";") } else { writeln!(out, "({config});") };
        }
        if !self.connections.is_empty() {
            out.push('\n');
            self.unparse_connections(&mut out);
        }
        out
    }

    fn unparse_connections(&self, out: &mut String) {
        let all = &self.connections;
        // The first connection that leaves output 0 of each element continues a chain, but only one.
        let mut leaving = vec![None; self.elements.len()];
        for (i, c) in all.iter().enumerate().rev().filter(|(_, c)| c.from.port == 0) {
            leaving[c.from.element] = Some(i);
        }
        let mut next = vec![None; all.len()];
        let mut is_start = vec![true; all.len()];
        for (i, c) in all.iter().enumerate().filter(|(_, c)| c.to.port == 0) {
            if let Some(d) = leaving[c.to.element].take_if(|d| *d != i) {
                next[i] = Some(d);
                is_start[d] = false;
            }
        }
        let mut is_done = vec![false; all.len()];
        // First the chains with a beginning, then the cycles.
        for only_starts in [true, false] {
            for start in 0..all.len() {
                if is_done[start] || only_starts && !is_start[start] {
                    continue;
                }
                out.push_str(&self.elements[all[start].from.element].name);
                let (mut at, mut is_first) = (Some(start), true);
                while let Some(i) = at.filter(|i| !is_done[*i]) {
                    is_done[i] = true;
                    let Connection { from, to, .. } = &all[i];
                    if from.port != 0 {
                        let _ = write!(out, " [{}]", from.port);
                    }
                    out.push_str(if is_first { " -> " } else { "\n    -> " });
                    if to.port != 0 {
                        let _ = write!(out, "[{}] ", to.port);
                    }
                    out.push_str(&self.elements[to.element].name);
                    is_first = false;
                    at = next[i];
                }
                out.push_str(";\n");
            }
        }
    }
}
