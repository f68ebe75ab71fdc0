//! Tests of the state that modules keep: carried by updates under load with exact counts, refused, damaged,
//! of wrong sizes, and of modules that fail in the two calls; and of seeds.

use crate::common::{
    Endless, Lines, MANIFEST, Memory, Sums, eventually, install, options, request, runner, with_manifest,
};
use flame_admit::Protection;
use flame_compile::InstallRequest;
use flame_plan::{Account, ModuleClass, ModuleId, ModulePlan, OnFault, Plan};
use flame_run::Engines;
use flame_source::Source;
use flame_worker::{Begun, Input, Keep, Module, News, Options, Place, Run, Runner, Silent, State, Worker};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The largest state of these modules in bytes.
const MOST: u32 = 64;
/// The packet time between their exports, which change nothing.
const EVERY: u64 = 10_000_000;

/// A module that counts packets, reports their number at its end, and keeps it.
const COUNT: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\08\00\00\00\00\00\00\00")
    (func (export "flame_batch") (param i32) (result i64)
        (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.load32_u offset=4 (local.get 0))))
        (i64.const 0))
    (func (export "flame_export") (result i64) EXPORT)
    (func (export "flame_import") (param i32 i32) (result i64) IMPORT)
    (func (export "flame_end") (param i64) (result i64) (i64.const 0x1000000000)))"#;

/// The number at address 8, as the state.
const EXPORT: &str = "(i64.const 0x800000008)";
const IMPORT: &str = "(if (i32.ne (local.get 1) (i32.const 8)) (then (return (i64.const 1))))
    (i64.store (i32.const 8) (i64.load (local.get 0))) (i64.const 0)";

/// The same with a slow instance, which alone counts and reports.
const SLOW: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\08\00\00\00\00\00\00\00")
    (data (i32.const 16) "\08\00\00\00\ff\ff\00\00")
    (func (export "flame_init") (param i32 i32) (result i64)
        (i32.store (i32.const 64) (i32.load offset=4 (local.get 0))) (i64.const 0))
    (func (export "flame_batch") (param i32) (result i64)
        (i64.store (i32.const 24) (i64.load32_u offset=4 (local.get 0))) (i64.const 0x1000000010))
    (func (export "flame_message") (param i32 i32) (result i64)
        (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.load (local.get 0)))) (i64.const 0))
    (func (export "flame_export") (result i64) (i64.const 0x800000008))
    (func (export "flame_import") (param i32 i32) (result i64)
        (i64.store (i32.const 8) (i64.load (local.get 0))) (i64.const 0))
    (func (export "flame_end") (param i64) (result i64)
        (select (i64.const 0x1000000000) (i64.const 0) (i32.load (i32.const 64)))))"#;

fn program() -> Runner {
    Runner::at(&runner()).unwrap()
}

fn counter() -> String {
    COUNT.replace("EXPORT", EXPORT).replace("IMPORT", IMPORT)
}

/// Event queues for the packets of [`Endless`].
const QUEUES: &str = "[[queues]]\nname = \"even\"\nselect = \"tcp src port 1024 or tcp src port 1026\"\n\
    [[queues]]\nname = \"odd\"\nselect = \"\"\nblocks = 2\n";

fn plan(id: u32, text: &str, protection: Protection) -> ModulePlan {
    plan_with(id, text, protection, "")
}

/// Returns the plan of a module with more in its manifest.
fn plan_with(id: u32, text: &str, protection: Protection, more: &str) -> ModulePlan {
    let state = format!("[state]\nversion = 1\nmax = {MOST}\n{more}[[tables]]");
    let manifest = MANIFEST.replace("[[tables]]", &state);
    let wasm = with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes());
    let plan = install(&wasm, &InstallRequest { protection, ..request() }).unwrap();
    ModulePlan { id: ModuleId(id), name: format!("count{id}"), ..plan }
}

type Told = Arc<Mutex<Vec<(Place, News)>>>;

/// Creates the places of a module, and a list of their events.
fn keep(workers: usize, states: &[(Place, &[u8])]) -> (Keep, Told) {
    let told = Told::default();
    let news = told.clone();
    let on_news = Box::new(move |place, n: &News| news.lock().unwrap().push((place, n.clone())));
    let states = states.iter().map(|(place, state)| (*place, State::from(*state)));
    (Keep::new((MOST, EVERY), workers, states, on_news), told)
}

/// The number of updates of each run.
const UPDATES: u32 = 8;

#[test]
fn an_update_under_load_carries_exact_counts() {
    let counter = counter();
    for (text, protection, workers, is_live, per_worker, apart, queues) in [
        (&*counter, Protection::Auto, 1, false, false, false, ""),
        (&*counter, Protection::Metered, 1, true, false, false, ""),
        (&*counter, Protection::Auto, 3, true, false, false, ""),
        (&*counter, Protection::Metered, 2, false, false, false, ""),
        (&*counter, Protection::Metered, 2, true, true, false, ""),
        (&*counter, Protection::Auto, 1, true, false, true, ""),
        (&*counter, Protection::Metered, 2, true, false, true, ""),
        (SLOW, Protection::Auto, 1, true, false, false, ""),
        (SLOW, Protection::Metered, 2, true, false, false, ""),
        (SLOW, Protection::Auto, 2, true, false, true, ""),
        (&*counter, Protection::Auto, 1, false, false, false, QUEUES),
        (&*counter, Protection::Metered, 2, true, true, false, QUEUES),
        (&*counter, Protection::Auto, 1, true, false, true, QUEUES),
        (SLOW, Protection::Metered, 2, true, false, true, QUEUES),
    ] {
        let what = format!(
            "{}, {protection:?}, {workers} workers, live {is_live}, sources {per_worker}, process {apart}, \
             queues {}",
            if text == SLOW { "slow" } else { "fast" },
            !queues.is_empty()
        );
        let (stop, delivered, sums) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Sums::default());
        let (keep, told) = keep(workers, &[]);
        let module = |id| {
            let plan = plan_with(id, text, protection, queues);
            let plan = ModulePlan { process: apart.then(|| "p".to_owned()), ..plan };
            Module { keep: Some(keep.clone()), ..Module::from(plan) }
        };
        let options = Options {
            runner: apart.then(program),
            keeps: [(ModuleId(0), keep.clone())].into(),
            ..options(stop.clone())
        };
        let first = Plan { modules: vec![module(0).plan], workers, interval_ns: 0 };
        let run = Run::new(&first, &[], &Engines::new().unwrap(), options).unwrap();
        let source = || -> Box<dyn Source> {
            Box::new(Endless { stop: stop.clone(), delivered: delivered.clone(), is_live })
        };
        let input = match per_worker {
            true => Input::PerWorker((0..workers).map(|_| source()).collect()),
            false => Input::Shared(source()),
        };
        let worker = Worker::spawn(run, input, sums.sink(), Box::new(Silent)).unwrap();
        let handle = worker.handle();
        let mut removed: Vec<Account> = Vec::new();
        for id in 1..=UPDATES {
            let before = delivered.load(Ordering::Relaxed);
            eventually("packets", || delivered.load(Ordering::Relaxed) >= before + 1000);
            removed.push(handle.replace(ModuleId(id - 1), &module(id)).unwrap());
        }
        keep.wait_for_begun(workers, Duration::from_secs(60));
        handle.stop();
        let (report, _) = worker.join().unwrap();
        assert!(report.faults.is_empty(), "{what}: {:?}", report.faults);
        let total = delivered.load(Ordering::Relaxed);
        for (name, account) in &report.accounts {
            assert!(account.adds_up(), "{what}, {name}: {account:?}");
        }
        let of = |n: fn(&Account) -> u64| report.accounts.iter().map(|(_, a)| n(a)).sum::<u64>();
        assert_eq!(of(|a| a.offered), total, "{what}: each packet was offered to one");
        let in_queues = of(|a| a.queues.iter().map(|q| q.packets).sum());
        assert_eq!(in_queues, if queues.is_empty() { 0 } else { total }, "{what}");
        let processed = of(|a| a.processed);
        assert!(is_live || processed == total, "{what}: {processed} of {total}");
        // How many depends on the time that a process gets.
        assert!(processed > total / 10, "{what}: {processed} of {total}");
        // Only the last instances end. They report what all of them have counted.
        let expected = BTreeMap::from([(format!("count{UPDATES}"), processed)]);
        assert_eq!(*sums.0.lock().unwrap(), expected, "{what}: {:?}", report.accounts);
        let kept: u64 =
            keep.states().1.iter().map(|(_, s)| u64::from_le_bytes((**s).try_into().unwrap())).sum();
        assert_eq!(kept, processed, "{what}");
        let taken = told.lock().unwrap().iter().filter(|(_, n)| *n == News::Begun(Begun::Taken)).count();
        assert!(taken >= UPDATES as usize, "{what}: {taken}");
        assert_eq!(removed.len(), UPDATES as usize);
    }
}

/// Runs one module over 500 packets, and returns its account, the texts of faults and the rows.
fn run(plan: ModulePlan, keep: Option<&Keep>, options: Options) -> (Account, Vec<String>, Vec<String>) {
    let keeps = keep.map(|keep| (plan.id, keep.clone())).into_iter().collect();
    let workers = 1;
    let run = Plan { modules: vec![plan], workers, interval_ns: 0 };
    let run = Run::new(&run, &[], &Engines::new().unwrap(), Options { keeps, ..options }).unwrap();
    let mut sink = Lines::default();
    let input = Input::Shared(Box::new(Memory { per_block: 100, ..Memory::tcp(500, 16) }));
    let report = run.execute(input, &mut sink, &mut Silent).unwrap();
    let [(_, account)] = &report.accounts[..] else { panic!("{report:?}") };
    assert!(account.adds_up(), "{account:?}");
    (account.clone(), report.faults.into_iter().map(|f| f.text).collect(), sink.lines)
}

fn here() -> Options {
    options(Arc::default())
}

#[test]
fn what_one_run_keeps_the_next_one_begins_with() {
    for apart in [false, true] {
        let plan =
            ModulePlan { process: apart.then(|| "p".to_owned()), ..plan(0, &counter(), Protection::Auto) };
        assert_eq!(plan.class, ModuleClass::Bounded);
        let options = || Options { runner: apart.then(program), ..here() };
        let (first, _) = keep(1, &[]);
        let (_, faults, rows) = run(plan.clone(), Some(&first), options());
        assert_eq!((&faults[..], &rows[..]), (&[][..], &["count0.t packets=500".to_owned()][..]));
        assert_eq!(first.states().1, [(Place::Worker(0), State::from(&500_u64.to_le_bytes()[..]))]);
        let (_, _, rows) = run(plan.clone(), Some(&first), options());
        assert_eq!(rows, ["count0.t packets=1000"]);
        // Without a place for its state, it begins empty.
        let (_, faults, rows) = run(plan.clone(), None, options());
        assert_eq!((faults.len(), &*rows[0]), (0, "count0.t packets=500"));
        // A state that the module refuses is dropped.
        let (refusing, told) = keep(1, &[(Place::Worker(0), b"four")]);
        let (account, faults, rows) = run(plan, Some(&refusing), options());
        assert_eq!((account.processed, faults.len(), &*rows[0]), (500, 0, "count0.t packets=500"));
        assert_eq!(told.lock().unwrap()[0], (Place::Worker(0), News::Begun(Begun::Refused)));
    }
}

#[test]
fn faults_in_the_two_calls_end_the_instance_and_drop_the_state() {
    const SPIN: &str = "(loop $spin (br $spin)) (i64.const 0)";
    let exports = [
        ("(i64.const 0x4100000000)", "flame_export: output of 65 bytes at 0x0: expected at most 64 bytes"),
        ("(i64.const 0x80000fffc)", "flame_export: output of 8 bytes at 0xfffc"),
        ("(i64.const 0xffffffff3fffffff)", "flame_export: output of 4294967295 bytes"),
        ("(i64.const 0x840000008)", "flame_export: asked for further calls: a state is one blob"),
        ("(i64.const 0x880000008)", "flame_export: asked for further calls: a state is one blob"),
        ("(unreachable)", "flame_export: trap"),
        (SPIN, "flame_export: cut off"),
    ];
    let imports = [
        ("(i64.const 7)", "flame_import: returned 7: expected 0"),
        ("(i64.const -1)", "flame_import: returned 18446744073709551615"),
        ("(unreachable)", "flame_import: trap"),
        ("(i64.store (local.get 0) (i64.const 1)) (i64.const 0)", "flame_import: trap"),
        (SPIN, "flame_import: cut off"),
    ];
    let state = 1000_u64.to_le_bytes();
    for (protection, apart) in
        [(Protection::Auto, false), (Protection::Metered, false), (Protection::Auto, true)]
    {
        let place = |plan| ModulePlan { process: apart.then(|| "p".to_owned()), ..plan };
        let options = || Options { runner: apart.then(program), ..here() };
        for (export, said) in exports {
            let text = COUNT.replace("EXPORT", export).replace("IMPORT", IMPORT);
            let (keep, told) = keep(1, &[(Place::Worker(0), &state)]);
            let (account, faults, rows) = run(place(plan(0, &text, protection)), Some(&keep), options());
            // The export comes before the end, which would report.
            assert_eq!((account.processed, account.faults, rows.len()), (500, 1, 0), "{export}");
            assert!(faults[0].contains(said), "{export}: {faults:?}");
            assert_eq!(keep.states().1, [], "{export}");
            assert_eq!(told.lock().unwrap().last(), Some(&(Place::Worker(0), News::Dropped)), "{export}");
        }
        for (import, said) in imports {
            let text = COUNT.replace("EXPORT", EXPORT).replace("IMPORT", import);
            for restarts in [0, 1] {
                let (keep, told) = keep(1, &[(Place::Worker(0), &state)]);
                let on_fault = if restarts == 0 { OnFault::Stop } else { OnFault::Restart(restarts) };
                let plan = ModulePlan { on_fault, ..place(plan(0, &text, protection)) };
                let (account, faults, rows) = run(plan, Some(&keep), options());
                assert!(account.faults == 1 && faults[0].contains(said), "{import}: {faults:?}");
                assert!(told.lock().unwrap().contains(&(Place::Worker(0), News::Dropped)), "{import}");
                // Another instance begins empty.
                let expected: &[&str] = if restarts == 0 { &[] } else { &["count0.t packets=500"] };
                assert_eq!(rows, expected, "{import}");
            }
        }
    }
}

/// The end of a run is no fault of a module that still has work.
#[test]
fn a_state_outlives_work_that_the_end_leaves_out() {
    let head = r#"(func (export "flame_message") (param i32 i32) (result i64)"#;
    let work = "(local $n i32) (local.set $n (i32.const 1000000))
        (loop $l (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))";
    let text = SLOW.replace(head, &format!("{head} {work}"));
    let state = 7_u64.to_le_bytes();
    for apart in [false, true] {
        let (keep, told) = keep(1, &[(Place::Slow, &state)]);
        let stop = Arc::<AtomicBool>::default();
        let keeps = [(ModuleId(0), keep.clone())].into();
        let options = Options { keeps, runner: apart.then(program), ..options(stop.clone()) };
        let plan = plan(0, &text, Protection::Metered);
        let plan = ModulePlan { process: apart.then(|| "p".to_owned()), ..plan };
        let plan = Plan { modules: vec![plan], workers: 1, interval_ns: 0 };
        let run = Run::new(&plan, &[], &Engines::new().unwrap(), options).unwrap();
        let source = Endless { stop: stop.clone(), delivered: Arc::default(), is_live: true };
        let worker =
            Worker::spawn(run, Input::Shared(Box::new(source)), Box::new(Lines::default()), Box::new(Silent));
        let worker = worker.unwrap();
        let slow = |wanted: &News| {
            told.lock().unwrap().iter().any(|(place, n)| *place == Place::Slow && n == wanted)
        };
        eventually("the state", || slow(&News::Begun(Begun::Taken)));
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        assert!(!slow(&News::Dropped), "{apart}: {:?}", told.lock().unwrap());
        assert!(keep.states().1.iter().any(|(place, _)| *place == Place::Slow), "{apart}");
        assert!(!slow(&News::CutOff), "{:?}", told.lock().unwrap());
    }
}

/// A module learns nothing from the time of its exports: they follow ticks.
#[test]
fn exports_depend_on_packet_time_alone() {
    for (per_block, apart) in [(500, false), (37, false), (100, true)] {
        let (keep, told) = keep(1, &[]);
        let plan = plan(0, &counter(), Protection::Auto);
        let plan = ModulePlan { process: apart.then(|| "p".to_owned()), ..plan };
        let options =
            Options { keeps: [(plan.id, keep.clone())].into(), runner: apart.then(program), ..here() };
        let run = Plan { modules: vec![plan], workers: 1, interval_ns: 100_000_000 };
        let run = Run::new(&run, &[], &Engines::new().unwrap(), options).unwrap();
        let input = Input::Shared(Box::new(Memory { per_block, ..Memory::tcp(500, 16) }));
        run.execute(input, &mut Lines::default(), &mut Silent).unwrap();
        let stored = |(_, news): &(Place, News)| match news {
            News::Stored(state) => Some(u64::from_le_bytes((**state).try_into().unwrap())),
            _ => None,
        };
        let stored: Vec<_> = told.lock().unwrap().iter().filter_map(stored).collect();
        assert_eq!(stored, [100, 200, 300, 400, 500], "{per_block} {apart}");
    }
}

#[test]
fn a_state_without_bytes_is_none() {
    let text = COUNT.replace("EXPORT", "(i64.const 8)").replace("IMPORT", "(unreachable)");
    let (keep, told) = keep(1, &[]);
    for _ in 0..2 {
        let (_, faults, rows) = run(plan(0, &text, Protection::Auto), Some(&keep), here());
        assert_eq!((faults.len(), &*rows[0]), (0, "count0.t packets=500"));
    }
    assert_eq!(keep.states().1, []);
    assert_eq!(told.lock().unwrap()[0], (Place::Worker(0), News::Begun(Begun::Empty)));
}

/// The bound of an import holds for the largest state that the host gives.
#[test]
fn bounds_contain_both_calls() {
    const LOOPS: &str = r#"(module (memory (export "memory") 1)
        (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
        (func (export "flame_export") (result i64) (local $i i32)
            (loop $next
                (i32.store8 (local.get $i) (local.get $i))
                (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 999))))
            (i64.const 0x3e700000000))
        (func (export "flame_import") (param i32 i32) (result i64) (local $i i32) (local $sum i32)
            (block $done (loop $next
                (br_if $done (i32.ge_u (local.get $i) (local.get 1)))
                (local.set $sum (i32.add (local.get $sum)
                    (i32.load8_u (i32.add (local.get 0) (local.get $i)))))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br $next)))
            (i64.const 0)))"#;
    let most = flame_abi::layout::MAX_DATA;
    let manifest = MANIFEST.replace("[[tables]]", &format!("[state]\nversion = 1\nmax = {most}\n[[tables]]"));
    let wasm = with_manifest(wat::parse_str(LOOPS).unwrap(), manifest.as_bytes());
    let analysis = flame_bounds::analyse(&wasm, &flame_bounds::Rules::default(), None).unwrap();
    let bound = |name: &str| {
        let entry = analysis.entries.iter().find(|e| e.name == name).unwrap();
        entry.bound.call.as_constant().unwrap_or_else(|| panic!("{name} has no bound: {:?}", entry.why))
    };
    let mut plan =
        install(&wasm, &InstallRequest { protection: Protection::Unchecked, ..request() }).unwrap();
    let own = flame_meter::rewrite(&wasm, flame_meter::Metering::Nothing).unwrap();
    plan.code = flame_compile::Engines::counting().unwrap().precompile(plan.class, &own).unwrap().into();
    let loaded = flame_run::Loaded::new(&Engines::counting().unwrap(), &plan).unwrap();
    let mut instance = flame_run::Instance::new(&loaded, &[], false).unwrap();
    for (call, least) in [
        (flame_run::Call::Import(vec![7; most as usize].into()), u64::from(most)),
        (flame_run::Call::Export, 999),
    ] {
        instance.call(&call).unwrap();
        let (executed, bound) = (instance.executed().unwrap(), bound(call.name().as_str()));
        assert!(executed > least && executed <= bound, "{}: {executed}, {bound}", call.name());
        assert!(bound < 2 * executed, "{}: {executed}, {bound}", call.name());
    }
    let too_long = flame_run::Call::Import(vec![7; most as usize + 1].into());
    assert!(instance.call(&too_long).unwrap_err().to_string().contains("at most"));
}

/// The largest state goes through, whatever bytes it has.
#[test]
fn a_state_of_the_largest_size_is_carried() {
    let text = COUNT
        .replace("EXPORT", "(i64.const 0x4000000400)")
        .replace("IMPORT", "(memory.copy (i32.const 1024) (local.get 0) (local.get 1)) (i64.const 0)");
    let state: Vec<u8> = (0..MOST as u8).map(|n| n ^ 0x55).collect();
    for apart in [false, true] {
        let (keep, _) = keep(1, &[(Place::Worker(0), &state)]);
        let plan = plan(0, &text, Protection::Auto);
        let plan = ModulePlan { process: apart.then(|| "p".to_owned()), ..plan };
        let (_, faults, _) = run(plan, Some(&keep), Options { runner: apart.then(program), ..here() });
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(&*keep.states().1[0].1, &state[..]);
    }
}

#[test]
fn a_seed_gives_each_instance_its_own_numbers_again() {
    const SEED: &str = r#"(module (memory (export "memory") 1)
        (data (i32.const 0) "\08\00\00\00\00\00\00\00")
        (func (export "flame_init") (param i32 i32) (result i64)
            (i64.store (i32.const 8) (i64.load offset=32 (local.get 0))) (i64.const 0))
        (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
        (func (export "flame_end") (param i64) (result i64) (i64.const 0x1000000000)))"#;
    let wasm = with_manifest(wat::parse_str(SEED).unwrap(), MANIFEST.as_bytes());
    let plan = install(&wasm, &request()).unwrap();
    let rows = |seed, workers| {
        let run = Plan { modules: vec![ModulePlan { seed, ..plan.clone() }], workers, interval_ns: 0 };
        let run = Run::new(&run, &[], &Engines::new().unwrap(), here()).unwrap();
        let mut sink = Lines::default();
        run.execute(Input::Shared(Box::new(Memory::tcp(100, 4))), &mut sink, &mut Silent).unwrap();
        sink.lines.sort();
        sink.lines
    };
    assert_eq!(rows(None, 1), ["hostile.t packets=0"]);
    let of_seven = rows(Some(7), 2);
    assert_eq!(of_seven, rows(Some(7), 2));
    assert!(of_seven.len() == 2 && of_seven[0] != of_seven[1], "{of_seven:?}");
    assert_ne!(of_seven, rows(Some(8), 2));
    assert!(of_seven.contains(&rows(Some(7), 1)[0]), "the first worker has the same in both");
}
