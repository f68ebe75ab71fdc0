//! The most that a packet may cost on its way through a graph, from the costs of elements.

use flame_click::{Element, Graph};

/// The costs of elements, which a bound adds up.
pub struct Rules<'a> {
    /// Returns how often a packet may pass an element that bounds cycles.
    pub passes: &'a dyn Fn(&Element) -> Option<u32>,
    /// Returns whether no packet goes from an input of this element to an output.
    pub ends: &'a dyn Fn(&Element) -> bool,
}

impl Rules<'static> {
    /// Returns the rules of the elements that there are.
    pub fn of_elements() -> Self {
        Self { passes: &passes, ends: &ends }
    }
}

fn passes(element: &Element) -> Option<u32> {
    let count = || element.config.trim().trim_start_matches("N ").trim().parse().unwrap_or(255);
    (element.class == "Loop").then(count)
}

fn ends(element: &Element) -> bool {
    matches!(element.class.as_str(), "Idle" | "KernelTun" | "Socket")
}

/// The most costly path of a packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorstPath {
    pub cost: f64,
    /// The parts of the path: the elements that follow each other, and how often the packet takes them. The
    /// first begins where packets enter, each other one at an element that bounds cycles.
    pub parts: Vec<(Vec<usize>, u32)>,
}

/// Returns the most costly path. It requires that each cycle passes an element that bounds it (see
/// [`unbounded_cycles`](crate::unbounded_cycles)); on other cycles a packet is counted once.
///
/// A packet passes an element that bounds cycles at most N times, and once more to learn that it may not.
/// Between two such passes it takes a path without cycles. So the bound is the most costly such path from any
/// element, plus, for each element that bounds cycles, N + 1 times the most costly path that begins there.
pub fn worst_path(graph: &Graph, costs: &[f64], rules: &Rules<'_>) -> WorstPath {
    longest(graph, costs, &rules.all_passes(graph), &rules.all_ends(graph)).0
}

impl Rules<'_> {
    pub(crate) fn all_passes(&self, graph: &Graph) -> Vec<Option<u32>> {
        graph.elements.iter().map(self.passes).collect()
    }

    pub(crate) fn all_ends(&self, graph: &Graph) -> Vec<bool> {
        graph.elements.iter().map(self.ends).collect()
    }
}

/// Returns the most costly path, and whether it begins at the outputs of its first element. `bounds` has how
/// often a packet may pass each element that bounds cycles, `ends` the elements where paths end and begin.
pub(crate) fn longest(
    graph: &Graph,
    costs: &[f64],
    bounds: &[Option<u32>],
    ends: &[bool],
) -> (WorstPath, bool) {
    let count = graph.elements.len();
    // An element that ends paths begins others: it is two, of which the second, at `count` and more, has its
    // outputs.
    let exit = |e: usize| if ends[e] || bounds[e].is_some() { count + e } else { e };
    let mut next = vec![Vec::new(); 2 * count];
    for c in &graph.connections {
        next[exit(c.from.element)].push(c.to.element);
    }
    let cost = |at: usize| costs.get(at % count.max(1)).copied().unwrap_or(0.0);
    // The most costly path from each place, in the order in which a depth-first search leaves them.
    let mut best: Vec<Option<(f64, Option<usize>)>> = vec![None; 2 * count];
    let mut is_open = vec![false; 2 * count];
    for start in 0..2 * count {
        let mut path = vec![(start, 0)];
        while let Some((at, edge)) = path.last_mut() {
            let at = *at;
            if best[at].is_some() {
                path.pop();
                continue;
            }
            is_open[at] = true;
            if let Some(&to) = next[at].get(*edge) {
                *edge += 1;
                if best[to].is_none() && !is_open[to] {
                    path.push((to, 0));
                }
                continue;
            }
            let follows = next[at].iter().filter_map(|to| Some((best[*to]?.0, *to)));
            let most = follows.max_by(|a, b| a.0.total_cmp(&b.0));
            // The second half of an element costs nothing by itself: its first half was paid.
            let own = if at < count { cost(at) } else { 0.0 };
            best[at] = Some((own + most.map_or(0.0, |(cost, _)| cost), most.map(|(_, to)| to)));
            is_open[at] = false;
            path.pop();
        }
    }
    let of = |at: usize| best[at].map_or(0.0, |(cost, _)| cost);
    let route = |start: usize| {
        let mut route = Vec::new();
        let mut at = Some(start);
        while let Some(place) = at {
            route.push(place % count.max(1));
            at = best[place].and_then(|(_, next)| next);
        }
        route
    };
    // Packets enter at elements without an element before them, at those that end paths, and anywhere by
    // sources: all places are candidates, and the first half of one costs no less than any place behind it.
    let first =
        (0..2 * count).filter(|at| *at < count || ends[*at - count]).max_by(|a, b| of(*a).total_cmp(&of(*b)));
    let Some(first) = first else { return (WorstPath::default(), false) };
    let mut worst = WorstPath { cost: of(first), parts: vec![(route(first), 1)] };
    for (element, passes) in bounds.iter().enumerate() {
        let Some(passes) = passes.filter(|_| !graph.connections.is_empty()) else { continue };
        // It is on the path already as its end; the rest begins at its outputs.
        let (again, once) = (of(count + element) + cost(element), passes.saturating_add(1));
        worst.cost += again * f64::from(once);
        worst.parts.push((route(count + element), once));
    }
    (worst, first >= count)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn graph(text: &str) -> Graph {
        crate::read(text.as_bytes(), "f", &crate::Options::default()).unwrap()
    }

    pub(crate) fn rules() -> Rules<'static> {
        Rules {
            passes: &|e| (e.class == "Loop").then(|| e.config.parse().unwrap_or(1)),
            ends: &|e| e.class == "Tun",
        }
    }

    fn names(graph: &Graph, worst: &WorstPath) -> Vec<(String, u32)> {
        let name = |e: &usize| graph.elements[*e].name.clone();
        worst
            .parts
            .iter()
            .map(|(part, n)| (part.iter().map(name).collect::<Vec<_>>().join(" "), *n))
            .collect()
    }

    /// Costs by name: `x7` costs 7.
    pub(crate) fn costs(graph: &Graph) -> Vec<f64> {
        graph.elements.iter().map(|e| e.name[1..].parse().unwrap_or(0.0)).collect()
    }

    #[test]
    fn the_most_costly_branch_counts() {
        let g = graph("a1 :: S -> b2 :: T; b2 [0] -> c5 :: N -> d1 :: D; b2 [1] -> e4 :: N -> f9 :: N -> d1");
        let worst = worst_path(&g, &costs(&g), &rules());
        assert_eq!((worst.cost, names(&g, &worst)), (17.0, vec![("a1 b2 e4 f9 d1".into(), 1)]));
    }

    #[test]
    fn a_cycle_costs_as_often_as_its_loop_lets_packets_pass() {
        let g = graph("s1 :: S -> r2 :: R; r2 [0] -> d1 :: D; r2 [1] -> e3 :: E -> l1 :: Loop(4) -> r2");
        let worst = worst_path(&g, &costs(&g), &rules());
        // s1 r2 e3 l1, and five times what follows l1: r2 e3 l1, with its own cost.
        assert_eq!(worst.cost, 7.0 + 5.0 * (6.0 + 1.0));
        assert_eq!(names(&g, &worst), [("s1 r2 e3 l1".into(), 1), ("l1 r2 e3 l1".into(), 5)]);
    }

    #[test]
    fn an_interface_begins_and_ends_paths() {
        let g = graph("t3 :: Tun -> a2 :: N -> t3");
        let worst = worst_path(&g, &costs(&g), &rules());
        assert_eq!((worst.cost, names(&g, &worst)), (5.0, vec![("t3 a2 t3".into(), 1)]));
    }

    proptest! {
        /// A packet that takes any way has cost no more.
        #[test]
        fn no_walk_costs_more(
            count in 2..9_usize,
            edges in prop::collection::vec((0..9_usize, 0..9_usize), 1..20),
            costs in prop::collection::vec(0..20_u32, 9),
            ways in prop::collection::vec(0..20_usize, 60),
        ) {
            // Edges that lead back pass a bound.
            let mut g = Graph::default();
            let element = |name: String, class: &str, config: &str| Element {
                name, class: class.into(), config: config.into(), landmark: String::new(),
            };
            g.elements = (0..count).map(|n| element(format!("e{n}"), "N", "")).collect();
            let port = |element| flame_click::Port { element, port: 0 };
            let connect = |from, to| flame_click::Connection { from: port(from), to: port(to), landmark: String::new() };
            for (from, to) in edges.into_iter().filter(|(a, b)| *a < count && *b < count) {
                if from < to {
                    g.connections.push(connect(from, to));
                } else {
                    let bound = g.elements.len();
                    g.elements.push(element(format!("l{bound}"), "Loop", "2"));
                    g.connections.extend([connect(from, bound), connect(bound, to)]);
                }
            }
            let costs: Vec<f64> = (0..g.elements.len()).map(|e| costs[e % 9].into()).collect();
            let worst = worst_path(&g, &costs, &rules());
            let (mut at, mut spent, mut passed) = (ways[0] % count, 0.0, vec![0; g.elements.len()]);
            for way in &ways {
                spent += costs[at];
                passed[at] += 1;
                if g.elements[at].class == "Loop" && passed[at] > 2 {
                    break;
                }
                let out: Vec<_> = g.connections.iter().filter(|c| c.from.element == at).collect();
                let Some(c) = out.get(way % out.len().max(1)) else { break };
                at = c.to.element;
            }
            prop_assert!(spent <= worst.cost, "{spent} {worst:?}");
        }
    }
}
