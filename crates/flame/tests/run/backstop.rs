//! Tests of endless code without counters that was taken for bounded: the call ends at its deadline and is
//! named, and no other module is affected.

use crate::common::{Lines, MANIFEST, Memory, install, module, options, request, run, runner, with_manifest};
use flame_admit::Protection;
use flame_compile::{Cache, Compiler, InstallRequest};
use flame_meter::{Metering, rewrite_polled};
use flame_plan::{CutOff, Limits, ModuleClass, ModulePlan, OnFault, Plan, Rests, Shed};
use flame_run::{Call, Engines, FaultKind, Instance, Loaded, Mapping, Role};
use flame_worker::{Input, Options, Run, Runner, Silent};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PACKETS: usize = 3000;
const MS: u64 = 1_000_000;

/// Endless loops in every form. `$n` is a free local. Some need [`HELPERS`].
const HANGS: &[(&str, &str)] = &[
    ("unconditional", "(loop $l (br $l))"),
    ("conditional", "(loop $l (br_if $l (i32.load (i32.const 64))))"),
    (
        "nested",
        "(loop $a (local.set $n (i32.const 9)) (loop $b (br_if $b (local.tee $n (i32.sub (local.get $n) (i32.const 1))))) (br $a))",
    ),
    ("inner", "(loop $a (loop $b (br $b)) (br $a))"),
    (
        "two back edges",
        "(loop $a (br_if $a (i32.load (i32.const 60))) (local.set $n (i32.add (local.get $n) (i32.const 1))) (br $a))",
    ),
    ("table of branches", "(loop $a (block $x (br_table $a $x $a (i32.load (i32.const 64)))) (br $a))"),
    ("only calls", "(loop $a (call $leaf) (br $a))"),
    ("only calls of larger functions", "(loop $a (call $nest) (br $a))"),
    ("only indirect calls", "(loop $a (call_indirect (i32.const 0)) (br $a))"),
    (
        "large",
        "(loop $a (local.set $n (i32.add (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.mul (local.get $n) (i32.const 3))))))))))))))))))))))))) (br $a))",
    ),
    // There is no store between the loops, and their polls must not be mistaken for one.
    (
        "the second of two",
        "(local.set $n (i32.const 9)) (loop $b (br_if $b (local.tee $n (i32.sub (local.get $n) (i32.const 1))))) (loop $c (br_if $c (i32.load (i32.const 64))))",
    ),
    (
        "the same function again",
        "(call $spin (i32.load (i32.const 60))) (call $spin (i32.load (i32.const 64)))",
    ),
    (
        "with a value",
        "(drop (loop $a (result i32) (br_if $a (i32.load (i32.const 64))) (return (i64.const 0))))",
    ),
    (
        "with a parameter",
        "(i32.const 3) (loop $a (param i32) (br_if $a (i32.load (i32.const 64)) (i32.const 1)) (drop) (i32.const 2) (br $a))",
    ),
    ("stores", "(loop $a (i32.store (i32.const 128) (local.get $n)) (br $a))"),
    ("fills", "(loop $a (memory.fill (i32.const 128) (i32.const 0) (i32.const 60000)) (br $a))"),
    ("copies", "(loop $a (memory.copy (i32.const 128) (i32.const 256) (i32.const 60000)) (br $a))"),
    (
        "copies from the window",
        "(loop $a (memory.copy (i32.const 128) (i32.const 0x80000000) (i32.const 60000)) (br $a))",
    ),
    ("grows by nothing", "(loop $a (drop (memory.grow (i32.const 0))) (br $a))"),
    ("no loop but calls that double", "(call $tree (i32.const 200))"),
    (
        "marks and loops",
        "(loop $a (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if $a (i32.ne (local.get $n) (i32.const -1))) (br $a))",
    ),
];

const HELPERS: &str = r#"(memory (export "memory") 1)
  (data (i32.const 60) "\00\00\00\00\01\00\00\00")
  (table 1 funcref) (elem (i32.const 0) $leaf)
  (func $leaf)
  (func $nest (local $n i32) (local.set $n (i32.const 3))
    (loop $b (br_if $b (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
  (func $spin (param i32) (loop $l (br_if $l (local.get 0))))
  (func $tree (param i32) (if (local.get 0) (then
    (call $tree (i32.sub (local.get 0) (i32.const 1))) (call $tree (i32.sub (local.get 0) (i32.const 1))))))"#;

/// Returns a module that runs `hang` in `call`. If it takes messages, it sends one with each batch.
fn hanging(name: &str, call: &str, hang: &str) -> Vec<u8> {
    let body = |of: &str, usual: &str| match of == call {
        true => format!("(local $n i32) {hang} {usual}"),
        false => usual.to_owned(),
    };
    let message = match call {
        "flame_message" => format!(
            r#"(func (export "flame_message") (param i32 i32) (result i64) {})"#,
            body("flame_message", "(i64.const 0)")
        ),
        _ => String::new(),
    };
    let sends = if message.is_empty() { "(i64.const 0)" } else { "(i64.const 0x900000000)" };
    let (batch, pressure) = match call {
        "flame_pressure" => (
            "(drop (memory.grow (i32.const 65535))) (i64.const 0)",
            format!(
                r#"(func (export "flame_pressure") (param i64) (result i64) {})"#,
                body("flame_pressure", "(i64.const 0)")
            ),
        ),
        _ => (sends, String::new()),
    };
    let text = format!(
        r#"(module {HELPERS} (data (i32.const 0) "\01\00\00\00\ff\ff\00\00" "x") {message}
          (func (export "flame_init") (param i32 i32) (result i64) {})
          (func (export "flame_tick") (param i64) (result i64) {})
          (func (export "flame_end") (param i64) (result i64) {})
          (func (export "flame_batch") (param i32) (result i64) {}) {pressure})"#,
        body("flame_init", "(i64.const 0)"),
        body("flame_tick", "(i64.const 0)"),
        body("flame_end", "(i64.const 0)"),
        body("flame_batch", batch),
    );
    let wasm = wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    with_manifest(wasm, MANIFEST.replace("hostile", name).as_bytes())
}

fn limits(deadline_ms: u64) -> Limits {
    let ns = deadline_ms * MS;
    Limits { deadline_ns: ns, ..Limits::default() }
}

/// Installs the module as if all its bounds were proven.
fn as_bounded(wasm: &[u8], deadline_ms: u64) -> ModulePlan {
    let asked =
        InstallRequest { protection: Protection::Unchecked, limits: limits(deadline_ms), ..request() };
    let mut plan = install(wasm, &asked).unwrap();
    assert_eq!(plan.class, ModuleClass::Bounded);
    // It takes much longer than the instructions that are said to be proved.
    plan.limits.rests = Some(Rests { call: 0, packet: 0, each: 0 });
    plan
}

#[test]
fn every_form_of_loop_ends_at_its_deadline() {
    let engines = Engines::new().unwrap();
    for (form, hang) in HANGS {
        let wasm = hanging("hanging", "flame_batch", hang);
        let mut plan = as_bounded(&wasm, 5);
        for what in ["nothing counts", "all functions are proved"] {
            let start = Instant::now();
            let (report, _) = run(&engines, vec![plan.clone()], 1, Box::new(Memory::tcp(10, 2)), 4).unwrap();
            let fault = &report.faults.first().unwrap_or_else(|| panic!("{form}: no fault")).text;
            assert!(
                fault.starts_with("flame_batch: bound violated: it ran for more than 5 ms"),
                "{form}: {fault}"
            );
            assert!(start.elapsed() < Duration::from_secs(20), "{form}, {what}");
            let account = &report.accounts[0].1;
            assert_eq!((account.shed_by(Shed::Bound), account.faults), (4, 1), "{form}: {account:?}");
            assert_eq!(account.shed_by(Shed::Evicted), 6, "{form}: {account:?}");
            let all: BTreeSet<u32> = (0..1000).collect();
            let code = rewrite_polled(&wasm, Metering::Except(&all)).unwrap();
            plan.code = flame_compile::Engines::new()
                .unwrap()
                .precompile(ModuleClass::Bounded, &code)
                .unwrap()
                .into();
            // One violation ends a module, so this must be another one.
            plan.hash[0] ^= 1;
            plan.terms = flame_plan::Terms::default();
        }
    }
}

#[test]
fn every_call_ends_at_its_deadline() {
    let calls = ["flame_init", "flame_batch", "flame_tick", "flame_end", "flame_message", "flame_pressure"];
    for call in calls {
        for workers in [1, 2] {
            // A violation in one run is unknown in another.
            let engines = Engines::new().unwrap();
            let plan = as_bounded(&hanging("hanging", call, HANGS[0].1), 5);
            let source = Box::new(Memory::tcp(PACKETS, 50));
            let (report, _) = run(&engines, vec![plan], workers, source, 256).unwrap();
            let cause = if call == "flame_batch" { "bound violated" } else { "took too long" };
            let named = format!("{call}: {cause}");
            let faults: Vec<_> = report.faults.iter().map(|f| &f.text).collect();
            assert!(faults.iter().any(|t| t.starts_with(&named)), "{call}: {faults:?}");
            assert!(faults.iter().all(|t| t.starts_with(&named) || t.starts_with("evicted: ")), "{faults:?}");
        }
    }
}

/// Reads the source port of each packet, and hangs at one of one flow (0x0404), so in one worker of two.
const ONE_FLOW: &str = r#"(local.set $n (i32.load offset=4 (local.get 0)))
  (loop $all
    (local.set $n (i32.sub (local.get $n) (i32.const 1)))
    (loop $same (br_if $same (i32.eq (i32.const 1028) (i32.load16_u offset=34 (i32.load offset=8
       (i32.add (i32.load (local.get 0)) (i32.mul (local.get $n) (i32.const 32))))))))
    (br_if $all (local.get $n)))"#;

#[test]
fn neighbours_have_all_their_records_whoever_hangs() {
    let Some(count) = module("count") else { return };
    for workers in [1, 2] {
        let engines = Engines::new().unwrap();
        let alone = |modules: Vec<ModulePlan>| {
            let (report, mut records) =
                run(&engines, modules, workers, Box::new(Memory::tcp(PACKETS, 50)), 256).unwrap();
            records.retain(|r| r.starts_with("count."));
            let account = report.accounts.iter().find(|(name, _)| name == "count").unwrap().1.clone();
            (records, account, report)
        };
        let count = || install(&count, &request()).unwrap();
        assert_eq!(count().class, ModuleClass::Bounded);
        let (records, account, _) = alone(vec![count()]);
        assert!(!records.is_empty() && account.processed == PACKETS as u64);
        let first = as_bounded(&hanging("first", "flame_batch", HANGS[0].1), 10);
        let second = as_bounded(&hanging("second", "flame_tick", HANGS[3].1), 10);
        let (found, beside, report) = alone(vec![first, count(), second]);
        assert_eq!(found, records);
        assert_eq!(beside, account);
        for (name, text) in [("first", "bound violated"), ("second", "took too long")] {
            let is_named = |f: &flame_worker::FaultReport| f.module == name && f.text.contains(text);
            assert!(report.faults.iter().any(is_named), "{name}: {:?}", report.faults);
        }
    }
}

#[test]
fn a_hang_in_one_worker_stops_the_module_in_the_other() {
    let engines = Engines::new().unwrap();
    let plan = as_bounded(&hanging("hanging", "flame_batch", ONE_FLOW), 10);
    let (report, _) = run(&engines, vec![plan], 2, Box::new(Memory::tcp(20_000, 50)), 256).unwrap();
    let violated: Vec<_> = report.faults.iter().filter(|f| f.text.contains("bound violated")).collect();
    assert_eq!(violated.len(), 1, "{:?}", report.faults);
    let account = &report.accounts[0].1;
    assert!(account.shed_by(Shed::Bound) > 0 && account.shed_by(Shed::Evicted) > 0, "{account:?}");
}

/// A module whose bound was violated is not trusted again in the same process, under any name.
#[test]
fn a_module_has_one_chance_in_a_run() {
    let engines = Engines::new().unwrap();
    let wasm = hanging("hanging", "flame_end", HANGS[0].1);
    for (violated, evicted) in [(1, 0), (0, 1)] {
        let plan = as_bounded(&wasm, 5);
        let (report, _) = run(&engines, vec![plan], 1, Box::new(Memory::tcp(PACKETS, 50)), 256).unwrap();
        let with = |text: &str| report.faults.iter().filter(|f| f.text.contains(text)).count();
        assert_eq!(
            (with("flame_end: took too long"), with("evicted: ")),
            (violated, evicted),
            "{:?}",
            report.faults
        );
    }
    // With counters, it is an ordinary module.
    let counted = install(&wasm, &request()).unwrap();
    assert_eq!(counted.class, ModuleClass::Bounded, "its batches are proved");
    let metered = InstallRequest { protection: Protection::Metered, ..request() };
    let counted = install(&wasm, &metered).unwrap();
    let (report, _) = run(&engines, vec![counted], 1, Box::new(Memory::tcp(PACKETS, 50)), 256).unwrap();
    assert_eq!(report.accounts[0].1.processed, PACKETS as u64);
    assert!(report.faults[0].text.contains("used up its budget"), "{:?}", report.faults);
}

#[test]
fn no_instance_takes_over_without_counters() {
    let engines = Engines::new().unwrap();
    let mut plan = as_bounded(&hanging("hanging", "flame_batch", HANGS[0].1), 5);
    plan.on_fault = OnFault::Restart(100);
    let (report, _) = run(&engines, vec![plan], 1, Box::new(Memory::tcp(PACKETS, 50)), 256).unwrap();
    assert_eq!(report.accounts[0].1.faults, 1);
    assert!(!report.faults[0].restarted);
}

/// Other traps, and an out-of-bounds access before the deadline, are reported as such.
#[test]
fn other_traps_are_not_taken_for_it() {
    let engines = Engines::new().unwrap();
    let cases = [
        ("(drop (i32.load (i32.const 0x70000000)))", "out of bounds"),
        ("(i32.store (i32.const 0x800ff000) (i32.const 1))", "out of bounds"),
        ("(unreachable)", "unreachable"),
    ];
    for (what, expected) in cases {
        let plan = as_bounded(&hanging("hanging", "flame_batch", what), 100);
        let (report, _) = run(&engines, vec![plan], 1, Box::new(Memory::tcp(10, 2)), 4).unwrap();
        let text = &report.faults[0].text;
        assert!(text.contains(expected) && !text.contains("bound violated"), "{text}");
        assert_eq!(report.accounts[0].1.shed_by(Shed::Trap), 4);
    }
}

/// Many calls that last about as long as their deadline: a call that returned in time never leaves the next
/// one without a polling page, whatever the watchdog did meanwhile.
#[test]
fn a_call_that_ends_in_time_never_harms_the_next() {
    // One long instruction: after it, the call may be past its deadline, and ends or polls.
    let text = format!(
        r#"(module {} (func (export "flame_batch") (param i32) (result i64) (local $n i32)
          (local.set $n (i32.load offset=4 (local.get 0)))
          (memory.fill (i32.const 1024) (i32.const 1) (i32.mul (local.get $n) (i32.const 65536)))
          (if (i32.and (local.get $n) (i32.const 1)) (then (call $nest)))
          (i64.const 0)))"#,
        HELPERS.replace(r#"(memory (export "memory") 1)"#, r#"(memory (export "memory") 256)"#)
    );
    let wasm = with_manifest(wat::parse_str(text).unwrap(), MANIFEST.as_bytes());
    let engines = Engines::new().unwrap();
    let mut plan = as_bounded(&wasm, 1);
    plan.limits.deadline_ns = MS / 10;
    let mut threads = Vec::new();
    for _ in 0..3 {
        let loaded = Loaded::new(&engines, &plan).unwrap();
        threads.push(std::thread::spawn(move || {
            let (mut violated, mut returned) = (0, 0);
            let mut instance = fresh(&loaded);
            // On a busy machine, the watchdog comes late to most calls.
            for i in 0..60_000_u32 {
                if i >= 6000 && violated > 0 {
                    break;
                }
                // Every other call takes a microsecond at most, so it must never fail.
                let count = if i % 2 == 0 { 0 } else { i * 7 % 241 };
                let start = Instant::now();
                match instance.call(&batch(count)).map(drop) {
                    Ok(()) => returned += u32::from(count > 0),
                    Err(fault) => {
                        // A hypervisor may take the processor away, and the guest's clocks count that.
                        let took = start.elapsed().as_nanos() as u64;
                        assert!(count > 0 || took >= MS / 10, "an innocent call of {took} ns: {fault}");
                        assert!(
                            matches!(fault.kind, FaultKind::CutOff { cause: CutOff::Bound, .. }),
                            "{fault}"
                        );
                        violated += 1;
                        instance = fresh(&loaded);
                    }
                }
            }
            (violated, returned)
        }));
    }
    let done: Vec<(u32, u32)> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    println!("long calls that were violated and that returned: {done:?}");
    // On a fast machine a thread may have few of either.
    let (violated, returned) = done.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert!(violated > 0 && returned > 0);
}

fn fresh(loaded: &Loaded) -> Instance {
    let none: &[Mapping] = &[];
    let mut instance = Instance::new(loaded, none, false).unwrap();
    let init = Call::Init { role: Role::Fast { worker: 0 }, workers: 1, tick_ns: 1, interval_ns: 0 };
    instance.call(&init).unwrap();
    instance
}

fn batch(count: u32) -> Call {
    Call::Batch { descriptors: 0, count, lost: 0, link: flame_abi::LinkType::ETHERNET, queue: 0 }
}

/// A thread that does not run uses no processor time, so its call does not reach its deadline.
#[test]
fn time_on_a_busy_machine_does_not_count() {
    let wasm = hanging(
        "hanging",
        "flame_batch",
        "(local.set $n (i32.const 2000000)) (loop $l (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))",
    );
    let engines = Engines::new().unwrap();
    let plan = as_bounded(&wasm, 50);
    // There are more threads than processors, so that each runs for a small part of the time.
    let spinning = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let others: Vec<_> = (0..4 * std::thread::available_parallelism().unwrap().get())
        .map(|_| {
            let spinning = spinning.clone();
            std::thread::spawn(move || while spinning.load(std::sync::atomic::Ordering::Relaxed) {})
        })
        .collect();
    let loaded = Loaded::new(&engines, &plan).unwrap();
    let mut instance = fresh(&loaded);
    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < Duration::from_secs(1) {
        let call = Instant::now();
        instance.call(&batch(1)).unwrap();
        longest = longest.max(call.elapsed());
    }
    println!("the longest call took {longest:?}");
    spinning.store(false, std::sync::atomic::Ordering::Relaxed);
    others.into_iter().for_each(|t| t.join().unwrap());
}

#[test]
fn a_module_that_violated_its_bound_is_metered_from_then_on() {
    let Some(count) = module("count") else { return };
    let folder = tempfile::tempdir().unwrap();
    let engines = Engines::new().unwrap();
    let compiler = |cache| Compiler::in_process(flame_compile::Engines::new().unwrap(), Some(cache));
    let open = || Cache::open(&folder.path().join("cache")).unwrap();
    let class = |wasm: &[u8]| {
        let installed = compiler(open()).install(wasm, &request()).unwrap();
        (installed.plan.class, installed.verdict.why)
    };
    assert_eq!(class(&count).0, ModuleClass::Bounded);

    // The engine reports each module once, by its hash.
    let reported = Arc::new(Mutex::new(Vec::new()));
    let (cache, all) = (open(), reported.clone());
    engines.watchdog().on_cut_off(move |hash, cause| {
        cache.record_cut_off(hash, cause).unwrap();
        all.lock().unwrap().push(*hash);
    });
    let mut plan = as_bounded(&hanging("hanging", "flame_batch", HANGS[0].1), 5);
    plan.hash = compiler(open()).examine(&count).unwrap().hash;
    let hash = plan.hash;
    run(&engines, vec![plan], 2, Box::new(Memory::tcp(PACKETS, 50)), 256).unwrap();
    assert_eq!(*reported.lock().unwrap(), [hash]);
    assert_eq!(engines.watchdog().why_cut_off(&hash), Some(CutOff::Bound));

    let (found, why) = class(&count);
    assert_eq!(found, ModuleClass::Metered);
    assert!(why.to_string().contains("its bound was violated in an earlier run"), "{why}");
    // A caller that asks for no checks gets none.
    let unchecked = InstallRequest { protection: Protection::Unchecked, ..request() };
    assert_eq!(compiler(open()).install(&count, &unchecked).unwrap().plan.class, ModuleClass::Bounded);
}

/// A call has a deadline whether its code counts or not: what it may cost by its budget takes minutes if each
/// instruction waits for memory.
#[test]
fn calls_that_are_proved_and_count_have_a_deadline() {
    let spin = "(local.set $n (i32.const 70000000))
      (loop $l (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))";
    let tick = format!("{spin} (i64.const 0)");
    // No call reaches a function that counts, but the analysis cannot know that.
    let shared = "(if (i32.eq (local.get $n) (i32.const 77)) (then (drop (call $batch (i32.const 64)))))";
    let cases = [
        ("flame_tick", "(i64.const 0)", format!("(local $n i32) {tick}")),
        ("flame_batch", tick.as_str(), format!("(local $n i32) {shared} (i64.const 0)")),
    ];
    for (call, batch, tick) in cases {
        let text = format!(
            r#"(module (memory (export "memory") 1)
              (func $batch (export "flame_batch") (param i32) (result i64) (local $n i32) {batch})
              (func (export "flame_tick") (param i64) (result i64) {tick}))"#
        );
        let manifest = format!("{MANIFEST}\n[limits]\npacket_budget = 1000000000\n");
        let wasm = with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes());
        let limits = Limits { packet_budget: 1_000_000_000, call_budget: 1_000_000_000, ..limits(5) };
        let mut plan = install(&wasm, &InstallRequest { limits, ..request() }).unwrap();
        assert_eq!(plan.class, ModuleClass::Bounded, "{call}");
        plan.limits.deadline_ns = 5 * MS;
        let engines = Engines::new().unwrap();
        let (report, _) = run(&engines, vec![plan], 1, Box::new(Memory::tcp(PACKETS, 50)), 256).unwrap();
        let faults: Vec<_> = report.faults.iter().map(|f| &f.text).collect();
        let named = format!("{call}: took too long: it ran for more than 5 ms in a call that");
        assert!(faults.iter().any(|text| text.starts_with(&named)), "{faults:?}");
    }
}

/// A process has a watchdog of its own, which cannot write to the cache.
#[test]
fn a_violation_in_a_process_is_reported_here() {
    let engines = Engines::new().unwrap();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let all = reported.clone();
    engines.watchdog().on_cut_off(move |hash, cause| all.lock().unwrap().push((*hash, cause)));
    let plan = as_bounded(&hanging("hanging", "flame_batch", HANGS[0].1), 5);
    let hash = plan.hash;
    let plan = Plan::new(vec![ModulePlan { process: Some("one".to_owned()), ..plan }], 1, 0);
    let runner = Some(Runner::at(&runner()).unwrap());
    let options = Options { runner, ..options(Arc::default()) };
    let run = Run::new(&plan, &[], &engines, options).unwrap();
    let source = Input::Shared(Box::new(Memory::tcp(10, 2)));
    let report = run.execute(source, &mut Lines::default(), &mut Silent).unwrap();
    let faults: Vec<_> = report.faults.iter().map(|f| &f.text).collect();
    assert!(faults[0].starts_with("flame_batch: bound violated"), "{faults:?}");
    assert_eq!(*reported.lock().unwrap(), [(hash, CutOff::Bound)]);
    // Processes may lie, so modules that run here are left alone.
    assert_eq!(engines.watchdog().why_cut_off(&hash), None);
}
