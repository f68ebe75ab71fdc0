//! The order in which functions are walked, and recursion.

use super::graph::Graph;
use flame_verify::module::Module;
use std::collections::BTreeSet;

/// The order in which functions are walked.
#[derive(Default)]
pub struct Order {
    /// The functions, each after its callees, without the recursive ones. Those that call recursive ones are
    /// the last.
    pub functions: Vec<u32>,
    /// The functions that call each other recursively, by name.
    pub cycles: Vec<Vec<String>>,
    /// The functions that call themselves, directly or not. They return.
    pub recursive: BTreeSet<u32>,
}

impl Order {
    /// Orders by calls of functions that return; a function that diverges ends the call.
    ///
    /// If it takes more work than the graph has left, all functions count as recursive.
    pub fn of(module: &Module<'_>, graph: &Graph, returning: &BTreeSet<u32>) -> Self {
        Self::within(module, graph, returning).unwrap_or_else(|| {
            let recursive = graph.own().filter(|f| returning.contains(f)).collect();
            Self { recursive, ..Self::default() }
        })
    }

    fn within(module: &Module<'_>, graph: &Graph, returning: &BTreeSet<u32>) -> Option<Self> {
        let calls = Calls::read(module, graph, returning)?;
        let (mut functions, left) = calls.callees_first(graph)?;
        let on_cycle = calls.on_cycle(graph, &left)?;
        let name = |node: usize| match calls.function(node) {
            Some(function) => graph.name(function),
            None => "a call through a table".to_owned(),
        };
        // Follows calls until a function recurs.
        let (mut cycles, mut seen) = (Vec::new(), vec![false; left.len()]);
        for start in calls.nodes().filter(|node| left[*node]) {
            let (mut path, mut at) = (Vec::new(), start);
            while !std::mem::replace(&mut seen[at], true) {
                path.push(at);
                match calls.of(at).iter().find(|callee| left[**callee as usize]) {
                    Some(next) => at = *next as usize,
                    None => break,
                }
            }
            if let Some(from) = path.iter().position(|node| *node == at) {
                cycles.push(path[from..].iter().map(|node| name(*node)).collect());
            }
        }
        // A function that only calls a recursive one is still walked, with that one unknown.
        let others = calls.nodes().filter(|node| left[*node]).partition(|node| on_cycle[*node]);
        let (recursive, callers): (Vec<usize>, Vec<usize>) = others;
        let of = |nodes: Vec<usize>| nodes.into_iter().filter_map(|node| calls.function(node));
        functions.extend(of(callers));
        Some(Self { functions, cycles, recursive: of(recursive).collect() })
    }
}

/// The calls between the functions that return, as the edges between nodes: a node for each function that the
/// module defines, and one for each type, for the functions that a call through a table may reach.
struct Calls {
    first: u32,
    functions: usize,
    /// The callees of each node, once each: of node n from `starts[n]` to `starts[n + 1]`.
    starts: Vec<u32>,
    callees: Vec<u32>,
}

impl Calls {
    fn read(module: &Module<'_>, graph: &Graph, returning: &BTreeSet<u32>) -> Option<Self> {
        let own = graph.own();
        let (first, functions) = (own.start, own.len());
        let nodes = functions + module.types.len();
        let mut calls = Self { first, functions, starts: Vec::with_capacity(nodes + 1), callees: Vec::new() };
        // The last node of which each one was found to be a callee.
        let mut caller = vec![u32::MAX; nodes];
        let mut room = nodes;
        for node in 0..nodes {
            calls.starts.push(calls.callees.len() as u32);
            let is_called = |f: &&u32| **f >= first && returning.contains(f);
            let (reached, tables) = match calls.function(node) {
                Some(function) => {
                    let of = graph.of(function)?;
                    (&of.direct[..], &of.tables[..])
                }
                // Equal types have one node.
                None => match (node - functions) as u32 {
                    kind if module.same(kind) == kind => (module.through_tables(kind), &[][..]),
                    _ => (&[][..], &[][..]),
                },
            };
            room += reached.len();
            let direct = reached.iter().filter(is_called).map(|f| f - first);
            let all = direct.chain(tables.iter().map(|kind| functions as u32 + kind));
            let new = all.filter(|c| {
                caller
                    .get_mut(*c as usize)
                    .is_some_and(|last| std::mem::replace(last, node as u32) != node as u32)
            });
            calls.callees.extend(new);
        }
        calls.starts.push(calls.callees.len() as u32);
        graph.spend(room).then_some(calls)
    }

    fn nodes(&self) -> std::ops::Range<usize> {
        0..self.starts.len() - 1
    }

    /// Returns the function of a node, if it is not a type's.
    fn function(&self, node: usize) -> Option<u32> {
        (node < self.functions).then(|| self.first + node as u32)
    }

    fn of(&self, node: usize) -> &[u32] {
        &self.callees[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// Returns the functions of which all callees come before them, and the nodes that are left: those that
    /// are recursive or call recursive ones.
    fn callees_first(&self, graph: &Graph) -> Option<(Vec<u32>, Vec<bool>)> {
        let mut waiting: Vec<usize> = self.nodes().map(|node| self.of(node).len()).collect();
        let mut callers: Vec<(u32, u32)> =
            self.nodes().flat_map(|node| self.of(node).iter().map(move |c| (*c, node as u32))).collect();
        callers.sort_unstable();
        let mut left = vec![true; waiting.len()];
        let mut ready: Vec<usize> = self.nodes().filter(|node| waiting[*node] == 0).collect();
        let mut functions = Vec::new();
        while let Some(node) = ready.pop() {
            left[node] = false;
            functions.extend(self.function(node));
            let from = callers.partition_point(|(callee, _)| (*callee as usize) < node);
            for (_, caller) in callers[from..].iter().take_while(|(callee, _)| *callee as usize == node) {
                if !graph.spend(1) {
                    return None;
                }
                let caller = *caller as usize;
                waiting[caller] -= 1;
                if waiting[caller] == 0 {
                    ready.push(caller);
                }
            }
        }
        Some((functions, left))
    }

    /// Returns which of the nodes in `left` may call themselves, directly or not: those that lie on a cycle.
    /// (The strongly connected components, by Tarjan, 1972, without recursion.)
    fn on_cycle(&self, graph: &Graph, left: &[bool]) -> Option<Vec<bool>> {
        const NEW: u32 = u32::MAX;
        let mut on_cycle = vec![false; left.len()];
        // The number of each node in the order of their discovery, and the least that it leads to.
        let (mut number, mut least) = (vec![NEW; left.len()], vec![0; left.len()]);
        let (mut discovered, mut stack, mut on_stack) = (0, Vec::new(), vec![false; left.len()]);
        // The nodes on the path, with the number of callees that were followed.
        let mut path: Vec<(usize, usize)> = Vec::new();
        for root in self.nodes().filter(|node| left[*node]) {
            if number[root] == NEW {
                path.push((root, 0));
            }
            while let Some((node, followed)) = path.pop() {
                if !graph.spend(1) {
                    return None;
                }
                if followed == 0 {
                    (number[node], least[node]) = (discovered, discovered);
                    discovered += 1;
                    stack.push(node);
                    on_stack[node] = true;
                }
                if let Some(callee) = self.of(node).get(followed).map(|c| *c as usize) {
                    path.push((node, followed + 1));
                    on_cycle[node] |= callee == node;
                    match number[callee] {
                        NEW if left[callee] => path.push((callee, 0)),
                        number if on_stack[callee] => least[node] = least[node].min(number),
                        _ => {}
                    }
                    continue;
                }
                if let Some((caller, _)) = path.last() {
                    least[*caller] = least[*caller].min(least[node]);
                }
                if least[node] == number[node] {
                    let is_cycle = stack.last() != Some(&node);
                    while let Some(of) = stack.pop() {
                        on_stack[of] = false;
                        on_cycle[of] |= is_cycle;
                        if of == node {
                            break;
                        }
                    }
                }
            }
        }
        Some(on_cycle)
    }
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
