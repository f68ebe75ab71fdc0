//! Finds cycles on which no `Loop` bounds how often a packet passes.

use flame_click::Graph;

/// The elements of a cycle, in order. The last one leads to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    pub elements: Vec<usize>,
}

impl Cycle {
    /// Returns the names of the elements in order, of which the last is the first again.
    pub fn names(&self, graph: &Graph) -> String {
        let names = self.elements.iter().filter_map(|e| graph.elements.get(*e)).map(|e| e.name.as_str());
        let mut names: Vec<_> = names.collect();
        names.extend(names.first().copied());
        names.join(" -> ")
    }
}

/// Returns one cycle for each strongly connected part of the graph without the elements that `bounds`.
pub fn unbounded_cycles(graph: &Graph, bounds: &dyn Fn(&flame_click::Element) -> bool) -> Vec<Cycle> {
    let count = graph.elements.len();
    let is_out: Vec<bool> = graph.elements.iter().map(bounds).collect();
    let mut next = vec![Vec::new(); count];
    for c in &graph.connections {
        if !is_out[c.from.element] && !is_out[c.to.element] {
            next[c.from.element].push(c.to.element);
        }
    }
    // Depth-first search without recursion. An edge to an element of the current path closes a cycle.
    // Elements
    // of a cycle that was reported are not entered again.
    let (mut state, mut cycles) = (vec![0_u8; count], Vec::new());
    for start in 0..count {
        if state[start] != 0 {
            continue;
        }
        let mut path = vec![(start, 0)];
        state[start] = 1;
        while let Some((at, edge)) = path.last_mut() {
            let Some(&to) = next[*at].get(*edge) else {
                state[*at] = 2;
                path.pop();
                continue;
            };
            *edge += 1;
            match state[to] {
                0 => {
                    state[to] = 1;
                    path.push((to, 0));
                }
                1 => {
                    let from = path.iter().position(|(e, _)| *e == to).unwrap_or(0);
                    let elements: Vec<usize> = path[from..].iter().map(|(e, _)| *e).collect();
                    cycles.push(Cycle { elements });
                    if cycles.len() >= 100 {
                        return cycles;
                    }
                }
                _ => {}
            }
        }
    }
    cycles
}
