//! Numbers of ports, and which of them push and which pull.

use flame_click::Graph;

/// Reads one side of a code of ports: the least and the greatest number.
fn range(code: &str) -> Option<(usize, usize)> {
    let most = 65_536;
    match code.split_once('-') {
        None => code.parse().ok().map(|n| (n, n)),
        Some((low, high)) => {
            let low = if low.is_empty() { 0 } else { low.parse().ok()? };
            let high = if high.is_empty() { most } else { high.parse().ok()? };
            Some((low, high))
        }
    }
}

/// Returns the numbers of inputs and outputs, from the code of a class and the ports in use.
pub fn counts(code: &str, inputs: usize, outputs: usize) -> Result<(usize, usize), String> {
    let bad = || format!("bad code of ports '{code}'");
    let (left, right) = code.split_once('/').ok_or_else(bad)?;
    let (low, high) = range(left).ok_or_else(bad)?;
    if right == "=" {
        let n = inputs.max(outputs).clamp(low, high);
        return Ok((n, n));
    }
    let (out_low, out_high) = range(right).ok_or_else(bad)?;
    Ok((inputs.clamp(low, high), outputs.clamp(out_low, out_high)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Push,
    Pull,
    Agnostic,
}

impl Mode {
    fn name(self) -> &'static str {
        if self == Self::Push { "push" } else { "pull" }
    }
}

/// Returns the modes of all ports that a code states.
pub fn modes(code: &str, inputs: usize, outputs: usize) -> (Vec<Mode>, Vec<Mode>) {
    let (left, right) = code.split_once('/').unwrap_or((code, code));
    let side = |letters: &str, count: usize| {
        let mut letters = letters.chars();
        let mut last = 'a';
        (0..count)
            .map(|_| {
                last = letters.next().unwrap_or(last);
                match last {
                    'h' => Mode::Push,
                    'l' => Mode::Pull,
                    _ => Mode::Agnostic,
                }
            })
            .collect()
    };
    (side(left, inputs), side(right, outputs))
}

/// The modes of the ports of all elements.
pub struct Modes {
    pub inputs: Vec<Vec<Mode>>,
    pub outputs: Vec<Vec<Mode>>,
}

/// Resolves agnostic ports, as Click does: what is known spreads along connections and, inside elements,
/// between agnostic ports. `joins` returns whether an element connects its inputs with its outputs. Returns
/// how many connections and paths inside elements were looked at: each only when one of its ends became
/// known.
pub fn resolve(
    graph: &Graph,
    modes: &mut Modes,
    joins: &dyn Fn(usize) -> bool,
    error: &mut dyn FnMut(usize, String),
) -> usize {
    let name = |e: usize| format!("{} :: {}", graph.elements[e].name, graph.elements[e].class);
    // Connections, then the paths inside agnostic elements: (from output, to input, is inside).
    let mut edges: Vec<_> = graph.connections.iter().map(|c| (c.from, c.to, false)).collect();
    for e in 0..graph.elements.len() {
        if !joins(e) {
            continue;
        }
        let agnostic = |side: &[Mode]| -> Vec<usize> {
            (0..side.len()).filter(|p| side[*p] == Mode::Agnostic).collect()
        };
        // All agnostic ports of an element are alike; a star joins them with few edges.
        let (inputs, outputs) = (agnostic(&modes.inputs[e]), agnostic(&modes.outputs[e]));
        let port = |port| flame_click::Port { element: e, port };
        if let (Some(i), Some(o)) = (inputs.first(), outputs.first()) {
            edges.extend(inputs.iter().map(|i| (port(*o), port(*i), true)));
            edges.extend(outputs.iter().skip(1).map(|o| (port(*o), port(*i), true)));
        }
    }
    // The edges at each port.
    let lists = |ports: &[Vec<Mode>]| -> Vec<Vec<Vec<usize>>> {
        ports.iter().map(|side| vec![Vec::new(); side.len()]).collect()
    };
    let (mut at_output, mut at_input) = (lists(&modes.outputs), lists(&modes.inputs));
    for (i, (from, to, _)) in edges.iter().enumerate() {
        at_output[from.element][from.port].push(i);
        at_input[to.element][to.port].push(i);
    }
    let mut work: std::collections::VecDeque<usize> = (0..edges.len()).collect();
    let mut steps = 0;
    let mut is_wrong = vec![false; edges.len()];
    while let Some(i) = work.pop_front() {
        steps += 1;
        let (from, to, inside) = edges[i];
        let (f, t) = (modes.outputs[from.element][from.port], modes.inputs[to.element][to.port]);
        match (f, t) {
            (Mode::Agnostic, Mode::Agnostic) => {}
            (Mode::Agnostic, known) => {
                modes.outputs[from.element][from.port] = known;
                work.extend(&at_output[from.element][from.port]);
            }
            (known, Mode::Agnostic) => {
                modes.inputs[to.element][to.port] = known;
                work.extend(&at_input[to.element][to.port]);
            }
            _ if f == t || is_wrong[i] => {}
            _ => {
                is_wrong[i] = true;
                let text = match inside {
                    false => format!(
                        "'{}' {} output {} connected to '{}' {} input {}",
                        name(from.element),
                        f.name(),
                        from.port,
                        name(to.element),
                        t.name(),
                        to.port
                    ),
                    true => format!(
                        "agnostic '{}' in mixed context: {} input {}, {} output {}",
                        name(from.element),
                        t.name(),
                        to.port,
                        f.name(),
                        from.port
                    ),
                };
                error(from.element, text);
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_click::{Connection, Element, Graph, Port};

    #[test]
    fn each_path_is_looked_at_a_few_times() {
        let ports = 2000;
        let element = |name: &str| Element {
            name: name.into(),
            class: "Script".into(),
            config: String::new(),
            landmark: "f:1".into(),
        };
        let mut graph = Graph { elements: vec![element("a"), element("b")], ..Graph::default() };
        graph.connections = (0..ports)
            .map(|port| Connection {
                from: Port { element: 0, port },
                to: Port { element: 1, port },
                landmark: "f:1".into(),
            })
            .collect();
        let side = |count| vec![Mode::Agnostic; count];
        let mut modes =
            Modes { inputs: vec![vec![Mode::Push], side(ports)], outputs: vec![side(ports), side(ports)] };
        let steps = resolve(&graph, &mut modes, &|e| e == 1, &mut |_, text| panic!("{text}"));
        assert!(steps <= 20 * ports, "{steps}");
        modes.inputs[0][0] = Mode::Agnostic;
        modes.outputs[0][ports / 2] = Mode::Push;
        let steps = resolve(&graph, &mut modes, &|_| true, &mut |_, text| panic!("{text}"));
        assert!(modes.outputs.iter().chain(&modes.inputs).flatten().all(|m| *m == Mode::Push));
        assert!(steps <= 20 * ports, "{steps}");
    }
}
