//! Faults on their way to the observer, or to the report if the observer leaves them to it.

use crate::records::granted::{MAX_FAULTS, without_choices};
use crate::records::report::Events;
use flame_plan::{FaultReport, ModuleId};
use std::collections::BTreeMap;

pub(crate) struct Faults<'a> {
    observer: &'a dyn Events,
    /// The modules that have not left.
    modules: BTreeMap<ModuleId, Known>,
    kept: Vec<FaultReport>,
}

#[derive(Clone, Copy)]
struct Known {
    granted: bool,
    /// The number of reports that were passed on.
    passed_on: usize,
}

impl<'a> Faults<'a> {
    pub(crate) fn new(observer: &'a dyn Events) -> Self {
        Self { observer, modules: BTreeMap::new(), kept: Vec::new() }
    }

    pub(crate) fn add_module(&mut self, id: ModuleId, granted: bool) {
        self.modules.insert(id, Known { granted, passed_on: 0 });
    }

    /// Forgets a module that has left.
    pub(crate) fn remove_module(&mut self, id: ModuleId) {
        self.modules.remove(&id);
    }

    /// Passes a report on. Of a module under a grant, only the first few, without what it can choose.
    pub(crate) fn add(&mut self, mut report: FaultReport) {
        // An unknown module counts as one under a grant.
        let mut unknown = Known { granted: true, passed_on: 0 };
        let known = self.modules.get_mut(&report.id).unwrap_or(&mut unknown);
        if known.granted {
            if known.passed_on == MAX_FAULTS {
                return;
            }
            without_choices(&mut report);
        }
        known.passed_on += 1;
        if !self.observer.fault(&report) {
            if known.granted {
                report.evicted = None;
            }
            self.kept.push(report);
        }
    }

    /// Returns the reports that the observer did not take.
    pub(crate) fn into_kept(self) -> Vec<FaultReport> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::report::{Observer, Shared};
    use flame_plan::{Overrun, Reason};
    use flame_source::Progress;

    #[derive(Default)]
    struct Takes(Vec<FaultReport>, bool);

    impl Observer for Takes {
        fn progress(&mut self, _: u64, _: Progress) {}

        fn fault(&mut self, report: &FaultReport) -> bool {
            self.0.push(report.clone());
            self.1
        }
    }

    fn report(id: u32, evicted: Option<Reason>) -> FaultReport {
        let text = "batch: trap".to_owned();
        let (id, module) = (ModuleId(id), format!("m{id}"));
        FaultReport {
            id,
            module,
            worker: Some(0),
            packet: Some(7),
            text,
            class: None,
            evicted,
            restarted: true,
            process: false,
        }
    }

    #[test]
    fn a_grant_hides_what_the_module_chooses_and_most_faults() {
        for takes in [true, false] {
            let mut observer = Takes(Vec::new(), takes);
            let shared = Shared::new(&mut observer);
            let mut faults = Faults::new(&shared);
            faults.add_module(ModuleId(1), false);
            faults.add_module(ModuleId(2), true);
            let over = Overrun {
                limit_ns: 5,
                over: 77,
                batches: 99,
                allowed_per_mille: 1,
                median_ns: 3,
                p99_ns: 6,
                max_ns: 7,
            };
            faults.add(report(2, Some(Reason::Overrun(over))));
            for _ in 0..MAX_FAULTS + 5 {
                faults.add(report(1, None));
                faults.add(report(2, None));
            }
            // An unknown module counts as one under a grant.
            faults.add(report(3, None));
            let kept = faults.into_kept();
            let of = |all: &[FaultReport], id| all.iter().filter(|f| f.id == ModuleId(id)).count();
            assert_eq!((of(&observer.0, 1), of(&observer.0, 2)), (MAX_FAULTS + 5, MAX_FAULTS));
            assert!(observer.0.iter().all(|f| (f.packet == Some(7)) == (f.id == ModuleId(1))));
            assert!(observer.0[0].evicted.is_some() && !observer.0[0].text.contains("77"));
            match takes {
                true => assert!(kept.is_empty()),
                false => {
                    assert_eq!(kept.len(), observer.0.len());
                    assert!(kept.iter().all(|f| f.evicted.is_none()));
                }
            }
        }
    }
}
