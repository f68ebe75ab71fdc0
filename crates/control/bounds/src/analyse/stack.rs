//! The depth of calls.

use super::graph::Graph;
use super::order::Order;
use flame_verify::module::Module;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// The maximum stack use of the calls that an entry makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The depth of nested calls, including the entry's.
    pub calls: u64,
    /// The number of bytes of the stack that compilers keep in a module's own memory.
    pub memory: u64,
    /// The number of bytes of locals and parameters, which become the machine's stack, except for registers.
    pub locals: u64,
}

impl Stack {
    fn max(self, other: Self) -> Self {
        Self {
            calls: self.calls.max(other.calls),
            memory: self.memory.max(other.memory),
            locals: self.locals.max(other.locals),
        }
    }

    /// The stack use of recursive functions, and of those that call them.
    pub const UNKNOWN: Self = Self { calls: u64::MAX, memory: u64::MAX, locals: u64::MAX };
}

pub struct Stacks(HashMap<u32, Stack>);

impl Stacks {
    /// Adds up the stack use of calls that return: calls that only lead to a panic are left out.
    pub fn new(module: &Module<'_>, graph: &Graph, order: &Order, returning: &BTreeSet<u32>) -> Self {
        let mut all: HashMap<u32, Stack> = HashMap::new();
        let imported = graph.own().start;
        let of = |all: &HashMap<u32, Stack>, f: u32| match f < imported || !returning.contains(&f) {
            true => Stack::default(),
            false => all.get(&f).copied().unwrap_or(Stack::UNKNOWN),
        };
        let mut through_tables: HashMap<u32, Stack> = HashMap::new();
        for f in &order.functions {
            let Some(own) = graph.of(*f) else { continue };
            let mut deepest = own.direct.iter().map(|c| of(&all, *c)).fold(Stack::default(), Stack::max);
            for kind in &own.tables {
                let any = through_tables.entry(*kind).or_insert_with(|| {
                    let reached = module.through_tables(*kind).iter();
                    reached.map(|a| of(&all, *a)).fold(Stack::default(), Stack::max)
                });
                deepest = deepest.max(*any);
            }
            let params = module.kind_of(*f).map_or(0, |t| t.params().len()) as u64;
            let own = Stack { calls: 1, memory: own.frame, locals: 8 * (params + own.locals) };
            let sum = |a: u64, b: u64| a.saturating_add(b);
            let with = Stack {
                calls: sum(deepest.calls, own.calls),
                memory: sum(deepest.memory, own.memory),
                locals: sum(deepest.locals, own.locals),
            };
            all.insert(*f, with);
        }
        Self(all)
    }

    pub fn of(&self, function: u32) -> Stack {
        self.0.get(&function).copied().unwrap_or(Stack::UNKNOWN)
    }
}
