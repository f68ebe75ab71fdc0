//! Limits of a child process, by kind of work and amount of code.

use crate::answer;
use crate::step::Step;
use flame_bounds::Size;
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
/// Maximum memory for a module of any size, in bytes, and the same for its analysis.
const MAX_MEMORY: u64 = 2 << 30;
const MAX_ANALYSIS: u64 = 512 * MIB;
/// Maximum processor time for a module of any size, in seconds: of its examination, its analysis and its
/// compilation.
const MAX_CPU: [u64; 3] = [4, 20, 40];

impl Limits {
    /// Returns the limits for a file of this many bytes with this much code.
    ///
    /// They grow with the code, up to an absolute maximum. Bytes count only as far as each child reads them
    /// all into its memory, and for the examination, which is the first to see how much of them is code.
    ///
    /// The largest module that is known, `ids`, has 330,000 instructions. It takes 0.1 s and 46 MiB to
    /// examine and analyse, 1.7 s and 47 MiB to compile. Of the analyses of the standard modules, the longest
    /// takes 0.9 s. So each maximum is more than ten times the time and memory that one is known to need.
    pub(crate) fn of(step: Step, bytes: usize, size: Size) -> Self {
        let Size { functions, instructions, blocks } = size;
        // A function costs as much as several instructions, however short it is.
        let code = instructions.saturating_add(blocks).saturating_add(functions.saturating_mul(4));
        let part = code.div_ceil(64 << 10);
        let grows =
            |base: u64, each: u64, most: u64| code.saturating_mul(each).saturating_add(base).min(most);
        let [examine, analyse, compile] = MAX_CPU;
        let (cpu, memory) = match step {
            Step::Examine => ((1 + bytes as u64 / MIB).min(examine), 64 * MIB + 5 * bytes as u64),
            Step::Analyse => ((4 + part).min(analyse), grows(160 * MIB, 192, MAX_ANALYSIS)),
            // Includes the analysis of bounded modules.
            Step::Compile => ((5 + 2 * part).min(compile), grows(384 * MIB, 4 << 10, MAX_MEMORY)),
            Step::Lines => (2, 128 * MIB + 5 * bytes as u64),
        };
        // A buffer that grows by doubling, and the file itself.
        let memory = memory + 3 * bytes as u64;
        let wall = Duration::from_secs(10 + 10 * cpu);
        Self { cpu, memory, wall, answer: answer::most(step, size) }
    }

    /// Returns the limits with at most `time` of processor time, in the kernel's unit: at least a second.
    pub(crate) fn within(self, time: Duration) -> Self {
        Self { cpu: self.cpu.min(time.as_secs_f64().ceil() as u64).max(1), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 4] = [Step::Examine, Step::Analyse, Step::Compile, Step::Lines];

    #[test]
    fn limits_follow_code_and_not_bytes() {
        let ids = Size { functions: 965, instructions: 330_000, blocks: 60_000 };
        for step in [Step::Analyse, Step::Compile] {
            let [small, padded] = [1 << 20, 32 << 20].map(|bytes| Limits::of(step, bytes, ids));
            assert_eq!((small.cpu, small.answer), (padded.cpu, padded.answer), "{step}");
            assert_eq!(padded.memory - small.memory, 3 * (31 << 20), "{step}: as much as is read");
            let none = Limits::of(step, 1 << 20, Size::default());
            assert!(none.cpu < small.cpu && none.memory < small.memory, "{step}");
            let blocks = Limits::of(step, 1 << 20, Size { blocks: 300_000, ..ids });
            assert!(blocks.cpu > small.cpu, "{step}");
        }
    }

    #[test]
    fn there_is_an_absolute_maximum() {
        let all = Size { functions: u64::MAX, instructions: u64::MAX, blocks: u64::MAX };
        for step in STEPS {
            let Limits { cpu, memory, answer, .. } = Limits::of(step, 32 << 20, all);
            assert!(cpu <= 40 && memory <= (2 << 30) + (96 << 20) && answer <= 160 << 20, "{step}");
        }
    }
}
