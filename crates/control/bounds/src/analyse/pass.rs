//! One pass over a module: every function once, then every entry.

use super::expr::Depends;
use super::graph::reaches;
use super::memory::Batch;
use super::module::Module;
use super::ops;
use super::path::Step;
use super::poly::Poly;
use super::state::{State, Value};
use super::walk::{Summary, Walk};
use super::weights::Weights;
use super::{Bound, LoopReport, Turns};
use flame_abi::layout::{self, names};
use std::collections::{BTreeMap, BTreeSet};

/// Instructions walked over for each one of the module, and besides.
const WALKED: u64 = 1;
const WALKED_LEAST: u64 = 1_500_000;

/// What is asked for.
#[derive(Clone, Copy)]
pub struct Ask<'c> {
    pub weights: Weights<'c>,
    /// Whether ways count that are said to be rare.
    pub rare: bool,
}

pub struct Pass<'m, 'a> {
    pub module: &'m Module<'a>,
    pub returning: &'m BTreeSet<u32>,
    pub order: &'m [u32],
    /// Of the file in bytes.
    pub size: usize,
}

pub struct Found {
    /// In the order of the exports.
    pub entries: Vec<Reached>,
    /// By place.
    pub loops: Vec<LoopReport>,
}

#[derive(Clone)]
pub struct Reached {
    pub bound: Bound,
    pub depends: Depends,
    pub path: Vec<Step>,
}

impl Pass<'_, '_> {
    pub fn run(&self, exports: &[(String, u32)], ask: Ask<'_>) -> Found {
        let Self { module, returning, .. } = *self;
        let mut budget = self.size as u64 * WALKED + WALKED_LEAST;
        let mut summaries = BTreeMap::new();
        let mut reached: BTreeMap<u32, BTreeMap<usize, LoopReport>> = BTreeMap::new();
        for function in self.order {
            let mut walk = Walk::new(module, (&summaries, returning), ask, budget);
            let before = walk.before();
            let end = walk.function(*function, any_arguments(module, *function), before);
            budget = walk.budget;
            let summary = Summary {
                cost: cost(&walk, end.as_ref()),
                packet: end.as_ref().map_or(Poly::ZERO, |s| s.packet),
                returns: end.is_some(),
                marks: walk.marks,
                endless: walk.endless,
                why: walk.why.clone(),
                depends: walk.depends,
            };
            reached.insert(*function, std::mem::take(&mut walk.loops));
            summaries.insert(*function, summary);
        }
        let mut loops: BTreeMap<usize, LoopReport> = BTreeMap::new();
        let mut entries = Vec::new();
        for (name, function) in exports {
            let mut walk = Walk::new(module, (&summaries, returning), ask, budget.max(WALKED_LEAST));
            walk.plenty = walk.budget / 2;
            walk.traces = matches!(ask.weights, Weights::Instructions);
            let arguments = if name == names::BATCH {
                walk.batch = Some(Batch::new(&mut walk));
                vec![ops::constant(32, u64::from(layout::WINDOW + layout::BATCH_OFFSET))]
            } else {
                any_arguments(module, *function)
            };
            let before = walk.before();
            let end = walk.function(*function, arguments, before);
            // It is known best where it is entered from.
            let mut of_entry: BTreeMap<usize, LoopReport> = reaches(module, &[*function], None)
                .iter()
                .filter_map(|f| reached.get(f))
                .flatten()
                .map(|(k, v)| (*k, v.clone()))
                .collect();
            of_entry.extend(std::mem::take(&mut walk.loops));
            let bound = Bound {
                call: cost(&walk, end.as_ref()).plus(ask.weights.dispatch()),
                packet: end.as_ref().map_or(Poly::ZERO, |s| s.packet),
            };
            entries.push(Reached {
                bound,
                depends: walk.depends,
                path: end.and_then(|end| end.path).map_or_else(Vec::new, |p| p.steps(|f| module.name(f))),
            });
            for (place, found) in of_entry {
                let same = loops.entry(place).or_insert_with(|| found.clone());
                // One that an entry cannot do without a counter has one.
                if found.turns == Turns::Unknown {
                    *same = found;
                }
            }
        }
        Found { entries, loops: loops.into_values().collect() }
    }
}

fn cost(walk: &Walk<'_, '_>, end: Option<&State>) -> Poly {
    if walk.endless { Poly::UNBOUNDED } else { end.map_or(Poly::ZERO, |s| s.cost) }
}

fn any_arguments(module: &Module<'_>, function: u32) -> Vec<Value> {
    let params = module.kind_of(function).map_or(&[][..], |t| t.params());
    params.iter().map(|kind| Value::Any(*kind)).collect()
}
