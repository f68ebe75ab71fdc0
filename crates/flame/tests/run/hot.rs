//! Tests of modules that are added and removed while packets flow: no packet of another module is lost, and
//! accounts and records are exact.

use crate::common::{
    self, COUNT, Endless, Memory, Paced, Sums, Writes, eventually, install, numbers, options, request,
    with_manifest,
};
use crate::services::wasm;
use flame_abi::manifest::Table;
use flame_admit::Protection;
use flame_compile::InstallRequest;
use flame_plan::{Account, Discipline, Limits, ModuleClass, ModuleId, ModulePlan, Plan, Reason, Share, Shed};
use flame_quota::{Amounts, Meter, Meters, Quota, ThisRun, Usage};
use flame_record::{RecordBatch, Sink, SinkError};
use flame_run::Engines;
use flame_source::{Next, Progress, RawBlock, Source, SourceError};
use flame_worker::{Input, LoadError, LossReason, Lost, Module, Run, RunError, Silent, Worker};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn counter(id: u32, protection: Protection) -> ModulePlan {
    let wasm = with_manifest(wat::parse_str(COUNT).unwrap(), common::MANIFEST.as_bytes());
    let plan = install(&wasm, &InstallRequest { protection, ..request() }).unwrap();
    ModulePlan { id: ModuleId(id), name: format!("count{id}"), ..plan }
}

/// A run of one module that continues until it is stopped.
struct Running {
    worker: Worker,
    delivered: Arc<AtomicU64>,
    sums: Sums,
}

fn start(protection: Protection, workers: usize, is_live: bool, per_worker: bool) -> Running {
    let (stop, delivered, sums) =
        (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Sums::default());
    let plan = Plan { modules: vec![counter(0, protection)], workers, interval_ns: 0 };
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), options(stop.clone())).unwrap();
    let source = || -> Box<dyn Source> {
        Box::new(Endless { stop: stop.clone(), delivered: delivered.clone(), is_live })
    };
    let input = match per_worker {
        true => Input::PerWorker((0..workers).map(|_| source()).collect()),
        false => Input::Shared(source()),
    };
    let worker = Worker::spawn(run, input, sums.sink(), Box::new(Silent)).unwrap();
    Running { worker, delivered, sums }
}

/// Waits until a source has given `more` packets than now.
fn wait_for_packets(delivered: &AtomicU64, more: u64) {
    let before = delivered.load(Ordering::Relaxed);
    eventually("packets", || delivered.load(Ordering::Relaxed) >= before + more);
}

fn module(id: u32, protection: Protection) -> Module {
    Module::from(counter(id, protection))
}

/// Returns a module whose calls for its end take seconds in all, each of them some milliseconds.
fn ends() -> ModulePlan {
    let end = r#"(func (export "flame_batch") (param i32) (result i64) (i64.const 0))
        (func (export "flame_end") (param i64) (result i64) (local $x i64) (local $i i32)
            (loop $next
                (local.set $x
                    (i64.rem_u (i64.const 0x7fffffffffffffff) (i64.add (local.get $x) (i64.const 3))))
                (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1)))
                    (i32.const 1000000))))
            (i64.store (i32.const 0) (local.get $x))
            (i64.const 0x80000000))"#;
    let text = format!("(module (memory (export \"memory\") 1) {end})");
    let budgets = "[limits]\npacket_budget = 100000000\ncall_budget = 25600000000\n[[tables]]";
    let manifest = common::MANIFEST.replace("[[tables]]", budgets);
    let wasm = with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes());
    let limits = Limits { packet_budget: 1 << 35, call_budget: 1 << 35, ..request().limits };
    let plan = install(&wasm, &InstallRequest { limits, ..request() }).unwrap();
    assert_eq!(plan.class, ModuleClass::Bounded);
    ModulePlan { id: ModuleId(1), name: "ends".to_owned(), ..plan }
}

#[test]
fn the_last_calls_of_a_removed_module_stop_no_other() {
    let Running { worker, delivered, sums } = start(Protection::Auto, 1, true, false);
    let (handle, removing) = (worker.handle(), worker.handle());
    handle.add(&Module::from(ends())).unwrap();
    wait_for_packets(&delivered, 1000);
    let removal = std::thread::spawn(move || removing.remove(ModuleId(1)).unwrap());
    eventually("the removal", || {
        let offered = || handle.snapshot().unwrap().accounts.get(1).map(|found| found.2.offered);
        let before = offered();
        wait_for_packets(&delivered, 100);
        offered() == before
    });
    wait_for_packets(&delivered, 1000);
    assert!(!removal.is_finished(), "the source waited for the last calls");
    handle.evict(ModuleId(1), Reason::Narrowed).unwrap();
    let account = removal.join().unwrap();
    assert!(account.adds_up() && account.processed > 0, "{account:?}");
    handle.stop();
    let (report, _) = worker.join().unwrap();
    let (total, count) = (delivered.load(Ordering::Relaxed), &report.accounts[0].1);
    assert_eq!((count.processed, sums.0.lock().unwrap()["count0"]), (total, total), "{count:?}");
    assert_eq!(report.accounts[1].1, account, "nothing is counted after it was removed");
    assert!(account.offered < total);
}

/// Who installs and removes again and again would have a processor otherwise.
#[test]
fn the_last_calls_of_a_removed_module_have_its_share() {
    for is_shared in [true, false] {
        let Running { worker, delivered, .. } = start(Protection::Auto, 1, true, false);
        let handle = worker.handle();
        let share = Some(Share { slice_ns: 10_000_000, period_ns: 1_000_000_000 });
        let quota = Quota { per_second: Amounts::MAX, per_packet: Amounts::MAX, share, memory: u64::MAX };
        let meter = Meter::new(quota, Box::new(ThisRun::new(quota)));
        let usage = Arc::<Usage>::default();
        let meters = Meters::of_grant(vec![Arc::new(meter)]).with(None, Some(usage.clone()));
        let mut plan = ends();
        if !is_shared {
            // Another view than the other module's.
            plan.view.resolution_ns = 1;
        }
        handle.add(&Module { meters, ..Module::from(plan) }).unwrap();
        wait_for_packets(&delivered, 1000);
        handle.remove_within(ModuleId(1), Duration::from_secs(3)).unwrap();
        let used = Duration::from_nanos(usage.used().cpu_ns);
        handle.stop();
        let (report, _) = worker.join().unwrap();
        let [fault] = &report.faults[..] else { panic!("{:?}", report.faults) };
        assert!(fault.text.contains("last calls did not end in time"), "{fault:?}");
        // Four periods, and one call.
        assert!(used < Duration::from_millis(150), "{used:?}");
    }
}

#[test]
fn modules_come_and_go_and_every_packet_is_accounted_for() {
    for (protection, workers, is_live, per_worker) in [
        (Protection::Auto, 1, false, false),
        (Protection::Metered, 1, true, false),
        (Protection::Auto, 3, true, false),
        (Protection::Metered, 2, false, false),
        (Protection::Auto, 2, true, true),
        (Protection::Metered, 2, true, true),
    ] {
        let what = format!("{protection:?}, {workers} workers, live {is_live}, sources {per_worker}");
        let Running { worker, delivered, sums } = start(protection, workers, is_live, per_worker);
        let handle = worker.handle();
        let mut removed: Vec<(u32, Account)> = Vec::new();
        for id in 1..=12 {
            handle.add(&module(id, protection)).unwrap();
            wait_for_packets(&delivered, 1000);
            let snapshot = handle.snapshot().unwrap();
            assert_eq!(snapshot.accounts.len(), 2 + (id.clamp(5, 9) - 5) as usize, "{what}: {snapshot:?}");
            let (_, name, account) = snapshot.accounts.last().unwrap();
            assert_eq!(*name, format!("count{id}"));
            assert!(account.offered > 0 && account.offered >= account.accounted(), "{what}: {account:?}");
            assert!(snapshot.packets >= account.offered);
            // The first four are removed at once, the next four together, and the last four run to the end.
            match id {
                1..=4 => removed.push((id, handle.remove(ModuleId(id)).unwrap())),
                5..=8 => {}
                _ => removed.push((id - 4, handle.remove(ModuleId(id - 4)).unwrap())),
            }
        }
        handle.stop();
        let (report, _) = worker.join().unwrap();
        let total = delivered.load(Ordering::Relaxed);
        assert_eq!(report.packets, total, "{what}");
        assert!(report.faults.is_empty(), "{what}: {:?}", report.faults);
        let sums = sums.0.lock().unwrap();
        let base = &report.accounts[0].1;
        assert_eq!((base.offered, base.processed, sums["count0"]), (total, total, total), "{what}");
        assert_eq!(report.accounts.len(), 13, "{what}");
        for (name, account) in &report.accounts {
            assert!(account.adds_up(), "{what}, {name}: {account:?}");
            assert_eq!(account.processed, sums[name], "{what}, {name}: {account:?}");
            assert_eq!(account.processed, account.offered, "{what}, {name}: {account:?}");
            assert_eq!(account.records, workers as u64, "{what}, {name}");
        }
        for (id, account) in removed {
            assert_eq!(report.accounts[id as usize].1, account, "{what}, {id}");
            assert!(account.offered < total, "{what}, {id}");
        }
    }
}

/// A run whose modules are all bounded ends no slices, until a metered one comes.
#[test]
fn a_slow_module_that_comes_later_stops_nobody() {
    for (workers, per_worker) in [(1, false), (2, false), (2, true)] {
        let Running { worker, delivered, .. } = start(Protection::Auto, workers, true, per_worker);
        // Some seconds for a batch.
        let slow = r#"(func (export "flame_batch") (param i32) (result i64) (local i64)
            (loop (br_if 0 (i64.ne (i64.const 10000000000)
                (local.tee 1 (i64.add (local.get 1) (i64.const 1))))))
            (i64.const 0))"#;
        let budget = "packet_budget = 1000000000000\n".to_owned();
        let limits = Limits { packet_budget: 1 << 40, ..request().limits };
        let request = InstallRequest { protection: Protection::Metered, limits, ..request() };
        let plan = install(&wasm(("slow", budget, slow.to_owned())), &request).unwrap();
        let handle = worker.handle();
        handle.add(&Module::from(ModulePlan { id: ModuleId(1), ..plan })).unwrap();
        let slow = || handle.snapshot().unwrap().accounts[1].2.clone();
        eventually("the batch", || slow().offered > 0);
        wait_for_packets(&delivered, 2000);
        assert_eq!(slow().processed, 0, "{workers} workers: the batch has ended, and the others had waited");
        handle.stop();
        worker.join().unwrap();
    }
}

#[test]
fn a_module_is_evicted_and_the_others_go_on() {
    for workers in [1, 2] {
        let Running { worker, delivered, sums } = start(Protection::Auto, workers, true, false);
        let handle = worker.handle();
        handle.add(&module(1, Protection::Auto)).unwrap();
        handle.evict(ModuleId(1), Reason::Narrowed).unwrap();
        wait_for_packets(&delivered, 2000);
        // The module is still present, with its account, until it is removed.
        let account = handle.remove(ModuleId(1)).unwrap();
        assert!(account.adds_up() && account.shed_by(Shed::Evicted) > 0, "{account:?}");
        handle.stop();
        let (report, _) = worker.join().unwrap();
        let total = delivered.load(Ordering::Relaxed);
        assert_eq!((report.accounts[0].1.processed, sums.0.lock().unwrap()["count0"]), (total, total));
        assert_eq!(report.faults.len(), workers, "{:?}", report.faults);
        assert!(report.faults.iter().all(|f| f.evicted == Some(Reason::Narrowed)));
    }
}

#[test]
fn commands_that_cannot_be_followed_are_refused() {
    let Running { worker, .. } = start(Protection::Auto, 1, true, false);
    let handle = worker.handle();
    assert!(matches!(handle.add(&module(0, Protection::Auto)), Err(RunError::Duplicate(ModuleId(0)))));
    assert!(matches!(handle.remove(ModuleId(7)), Err(RunError::Unknown(ModuleId(7)))));
    assert!(matches!(handle.evict(ModuleId(7), Reason::Narrowed), Err(RunError::Unknown(_))));
    // The ticks of this run are one second apart.
    let mut coarse = module(1, Protection::Auto);
    coarse.plan.view.resolution_ns = 3_000_000_000;
    assert!(matches!(handle.add(&coarse), Err(RunError::Resolution { .. })));
    coarse.plan.view.resolution_ns = 500_000_000;
    handle.apply(&[module(0, Protection::Auto), coarse.clone()]).unwrap();
    assert_eq!(handle.snapshot().unwrap().accounts.len(), 2);
    handle.apply(&[coarse]).unwrap();
    assert_eq!(handle.snapshot().unwrap().accounts.len(), 1);
    // A number stands for one module as long as the run continues.
    assert!(matches!(handle.add(&module(0, Protection::Auto)), Err(RunError::Duplicate(ModuleId(0)))));
    handle.stop();
    worker.join().unwrap();
    assert!(matches!(handle.snapshot(), Err(RunError::Ended)));
    assert!(matches!(handle.add(&module(2, Protection::Auto)), Err(RunError::Ended)));
    assert!(matches!(handle.remove(ModuleId(1)), Err(RunError::Ended)));
}

/// The end of a source after a few blocks.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Panics,
    Fails,
    Ends,
}

/// A source of `blocks` blocks of 50 packets.
struct Brief {
    blocks: usize,
    fate: Fate,
    is_live: bool,
}

impl Source for Brief {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        if self.blocks > 0 {
            self.blocks -= 1;
            return Memory { per_block: 50, ..Memory::tcp(50, 16) }.next(block);
        }
        match self.fate {
            Fate::Panics => panic!("as planned"),
            Fate::Fails => {
                Err(SourceError::Io { place: "here".to_owned(), error: std::io::Error::other("as planned") })
            }
            Fate::Ends => Ok(Next::End),
        }
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn discipline(&self) -> Discipline {
        if self.is_live { Discipline::Link } else { Discipline::Pipe }
    }
}

/// Spawns a run of `count0` on two workers with a source each, of which one never ends by itself.
fn with_endless(brief: Brief, stop: &Arc<AtomicBool>, delivered: &Arc<AtomicU64>, sums: &Sums) -> Worker {
    let plan =
        Plan { modules: vec![counter(0, Protection::Auto)], workers: 2, interval_ns: 3_600_000_000_000 };
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), options(stop.clone())).unwrap();
    let endless = Endless { stop: stop.clone(), delivered: delivered.clone(), is_live: brief.is_live };
    let input = Input::PerWorker(vec![Box::new(endless), Box::new(brief)]);
    Worker::spawn(run, input, sums.sink(), Box::new(Silent)).unwrap()
}

// Without the stop in `collect` and `run_parallel` this hangs: the other worker reads on, and no tick is due.
#[test]
fn a_worker_that_panics_or_fails_ends_the_run() {
    for blocks in [0, 3] {
        let brief = Brief { blocks, fate: Fate::Panics, is_live: true };
        let worker = with_endless(brief, &Arc::default(), &Arc::default(), &Sums::default());
        assert!(matches!(worker.join(), Err(RunError::Broken)), "{blocks}");
    }
    let brief = Brief { blocks: 0, fate: Fate::Fails, is_live: true };
    let worker = with_endless(brief, &Arc::default(), &Arc::default(), &Sums::default());
    assert!(matches!(worker.join(), Err(RunError::Source(_))));
}

#[test]
fn sources_that_fail_at_once_are_an_error_in_any_order() {
    for _ in 0..50 {
        let plan = Plan { modules: vec![counter(0, Protection::Auto)], workers: 2, interval_ns: 0 };
        let run = Run::new(&plan, &[], &Engines::new().unwrap(), options(Arc::default())).unwrap();
        let source =
            || -> Box<dyn Source> { Box::new(Brief { blocks: 0, fate: Fate::Fails, is_live: true }) };
        let input = Input::PerWorker(vec![source(), source()]);
        let worker = Worker::spawn(run, input, Sums::default().sink(), Box::new(Silent)).unwrap();
        assert!(matches!(worker.join(), Err(RunError::Source(_))));
    }
}

/// A worker that is left alone would go on with its part of the packets, unnoticed.
#[test]
fn a_source_of_one_worker_that_fails_ends_all() {
    let (stop, delivered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let brief = Brief { blocks: 3, fate: Fate::Fails, is_live: true };
    let worker = with_endless(brief, &stop, &delivered, &Sums::default());
    let (report, _) = worker.join().unwrap();
    assert!(report.failed.is_some() && report.packets >= 150, "{report:?}");
    assert!(report.accounts[0].1.adds_up(), "{report:?}");
}

#[test]
fn commands_reach_the_workers_that_are_left() {
    let (stop, delivered, sums) =
        (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Sums::default());
    let brief = Brief { blocks: 3, fate: Fate::Ends, is_live: false };
    let worker = with_endless(brief, &stop, &delivered, &sums);
    let handle = worker.handle();
    let run_on = || {
        wait_for_packets(&delivered, 1000);
    };
    while handle.snapshot().is_ok() {
        run_on();
    }
    // One worker has ended. What runs on the other can still be evicted and removed.
    assert!(matches!(handle.add(&module(1, Protection::Auto)), Err(RunError::Ended)));
    handle.evict(ModuleId(1), Reason::Narrowed).unwrap();
    assert!(matches!(handle.remove(ModuleId(0)), Err(RunError::Ended)));
    run_on();
    handle.stop();
    let (report, _) = worker.join().unwrap();
    let total = delivered.load(Ordering::Relaxed) + 150;
    assert_eq!(report.packets, total);
    let base = &report.accounts[0].1;
    assert!(base.adds_up() && base.offered < total, "removed where packets still flow: {base:?}");
    assert!(base.offered > 150, "the part of the worker that removed it counts: {base:?}");
    assert_eq!(base.processed, sums.0.lock().unwrap()["count0"]);
    assert!(report.accounts[1].1.shed_by(Shed::Evicted) > 0, "{:?}", report.accounts[1].1);
}

/// Returns a sink that was opened for `count0` only, as those of CSV, Parquet and tables.
fn planned(sums: &Sums) -> Box<dyn Sink> {
    let mut sums = sums.sink();
    Box::new(Writes(move |module: &str, table: &Table, batch: &RecordBatch| match module {
        "count0" => sums.write(module, table, batch),
        _ => Err(SinkError::Unplanned { module: module.to_owned(), table: table.name.clone() }),
    }))
}

#[test]
fn records_that_no_file_is_open_for_are_lost_and_end_nothing() {
    let (stop, delivered, sums) =
        (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Sums::default());
    let plan = Plan { modules: vec![counter(0, Protection::Auto)], workers: 1, interval_ns: 0 };
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), options(stop.clone())).unwrap();
    let source = Endless { stop, delivered: delivered.clone(), is_live: true };
    let sink = planned(&sums);
    let worker = Worker::spawn(run, Input::Shared(Box::new(source)), sink, Box::new(Silent)).unwrap();
    let handle = worker.handle();
    handle.add(&module(1, Protection::Auto)).unwrap();
    let account = handle.remove(ModuleId(1)).unwrap();
    assert_eq!((account.records, account.records_lost), (0, 1), "{account:?}");
    handle.stop();
    let (report, _) = worker.join().unwrap();
    let [Lost { module, table: Some(_), rows: 1, reason: LossReason::Unplanned }] = &report.lost[..] else {
        panic!("{:?}", report.lost)
    };
    assert_eq!(module, "count1");
    assert_eq!(sums.0.lock().unwrap()["count0"], delivered.load(Ordering::Relaxed));
}

#[test]
fn a_granted_module_without_its_meters_does_not_run() {
    let mut plan = Plan { modules: vec![counter(0, Protection::Auto)], workers: 1, interval_ns: 0 };
    plan.modules[0].terms.granted = true;
    let run = Run::new(&plan, &[], &Engines::new().unwrap(), options(Arc::default()));
    assert!(matches!(run, Err(RunError::Load(LoadError::NoMeters(name))) if name == "count0"));
}

#[test]
fn a_plan_survives_serialization() {
    let mut plan = Plan::new(vec![counter(0, Protection::Auto), counter(1, Protection::Metered)], 3, 7);
    let view = &mut plan.modules[1].view;
    view.select.extend(flame_plan::TrustedFilter::parse("tcp port 80").unwrap());
    view.select_shown.extend(flame_plan::ShownFilter::parse("host 10.0.0.1").unwrap());
    view.key = Some(flame_plan::ViewKey([7; 32]));
    view.transforms = flame_transform::parse("ip=prefix,mac=zero").unwrap();
    // A manifest that is longer in the plan than in its module.
    let table = |t: usize| {
        let columns: String = (0..100).map(|c| format!("{{name=\"c{c}\",type=\"u8\"}},")).collect();
        format!("[[tables]]\nname=\"t{t}\"\ncolumns=[{columns}]\n")
    };
    let tables: String = (0..25).map(table).collect();
    let text = format!("abi=1\nname=\"m\"\nversion=\"1\"\ndescription=\"d\"\n{tables}");
    plan.modules[0].manifest = Arc::new(flame_abi::manifest::Manifest::parse(text.as_bytes()).unwrap());
    assert!(plan.modules[0].manifest.to_toml().unwrap().len() > flame_abi::manifest::MAX_BYTES);
    let bytes = postcard::to_stdvec(&plan).unwrap();
    assert_eq!(postcard::from_bytes::<Plan>(&bytes).unwrap(), plan);
    assert!((0..bytes.len().min(400)).all(|n| postcard::from_bytes::<Plan>(&bytes[..n]).is_err()));
    let json = serde_json::to_string(&plan.modules[1].view).unwrap();
    assert_eq!(serde_json::from_str::<flame_plan::ViewSpec>(&json).unwrap(), plan.modules[1].view);
}

/// Reports the size of each batch.
const BATCHES: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\08\00\00\00\00\00\00\00")
    (func (export "flame_batch") (param i32) (result i64)
        (i64.store (i32.const 8) (i64.load32_u offset=4 (local.get 0))) (i64.const 0x1000000000)))"#;

/// Batch edges of a view that hides something depend on what is shown, not on the modules that share it.
#[test]
fn nobody_sees_in_a_confined_view_when_others_come_and_go() {
    let wasm = with_manifest(wat::parse_str(BATCHES).unwrap(), common::MANIFEST.as_bytes());
    let mut plan = install(&wasm, &request()).unwrap();
    plan.name = "base".to_owned();
    plan.view.key = Some(flame_plan::ViewKey([7; 32]));
    plan.view.expose = flame_plan::Expose::None;
    let sizes = |changes: bool| {
        let sizes = Arc::<Mutex<Vec<u64>>>::default();
        let of_sink = sizes.clone();
        let sink = Writes(move |module: &str, _: &Table, batch: &RecordBatch| {
            if module == "base" {
                of_sink.lock().unwrap().extend(numbers(batch));
            }
            Ok(())
        });
        let one = Plan::new(vec![plan.clone()], 1, 0);
        let run = Run::new(&one, &[], &Engines::new().unwrap(), options(Arc::default())).unwrap();
        let source = Memory { per_block: 50, ..Memory::tcp(5000, 3) };
        let source = Paced { source, every: Duration::from_millis(1) };
        let input = Input::Shared(Box::new(source));
        let worker = Worker::spawn(run, input, Box::new(sink), Box::new(Silent)).unwrap();
        let handle = worker.handle();
        let mut changed = 0;
        for id in (1..).take_while(|_| changes) {
            let other = ModulePlan { id: ModuleId(id), name: format!("other{id}"), ..plan.clone() };
            let other = Module::from(other);
            let Ok(()) = handle.add(&other) else { break };
            std::thread::sleep(Duration::from_millis(2));
            let Ok(account) = handle.remove(ModuleId(id)) else { break };
            assert!(account.adds_up(), "{account:?}");
            changed += 1;
        }
        assert!(!changes || changed > 5, "{changed}");
        let (report, _) = worker.join().unwrap();
        assert_eq!(report.accounts[0].1.processed, 5000);
        sizes.lock().unwrap().clone()
    };
    assert_eq!(sizes(true), sizes(false));
}
