//! The work of analysing and compiling functions, which is more than their size suggests.

use crate::rules::Rules;
use serde::{Deserialize, Serialize};
use std::fmt;
use wasmparser::Operator;

/// The amount of code in a module, by which the limits of those who analyse and compile it grow. Nothing else
/// in its file counts: data, names and other custom sections are not read, or in no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub functions: u64,
    pub instructions: u64,
    /// Blocks, loops and branches, where control flow splits or joins.
    pub blocks: u64,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { functions, instructions, blocks } = self;
        write!(f, "{instructions} instructions in {functions} functions, with {blocks} blocks and branches")
    }
}

/// Counts over one function, or over all functions read so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    instructions: u64,
    /// Blocks, loops and branches, where control flow splits or joins.
    joins: u64,
    calls: u64,
    /// Labels of `br_table`.
    labels: u64,
}

impl Counts {
    pub(crate) fn size(self, functions: u64) -> Size {
        Size { functions, instructions: self.instructions, blocks: self.joins }
    }

    fn add(&mut self, operator: &Operator<'_>) {
        self.instructions += 1;
        match operator {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::Else
            | Operator::Br { .. }
            | Operator::BrIf { .. } => self.joins += 1,
            // Most of its labels are the same few targets.
            Operator::BrTable { targets } => {
                self.joins += 1;
                self.labels += u64::from(targets.len()) + 1;
            }
            Operator::Call { .. } | Operator::CallIndirect { .. } => self.calls += 1,
            _ => {}
        }
    }
}

/// The work of a function while it is read.
pub(crate) struct Work {
    locals: u64,
    globals: u64,
    depth: u64,
    one: Counts,
    /// The counts including the functions before it.
    pub(crate) all: Counts,
}

impl Work {
    pub(crate) fn new(locals: u64, globals: u64, before: Counts) -> Self {
        Self { locals, globals, depth: 0, one: Counts::default(), all: before }
    }

    /// Counts an instruction. The error is the exceeded limit: its name, the count, the limit.
    pub(crate) fn add(
        &mut self,
        operator: &Operator<'_>,
        rules: &Rules,
    ) -> Result<(), (&'static str, u64, u64)> {
        self.one.add(operator);
        self.all.add(operator);
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => self.depth += 1,
            Operator::End => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let Self { one, all, .. } = self;
        let locals_by_joins = self.locals.saturating_mul(one.joins);
        let globals_by_joins = self.globals.saturating_mul(all.joins + all.calls);
        let limits = [
            ("blocks in blocks", self.depth, rules.nesting),
            ("instructions in one function", one.instructions, rules.instructions),
            ("instructions in all functions", all.instructions, rules.total_instructions),
            ("labels of br_table in one function", one.labels, rules.table_labels),
            ("labels of br_table in all functions", all.labels, rules.total_table_labels),
            ("locals times blocks and branches in one function", locals_by_joins, rules.locals_by_joins),
            (
                "globals times blocks, branches and calls in all functions",
                globals_by_joins,
                rules.globals_by_joins,
            ),
        ];
        match limits.into_iter().find(|(_, found, most)| found > most) {
            Some(exceeded) => Err(exceeded),
            None => Ok(()),
        }
    }
}
