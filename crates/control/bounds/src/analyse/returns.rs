//! Which functions can come back: of those that cannot, a panic's, nothing needs to be known.

use super::body::Node;
use super::module::Module;
use std::collections::{BTreeMap, BTreeSet};
use wasmparser::Operator;

/// Functions that come back on some way, whatever their values. The least such set: of those that call each other in
/// a circle, one must come back without the others.
pub fn returning(module: &Module<'_>) -> BTreeSet<u32> {
    let imported = module.imports.len() as u32;
    let mut known: BTreeSet<u32> = (0..imported).collect();
    let all = imported..imported + module.functions.len() as u32;
    let (mut callers, mut by_table) = (BTreeMap::<u32, Vec<u32>>::new(), Vec::new());
    for function in all.clone() {
        let Some(own) = module.own(function) else { continue };
        own.calls.iter().for_each(|callee| callers.entry(*callee).or_default().push(function));
        by_table.extend((!own.tables.is_empty()).then_some(function));
    }
    // A function is looked at again when one that it calls turns out to come back; through tables, the first of each
    // type.
    let mut todo: Vec<u32> = all.rev().collect();
    let mut kinds = BTreeSet::new();
    while let Some(function) = todo.pop() {
        let body = module.own(function).and_then(|own| own.body.as_ref());
        // One that is not looked into may come back.
        if known.contains(&function) || body.is_some_and(|body| !comes_back(module, &known, body)) {
            continue;
        }
        known.insert(function);
        let waiting = |f: &&u32| !known.contains(f);
        todo.extend(callers.get(&function).into_iter().flatten().filter(waiting));
        let kind = module.own(function).map(|own| own.kind);
        if module.addressed.binary_search(&function).is_ok() && kinds.insert(kind) {
            todo.extend(by_table.iter().filter(waiting));
        }
    }
    known
}

fn comes_back(module: &Module<'_>, known: &BTreeSet<u32>, body: &[Node<'_>]) -> bool {
    let mut frames = vec![false];
    let end = nodes(module, known, body, &mut frames);
    end || frames[0]
}

/// Whether the nodes' end is reached; `frames` has, for each open one, whether a branch to it is.
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
        Operator::Call { function_index } => return known.contains(function_index),
        Operator::CallIndirect { type_index, .. } => {
            return module.through_tables(*type_index).iter().any(|f| known.contains(f));
        }
        _ => {}
    }
    true
}
