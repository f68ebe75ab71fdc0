//! Memory pressure: a module is informed when little memory is left or more was refused, and no other module
//! is disturbed.

use crate::common::{COUNT, Lines, MANIFEST, Memory, install, options, request, runner, with_manifest};
use flame_admit::Protection;
use flame_compile::InstallRequest;
use flame_plan::{Limits, ModuleClass, ModuleId, ModulePlan, Plan};
use flame_quota::{Amounts, Meter, Meters, Quota, ThisRun};
use flame_run::Engines;
use flame_worker::{Input, Options, Report, Run, Runner, Silent};
use std::sync::Arc;

const PAGE: u64 = 65_536;

/// Returns a module that does this in each batch, and under pressure `pressure`. Its row is the u64 at 8.
fn text(batch: &str, pressure: &str) -> String {
    format!(
        r#"(module (memory (export "memory") 1)
          (data (i32.const 0) "\08\00\00\00\00\00\00\00")
          (func (export "flame_batch") (param i32) (result i64) {batch} (i64.const 0))
          (func (export "flame_pressure") (param i64) (result i64) {pressure}))"#
    )
}

const GROW: &str = "(drop (memory.grow (i32.const 1)))";
/// More than any limit.
const REFUSED: &str = "(drop (memory.grow (i32.const 65535)))";
/// Writes the number of free bytes.
const REPORT: &str = "(i64.store (i32.const 8) (local.get 0)) (i64.const 0x1000000000)";

/// Returns a module that may have this many pages.
fn plan(name: &str, text: &str, pages: u64, protection: Protection) -> ModulePlan {
    let limits = Limits { memory: (pages * PAGE) as u32, ..request().limits };
    let wasm = with_manifest(wat::parse_str(text).unwrap(), MANIFEST.replace("hostile", name).as_bytes());
    install(&wasm, &InstallRequest { protection, limits, ..request() }).unwrap()
}

/// Returns a meter that allows this many pages.
fn meter(pages: u64) -> Arc<Meter> {
    let memory = pages * PAGE;
    let quota = Quota { per_second: Amounts::MAX, per_packet: Amounts::MAX, share: None, memory };
    Arc::new(Meter::new(quota, Box::new(ThisRun::new(quota))))
}

fn meters(pages: u64) -> Meters {
    Meters::of_grant(vec![meter(pages)])
}

/// Runs modules on `batches` batches of `size` packets, single ones a millisecond apart. Returns the report,
/// and the numbers in the rows of each module, in order.
fn run(
    modules: Vec<(ModulePlan, Meters)>,
    (batches, size): (usize, usize),
    workers: usize,
) -> (Report, impl Fn(&str) -> Vec<u64>) {
    let is_apart = modules.iter().any(|(plan, _)| plan.process.is_some());
    let (plans, meters): (Vec<_>, Vec<_>) = modules.into_iter().unzip();
    let number = |(n, plan)| ModulePlan { id: ModuleId(n as u32), ..plan };
    let plan = Plan::new(plans.into_iter().enumerate().map(number).collect(), workers, 0);
    let runner = is_apart.then(|| Runner::at(&runner()).unwrap());
    let options = Options { batch: 256, runner, ..options(Arc::default()) };
    let run = Run::new(&plan, &meters, &Engines::new().unwrap(), options).unwrap();
    let mut sink = Lines::default();
    let mut source = Memory { per_block: size, ..Memory::tcp(batches * size, 50) };
    if size > 1 {
        // A tick would divide a batch.
        source.packets.iter_mut().zip(1_000_000_000..).for_each(|((ts_ns, _), n)| *ts_ns = n);
    }
    let report = run.execute(Input::Shared(Box::new(source)), &mut sink, &mut Silent).unwrap();
    for (name, account) in &report.accounts {
        assert!(account.adds_up(), "{name}: {account:?}");
    }
    let rows = move |name: &str| {
        let head = format!("{name}.t packets=");
        sink.lines.iter().filter_map(|line| line.strip_prefix(&head)?.parse().ok()).collect()
    };
    (report, rows)
}

/// Returns the places of a module: in line and metered, and in a process.
fn places(text: &str, pages: u64) -> [ModulePlan; 3] {
    let plan = |protection| plan("grows", text, pages, protection);
    let inline = plan(Protection::Auto);
    assert_eq!(inline.class, ModuleClass::Bounded);
    let apart = ModulePlan { process: Some("one".to_owned()), ..inline.clone() };
    [inline, plan(Protection::Metered), apart]
}

fn pages(numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
    numbers.into_iter().map(|n| n * PAGE).collect()
}

#[test]
fn a_module_is_informed_below_an_eighth_of_its_limit_and_after_each_refusal() {
    for plan in places(&text(GROW, REPORT), 64) {
        let apart = plan.process.is_some();
        // A page with each batch: 56 of 64 leave an eighth, the last six batches are refused a page.
        let (report, rows) = run(vec![(plan, Meters::default())], (69, 256), 1);
        let expected = pages([7, 6, 5, 4, 3, 2, 1, 0].into_iter().chain([0; 6]));
        assert_eq!(rows("grows"), expected, "process: {apart}");
        let account = &report.accounts[0].1;
        assert_eq!((account.processed, account.faults), (69 * 256, 0), "{account:?}");
        assert_eq!(account.records, expected.len() as u64);
    }
}

/// The last growth may be long ago: a module that does not grow is informed once.
#[test]
fn a_module_that_does_not_grow_further_is_informed_once() {
    let until = |pages: u32| {
        text(&format!("(if (i32.lt_u (memory.size) (i32.const {pages})) (then {GROW}))"), REPORT)
    };
    for (most, expected) in [(56, vec![]), (57, vec![7]), (58, vec![7, 6])] {
        for plan in places(&until(most), 64) {
            let (_, rows) = run(vec![(plan, Meters::default())], (80, 256), 1);
            assert_eq!(rows("grows"), pages(expected.clone()), "{most}");
        }
    }
}

#[test]
fn the_limit_is_the_least_of_manifest_declaration_grant_and_reservation() {
    let grows = text(GROW, REPORT);
    let declared = grows.replace(r#"(memory (export "memory") 1)"#, r#"(memory (export "memory") 1 16)"#);
    let of_grant = || meters(16);
    let reserved = || meters(64).with(Some(meter(16)), None);
    for (text, pages_of, meters) in [
        (&grows, 16, Meters::default as fn() -> Meters),
        (&declared, 64, Meters::default),
        (&grows, 64, of_grant),
        (&grows, 64, reserved),
        (&grows, 16, || meters(64)),
    ] {
        for plan in places(text, pages_of) {
            let (report, rows) = run(vec![(plan, meters())], (18, 256), 1);
            assert_eq!(rows("grows"), pages([1, 0, 0, 0, 0]));
            assert_eq!(report.accounts[0].1.processed, 18 * 256);
        }
    }
}

/// Another module under the same credential takes memory: growth is refused, and the number shows nothing of
/// the other.
#[test]
fn nothing_of_others_shows() {
    let shared = meter(64);
    let meters = || Meters::of_grant(vec![shared.clone()]);
    let takes = COUNT.replace(r#"(memory (export "memory") 1)"#, r#"(memory (export "memory") 60)"#);
    let other = plan("other", &takes, 64, Protection::Auto);
    let grows = plan("grows", &text(GROW, REPORT), 64, Protection::Auto);
    let (report, rows) = run(vec![(other, meters()), (grows, meters())], (10, 256), 1);
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    // It has four pages when the fifth is refused, and is informed after each further batch.
    assert_eq!(rows("grows"), pages([60; 7]));
    assert_eq!(rows("other"), [2560]);
}

/// A call may cost as much as a full batch, so it does not follow each small one.
#[test]
fn calls_follow_full_batches_or_ticks() {
    for plan in places(&text(REFUSED, REPORT), 64) {
        let (_, rows) = run(vec![(plan.clone(), Meters::default())], (700, 1), 1);
        assert_eq!(rows("grows").len(), 3, "after packets 1, 257 and 513");
        // The thousandth packet is followed by a tick.
        let (_, rows) = run(vec![(plan, Meters::default())], (1020, 1), 1);
        assert_eq!(rows("grows").len(), 5);
    }
}

#[test]
fn requests_in_the_call_itself_cause_no_further_one() {
    let once = format!(
        "(if (i32.eqz (i32.load (i32.const 64))) (then {REFUSED})) (i32.store (i32.const 64) (i32.const 1))"
    );
    for plan in places(&text(&once, &format!("{REFUSED} {REPORT}")), 64) {
        let (_, rows) = run(vec![(plan, Meters::default())], (20, 256), 1);
        assert_eq!(rows("grows"), pages([63]));
    }
}

/// A slow instance has its own memory.
#[test]
fn a_slow_instance_is_informed() {
    let text = format!(
        r#"(module (memory (export "memory") 1)
          (data (i32.const 0) "\08\00\00\00\00\00\00\00")
          (data (i32.const 32) "\01\00\00\00\ff\ff\00\00x")
          (func (export "flame_message") (param i32 i32) (result i64) {REFUSED} (i64.const 0))
          (func (export "flame_pressure") (param i64) (result i64) {REPORT})
          (func (export "flame_batch") (param i32) (result i64) (i64.const 0x900000020)))"#
    );
    for plan in places(&text, 64) {
        let (_, rows) = run(vec![(plan.clone(), Meters::default())], (5, 256), 1);
        assert_eq!(rows("grows"), pages([63]));
        // With a tick after the thousandth message.
        let (_, rows) = run(vec![(plan, Meters::default())], (1020, 1), 1);
        assert_eq!(rows("grows"), pages([63, 63]));
    }
}

/// More output than one call hands over arrives, and what the call writes wrongly ends the instance alone.
#[test]
fn a_fault_ends_that_instance_alone() {
    let rest = |pressure: &str| {
        let more = r#"(func (export "flame_rest") (result i64) (i64.const 0x1000000000))"#;
        text(REFUSED, pressure).replacen("(func", &format!("{more} (func"), 1)
    };
    // A function whose loop ends soon in a batch, and not here.
    let spin = r#"(func $spin (param i32) (local $i i32)
      (loop $l (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get 0)))))"#;
    let shared =
        text(&format!("{REFUSED} (call $spin (i32.const 3))"), "(call $spin (i32.const -1)) (i64.const 0)")
            .replacen("(func", &format!("{spin} (func"), 1);
    let count = |name: &str| plan(name, COUNT, 64, Protection::Auto);
    let cases = [
        (text(REFUSED, "(unreachable)"), "flame_pressure: trap: "),
        (text(REFUSED, "(loop $l (br $l)) (i64.const 0)"), "flame_pressure: cut off"),
        (text(REFUSED, "(i64.const 0x1000000040)"), "flame_pressure: output frame 0"),
        (text(REFUSED, "(i64.const 0x7fffffff00000000)"), "flame_pressure: output of "),
        (text(REFUSED, "(i64.const 0x40000000)"), "flame_pressure: bit 30"),
        (rest("(i64.const 0x1040000000)"), ""),
        (shared, "flame_pressure: cut off in the loop"),
    ];
    for (text, expected) in cases {
        for plan in places(&text, 64) {
            let modules = vec![
                (count("before"), Meters::default()),
                (plan, Meters::default()),
                (count("after"), Meters::default()),
            ];
            let (report, rows) = run(modules, (8, 256), 1);
            assert_eq!((rows("before"), rows("after")), (vec![2048], vec![2048]));
            let account = &report.accounts[1].1;
            let faults: Vec<_> = report.faults.iter().map(|f| f.text.as_str()).collect();
            if expected.is_empty() {
                assert_eq!((rows("grows").len(), faults.len()), (16, 0), "{faults:?}");
                continue;
            }
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].starts_with(expected), "{expected}: {faults:?}");
            // The batch before it was processed.
            assert_eq!((account.processed, account.faults), (256, 1), "{account:?}");
        }
    }
}

/// Instances of several workers share the memory that the install may have.
#[test]
fn instances_of_all_workers_are_informed() {
    let plan = plan("grows", &text(GROW, REPORT), 1000, Protection::Auto);
    let (report, rows) = run(vec![(plan, meters(32))], (80, 256), 2);
    let rows = rows("grows");
    // An instance that ends last may have the memory of the other.
    assert!(rows.iter().filter(|free| **free < 4 * PAGE).count() > 4, "{rows:?}");
    assert_eq!(report.accounts[0].1.processed, 80 * 256);
}
