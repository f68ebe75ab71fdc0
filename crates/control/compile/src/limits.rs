//! Limits of a child process, by kind of work and size of the module.

use crate::answer;
use crate::step::Step;
use std::time::Duration;

/// The limits of one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Processor time, in seconds.
    pub(crate) cpu: u64,
    /// Memory that it may own, in bytes.
    pub(crate) memory: u64,
    /// Elapsed time. It ends a child that waits; a working child is ended by its limit of processor time.
    pub(crate) wall: Duration,
    /// Maximum length of its answer, in bytes.
    pub(crate) answer: usize,
}

const MIB: u64 = 1 << 20;
/// Maximum memory for a module of any size, in bytes.
const MAX_MEMORY: u64 = 4 << 30;

impl Limits {
    /// Returns the limits, which grow linearly with the module. A standard module uses a third of them at
    /// most.
    pub(crate) fn of(step: Step, module_bytes: usize) -> Self {
        let size = module_bytes as u64;
        let part = size.div_ceil(128 << 10);
        let (cpu, memory) = match step {
            Step::Examine => (1 + part / 8, 64 * MIB + 8 * size),
            Step::Analyse => (4 + part, 160 * MIB + 96 * size),
            // Includes the analysis of bounded modules. Wasmtime keeps all functions while it inlines, and
            // the inlined code grows with nested calls.
            Step::Compile => (5 + 2 * part, 384 * MIB + (2 << 10) * size),
            Step::Lines => (2, 128 * MIB + 8 * size),
        };
        let memory = memory.min(MAX_MEMORY);
        let wall = Duration::from_secs(10 + 10 * cpu);
        Self { cpu, memory, wall, answer: answer::most(step, module_bytes) }
    }

    /// Returns the limits with at most `time` of processor time, in the kernel's unit: at least a second.
    pub(crate) fn within(self, time: Duration) -> Self {
        Self { cpu: self.cpu.min(time.as_secs_f64().ceil() as u64).max(1), ..self }
    }
}
