use flame_plan::{Discipline, ModulePlan, quantize};

/// The ticks of an instance, which fall on multiples of what its run, its view and its grant state.
pub(crate) struct Ticks {
    every_ns: u64,
    /// The last multiple that has passed.
    passed: u64,
    /// Whether the first multiple only begins the first interval, since nothing is shown before it.
    begins: bool,
}

impl Ticks {
    /// Creates the ticks of a module in a run with a tick each `tick_ns`.
    pub(crate) fn new(plan: &ModulePlan, tick_ns: u64, discipline: Discipline) -> Self {
        let begins = plan.shows_whole_intervals(discipline);
        Self { every_ns: plan.tick_ns(tick_ns), passed: 0, begins }
    }

    /// Returns the last multiple that has passed.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// Records a tick of the run, and returns that of the instance which it brings.
    pub(crate) fn pass(&mut self, now_ns: u64) -> Option<u64> {
        let at = quantize(now_ns, self.every_ns);
        let before = std::mem::replace(&mut self.passed, at);
        // The instance may have begun after the multiple that is before the first tick.
        (at > before && (before > 0 || (at == now_ns && !self.begins))).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_fall_on_multiples_after_the_beginning() {
        let ticks = |every_ns, all: &[u64]| {
            let mut ticks = Ticks { every_ns, passed: 0, begins: false };
            all.iter().filter_map(|now_ns| ticks.pass(*now_ns)).collect::<Vec<_>>()
        };
        assert_eq!(ticks(1, &[5, 6, 9]), [5, 6, 9]);
        assert_eq!(ticks(10, &[25, 26, 30, 31, 39, 58, 60]), [30, 50, 60]);
        assert_eq!(ticks(10, &[20, 21, 30]), [20, 30]);
        assert_eq!(ticks(u64::MAX, &[5, 1 << 62, u64::MAX - 1]), []);
        let mut begins = Ticks { every_ns: 10, passed: 0, begins: true };
        assert_eq!([20, 21, 30].map(|now_ns| begins.pass(now_ns)), [None, None, Some(30)]);
    }
}
