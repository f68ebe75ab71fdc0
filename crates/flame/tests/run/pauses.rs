//! Tests of calls that pause, of every kind but batches, also of bounded modules; and of output, which the
//! host checks and delivers in pieces on the module's account.

use crate::common::{self, Memory, install, request, with_manifest};
use flame_admit::Protection;
use flame_compile::InstallRequest;
use flame_execute::{LoadedModule, Module, Quantum, Shape, SlowLoop, Stop};
use flame_plan::limits::OUTPUT_PIECE;
use flame_plan::{Discipline, Limits, ModuleClass, ModulePlan, Share};
use flame_quota::{Amounts, Meter, Meters, Quota, ThisRun, Usage};
use flame_run::Engines;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PROTECTIONS: [(Protection, ModuleClass); 2] =
    [(Protection::Auto, ModuleClass::Bounded), (Protection::Metered, ModuleClass::Metered)];

/// The bytes of [`FLOOD`].
const BYTES: u32 = 9 * 200_000;

/// The value that returns them, from address 0 on.
const VALUE: u64 = (BYTES as u64) << 32;

/// Fills [`BYTES`] with rows of one byte.
const FLOOD: &str = "(func (export \"flame_init\") (param i32 i32) (result i64) (local $i i32)
    (loop $next
        (i32.store (local.get $i) (i32.const 1))
        (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 9))) (i32.const 1800000))))
    (i64.const 0))";

/// Installs a module with a table of one byte.
fn module(functions: &str, (protection, class): (Protection, ModuleClass)) -> ModulePlan {
    let text = format!("(module (memory (export \"memory\") 280) {functions})");
    let columns = "columns = [{ name = \"a\", type = \"u8\" }]";
    let manifest = format!(
        "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n[[tables]]\nname = \"t\"\n\
         description = \"d\"\n{columns}\n"
    );
    let limits = Limits { call_budget: 1 << 40, ..Limits::default() };
    let request = InstallRequest { protection, limits, ..request() };
    let wasm = with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes());
    let plan = install(&wasm, &request).unwrap();
    assert_eq!(plan.class, class);
    plan
}

fn shape() -> Shape {
    Shape { workers: 1, tick_ns: 1, interval_ns: 1 }
}

/// Ends slices as long as `work` goes on.
fn in_slices<T>(engines: &Engines, work: impl FnOnce() -> T) -> T {
    /// Also after a failed assertion.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _done = Done(&is_done);
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                engines.end_slice();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        work()
    })
}

/// Each export that is no batch, with a loop of a tenth of a second and more, or whose output is a flood.
fn exports(body: &str) -> [String; 3] {
    let batch = "(func (export \"flame_batch\") (param i32) (result i64) (i64.const 0))";
    let message = "(func (export \"flame_message\") (param i32 i32) (result i64)";
    [
        format!("{batch} {message} {body})"),
        format!(
            "{batch} {message} (i64.const 0)) (func (export \"flame_tick\") (param i64) (result i64) {body})"
        ),
        format!(
            "{batch} {message} (i64.const 0))
            (func (export \"flame_init\") (param i32 i32) (result i64) {body})"
        ),
    ]
}

#[test]
fn calls_that_are_no_batches_pause() {
    let engines = Engines::new().unwrap();
    // Few instructions, each of which waits for the one before.
    let body = "(local $i i32) (local $x i64)
        (loop $next
            (local.set $x (i64.rem_u (i64.const 0x7fffffffffffffff) (i64.add (local.get $x) (i64.const 3))))
            (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1)))
                (i32.const 8000000))))
        (i64.store (i32.const 0) (local.get $x))
        (i64.const 0)";
    for class in PROTECTIONS {
        for text in exports(body) {
            let module = LoadedModule::new(&engines, &Module::from(module(&text, class))).unwrap();
            let flag = AtomicBool::new(false);
            let stop = Stop::new(&flag);
            let quanta = in_slices(&engines, || {
                let (mut slow, fault) = SlowLoop::new(shape(), &module, Discipline::Link, 0);
                assert!(fault.is_none(), "{fault:?}");
                slow.message(0, 1, b"one");
                slow.passed(0, 1);
                slow.tick(1);
                let mut quanta = 0;
                while slow.is_busy() {
                    let fault = slow.go::<()>(&Quantum::slice(&stop), &mut |_, _| Ok(())).unwrap();
                    assert!(fault.is_none(), "{fault:?}");
                    quanta += 1;
                }
                quanta
            });
            assert!(quanta > 10, "{class:?}: {quanta} quanta: {text}");
        }
    }
}

/// Another thread makes a call of a bounded module, unless its bound is shorter than a slice.
#[test]
fn calls_with_short_bounds_are_made_at_once() {
    let engines = Engines::new().unwrap();
    let made = |text: &str| {
        let plan = module(text, PROTECTIONS[0]);
        let usage = Arc::new(Usage::default());
        let meters = Meters::default().with(None, Some(usage.clone()));
        let module = LoadedModule::new(&engines, &Module { meters, ..Module::from(plan) }).unwrap();
        let (flag, done) = (AtomicBool::new(false), &mut |_, _: flame_run::Output<'_>| Ok::<(), ()>(()));
        let (mut slow, fault) = SlowLoop::new(shape(), &module, Discipline::Link, 0);
        assert!(fault.is_none(), "{fault:?}");
        slow.message(0, 1, b"one");
        slow.passed(0, 1);
        slow.tick(1);
        while slow.is_busy() {
            assert!(slow.go(&Quantum::slice(&Stop::new(&flag)), done).unwrap().is_none());
        }
        // This thread's own time has no owner here.
        assert_eq!(usage.used().apart_ns, 0, "the time of this process");
        usage.used().cpu_ns
    };
    for (steps, is_apart) in [(100, false), (1000, true)] {
        let body = format!(
            "(local $i i32)
            (loop $next (br_if $next (i32.lt_u
                (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {steps}))))
            (i64.const 0)"
        );
        for text in exports(&body) {
            assert_eq!(made(&text) > 0, is_apart, "{steps}: {text}");
        }
    }
}

#[test]
fn output_is_delivered_in_pieces_and_its_time_is_the_modules() {
    let engines = Engines::new().unwrap();
    let text = format!(
        "{FLOOD} (func (export \"flame_batch\") (param i32) (result i64) (i64.const 0))
        (func (export \"flame_message\") (param i32 i32) (result i64) (i64.const {VALUE}))"
    );
    for class in PROTECTIONS {
        let share = Some(Share { slice_ns: 10_000_000, period_ns: 3_600_000_000_000 });
        let quota = Quota { per_second: Amounts::MAX, per_packet: Amounts::MAX, share, memory: u64::MAX };
        let meter = Arc::new(Meter::new(quota, Box::new(ThisRun::new(quota))));
        let meters = Meters::of_grant(vec![meter]);
        let module = Module { meters: meters.clone(), ..Module::from(module(&text, class)) };
        let module = LoadedModule::new(&engines, &module).unwrap();
        let flag = AtomicBool::new(false);
        let stop = Stop::new(&flag);
        let (mut slow, _) = SlowLoop::new(shape(), &module, Discipline::Link, 0);
        slow.message(0, 1, b"one");
        let (mut bytes, mut most, mut quanta) = (0, 0, 0);
        // The work of the host is what takes the time.
        let work = Duration::from_millis(2);
        in_slices(&engines, || {
            while slow.can_progress() {
                let each = &mut |_, output: flame_run::Output<'_>| {
                    let begun = Instant::now();
                    while begun.elapsed() < work {}
                    (bytes, most) = (bytes + output.bytes.len(), most.max(output.bytes.len()));
                    Ok::<(), ()>(())
                };
                assert!(slow.go(&Quantum::slice(&stop), each).unwrap().is_none());
                quanta += 1;
            }
        });
        assert!(most > 0 && most < OUTPUT_PIECE + 9, "{most}");
        assert!(quanta > 2, "{quanta} quanta, {bytes} bytes");
        assert!(slow.is_busy() && !meters.may_begin(), "its share is used up before all of it is delivered");
        // Once nobody else waits, the rest follows.
        let each = &mut |_, output: flame_run::Output<'_>| {
            bytes += output.bytes.len();
            Ok::<(), ()>(())
        };
        assert!(slow.go(&Quantum::whole(&stop), each).unwrap().is_none());
        assert_eq!((bytes, slow.is_busy()), (BYTES as usize, false));
    }
}

#[test]
fn the_output_of_a_batch_costs_no_more_than_its_packets_may() {
    let engines = Engines::new().unwrap();
    // 25 units for each row, also of the rest.
    let batch = |value: u64| {
        format!("{FLOOD} (func (export \"flame_batch\") (param i32) (result i64) (i64.const {value}))")
    };
    let rest = format!("(func (export \"flame_rest\") (result i64) (i64.const {VALUE}))");
    let texts = [batch(VALUE), format!("{} {rest}", batch(VALUE | 1 << 30))];
    for (class, (text, packets, rows)) in PROTECTIONS.into_iter().flat_map(|class| {
        let [once, twice] = &texts;
        let cases = [(once, 1, None), (once, 5, Some(200_000)), (twice, 5, None), (twice, 10, Some(400_000))];
        cases.map(|case| (class, case))
    }) {
        let plan = module(text, class);
        let (report, _) =
            common::run(&engines, vec![plan], 1, Box::new(Memory::tcp(packets, packets)), 256).unwrap();
        let account = &report.accounts[0].1;
        if let Some(rows) = rows {
            let found = (report.faults.len(), account.records + account.withheld);
            assert_eq!(found, (0, rows), "{packets} packets: {:?}", report.faults);
            continue;
        }
        let text = &report.faults[0].text;
        let limit = if packets == 1 { "flame_batch: " } else { "flame_rest: " };
        assert!(text.contains(limit) && text.contains("are allowed for what is left"), "{text}");
    }
}

/// What another thread takes for a call is charged to the module's share.
#[test]
fn the_time_of_another_thread_is_the_modules() {
    let engines = Engines::new().unwrap();
    let body = "(local $i i32)
        (loop $next (br_if $next (i32.lt_u
            (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 8000000))))
        (i64.const 0)";
    let share = Some(Share { slice_ns: 1_000_000, period_ns: 3_600_000_000_000 });
    let quota = Quota { per_second: Amounts::MAX, per_packet: Amounts::MAX, share, memory: u64::MAX };
    let meters = Meters::of_grant(vec![Arc::new(Meter::new(quota, Box::new(ThisRun::new(quota))))]);
    let [message, ..] = exports(body);
    let plan = Module { meters: meters.clone(), ..Module::from(module(&message, PROTECTIONS[0])) };
    let module = LoadedModule::new(&engines, &plan).unwrap();
    let (flag, done) = (AtomicBool::new(false), &mut |_, _: flame_run::Output<'_>| Ok::<(), ()>(()));
    let (mut slow, _) = SlowLoop::new(shape(), &module, Discipline::Link, 0);
    slow.message(0, 1, b"one");
    while slow.can_progress() {
        assert!(slow.go(&Quantum::slice(&Stop::new(&flag)), done).unwrap().is_none());
    }
    assert!(!slow.is_busy() && !meters.may_begin(), "the call has ended, and its time is charged");
}
