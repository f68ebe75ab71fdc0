//! Tests of the rules for calls of every kind (budgets, slices, eviction and stop) and of the exact counts.

use crate::common::{
    self, COUNT, MANIFEST, Memory, install, options, pcap, request, tcp_packet, with_manifest,
};
use flame_admit::Protection;
use flame_compile::InstallRequest;
use flame_execute::{LoadedModule, Module, Quantum, Shape, SlowLoop, Stop};
use flame_plan::{
    Account, Discipline, Limits, ModuleClass, ModuleId, ModulePlan, OnFault, Plan, Reason, Shed,
};
use flame_record::{Packet, RecordBatch, Sink, SinkError};
use flame_run::{Allowance, Call, Engines, Instance, Loaded, Mapping, Pace, Role, Slice};
use flame_source::{Next, Progress, RawBlock, Source, SourceError};
use flame_worker::{Handle, Input, Report, Run, Silent};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Units of about one second of counted loops.
const SECOND: u64 = 1_000_000_000;

/// An endless loop.
const SPIN: &str = "(loop $spin (br $spin))";

/// Returns a module of these functions that writes packets.
fn module(text: &str, request: &InstallRequest) -> ModulePlan {
    // It requests more than any test gives.
    let limits =
        "packets = true\n[limits]\npacket_budget = 1000000000000\ncall_budget = 1000000000000\n[[tables]]";
    let manifest = MANIFEST.replace("[[tables]]", limits);
    install(&with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes()), request).unwrap()
}

fn limited(call_budget: u64) -> InstallRequest {
    let limits = Limits { call_budget, packet_budget: 1 << 40, ..Limits::default() };
    InstallRequest { limits, ..request() }
}

/// An action of the sink when a packet is written, called with the number of packets so far.
type OnPacket = Box<dyn Fn(u64) + Send>;

struct Packets {
    written: u64,
    act: OnPacket,
    rows: Arc<AtomicU64>,
}

impl Sink for Packets {
    fn write(
        &mut self,
        _: &str,
        _: &flame_abi::manifest::Table,
        batch: &RecordBatch,
    ) -> Result<(), SinkError> {
        self.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn packet(&mut self, _: Packet<'_>) -> Result<(), SinkError> {
        self.written += 1;
        (self.act)(self.written);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

fn run(
    engines: &Engines,
    modules: Vec<ModulePlan>,
    (workers, source): (usize, Box<dyn Source>),
    stop: &Arc<AtomicBool>,
    act: OnPacket,
) -> Report {
    run_commanded(engines, modules, (workers, source), stop, |_| act)
}

/// Runs modules, with an action that can command the run.
fn run_commanded(
    engines: &Engines,
    modules: Vec<ModulePlan>,
    (workers, source): (usize, Box<dyn Source>),
    stop: &Arc<AtomicBool>,
    act: impl FnOnce(Handle) -> OnPacket,
) -> Report {
    let run = Run::new(&Plan::new(modules, workers, 0), &[], engines, options(stop.clone())).unwrap();
    let mut sink = Packets { written: 0, act: act(run.handle()), rows: Arc::default() };
    let report = run.execute(Input::Shared(source), &mut sink, &mut Silent).unwrap();
    for (name, account) in &report.accounts {
        assert!(account.adds_up(), "{name}: {account:?}");
    }
    report
}

/// Returns the expected account: `offered` packets, all processed, then changed by `change`.
fn expected(offered: u64, change: impl FnOnce(&mut Account)) -> Account {
    let mut account = Account::default();
    (account.offered, account.processed) = (offered, offered);
    change(&mut account);
    account
}

/// A tick and an end that write an empty packet each time and always have more.
const ENDLESS: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\10\00\00\00\fd\ff\00\00")
    (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
    (func $more (param i64) (result i64) (i64.const 0x1880000000))
    (export "flame_tick" (func $more)) (export "flame_end" (func $more)))"#;

/// The units of one call of [`ENDLESS`]: the minimum charge, and its output.
const UNITS: u64 = flame_abi::CALL_UNITS + 24;

#[test]
fn a_tick_has_one_budget_with_all_of_its_continuations() {
    let engines = Engines::new().unwrap();
    // Among 1200 packets there are a tick and the end. Both begin a budget, and the first fault ends the
    // module.
    for protection in [Protection::Auto, Protection::Metered] {
        let request = InstallRequest { protection, on_fault: OnFault::Restart(1), ..limited(100 * UNITS) };
        let plan = module(ENDLESS, &request);
        let stop = Arc::default();
        let source = Box::new(Memory::tcp(1200, 5));
        let report = run(&engines, vec![plan], (1, source), &stop, Box::new(|_| {}));
        let account = expected(1200, |a| (a.written, a.faults) = (200, 2));
        assert_eq!(report.accounts[0].1, account, "{protection:?}");
        let texts: Vec<_> = report.faults.iter().map(|f| &f.text[..]).collect();
        assert!(
            texts[0].starts_with("flame_tick: cut off: used up its budget of 104800 in 100 calls together")
        );
        assert!(
            texts[1].starts_with("flame_end: cut off: used up its budget of 104800 in 100 calls together")
        );
    }
}

/// Batches, ticks and an end that write an empty packet each, whose rest never ends.
const ENDLESS_REST: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\10\00\00\00\fd\ff\00\00")
    (func (export "flame_batch") (param i32) (result i64) (i64.const 0x1840000000))
    (func (export "flame_end") (param i64) (result i64) (i64.const 0x18c0000000))
    (func (export "flame_rest") (result i64) (i64.const 0x1840000000)))"#;

#[test]
fn the_rests_of_a_batch_share_its_budget() {
    let engines = Engines::new().unwrap();
    for protection in [Protection::Auto, Protection::Metered] {
        let mut request = InstallRequest { protection, on_fault: OnFault::Restart(1), ..limited(SECOND) };
        (request.limits.packet_budget, request.limits.call_budget) = (UNITS, 256 * UNITS);
        let plan = module(ENDLESS_REST, &request);
        let class = if protection == Protection::Auto { ModuleClass::Bounded } else { ModuleClass::Metered };
        assert_eq!(plan.class, class);
        let stop = Arc::default();
        let source = Box::new(Memory::tcp(300, 5));
        let report = run(&engines, vec![plan], (1, source), &stop, Box::new(|_| {}));
        // Each batch is written, then as many rests as it has packets, which is what they may cost; one that
        // nothing counts, in a bounded module whose batches cost little.
        let is_counted = class == ModuleClass::Metered;
        let account = expected(300, |a| {
            (a.written, a.faults, a.processed) = (2 + if is_counted { 300 } else { 2 }, 2, 0);
            a.shed(if is_counted { Shed::Budget } else { Shed::Output }, 300);
        });
        assert_eq!(report.accounts[0].1, account, "{protection:?}");
        for (fault, packets) in report.faults.iter().zip([256, 44]) {
            let limit = packets * UNITS;
            let said = match is_counted {
                true => {
                    format!("flame_rest: cut off: used up its budget of {limit} in {packets} calls together")
                }
                false => "flame_rest: asked for more than 1 further calls".to_owned(),
            };
            assert!(fault.text.starts_with(&said), "{}", fault.text);
        }
    }
}

/// Six million iterations after each batch.
const LONG_REST: &str = r#"(module (memory (export "memory") 1)
    (func (export "flame_batch") (param i32) (result i64) (i64.const 0x40000000))
    (func (export "flame_rest") (result i64) (local $i i32)
        (loop $next (br_if $next (i32.lt_u
            (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 6000000))))
        (i64.const 0)))"#;

/// A batch that costs nothing once was bounded, whatever its rests cost.
#[test]
fn the_rest_of_a_bounded_batch_is_bounded_too() {
    let engines = Engines::new().unwrap();
    for (packet_budget, class) in [(1_000_000, ModuleClass::Metered), (100_000_000, ModuleClass::Bounded)] {
        let mut request = limited(SECOND);
        request.limits.packet_budget = packet_budget;
        let plan = module(LONG_REST, &request);
        assert_eq!(plan.class, class);
        let source = Box::new(Memory { per_block: 2, ..Memory::tcp(4, 4) });
        let report = run(&engines, vec![plan], (1, source), &Arc::default(), Box::new(|_| {}));
        let account = match class {
            ModuleClass::Bounded => expected(4, |_| {}),
            ModuleClass::Metered => expected(4, |a| {
                (a.processed, a.faults) = (0, 1);
                a.shed(Shed::Budget, 2);
                a.shed(Shed::Stopped, 2);
            }),
        };
        assert_eq!(report.accounts[0].1, account, "{:?}", report.faults);
        let said = "flame_rest: cut off in the loop at byte ";
        assert!(report.faults.iter().all(|f| f.text.starts_with(said) && f.text.contains("of 2000000 ")));
    }
}

/// Nothing interrupts a call of a bounded module, so each costs at most as much as a full batch may.
#[test]
fn no_call_of_a_bounded_module_costs_more_than_a_full_batch() {
    let engines = Engines::new().unwrap();
    let text = format!(
        r#"(module (memory (export "memory") 1)
            (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
            (func (export "flame_end") (param i64) (result i64) {SPIN} (i64.const 0)))"#
    );
    let wasm = || with_manifest(wat::parse_str(&text).unwrap(), MANIFEST.as_bytes());
    let mut request = limited(SECOND);
    request.limits.packet_budget = 10_000;
    let plan = install(&wasm(), &request).unwrap();
    assert_eq!((plan.class, plan.limits.call_budget), (ModuleClass::Bounded, 2_560_000));
    let source = Box::new(Memory::tcp(300, 5));
    let report = run(&engines, vec![plan], (1, source), &Arc::default(), Box::new(|_| {}));
    assert_eq!(report.accounts[0].1, expected(300, |a| a.faults = 1));
    // An endless loop is one of a function that does not return.
    assert!(report.faults[0].text.contains("does not return ran for too long"), "{}", report.faults[0].text);
    // A module that asks for more is metered, so that its calls can be interrupted.
    let plan = module(&text, &request);
    assert_eq!((plan.class, plan.limits.call_budget), (ModuleClass::Metered, SECOND));
}

/// A module whose end has three areas, then begins again once.
const AREAS: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\10\00\00\00\fd\ff\00\00")
    (global $left (mut i32) (i32.const 0)) (global $again (mut i64) (i64.const 0x80000000))
    (func $hand (result i64)
        (global.set $left (i32.sub (global.get $left) (i32.const 1)))
        (if (result i64) (global.get $left) (then (i64.const 0x1840000000)) (else (i64.const 0x1800000000))))
    (func (export "flame_rest") (result i64) (call $hand))
    (func (export "flame_batch") (param i32) (result i64)
        (global.set $left (i32.const 2)) (call $hand))
    (func (export "flame_end") (param i64) (result i64) (local $again i64)
        (global.set $left (i32.const 3))
        (local.set $again (global.get $again)) (global.set $again (i64.const 0))
        (i64.or (call $hand) (local.get $again))))"#;

#[test]
fn the_rest_of_an_output_comes_before_the_same_call_again() {
    let engines = Engines::new().unwrap();
    for (protection, workers) in [(Protection::Auto, 1), (Protection::Metered, 2)] {
        let plan = module(AREAS, &InstallRequest { protection, ..limited(SECOND) });
        let stop = Arc::default();
        let source = Box::new(Memory::tcp(workers * 10, 1));
        let report = run(&engines, vec![plan], (workers, source), &stop, Box::new(|_| {}));
        // All packets are one flow, so one worker has the batch.
        let written = 2 + workers as u64 * (3 + 3);
        assert_eq!(report.accounts[0].1, expected(workers as u64 * 10, |a| a.written = written));
    }
}

#[test]
fn continuations_are_limited_in_number_too() {
    let engines = Engines::new().unwrap();
    let request = limited(SECOND);
    let request = InstallRequest { limits: Limits { continuations: 7, ..request.limits }, ..request };
    let plan = module(ENDLESS, &request);
    let stop = Arc::default();
    let report = run(&engines, vec![plan], (1, Box::new(Memory::tcp(10, 5))), &stop, Box::new(|_| {}));
    assert_eq!(report.accounts[0].1, expected(10, |a| (a.written, a.faults) = (8, 1)));
    assert_eq!(report.faults[0].text, "flame_end: asked for more than 7 further calls");
}

#[test]
fn who_is_evicted_gets_no_further_continuation() {
    let engines = Engines::new().unwrap();
    for workers in [1, 2] {
        let plan = module(ENDLESS, &limited(SECOND));
        let stop = Arc::default();
        // With two workers, each sends to the thread that writes, and may be 1,024 calls ahead of it.
        let act = |handle: Handle| -> OnPacket {
            Box::new(move |written| {
                if written == 10 {
                    handle.evict(ModuleId(0), Reason::denied("revoked")).unwrap();
                }
            })
        };
        let source = Box::new(Memory::tcp(10, 5));
        let report = run_commanded(&engines, vec![plan], (workers, source), &stop, act);
        let account = &report.accounts[0].1;
        match workers {
            1 => assert_eq!(*account, expected(10, |a| a.written = 10)),
            _ => assert!(account.written < 1100 && account.faults == 0, "{account:?}"),
        }
        assert_eq!(report.faults[0].text, "evicted: revoked");
    }
}

#[test]
fn once_stopped_all_calls_share_a_last_budget() {
    let engines = Engines::new().unwrap();
    // Each tick takes 60 calls, and the end does not end.
    let text = ENDLESS.replace(
        r#"(export "flame_tick" (func $more))"#,
        r#"(global $n (mut i32) (i32.const 0))
        (func (export "flame_tick") (param i64) (result i64)
            (global.set $n (i32.add (global.get $n) (i32.const 1)))
            (if (result i64) (i32.rem_u (global.get $n) (i32.const 60))
                (then (i64.const 0x1880000000)) (else (i64.const 0x1800000000))))"#,
    );
    let plan = module(&text, &limited(100 * UNITS));
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    // The stop comes in a tick's tenth call. That tick has its own budget, since it was read before, and the
    // end has the last one.
    let act: OnPacket = Box::new(move |written| told.store(written >= 10, Ordering::Relaxed));
    let report = run(&engines, vec![plan], (1, Box::new(Memory::tcp(1200, 5))), &stop, act);
    assert_eq!(report.accounts[0].1.written, 60 + 100);
    assert_eq!((report.accounts[0].1.faults, report.faults.len()), (1, 1));
    let text = &report.faults[0].text;
    assert!(
        text.contains("after the run was stopped it used up its budget of 104800 in 100 calls"),
        "{text}"
    );
}

/// Returns a module that sends as many empty messages per batch as it has packets. `message` is the code of
/// the slow path.
fn messages(message: &str) -> String {
    format!(
        r#"(module (memory (export "memory") 1)
            (func (export "flame_message") (param i32 i32) (result i64) {message} (i64.const 0))
            (func (export "flame_batch") (param $b i32) (result i64) (local $i i32)
                (loop $next
                    (i64.store (i32.shl (local.get $i) (i32.const 3)) (i64.const 0x0000ffff00000000))
                    (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1)))
                        (i32.load offset=4 (local.get $b)))))
                (i64.shl (i64.extend_i32_u (local.get $i)) (i64.const 35))))"#
    )
}

#[test]
fn messages_of_one_call_have_one_budget() {
    let engines = Engines::new().unwrap();
    for protection in [Protection::Auto, Protection::Metered] {
        let count = |budget: u64, packets: usize| {
            let request = InstallRequest { protection, ..limited(budget) };
            let plan = module(&messages(""), &request);
            let stop = Arc::default();
            let source = Box::new(Memory::tcp(packets, 5));
            run(&engines, vec![plan], (1, source), &stop, Box::new(|_| {}))
        };
        // Each batch of 256 packets has its own budget.
        let report = count(256 * flame_abi::CALL_UNITS, 2000);
        assert_eq!(report.accounts[0].1, expected(2000, |_| {}), "{:?}", report.faults);
        // 200 of the first 256 messages are accepted. Then the slow instance is gone, and all others are
        // lost.
        let report = count(200 * flame_abi::CALL_UNITS, 1024);
        let account = expected(1024, |a| (a.messages_lost, a.faults) = (1024 - 200, 1));
        assert_eq!(report.accounts[0].1, account);
        assert!(report.faults[0].text.contains("in 200 calls together"), "{}", report.faults[0].text);
        assert_eq!(report.faults[0].worker, None);
    }
}

/// Messages are lost when too many wait. The others of the same call have its budget, not what the call
/// before left over.
#[test]
fn a_lost_message_leaves_its_call_a_budget() {
    let engines = Engines::new().unwrap();
    let plan = module(&messages(""), &limited(3 * flame_abi::CALL_UNITS));
    let module = LoadedModule::new(&engines, &Module::from(plan)).unwrap();
    let shape = Shape { workers: 2, tick_ns: 1, interval_ns: 1 };
    let (mut slow, fault) = SlowLoop::new(shape, &module, Discipline::Link, 0);
    assert!(fault.is_none());
    let flag = AtomicBool::new(false);
    let stop = Stop::new(&flag);
    let go = |slow: &mut SlowLoop| {
        slow.go::<()>(&Quantum::whole(&stop), &mut |_, _| Ok(())).unwrap().map(|fault| fault.text)
    };
    slow.message(0, 1, b"one");
    slow.message(0, 1, b"two");
    assert_eq!((go(&mut slow), slow.take_lost()), (None, 0));
    // Another worker fills the queue.
    let mut calls = 0..;
    while slow.take_lost() == 0 {
        slow.message(1, calls.next().unwrap(), &[0; 65_536]);
    }
    slow.message(0, 2, b"first");
    assert_eq!(slow.take_lost(), 1);
    assert_eq!(go(&mut slow), None);
    for _ in 0..3 {
        slow.message(0, 2, b"next");
    }
    assert_eq!(go(&mut slow), None);
    slow.message(0, 2, b"one too many");
    assert!(go(&mut slow).unwrap().contains("in 3 calls together"));
}

#[test]
fn too_many_messages_end_who_sends_them() {
    let engines = Engines::new().unwrap();
    let request = limited(SECOND);
    let request = InstallRequest { limits: Limits { messages: 255, ..request.limits }, ..request };
    let plan = module(&messages(""), &request);
    let stop = Arc::default();
    let report = run(&engines, vec![plan], (1, Box::new(Memory::tcp(1000, 5))), &stop, Box::new(|_| {}));
    let account = expected(1000, |a| {
        (a.processed, a.faults) = (0, 1);
        a.shed(Shed::Output, 256);
        a.shed(Shed::Stopped, 744);
    });
    assert_eq!(report.accounts[0].1, account);
    assert!(report.faults[0].text.contains("sent 256 messages in one call, at most 255"));
}

/// A source that delivers a block of packets each `every`, as a link would, and records the largest delay in
/// taking one.
struct Link {
    blocks: Vec<Memory>,
    every: Duration,
    started: Option<Instant>,
    taken: u32,
    latest: Arc<AtomicU64>,
}

impl Link {
    fn new(blocks: u64, latest: &Arc<AtomicU64>) -> Self {
        // Packet time advances by 300 ms with each block, so that there are ticks.
        let packet = |i: u64| (1_000_000_000 + i * 300_000_000, common::tcp_packet(i as u16 % 5, 80));
        let block = |i: u64| Memory { packets: vec![packet(i); 100], per_block: 100 };
        let every = Duration::from_millis(20);
        Self {
            blocks: (0..blocks).rev().map(block).collect(),
            every,
            started: None,
            taken: 0,
            latest: latest.clone(),
        }
    }

    fn due(&self) -> Duration {
        self.every * self.taken
    }
}

impl Source for Link {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        let started = *self.started.get_or_insert_with(Instant::now);
        let Some(mut packets) = self.blocks.pop() else { return Ok(Next::End) };
        let wait = self.due().saturating_sub(started.elapsed());
        std::thread::sleep(wait);
        let late = started.elapsed().saturating_sub(self.due());
        self.latest.fetch_max(late.as_millis() as u64, Ordering::Relaxed);
        self.taken += 1;
        packets.next(block)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn discipline(&self) -> Discipline {
        Discipline::Link
    }

    fn is_ready(&self) -> bool {
        self.started.is_none_or(|started| started.elapsed() >= self.due())
    }

    fn close(&mut self) -> bool {
        false
    }
}

/// Returns a module that is refused memory in each batch. `pressure` is its code when it is informed.
fn pressed(pressure: &str) -> String {
    format!(
        r#"(module (memory (export "memory") 1)
            (func (export "flame_pressure") (param i64) (result i64) {pressure} (i64.const 0))
            (func (export "flame_batch") (param i32) (result i64)
                (drop (memory.grow (i32.const 65535))) (i64.const 0)))"#
    )
}

/// Returns modules that spin in one kind of call until they are stopped at their budget.
fn spinning() -> Vec<(&'static str, String)> {
    let batch = r#"(func (export "flame_batch") (param i32) (result i64) (i64.const 0))"#;
    let of = |signature: &str| {
        format!(
            r#"(module (memory (export "memory") 1) {batch} (func (export {signature} (result i64) {SPIN} (i64.const 0)))"#
        )
    };
    vec![
        ("flame_init", of(r#""flame_init") (param i32 i32)"#)),
        ("flame_tick", of(r#""flame_tick") (param i64)"#)),
        ("flame_message", messages(SPIN)),
        ("flame_pressure", pressed(SPIN)),
    ]
}

#[test]
fn on_a_link_nobody_waits_for_a_metered_call_of_any_kind() {
    let engines = Engines::new().unwrap();
    for (call, text) in spinning() {
        for workers in [1, 2] {
            let request = InstallRequest { protection: Protection::Metered, ..limited(SECOND) };
            let (spins, count) = (module(&text, &request), module(COUNT, &limited(SECOND)));
            let (stop, latest) = (Arc::default(), Arc::default());
            let source = Box::new(Link::new(100, &latest));
            let modules = vec![spins, ModulePlan { name: "count".to_owned(), ..count }];
            let report = run(&engines, modules, (workers, source), &stop, Box::new(|_| {}));
            assert_eq!(report.accounts[1].1, expected(10_000, |a| a.records = workers as u64), "{call}");
            let late = latest.load(Ordering::Relaxed);
            assert!(late < 250, "{call}, {workers} workers: a block was taken {late} ms late");
            assert!(report.faults.iter().all(|f| f.module == "hostile"), "{call}: {:?}", report.faults);
            let cut = format!("{call}: cut off");
            assert!(report.faults.iter().any(|f| f.text.starts_with(&cut)), "{call}: {:?}", report.faults);
        }
    }
}

#[test]
fn once_stopped_a_batch_or_init_that_goes_on_is_interrupted() {
    let engines = Engines::new().unwrap();
    let batch = format!(
        r#"(module (memory (export "memory") 1)
            (func (export "flame_batch") (param i32) (result i64) {SPIN} (i64.const 0)))"#
    );
    for (call, text) in [("flame_batch", batch), ("flame_init", spinning().swap_remove(0).1)] {
        for is_live in [false, true] {
            // The budget is worth some minutes of work.
            let request = InstallRequest { protection: Protection::Metered, ..limited(1000 * SECOND) };
            let (spins, count) = (module(&text, &request), module(COUNT, &limited(SECOND)));
            let stop = Arc::new(AtomicBool::new(false));
            let told = stop.clone();
            let timer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                told.store(true, Ordering::Relaxed);
            });
            let source: Box<dyn Source> = match is_live {
                true => Box::new(Link::new(50, &Arc::default())),
                false => Box::new(Memory::tcp(100, 5)),
            };
            let started = Instant::now();
            let modules = vec![spins, ModulePlan { name: "count".to_owned(), ..count }];
            let report = run(&engines, modules, (1, source), &stop, Box::new(|_| {}));
            timer.join().unwrap();
            let took = started.elapsed();
            assert!(took < Duration::from_secs(20), "{call}: {took:?}");
            let [fault] = &report.faults[..] else { panic!("{call}: {:?}", report.faults) };
            assert!(fault.text.starts_with(&format!("{call}: interrupted: it still ran ")), "{}", fault.text);
            let (account, of_count) = (&report.accounts[0].1, &report.accounts[1].1);
            assert_eq!((of_count.processed, of_count.faults), (of_count.offered, 0), "{call}");
            assert_eq!((account.processed, account.faults), (0, 1), "{call}");
            let shed = account.shed_by(Shed::Stopped) + account.shed_by(Shed::Overrun);
            assert_eq!(shed, account.offered, "{call}: {account:?}");
        }
    }
}

/// A bulk instruction continues in slices, as a loop does.
#[test]
fn a_long_bulk_instruction_is_interrupted() {
    const BYTES: u32 = 15 << 20;
    /// More than the checks before the instruction.
    const SLICES: u32 = 16;
    const PATIENCE: Duration = Duration::from_secs(60);
    for instruction in [
        "(memory.fill (i32.const 5) (i32.const 1) (local.get $n))",
        "(memory.copy (i32.const 5) (i32.const 70000) (local.get $n))",
        "(memory.copy (i32.const 70000) (i32.const 5) (local.get $n))",
    ] {
        let text = format!(
            r#"(module (memory (export "memory") 256)
                (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
                (func (export "flame_tick") (param $now i64) (result i64) (local $n i32)
                  (local.set $n (i32.wrap_i64 (local.get $now))) {instruction} (i64.const 0)))"#
        );
        let request = InstallRequest { protection: Protection::Metered, ..limited(SECOND) };
        let engines = Engines::new().unwrap();
        let loaded = Loaded::new(&engines, &module(&text, &request)).unwrap();
        let none: &[Mapping] = &[];
        let mut instance = Box::new(Instance::new(&loaded, none, false).unwrap());
        let init = Call::Init { role: Role::Fast { worker: 0 }, workers: 1, tick_ns: 1, interval_ns: 0 };
        instance.call(&init).unwrap();
        let (is_done, started) = (AtomicBool::new(false), Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) && started.elapsed() < PATIENCE {
                    engines.end_slice();
                }
            });
            // On a busy machine, the other thread may run during few of the calls.
            let mut most = 0;
            while most <= SLICES && started.elapsed() < PATIENCE {
                let mut slices = 1;
                let tick = Call::Tick { now_ns: BYTES.into() };
                let mut slice = instance.begin(&tick, Allowance::new(SECOND), Pace::InSlices);
                let called = loop {
                    match slice {
                        Slice::Yielded(suspended) => (slice, slices) = (suspended.resume(), slices + 1),
                        Slice::Done(back, called) => {
                            instance = back;
                            break called;
                        }
                    }
                };
                let price = instance.finish(called).unwrap().allowance.since(&Allowance::new(SECOND));
                assert!((BYTES / 16..BYTES / 16 + 100).contains(&(price as u32)), "{instruction}: {price}");
                most = most.max(slices);
            }
            is_done.store(true, Ordering::Relaxed);
            assert!(most > SLICES, "{instruction}: at most {most} slices");
        });
    }
}

/// The records of all flows share the budget of the end. If one costs more, fewer flows may be asked for.
#[test]
fn the_largest_table_of_flow_is_written_at_the_end() {
    if common::module("flow").is_none() {
        return;
    }
    let manifest = std::fs::read_to_string(common::root().join("modules/flow/module.toml")).unwrap();
    let parameter = manifest.split("[parameters.max_flows]").nth(1).unwrap();
    let max: u32 =
        parameter.split("max = ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("flows.pcap");
    // All flows are at the same time, so none ends before.
    let packets = (0..max).map(|i| (0, tcp_packet(i as u16, (i >> 16) as u16 + 1)));
    std::fs::write(&capture, pcap(packets)).unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_flame"))
        .args(["run", "flow", "--workers", "1", "--stats", "json", "--set"])
        .arg(format!("flow.max_flows={max}"))
        .arg("-r")
        .arg(&capture)
        .arg("-o")
        .arg(folder.path().join("out.json"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains(&format!("\"records\":{max}")), "{said}");
}
