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

impl Limits {
    /// All of them grow with the module only linearly. The factors are about four times what modules take
    /// that compilers write.
    pub(crate) fn of(step: Step, module_bytes: usize) -> Self {
        let size = module_bytes as u64;
        let mib = size.div_ceil(MIB);
        let (cpu, memory) = match step {
            Step::Examine => (1 + mib / 2, 64 * MIB + 8 * size),
            Step::Analyse => (1 + 2 * mib, 192 * MIB + 96 * size),
            Step::Compile => (2 + 8 * mib, 192 * MIB + 128 * size),
            Step::Lines => (2, 128 * MIB + 8 * size),
        };
        let wall = Duration::from_secs(10 + 10 * cpu);
        Self { cpu, memory, wall, answer: answer::most(step, module_bytes) }
    }
}
