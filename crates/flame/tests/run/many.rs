//! Tests of a run whose modules come and go without end: it keeps nothing of those that have left.

use crate::common::{self, COUNT, Memory, install, options, request, with_manifest};
use flame_plan::{Account, Discipline, FaultReport, ModuleId, ModulePlan, OnFault, Plan};
use flame_run::Engines;
use flame_source::{Next, Progress, RawBlock, Source, SourceError};
use flame_worker::{Input, Module, Observer, Run, Worker};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const MODULES: u32 = 2000;

/// A source of packets until the run is stopped.
struct Endless(Arc<AtomicBool>);

impl Source for Endless {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        if self.0.load(Ordering::Relaxed) {
            return Ok(Next::End);
        }
        std::thread::yield_now();
        Memory { per_block: 20, ..Memory::tcp(20, 16) }.next(block)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn discipline(&self) -> Discipline {
        Discipline::Link
    }
}

/// An observer that takes what has left, if it does.
#[derive(Clone, Default)]
struct Owner {
    takes: bool,
    left: Arc<Mutex<BTreeMap<String, Account>>>,
    faults: Arc<Mutex<Vec<FaultReport>>>,
}

impl Observer for Owner {
    fn progress(&mut self, _: u64, _: Progress) {}

    fn fault(&mut self, report: &FaultReport) -> bool {
        self.faults.lock().unwrap().push(report.clone());
        self.takes
    }

    fn left(&mut self, module: &str, account: &Account) -> bool {
        let before = self.left.lock().unwrap().insert(module.to_owned(), account.clone());
        assert!(before.is_none(), "{module} was handed over before");
        self.takes
    }
}

fn plan(wat: &str, id: u32) -> ModulePlan {
    let wasm = with_manifest(wat::parse_str(wat).unwrap(), common::MANIFEST.as_bytes());
    let plan = install(&wasm, &request()).unwrap();
    ModulePlan { id: ModuleId(id), name: format!("m#{id}"), on_fault: OnFault::Restart(2), ..plan }
}

#[test]
fn modules_that_have_left_are_handed_over_once_and_not_kept() {
    let _turn = crate::turn();
    let traps = std::fs::read_to_string(common::root().join("tests/hostile/trap-in-batch.wat")).unwrap();
    let plans = [plan(COUNT, 0), plan(&traps, 0)];
    for (takes, workers, modules) in [(true, 1, MODULES), (true, 2, MODULES / 4), (false, 1, 20)] {
        let stop = Arc::<AtomicBool>::default();
        let owner = Owner { takes, ..Owner::default() };
        let first = Plan { modules: vec![plans[0].clone()], workers, interval_ns: 0 };
        let run = Run::new(&first, &[], &Engines::new().unwrap(), options(stop.clone())).unwrap();
        let input = Input::Shared(Box::new(Endless(stop)));
        let sink = Box::new(common::Lines::default());
        let worker = Worker::spawn(run, input, sink, Box::new(owner.clone())).unwrap();
        let handle = worker.handle();
        let mut accounts = BTreeMap::new();
        for id in 1..=modules {
            // Every tenth one traps until it is stopped.
            let plan = &plans[usize::from(id % 10 == 0)];
            let plan = ModulePlan { id: ModuleId(id), name: format!("m#{id}"), ..plan.clone() };
            handle.add(&Module::from(plan)).unwrap();
            if id % 10 == 0 {
                let wanted = 3 * workers;
                let told = || owner.faults.lock().unwrap().iter().filter(|f| f.id == ModuleId(id)).count();
                while told() < wanted {
                    std::thread::yield_now();
                }
            }
            accounts.insert(format!("m#{id}"), handle.remove(ModuleId(id)).unwrap());
        }
        handle.stop();
        let (report, _) = worker.join().unwrap();
        assert_eq!(*owner.left.lock().unwrap(), accounts, "each once, with the account of its removal");
        assert!(accounts.values().all(Account::adds_up));
        let faults = owner.faults.lock().unwrap();
        assert_eq!(faults.len(), modules as usize / 10 * 3 * workers);
        let names: Vec<&str> = report.accounts.iter().map(|(name, _)| name.as_str()).collect();
        match takes {
            true => assert!(names == ["m#0"] && report.faults.is_empty(), "{names:?}, {:?}", report.faults),
            false => assert_eq!((names.len(), &report.faults), (modules as usize + 1, &*faults)),
        }
    }
}
