//! What a child process may use, by kind of work and size of the module.

use crate::answer;
use crate::job::Step;
use std::time::Duration;

/// Limits of one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Processor time in seconds.
    pub(crate) cpu: u64,
    /// Bytes of memory that it may own.
    pub(crate) memory: u64,
    /// Time by the clock. It ends a child that waits; one that works is ended by its processor time.
    pub(crate) wall: Duration,
    /// Bytes of its answer.
    pub(crate) answer: usize,
}

const MIB: u64 = 1 << 20;
/// Bytes of memory, whatever the size.
const MAX_MEMORY: u64 = 4 << 30;

impl Limits {
    /// All of them grow only linearly with the module. A standard module takes a third of them at most.
    pub(crate) fn of(step: Step, module_bytes: usize) -> Self {
        let size = module_bytes as u64;
        let part = size.div_ceil(128 << 10);
        let (cpu, memory) = match step {
            Step::Examine => (1 + part / 8, 64 * MIB + 8 * size),
            Step::Analyse => (2 + part, 160 * MIB + 96 * size),
            // With the analysis that bounded modules are compiled by. Wasmtime keeps all functions while it
            // inlines, and what it inlines grows with calls in calls.
            Step::Compile => (3 + 2 * part, 384 * MIB + (2 << 10) * size),
            Step::Lines => (2, 128 * MIB + 8 * size),
        };
        let memory = memory.min(MAX_MEMORY);
        let wall = Duration::from_secs(10 + 10 * cpu);
        Self { cpu, memory, wall, answer: answer::most(step, module_bytes) }
    }
}
