//! Divides the way of a packet into segments of work, between which other tasks have their turn.
//!
//! A segment ends where a packet waits: at `Poll`, in a queue, and where its path ends. Polls are placed so
//! that no segment takes longer than a source can wait (Patel, section 3.6).

use crate::bound::{Rules, WorstPath, longest};
use flame_click::{Connection, Element, Graph, Port};
use std::collections::HashSet;

/// Returns the most costly segment. `waits` states for each element whether packets wait there. The first
/// part begins with the first element that the segment pays for.
///
/// An element that bounds cycles counts as often as it lets packets pass only if a packet can come back to it
/// without waiting.
pub fn worst_segment(graph: &Graph, costs: &[f64], rules: &Rules<'_>, waits: &[bool]) -> WorstPath {
    let mut ends = rules.all_ends(graph);
    ends.iter_mut().zip(waits).for_each(|(ends, waits)| *ends |= waits);
    let next = successors(graph);
    let mut bounds = rules.all_passes(graph);
    for (element, passes) in bounds.iter_mut().enumerate() {
        if passes.is_some() && !reaches(&next, &ends, element, element) {
            *passes = None;
        }
    }
    let (mut worst, is_behind) = longest(graph, costs, &bounds, &ends);
    if is_behind && let Some((first, _)) = worst.parts.first_mut() {
        first.remove(0);
    }
    worst
}

fn successors(graph: &Graph) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); graph.elements.len()];
    for c in &graph.connections {
        next[c.from.element].push(c.to.element);
    }
    next
}

/// Returns whether a packet that leaves `from` comes to `to` without waiting.
fn reaches(next: &[Vec<usize>], ends: &[bool], from: usize, to: usize) -> bool {
    let (mut seen, mut open) = (vec![false; next.len()], next[from].clone());
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        if !std::mem::replace(&mut seen[at], true) && !ends[at] {
            open.extend(&next[at]);
        }
    }
    false
}

/// The rules by which polls are placed.
pub struct Polls<'a> {
    /// The most that a segment may cost.
    pub limit: f64,
    /// The cost of `Poll` itself, which belongs to the segment before it.
    pub cost: f64,
    /// Returns whether packets are pushed along a connection: only there is room for `Poll`.
    pub is_push: &'a dyn Fn(&Connection) -> bool,
    /// Ends the search.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// A graph with polls, each of whose segments is within the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Divided {
    pub graph: Graph,
    /// The connections of the original graph that have a `Poll` now.
    pub places: Vec<Connection>,
    /// The most costly segment.
    pub worst: WorstPath,
}

/// The reason why no polls bring a graph within the limit.
#[derive(Clone, Debug, PartialEq)]
pub enum Stuck {
    /// This element costs more than the limit by itself.
    Element(usize),
    /// The segment has no connection where a `Poll` helps: it costs more than what is left of the limit, or
    /// packets are pulled there.
    Segment(WorstPath),
    /// The graph would have more elements than [`Limits`](crate::Limits) permits.
    TooMany,
    Interrupted,
}

/// Places polls on connections until each segment is within the limit: as late as possible on the most costly
/// path, and after an element that bounds cycles, so that each pass is a segment of its own.
///
/// # Errors
///
/// Returns the element or the segment that no `Poll` brings within the limit.
pub fn insert_polls(
    graph: &Graph,
    costs: &[f64],
    rules: &Rules<'_>,
    waits: &[bool],
    polls: &Polls<'_>,
) -> Result<Divided, Stuck> {
    let original = graph.elements.len();
    let (mut graph, mut costs, mut waits) = (graph.clone(), costs.to_vec(), waits.to_vec());
    costs.resize(original, 0.0);
    waits.resize(original, false);
    let mut places = Vec::new();
    let mut names = Names { taken: graph.elements.iter().map(|e| e.name.clone()).collect(), last: 0 };
    loop {
        if (polls.is_interrupted)() {
            return Err(Stuck::Interrupted);
        }
        let worst = worst_segment(&graph, &costs, rules, &waits);
        if worst.cost <= polls.limit {
            return Ok(Divided { graph, places, worst });
        }
        let cut = cut(&graph, &costs, &worst, polls, original)?;
        if graph.elements.len() + cut.len() > crate::Limits::default().elements {
            return Err(Stuck::TooMany);
        }
        for at in cut {
            places.push(graph.connections[at].clone());
            let name = names.free();
            let landmark = graph.connections[at].landmark.clone();
            let poll = graph.elements.len();
            graph.elements.push(Element {
                name,
                class: "Poll".into(),
                config: String::new(),
                landmark: landmark.clone(),
            });
            costs.push(polls.cost);
            waits.push(true);
            let port = Port { element: poll, port: 0 };
            let to = std::mem::replace(&mut graph.connections[at].to, port);
            graph.connections.push(Connection { from: port, to, landmark });
        }
    }
}

/// The names of elements.
struct Names {
    taken: HashSet<String>,
    last: u64,
}

impl Names {
    fn free(&mut self) -> String {
        loop {
            self.last += 1;
            let name = format!("poll{}", self.last);
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// Returns the connections of which each gets a `Poll`, at least one: on the most costly path, as late as the
/// limit permits, or after an element that bounds cycles.
fn cut(
    graph: &Graph,
    costs: &[f64],
    worst: &WorstPath,
    polls: &Polls<'_>,
    original: usize,
) -> Result<Vec<usize>, Stuck> {
    let is_free = |c: &Connection| c.from.element < original && c.to.element < original && (polls.is_push)(c);
    let mut leaving = vec![Vec::new(); graph.elements.len()];
    for (at, c) in graph.connections.iter().enumerate().filter(|(_, c)| is_free(c)) {
        leaving[c.from.element].push((at, c.to.element));
    }
    // Each pass of a loop becomes a segment of its own, where one can.
    for (part, _) in worst.parts.iter().skip(1) {
        let after = part.first().map(|at| leaving[*at].iter().map(|(at, _)| *at).collect::<Vec<_>>());
        if let Some(after) = after.filter(|after| !after.is_empty()) {
            return Ok(after);
        }
    }
    let Some((path, _)) = worst.parts.first() else { return Err(Stuck::Segment(worst.clone())) };
    let (mut cuts, mut sum, mut latest) = (Vec::new(), 0.0, None);
    for (i, pair) in path.windows(2).enumerate() {
        sum += costs[pair[0]];
        if sum + polls.cost > polls.limit {
            let Some((before, at)) = latest.take() else { break };
            cuts.extend::<Vec<usize>>(at);
            sum = path[before..=i].iter().map(|at| costs[*at]).sum();
            if sum + polls.cost > polls.limit {
                break;
            }
        }
        let between = leaving[pair[0]].iter().filter(|(_, to)| *to == pair[1]).map(|(at, _)| *at);
        let between: Vec<usize> = between.collect();
        if !between.is_empty() {
            latest = Some((i + 1, between));
        }
    }
    if let (Some((_, at)), Some(last)) = (latest, path.last())
        && sum + costs[*last] > polls.limit
    {
        cuts.extend(at);
    }
    if cuts.is_empty() {
        let alone = path.iter().find(|at| costs[**at] > polls.limit);
        return Err(alone.map_or_else(|| Stuck::Segment(worst.clone()), |at| Stuck::Element(*at)));
    }
    Ok(cuts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::tests::{costs, graph, rules};
    use proptest::prelude::*;

    fn waits(graph: &Graph) -> Vec<bool> {
        graph.elements.iter().map(|e| matches!(e.class.as_str(), "Poll" | "Queue")).collect()
    }

    fn divide(text: &str, limit: f64) -> Result<(Vec<(String, String)>, f64), Stuck> {
        let g = graph(text);
        let is_push = |c: &Connection| g.elements[c.to.element].class != "Pulled";
        let polls = Polls { limit, cost: 1.0, is_push: &is_push, is_interrupted: &|| false };
        let divided = insert_polls(&g, &costs(&g), &rules(), &waits(&g), &polls)?;
        let name = |at: usize| divided.graph.elements[at].name.clone();
        let places = divided.places.iter().map(|c| (name(c.from.element), name(c.to.element))).collect();
        Ok((places, divided.worst.cost))
    }

    fn places(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn a_segment_ends_where_packets_wait() {
        let g = graph("a1 :: S -> b2 :: N -> q3 :: Queue -> c4 :: N -> d5 :: N -> p1 :: Poll -> e2 :: D");
        let worst = worst_segment(&g, &costs(&g), &rules(), &waits(&g));
        // The queue was paid by the segment before it.
        assert_eq!((worst.cost, worst.parts), (10.0, vec![(vec![3, 4, 5], 1)]));
    }

    #[test]
    fn a_pass_that_waits_counts_once() {
        let loops = "s1 :: S -> r2 :: R; r2 [0] -> d1 :: D; r2 [1] -> l1 :: Loop(9)";
        let g = graph(&format!("{loops} -> r2"));
        assert!(worst_segment(&g, &costs(&g), &rules(), &waits(&g)).cost > 30.0);
        let g = graph(&format!("{loops} -> p1 :: Poll -> r2"));
        assert_eq!(worst_segment(&g, &costs(&g), &rules(), &waits(&g)).cost, 5.0);
    }

    #[test]
    fn polls_come_as_late_as_the_limit_permits() {
        let text = "a3 :: S -> b3 :: N -> c3 :: N -> d3 :: D";
        assert_eq!(divide(text, 12.0), Ok((vec![], 12.0)));
        // a, b and a poll cost 7; c, d and nothing 6.
        assert_eq!(divide(text, 7.0), Ok((places(&[("b3", "c3")]), 7.0)));
        assert_eq!(divide(text, 4.0), Ok((places(&[("a3", "b3"), ("b3", "c3"), ("c3", "d3")]), 4.0)));
    }

    #[test]
    fn a_loop_gets_a_poll() {
        let text = "s1 :: S -> r2 :: R; r2 [0] -> d1 :: D; r2 [1] -> l1 :: Loop(9) -> r2";
        assert_eq!(divide(text, 6.0), Ok((places(&[("l1", "r2")]), 5.0)));
    }

    /// The search takes one pass for a chain, however long it is.
    #[test]
    fn long_chains_are_divided_at_once() {
        let chain: String = (0..20_000).map(|n| format!("n{n} :: N -> ")).collect();
        let g = graph(&format!("{chain} d :: D"));
        let costs = vec![1.0; g.elements.len()];
        let passes = std::cell::Cell::new(0);
        let is_interrupted = || passes.replace(passes.get() + 1) > 3;
        let polls = Polls { limit: 10.0, cost: 1.0, is_push: &|_| true, is_interrupted: &is_interrupted };
        let divided = insert_polls(&g, &costs, &rules(), &waits(&g), &polls).unwrap();
        assert_eq!((divided.worst.cost, divided.places.len()), (10.0, 2_222));
    }

    #[test]
    fn what_no_poll_divides_is_named() {
        assert_eq!(divide("a1 :: S -> b9 :: N -> c1 :: D", 5.0), Err(Stuck::Element(1)));
        let pulled = divide("a3 :: S -> b3 :: Pulled", 5.0);
        assert!(matches!(pulled, Err(Stuck::Segment(WorstPath { cost: 6.0, .. }))), "{pulled:?}");
    }

    proptest! {
        /// A packet that takes any way has cost no more since it waited last, with and without polls.
        #[test]
        fn no_walk_between_two_waits_costs_more(
            count in 2..9_usize,
            edges in prop::collection::vec((0..9_usize, 0..9_usize), 1..20),
            costs in prop::collection::vec(0..20_u32, 9),
            classes in prop::collection::vec(0..5_usize, 9),
            ways in prop::collection::vec(0..20_usize, 80),
            limit in 1..120_u32,
        ) {
            let mut g = Graph::default();
            let element = |name: String, class: &str, config: &str| Element {
                name, class: class.into(), config: config.into(), landmark: String::new(),
            };
            let class = |n: usize| if classes[n] == 0 { "Queue" } else { "N" };
            g.elements = (0..count).map(|n| element(format!("e{n}"), class(n), "")).collect();
            let port = |element| Port { element, port: 0 };
            let connect = |from, to| Connection { from: port(from), to: port(to), landmark: String::new() };
            for (from, to) in edges.into_iter().filter(|(a, b)| *a < count && *b < count) {
                if from < to {
                    g.connections.push(connect(from, to));
                } else {
                    let bound = g.elements.len();
                    g.elements.push(element(format!("l{bound}"), "Loop", "2"));
                    g.connections.extend([connect(from, bound), connect(bound, to)]);
                }
            }
            let mut costs: Vec<f64> = (0..g.elements.len()).map(|e| costs[e % 9].into()).collect();
            let before = worst_segment(&g, &costs, &rules(), &waits(&g)).cost;
            let polls = Polls {
                limit: limit.into(),
                cost: 3.0,
                is_push: &|_| true,
                is_interrupted: &|| false,
            };
            let divided = insert_polls(&g, &costs, &rules(), &waits(&g), &polls);
            let mut graphs = vec![(g, before)];
            if let Ok(divided) = divided {
                prop_assert!(divided.worst.cost <= polls.limit);
                graphs.push((divided.graph, divided.worst.cost));
            }
            costs.resize(graphs.iter().map(|(g, _)| g.elements.len()).max().unwrap_or(0), 3.0);
            for (g, most) in graphs {
                let waits = waits(&g);
                let (mut at, mut spent, mut passed) = (ways[0] % count, 0.0, vec![0; g.elements.len()]);
                for way in &ways {
                    spent += costs[at];
                    prop_assert!(spent <= most, "{spent} {most} {g:?}");
                    if waits[at] {
                        spent = 0.0;
                    }
                    passed[at] += 1;
                    if g.elements[at].class == "Loop" && passed[at] > 2 {
                        break;
                    }
                    let out: Vec<_> = g.connections.iter().filter(|c| c.from.element == at).collect();
                    let Some(c) = out.get(way % out.len().max(1)) else { break };
                    at = c.to.element;
                }
            }
        }
    }
}
