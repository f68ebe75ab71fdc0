//! Follows links through tunnels, so that each connection joins two elements.

use crate::Options;
use crate::budget::Budget;
use crate::error::Errors;
use crate::expand::{End, Flat, Node};
use flame_click::{Connection, Graph, Port};
use std::collections::{HashMap, HashSet};

pub fn link(flat: Flat, options: &Options<'_>, budget: &mut Budget, errors: &mut Errors) -> Graph {
    let mut graph = Graph { requirements: flat.requirements.clone(), ..Graph::default() };
    if !errors.is_empty() {
        return graph;
    }
    let mut number = vec![None; flat.nodes.len()];
    for (node, number) in flat.nodes.iter().zip(&mut number) {
        if let Node::Element(e) = node {
            *number = Some(graph.elements.len());
            graph.elements.push(e.clone());
        }
    }
    if graph.elements.len() > options.limits.elements {
        let landmark = graph.elements[options.limits.elements].landmark.clone();
        errors.add(landmark, format!("more elements than the limit of {}", options.limits.elements));
        return graph;
    }
    let mut tunnels = Tunnels::new(&flat, options.limits.connections);
    let mut seen = HashSet::new();
    for (from, to, landmark) in &flat.links {
        let Some(element) = number[from.0] else { continue };
        let from = Port { element, port: from.1 };
        let targets = match tunnels.targets(*to) {
            Ok(targets) => targets,
            Err(text) => {
                errors.add(landmark, text);
                return graph;
            }
        };
        for (node, port) in targets {
            let Some(element) = number[node] else { continue };
            let to = Port { element, port };
            // As in Click, a connection that is made twice is one.
            if seen.insert((from, to)) {
                if let Err(e) = budget.entry(landmark.len()) {
                    errors.add(landmark, e.to_string());
                    return graph;
                }
                graph.connections.push(Connection { from, to, landmark: landmark.clone() });
            }
        }
        if graph.connections.len() > options.limits.connections {
            errors
                .add(landmark, format!("more connections than the limit of {}", options.limits.connections));
            return graph;
        }
    }
    tunnels.check(errors);
    check_ports(&graph, options.limits.ports, errors);
    graph
}

/// Refuses a graph with more ports than the limit. A connection to a port implies all ports below it.
fn check_ports(graph: &Graph, limit: usize, errors: &mut Errors) {
    let (mut inputs, mut outputs) = (vec![0; graph.elements.len()], vec![0; graph.elements.len()]);
    let mut count = 0;
    for c in &graph.connections {
        for (most, port) in
            [(&mut outputs[c.from.element], c.from.port), (&mut inputs[c.to.element], c.to.port)]
        {
            count += (port + 1).saturating_sub(*most);
            *most = (port + 1).max(*most);
        }
        if count > limit {
            return errors.add(&c.landmark, format!("more ports than the limit of {limit}"));
        }
    }
}

struct Tunnels<'a> {
    flat: &'a Flat,
    /// The destinations of the links of each port of a tunnel.
    leads: HashMap<End, Vec<End>>,
    /// The ports of tunnels that links lead to.
    reached: HashSet<End>,
    found: HashMap<End, Vec<End>>,
    /// The number of entries that may still be added to `found`.
    room: usize,
}

impl<'a> Tunnels<'a> {
    fn new(flat: &'a Flat, limit: usize) -> Self {
        let mut leads: HashMap<End, Vec<End>> = HashMap::new();
        let mut reached = HashSet::new();
        for (from, to, _) in &flat.links {
            if matches!(flat.nodes.get(from.0), Some(Node::Tunnel(_))) {
                leads.entry(*from).or_default().push(*to);
            }
            if matches!(flat.nodes.get(to.0), Some(Node::Tunnel(_))) {
                reached.insert(*to);
            }
        }
        Self { flat, leads, reached, found: HashMap::new(), room: limit.saturating_mul(8) }
    }

    fn is_tunnel(&self, end: End) -> bool {
        matches!(self.flat.nodes.get(end.0), Some(Node::Tunnel(_)))
    }

    /// Returns the ports of elements that a link to `end` reaches.
    fn targets(&mut self, end: End) -> Result<Vec<End>, String> {
        if !self.is_tunnel(end) {
            return Ok(vec![end]);
        }
        // Depth first, without recursion: a tunnel is finished when all that it leads to are.
        let mut stack = vec![end];
        let mut open = HashSet::new();
        while let Some(&top) = stack.last() {
            if self.found.contains_key(&top) {
                stack.pop();
                continue;
            }
            let next = self.leads.get(&top).map_or(&[][..], Vec::as_slice);
            let missing: Vec<End> =
                next.iter().copied().filter(|e| self.is_tunnel(*e) && !self.found.contains_key(e)).collect();
            if missing.is_empty() {
                let mut all = Vec::new();
                for e in next {
                    match self.found.get(e) {
                        Some(targets) => all.extend_from_slice(targets),
                        None => all.push(*e),
                    }
                }
                self.room = self
                    .room
                    .checked_sub(all.len() + 1)
                    .ok_or_else(|| "connections through compounds multiply beyond the limit".to_owned())?;
                self.found.insert(top, all);
                open.remove(&top);
                stack.pop();
            } else {
                open.insert(top);
                if missing.iter().any(|e| open.contains(e)) {
                    return Err("connections form a cycle without an element".into());
                }
                stack.extend(missing);
            }
        }
        Ok(self.found.get(&end).cloned().unwrap_or_default())
    }

    /// Reports ports of compounds that are used on one side only.
    fn check(&self, errors: &mut Errors) {
        let mut wrong: Vec<(End, bool)> = Vec::new();
        wrong.extend(self.reached.iter().filter(|e| !self.leads.contains_key(e)).map(|e| (*e, true)));
        wrong.extend(self.leads.keys().filter(|e| !self.reached.contains(e)).map(|e| (*e, false)));
        wrong.sort_unstable();
        for ((node, port), is_reached) in wrong {
            let Some(Node::Tunnel(t)) = self.flat.nodes.get(node) else { continue };
            let side = if t.is_input { "input" } else { "output" };
            // Reached from outside and leading nowhere, or the other way around.
            let text = match is_reached == t.is_input {
                true => format!("'{}' has no {side} {port}", t.owner),
                false => format!("'{}' {side} {port} unused", t.owner),
            };
            errors.add(&t.landmark, text);
        }
    }
}
