//! The functions that can return. Nothing needs to be known of those that diverge, such as a panic's.

use super::graph::Graph;
use flame_verify::module::{Module, Node};
use std::collections::{BTreeMap, BTreeSet};
use wasmparser::Operator;

/// Returns the functions that return on some path, for any values. This is the least such set: of mutually
/// recursive functions, one must return without the others.
pub fn returning(module: &Module<'_>, graph: &Graph) -> BTreeSet<u32> {
    let mut known: BTreeSet<u32> = (0..graph.own().start).collect();
    let (mut callers, mut by_table) = (BTreeMap::<u32, Vec<u32>>::new(), Vec::new());
    for function in graph.own() {
        let Some(calls) = graph.of(function) else { continue };
        calls.direct.iter().for_each(|callee| callers.entry(*callee).or_default().push(function));
        by_table.extend((!calls.tables.is_empty()).then_some(function));
    }
    // A function is examined again when one of its callees is found to return; through tables, the first of
    // each type.
    let mut todo: Vec<u32> = graph.own().rev().collect();
    let mut kinds = BTreeSet::new();
    while let Some(function) = todo.pop() {
        let own = module.own(function);
        let body = own.and_then(|own| own.body.as_ref());
        // A function that is not examined may return.
        if known.contains(&function) || body.is_some_and(|body| !returns(module, &known, body)) {
            continue;
        }
        known.insert(function);
        let waiting = |f: &&u32| !known.contains(f);
        todo.extend(callers.get(&function).into_iter().flatten().filter(waiting));
        let has_address = |kind: u32| module.through_tables(kind).binary_search(&function).is_ok();
        if own.is_some_and(|own| has_address(own.kind) && kinds.insert(own.kind)) {
            todo.extend(by_table.iter().filter(waiting));
        }
    }
    known
}

fn returns(module: &Module<'_>, known: &BTreeSet<u32>, body: &[Node<'_>]) -> bool {
    let mut frames = vec![false];
    let end = nodes(module, known, body, &mut frames);
    end || frames[0]
}

/// Returns whether the end of the nodes is reached; `frames` states for each open one whether a branch to it
/// is.
fn nodes(module: &Module<'_>, known: &BTreeSet<u32>, all: &[Node<'_>], frames: &mut Vec<bool>) -> bool {
    for node in all {
        let goes_on = match node {
            Node::Block { body, .. } => {
                frames.push(false);
                let end = nodes(module, known, body, frames);
                frames.pop().unwrap_or(false) || end
            }
            Node::Loop { body, .. } => {
                frames.push(false);
                let end = nodes(module, known, body, frames);
                frames.pop();
                end
            }
            Node::If { then, or, .. } => {
                frames.push(false);
                let ends = [nodes(module, known, then, frames), nodes(module, known, or, frames)];
                frames.pop().unwrap_or(false) || ends.contains(&true)
            }
            Node::Call(callee, ..) => known.contains(callee),
            Node::Op(operator, _) => operation(module, known, operator, frames),
        };
        if !goes_on {
            return false;
        }
    }
    true
}

fn operation(
    module: &Module<'_>,
    known: &BTreeSet<u32>,
    operator: &Operator<'_>,
    frames: &mut [bool],
) -> bool {
    let last = frames.len() - 1;
    let mut branch = |depth: u32| {
        if let Some(frame) = last.checked_sub(depth as usize).and_then(|at| frames.get_mut(at)) {
            *frame = true;
        }
    };
    match operator {
        Operator::Unreachable => return false,
        Operator::Br { relative_depth } => {
            branch(*relative_depth);
            return false;
        }
        Operator::BrIf { relative_depth } => branch(*relative_depth),
        Operator::BrTable { targets } => {
            targets.targets().flatten().chain([targets.default()]).for_each(branch);
            return false;
        }
        Operator::Return => {
            frames[0] = true;
            return false;
        }
        Operator::CallIndirect { type_index, .. } => {
            return module.through_tables(*type_index).iter().any(|f| known.contains(f));
        }
        _ => {}
    }
    true
}
