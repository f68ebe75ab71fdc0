//! Draws a flat graph as SVG: elements as boxes, in layers from sources to sinks.
//!
//! The layout is the usual one of layers: edges that close a cycle are turned, each element is below all that
//! lead to it, edges over several layers have a place in each of them, and the places of a layer are ordered
//! by those of their neighbours. Our own, since the layout library layout-rs panics on small graphs with
//! cycles.

use flame_click::{Graph, text};
use std::fmt::Write as _;

/// The most elements and connections of a drawing. A larger one cannot be read.
const MOST: usize = 2000;
/// The most places of edges in layers. Beyond them, long edges are straight lines.
const MOST_PLACES: usize = 50_000;
/// The most characters of a line in a box.
const MOST_CHARACTERS: usize = 30;
/// Sweeps that order the places of layers.
const SWEEPS: usize = 8;

const LINE: f64 = 15.0;
const CHARACTER: f64 = 7.4;
const GAP: f64 = 24.0;
const LAYER: f64 = 110.0;

/// A box of an element, or the place of an edge in a layer.
#[derive(Clone, Debug, Default)]
struct Place {
    lines: Vec<String>,
    is_module: bool,
    layer: usize,
    width: f64,
    /// The centre.
    x: f64,
}

struct Layout {
    places: Vec<Place>,
    /// The places of each layer, from left to right.
    layers: Vec<Vec<usize>>,
    /// The places that each connection passes, from its first element to its last.
    routes: Vec<Vec<usize>>,
}

/// Returns the graph as an SVG file. Modules are shaded; a connection has the numbers of its ports, if they
/// are not 0.
///
/// # Errors
///
/// Returns an error for a graph that is too large to be read.
pub fn draw(graph: &Graph) -> Result<String, String> {
    for (what, found) in [("elements", graph.elements.len()), ("connections", graph.connections.len())] {
        if found > MOST {
            return Err(format!("{found} {what} are too many to draw: at most {MOST}"));
        }
    }
    Ok(Layout::of(graph).svg(graph))
}

/// Returns the first characters of a text in one line, without those that an SVG file may not contain.
fn line(text: &str) -> String {
    let is_plain = |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let mut characters = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).filter(is_plain);
    let mut line: String = characters.by_ref().take(MOST_CHARACTERS).collect();
    if characters.next().is_some() {
        line.push('…');
    }
    line
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns for each connection whether it closes a cycle, in a search from all elements.
fn backward(graph: &Graph) -> Vec<bool> {
    let mut out = vec![Vec::new(); graph.elements.len()];
    for (at, c) in graph.connections.iter().enumerate() {
        out[c.from.element].push((at, c.to.element));
    }
    let (mut state, mut is_back) = (vec![0_u8; graph.elements.len()], vec![false; graph.connections.len()]);
    for start in 0..graph.elements.len() {
        let mut path = if state[start] == 0 { vec![(start, 0)] } else { Vec::new() };
        while let Some((at, next)) = path.last_mut() {
            state[*at] = 1;
            let Some(&(connection, to)) = out[*at].get(*next) else {
                state[*at] = 2;
                path.pop();
                continue;
            };
            *next += 1;
            match state[to] {
                0 => path.push((to, 0)),
                1 => is_back[connection] = true,
                _ => {}
            }
        }
    }
    is_back
}

impl Layout {
    fn of(graph: &Graph) -> Self {
        let is_back = backward(graph);
        // Edges from an upper to a lower element; self-loops are skipped.
        let edges: Vec<_> = graph
            .connections
            .iter()
            .zip(&is_back)
            .map(|(c, back)| match back {
                true => (c.to.element, c.from.element),
                false => (c.from.element, c.to.element),
            })
            .collect();
        let mut new = Self { places: Vec::new(), layers: Vec::new(), routes: Vec::new() };
        for (element, layer) in graph.elements.iter().zip(layers(graph.elements.len(), &edges)) {
            let config = text::without_comments(&element.config);
            let mut lines = vec![line(&element.name), line(&element.class)];
            if !config.trim().is_empty() {
                lines.push(line(&format!("({})", config.trim())));
            }
            let longest = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
            let width = longest as f64 * CHARACTER + 16.0;
            new.add(Place { lines, is_module: element.class == "Module", layer, width, x: 0.0 });
        }
        for ((upper, lower), back) in edges.into_iter().zip(is_back) {
            let mut route = vec![upper];
            for layer in new.places[upper].layer + 1..new.places[lower].layer {
                if new.places.len() < MOST_PLACES {
                    route.push(new.add(Place { layer, width: 4.0, ..Place::default() }));
                }
            }
            route.push(lower);
            if back {
                route.reverse();
            }
            new.routes.push(route);
        }
        new.order();
        new
    }

    fn add(&mut self, place: Place) -> usize {
        let layer = place.layer;
        if self.layers.len() <= layer {
            self.layers.resize(layer + 1, Vec::new());
        }
        self.layers[layer].push(self.places.len());
        self.places.push(place);
        self.places.len() - 1
    }

    /// Orders each layer by the mean position of the neighbours above, then below, and so on.
    fn order(&mut self) {
        let mut neighbours = vec![Vec::new(); self.places.len()];
        for route in &self.routes {
            for pair in route.windows(2) {
                neighbours[pair[0]].push(pair[1]);
                neighbours[pair[1]].push(pair[0]);
            }
        }
        self.spread();
        for sweep in 0..SWEEPS {
            let count = self.layers.len();
            for step in 0..count {
                let (layer, is_down) = if sweep % 2 == 0 { (step, true) } else { (count - 1 - step, false) };
                let mean = |at: usize| {
                    let is_near = |n: &&usize| match is_down {
                        true => self.places[**n].layer < layer,
                        false => self.places[**n].layer > layer,
                    };
                    let all: Vec<f64> =
                        neighbours[at].iter().filter(is_near).map(|n| self.places[*n].x).collect();
                    if all.is_empty() {
                        self.places[at].x
                    } else {
                        all.iter().sum::<f64>() / all.len() as f64
                    }
                };
                let mut keyed: Vec<_> = self.layers[layer].iter().map(|at| (mean(*at), *at)).collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.layers[layer] = keyed.into_iter().map(|(_, at)| at).collect();
                self.spread_layer(layer);
            }
        }
    }

    fn spread(&mut self) {
        (0..self.layers.len()).for_each(|layer| self.spread_layer(layer));
    }

    /// Puts the places of a layer side by side, around the middle.
    fn spread_layer(&mut self, layer: usize) {
        let all = &self.layers[layer];
        let width: f64 = all.iter().map(|at| self.places[*at].width + GAP).sum();
        let mut x = -width / 2.0;
        for at in all {
            let place = &mut self.places[*at];
            place.x = x + (place.width + GAP) / 2.0;
            x += place.width + GAP;
        }
    }

    fn svg(&self, graph: &Graph) -> String {
        let left = self.places.iter().map(|p| p.x - p.width / 2.0).fold(0.0, f64::min) - GAP;
        let right = self.places.iter().map(|p| p.x + p.width / 2.0).fold(0.0, f64::max) + GAP;
        let bottom = self.layers.len() as f64 * LAYER + GAP;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{left:.0} {:.0} {:.0} {:.0}\" \
             font-family=\"monospace\" font-size=\"12\">\n\
             <defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
             markerHeight=\"8\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\"/></marker></defs>\n",
            -GAP,
            right - left,
            bottom + GAP
        );
        let height = |at: usize| {
            (self.places[at].lines.len() as f64 * LINE + 8.0) * f64::from(at < graph.elements.len())
        };
        let top = |at: usize| self.places[at].layer as f64 * LAYER;
        for (connection, route) in graph.connections.iter().zip(&self.routes) {
            let (Some(&first), Some(&last)) = (route.first(), route.last()) else { continue };
            let start = (self.places[first].x, top(first) + height(first));
            let mut path = format!("M{:.1},{:.1}", start.0, start.1);
            let mut before = start;
            if first == last {
                // Beside the element, back to its top.
                let side = self.places[first].x + self.places[first].width / 2.0 + GAP;
                let (low, high) = (start.1 + GAP, top(first) - GAP);
                let _ =
                    write!(path, " C{0:.1},{low:.1} {side:.1},{low:.1} {side:.1},{1:.1}", start.0, start.1);
                let x = self.places[first].x;
                let _ = write!(path, " C{side:.1},{high:.1} {x:.1},{high:.1} {x:.1},{:.1}", top(first));
            }
            for at in route.iter().skip(1).filter(|_| first != last) {
                let to = (self.places[*at].x, top(*at));
                let bend = ((to.1 - before.1) / 2.0).abs().max(LINE);
                let (from_y, to_y) = (before.1 + bend, to.1 - bend);
                let _ = write!(
                    path,
                    " C{:.1},{from_y:.1} {:.1},{to_y:.1} {:.1},{:.1}",
                    before.0, to.0, to.0, to.1
                );
                before = to;
            }
            let _ = writeln!(
                out,
                "<path d=\"{path}\" fill=\"none\" stroke=\"black\" marker-end=\"url(#arrow)\"/>"
            );
            let label = match (connection.from.port, connection.to.port) {
                (0, 0) => continue,
                (from, 0) => format!("[{from}]"),
                (from, to) => format!("[{from}] to [{to}]"),
            };
            let spread = 10.0 * (connection.from.port % 3) as f64;
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                start.0 + 6.0,
                start.1 + 14.0 + spread
            );
        }
        for (at, place) in self.places.iter().enumerate().take(graph.elements.len()) {
            let fill = if place.is_module { "lightgray" } else { "white" };
            let (x, y) = (place.x - place.width / 2.0, top(at));
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\" stroke=\"black\"/>",
                place.width,
                height(at)
            );
            for (n, line) in place.lines.iter().enumerate() {
                let y = y + LINE * (n as f64 + 1.0);
                let weight = if n == 0 { " font-weight=\"bold\"" } else { "" };
                let _ = writeln!(
                    out,
                    "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\"{weight}>{}</text>",
                    place.x,
                    escape(line)
                );
            }
        }
        out.push_str("</svg>\n");
        out
    }
}

/// Returns a layer for each element, below those of all elements that lead to it. The edges have no cycle but
/// from an element to itself.
fn layers(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let (mut out, mut waits) = (vec![Vec::new(); count], vec![0_usize; count]);
    for (upper, lower) in edges.iter().filter(|(upper, lower)| upper != lower) {
        out[*upper].push(*lower);
        waits[*lower] += 1;
    }
    let mut layers = vec![0; count];
    let mut ready: Vec<usize> = (0..count).filter(|e| waits[*e] == 0).collect();
    while let Some(at) = ready.pop() {
        for lower in &out[at] {
            layers[*lower] = layers[*lower].max(layers[at] + 1);
            waits[*lower] -= 1;
            if waits[*lower] == 0 {
                ready.push(*lower);
            }
        }
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_click::{Connection, Element, Port};
    use proptest::prelude::*;

    fn graph(count: usize, edges: &[(usize, usize, usize)]) -> Graph {
        let element = |at: usize| Element {
            name: format!("e{at}"),
            class: if at.is_multiple_of(3) { "Module" } else { "Null" }.into(),
            config: if at.is_multiple_of(2) { "<&\">\u{1b}".into() } else { String::new() },
            landmark: "f:1".into(),
        };
        let connection = |(from, to, port): &(usize, usize, usize)| Connection {
            from: Port { element: *from, port: *port },
            to: Port { element: *to, port: 0 },
            landmark: "f:1".into(),
        };
        Graph {
            elements: (0..count).map(element).collect(),
            connections: edges.iter().map(connection).collect(),
            ..Graph::default()
        }
    }

    proptest! {
        #[test]
        fn every_graph_has_a_drawing_without_overlaps(
            count in 1..40_usize,
            edges in prop::collection::vec((0..40_usize, 0..40_usize, 0..3_usize), 0..80),
        ) {
            let edges: Vec<_> = edges.into_iter().filter(|(a, b, _)| *a < count && *b < count).collect();
            let graph = graph(count, &edges);
            let layout = Layout::of(&graph);
            for layer in &layout.layers {
                for pair in layer.windows(2) {
                    let (a, b) = (&layout.places[pair[0]], &layout.places[pair[1]]);
                    prop_assert!(a.x + a.width / 2.0 < b.x - b.width / 2.0);
                }
            }
            for ((from, to, _), route) in edges.iter().zip(&layout.routes) {
                prop_assert_eq!((route.first(), route.last()), (Some(from), Some(to)));
                let is_adjacent = |pair: &[usize]| {
                    layout.places[pair[0]].layer.abs_diff(layout.places[pair[1]].layer) == 1
                };
                prop_assert!(from == to || route.windows(2).all(is_adjacent));
            }
            let svg = draw(&graph).unwrap();
            prop_assert_eq!(svg.matches("<rect ").count(), count);
            prop_assert_eq!(svg.matches("marker-end").count(), edges.len());
            let is_escaped = !svg.contains('\u{1b}') && !svg.contains("(<&");
            prop_assert!(is_escaped);
        }
    }

    #[test]
    fn a_graph_that_nobody_could_read_is_refused() {
        assert_eq!(
            draw(&graph(MOST + 1, &[])).unwrap_err(),
            "2001 elements are too many to draw: at most 2000"
        );
        // As deep as it may be, with edges over all layers.
        let mut edges: Vec<_> = (1..1000).map(|at| (at - 1, at, 0)).collect();
        edges.extend((0..1000).map(|at| (0, at, 1)));
        assert!(draw(&graph(1000, &edges)).unwrap().ends_with("</svg>\n"));
    }
}
